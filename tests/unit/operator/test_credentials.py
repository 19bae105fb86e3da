# SPDX-License-Identifier: Apache-2.0
import base64
import pathlib
import tempfile

from oslotest import base

from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies
from vbmc_kubevirt.ipmi import codes
from vbmc_kubevirt import mounted


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

    def test_a_copy_may_do_no_more(self):
        found = bodies.secret('far', username='a', password='b',
                              role='ReadOnly')
        made = credentials.copied(spec.read(bodies.elsewhere()), found)
        self.assertEqual(found['data'], made['data'])

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

    def test_unfit_is_what_the_container_refuses(self):
        for value, fits in (
                ('a', True), ('a' * 16, True), ('a' * 17, False),
                ('é' * 8, True), ('é' * 9, False),
                # An editor's, or that of --from-file.
                ('a' * 16 + '\n', True), ('a' * 16 + '\r\n', True),
                ('a\n\n', False), ('a\rb', False), ('\x7f', False),
                ('a\u00a0b', False), ('a\u200bb', False),
                ('\n', False), ('\r\n', False)):
            with self.subTest(value=value), \
                    tempfile.TemporaryDirectory() as folder:
                for name, text in (('username', value), ('password', 'p')):
                    pathlib.Path(folder, name).write_text(text, newline='')
                account = mounted.Account(
                    folder, (codes.USERNAME_MAX, codes.PASSWORD_MAX))
                self.assertEqual(fits, account.current() is not None)
                secret = bodies.secret(username=value, password='p')
                self.assertEqual(
                    fits, not (credentials.missing(secret)
                               or credentials.unfit(secret)))

    def test_as_long_as_the_container_takes_it(self):
        for key, most in (('username', codes.USERNAME_MAX),
                          ('password', codes.PASSWORD_MAX)):
            for more, wanted in ((0, ()), (1, (key,))):
                self.assertEqual(wanted, credentials.unfit(bodies.secret(
                    **{'username': 'u', 'password': 'p',
                       key: 'a' * (most + more)})))
