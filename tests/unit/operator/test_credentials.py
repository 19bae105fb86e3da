# SPDX-License-Identifier: Apache-2.0
import base64
import pathlib
import tempfile

from oslotest import base

from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec
from sushy_kubevirt.redfish.services import account_files
from tests.unit.operator import bodies
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt import mounted_secret


class CredentialsTestCase(base.BaseTestCase):

    def test_generated_password(self):
        made = {credentials.password() for _ in range(100)}
        self.assertEqual(100, len(made))
        for one in made:
            self.assertTrue(one.isalnum())
            # The maximum length of IPMI 2.0.
            self.assertEqual(20, len(one.encode()))

    def test_generated_secret(self):
        bmc = bodies.bmc()
        one, two = credentials.generated(bmc), credentials.generated(bmc)
        self.assertNotEqual(one['data'], two['data'])
        self.assertEqual((), credentials.missing(one))
        self.assertEqual(b'admin', base64.b64decode(one['data']['username']))
        self.assertEqual('node-virtbmc-auth', one['metadata']['name'])
        self.assertEqual(bodies.UID,
                         one['metadata']['ownerReferences'][0]['uid'])

    def test_copy_has_only_credentials(self):
        bmc = spec.read(bodies.cross_namespace())
        found = bodies.secret('far', username='a', password='b', other='c')
        made = credentials.copied(bmc, found)
        self.assertEqual({'username', 'password'}, set(made['data']))
        self.assertEqual(found['data']['password'], made['data']['password'])
        self.assertEqual(bodies.NAMESPACE, made['metadata']['namespace'])

    def test_copy_keeps_role(self):
        found = bodies.secret('far', username='a', password='b',
                              role='ReadOnly')
        made = credentials.copied(spec.read(bodies.cross_namespace()), found)
        self.assertEqual(found['data'], made['data'])

    def test_secret_left_over(self):
        bmc = bodies.bmc()
        previous = {**naming.owner('node', 'before')}
        host = {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
                'name': 'node', 'uid': 'u-host'}
        held = ['baremetalhost.metal3.io/secret']

        def secret(*owners, **metadata):
            made = credentials.generated(bodies.bmc())
            made['metadata'].update(ownerReferences=list(owners), **metadata)
            return made
        for number, (found, expected) in enumerate((
                (secret(host), True), (secret(previous, host), True),
                (secret(finalizers=held), True),
                (secret(previous, finalizers=held,
                        deletionTimestamp='2026-01-01T00:00:00Z'), True),
                # Collected with its BMC, as no host uses it.
                (secret(previous), False), (secret(), False),
                # The BMC has it already.
                (secret(naming.owner('node', bodies.UID), host), False),
                # Of another BMC, controller or client.
                (secret(naming.owner('other', 'x'), host), False),
                (secret({**host, 'controller': True}), False),
                (secret({**previous, 'apiVersion': 'bmc.test/v1'}, host),
                 False),
                (secret(host, labels=naming.labels('other')), False),
                (secret(host, labels={}), False),
                (secret(host, namespace='far'), False))):
            with self.subTest(number=number):
                self.assertIs(expected, credentials.is_left_over(bmc, found))
        self.assertEqual(
            [host, naming.owner('node', bodies.UID)],
            credentials.adopted_owners(bmc, secret(previous, host)))

    def test_missing_keys(self):
        for data, expected in (
                ({'username': 'YQ==', 'password': 'YQ=='}, ()),
                ({'username': 'YQ=='}, ('password',)),
                ({'username': '', 'password': 'YQ=='}, ('username',)),
                ({'username': '?', 'password': '/w=='},
                 ('username', 'password')),
                ({}, ('username', 'password')),
                (None, ('username', 'password'))):
            with self.subTest(data=data):
                self.assertEqual(expected, credentials.missing({'data': data}))

    def test_unusable_keys_equal_what_ipmi_refuses(self):
        for value, fits in (
                ('a', True), ('a' * 16, True), ('a' * 17, False),
                ('é' * 8, True), ('é' * 9, False),
                # A line end from an editor or from --from-file.
                ('a' * 16 + '\n', True), ('a' * 16 + '\r\n', True),
                ('a\n\n', False), ('a\rb', False), ('\x7f', False),
                ('a\u00a0b', False), ('a\u200bb', False),
                ('\n', False), ('\r\n', False)):
            with self.subTest(value=value), \
                    tempfile.TemporaryDirectory() as folder:
                for name, text in (('username', value), ('password', 'p')):
                    pathlib.Path(folder, name).write_text(text, newline='')
                account = mounted_secret.MountedAccount(folder)
                self.assertEqual(fits, bool(account.users()))
                secret = bodies.secret(username=value, password='p')
                self.assertEqual(
                    fits, not (credentials.missing(secret)
                               or self.unusable_keys('ipmi', secret)))

    def test_maximum_lengths_for_ipmi(self):
        for key, maximum in (('username', constants.USERNAME_MAX),
                             ('password', constants.PASSWORD_MAX)):
            for more, expected in ((0, ()), (1, (key,))):
                self.assertEqual(expected, self.unusable_keys(
                    'ipmi', bodies.secret(**{
                        'username': 'u', 'password': 'p',
                        key: 'a' * (maximum + more)})))

    def unusable_keys(self, protocol, secret):
        return tuple(key for of, key in credentials.unusable_keys(secret)
                     if of == protocol)

    def test_unusable_keys_equal_what_redfish_container_refuses(self):
        for key, value, fits in (
                ('username', 'a' * 128, True), ('username', 'a' * 129, False),
                ('username', 'é' * 64, True), ('username', 'é' * 65, False),
                ('username', 'a:b', False), ('username', 'a\n', True),
                ('username', 'a\n\n', False), ('username', 'a\x7f', False),
                ('username', 'a\u200bb', False),
                ('username', 'a' + '\n' * 1024, False),
                ('username', '\n', False),
                ('password', 'a' * 1024, True),
                ('password', 'a' * 1025, False),
                # The limit applies before line ends are stripped.
                ('password', 'a' * 1024 + '\n', False),
                ('password', 'a:b\x7f', True), ('password', '\n', False),
                ('role', 'ReadOnly', True), ('role', 'Operator\n', True),
                ('role', 'Administrator', True), ('role', 'root', False),
                ('role', '', False), ('role', '\n', False)):
            data = {'username': 'u', 'password': 'p', key: value}
            with self.subTest(key=key, value=value[:20], size=len(value)), \
                    tempfile.TemporaryDirectory() as folder:
                for name, text in data.items():
                    pathlib.Path(folder, name).write_text(text, newline='')
                accounts = account_files.Accounts(
                    [account_files.Source(folder)])
                self.assertEqual(fits, bool(accounts.current()))
                secret = bodies.secret(**data)
                self.assertEqual(fits, not credentials.missing(secret)
                                 and not self.unusable_keys('redfish', secret))
                if key == 'role':
                    account = mounted_secret.MountedAccount(folder)
                    self.assertEqual(fits, bool(account.users()))
                    self.assertEqual(() if fits else (key,),
                                     self.unusable_keys('ipmi', secret))
                if not credentials.missing(secret):
                    self.assertEqual(() if fits else (key,),
                                     self.unusable_keys('redfish', secret))
