# SPDX-License-Identifier: Apache-2.0

import base64
import json
import time
import unittest.mock

from oslotest import base

from kubevirt_sandbox.cdi import tokens


class TokensTest(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = tokens.Tokens(300)
        cls.token = cls.tokens.make('default', 'disk')

    def assert_rejected(self, token):
        self.assertRaises(tokens.TokenError, self.tokens.claim, token)

    def test_accepts_own_token(self):
        self.assertEqual(('default', 'disk'), self.tokens.claim(self.token))

    def test_tokens_expire(self):
        now = time.time()
        for later, good in ((305, True), (315, False), (-15, False)):
            with unittest.mock.patch('time.time', lambda: now + later):
                if good:
                    self.tokens.claim(self.token)
                else:
                    self.assert_rejected(self.token)

    def test_rejects_token_of_another_issuer(self):
        self.assert_rejected(tokens.Tokens(300).make('default', 'disk'))

    def test_rejects_changed_tokens(self):
        head, body, signature = self.token.split('.')
        payload = json.loads(base64.urlsafe_b64decode(body + '=='))
        payload['name'] = 'other'
        forged = base64.urlsafe_b64encode(
            json.dumps(payload).encode()).rstrip(b'=').decode()
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode()
        for token in ('', '.', '..', 'a.b.c', 'é.b.c', '.'.join(
                (head, forged, signature)), '.'.join((none, body, '')),
                f'{head}.{body}.', f'{head}.{body}', '.' * 10000):
            self.assert_rejected(token)
