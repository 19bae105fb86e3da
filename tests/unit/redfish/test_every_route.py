# SPDX-License-Identifier: Apache-2.0
"""Invalid requests to every route, including routes added later.

No response has status 500, and every error has a valid error body.
"""

import random
import re

from tests.unit.redfish import base
from tests.unit.redfish import fakes
from tests.unit.redfish.protocol import test_system_access

IDENTITIES = (fakes.A, 'vm-a', 'none', 'a b', 'é', ':', 'a:b:c', '%2e%2e')
NAMES = (
    'ResetType', 'Boot', 'IndicatorLED', 'LocationIndicatorActive',
    'Attributes', 'SecureBootEnable', 'Image', 'Inserted', 'UserName',
    'Password', 'CertificateString', 'CertificateType', 'CertificateUri',
    'VerifyCertificate', 'ImageURI', 'Targets', 'DateTime', 'Name',
    'CapacityBytes', '@odata.id', 'x', '')
VALUES = (
    None, True, 0, 1.5, '', 'On', 'Pxe', 'x' * 5000, '\ud800', [], ['On'],
    {}, {'a': 1}, [[[]]], 10 ** 30, 'Lit', 'PEM',
    '/redfish/v1/Managers/x/VirtualMedia/Cd/Certificates/Default',
    {'BootSourceOverrideTarget': 'Pxe'}, {'BootSourceOverrideTarget': None})
METHODS = ('GET', 'POST', 'PATCH', 'PUT', 'DELETE', 'OPTIONS', 'HEAD',
           'TRACE', 'NONSENSE')


class TestEveryRoute(base.RedfishTestCase):

    def setUp(self):
        super().setUp()
        self.random = random.Random(7)

    def request_body(self):
        kind = self.random.random()
        if kind < 0.7:
            return {'json': {
                self.random.choice(NAMES): self.random.choice(VALUES)
                for _ in range(self.random.randint(0, 4))}}
        if kind < 0.85:
            return {'json': self.random.choice(VALUES)}
        return {
            'data': self.random.choice((b'', b'{', b'\0', b'{"a":')),
            'content_type': self.random.choice((
                'application/json', 'text/plain', 'x',
                'application/json; charset=nonsense'))}

    def requests(self):
        """Yield (method, path, whether it has a body)."""
        seen = set()
        for rule in self.rules():
            for identity in IDENTITIES:
                path = re.sub(
                    '<(?:[^:>]*:)?([^>]*)>',
                    lambda match: test_system_access.ARGUMENTS.get(
                        match[1], identity), rule.rule)
                for method in METHODS:
                    if method in ('POST', 'PATCH', 'PUT', 'DELETE'):
                        yield method, path, True    # each has another body
                    elif (method, path) not in seen:
                        seen.add((method, path))
                        yield method, path, False

    def test_invalid_requests_get_valid_errors(self):
        for method, path, has_body in self.requests():
            with self.subTest(method=method, path=path):
                options = self.request_body() if has_body else {}
                answer = self.client.open(path, method=method, **options)
                where = f'{method} {path} {options!r}: {answer.text[:500]}'
                self.assertIn(
                    answer.status_code,
                    (200, 204, 307, 308, 400, 404, 405, 409, 411, 415, 426,
                     501), where)
                if answer.status_code >= 400 and method != 'HEAD':
                    self.check_error(answer)
