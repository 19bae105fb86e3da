# SPDX-License-Identifier: Apache-2.0
import base64

from oslotest import base

from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies


class CredentialsTestCase(base.BaseTestCase):

    def test_password(self):
        made = {credentials.password() for _ in range(100)}
        self.assertEqual(100, len(made))
        for one in made:
            self.assertTrue(one.isalnum())
            # The most that IPMI 2.0 takes.
            self.assertEqual(20, len(one.encode()))

    def test_made(self):
        bmc = bodies.bmc()
        one, two = credentials.made(bmc), credentials.made(bmc)
        self.assertNotEqual(one['data'], two['data'])
        self.assertEqual((), credentials.missing(one))
        self.assertEqual(b'admin', base64.b64decode(one['data']['username']))
        self.assertEqual('node-virtbmc-auth', one['metadata']['name'])
        self.assertEqual(bodies.UID,
                         one['metadata']['ownerReferences'][0]['uid'])

    def test_copied(self):
        bmc = spec.read(bodies.elsewhere())
        found = bodies.secret('far', username='a', password='b', other='c')
        made = credentials.copied(bmc, found)
        self.assertEqual({'username', 'password'}, set(made['data']))
        self.assertEqual(found['data']['password'], made['data']['password'])
        self.assertEqual(bodies.NAMESPACE, made['metadata']['namespace'])

    def test_missing(self):
        for data, wanted in (
                ({'username': 'YQ==', 'password': 'YQ=='}, ()),
                ({'username': 'YQ=='}, ('password',)),
                ({'username': '', 'password': 'YQ=='}, ('username',)),
                ({'username': '?', 'password': '/w=='},
                 ('username', 'password')),
                ({}, ('username', 'password')),
                (None, ('username', 'password'))):
            with self.subTest(data=data):
                self.assertEqual(wanted, credentials.missing({'data': data}))
