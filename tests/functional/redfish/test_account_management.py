# SPDX-License-Identifier: Apache-2.0
"""Accounts that clients create."""

import threading
import time

import requests

from tests.fixtures import account_secret
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import sandbox

ACCOUNTS = '/redfish/v1/AccountService/Accounts'
SESSIONS = '/redfish/v1/SessionService/Sessions'
SYSTEMS = '/redfish/v1/Systems'
ADMIN = ('admin', 'secret-of-admin')
BOB = ('bob', 'secret-of-bob')


class AccountManagementTestCase(base.SandboxTestCase):

    VMS = 1

    @classmethod
    def kubeconfig(cls):
        return cls.sandbox.bmc_account()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.secret = cls.share(account_secret.Secret(
            username=ADMIN[0], password=ADMIN[1]))
        cls.account = cls.kubeconfig()
        cls.emulator = cls.share(emulator.Emulator(
            cls.account,
            {'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': str(cls.secret.path)},
            'gunicorn'))

    def setUp(self):
        super().setUp()
        self.wait_valid(ADMIN)

    def tearDown(self):
        self.assertNotIn('secret-', self.emulator.process.output)
        for member in self.ask('GET', ACCOUNTS).json()['Members']:
            if member['@odata.id'][-1].isdigit():
                self.ask('DELETE', member['@odata.id'], code=204)
        super().tearDown()

    def ask(self, method, path, body=None, auth=ADMIN, code=200, **headers):
        """Send a request over a new connection."""
        answer = requests.request(
            method, self.emulator.url + path, json=body, auth=auth,
            headers=headers, timeout=30)
        self.assertEqual(code, answer.status_code, answer.text)
        return answer

    def create(self):
        self.ask('POST', ACCOUNTS, {
            'UserName': BOB[0], 'Password': BOB[1], 'RoleId': 'Operator'},
            code=201)

    def wait_valid(self, auth=BOB, code=200):
        """Wait for an answer.

        :returns: seconds that it took.
        """
        begin = time.monotonic()
        self.until(lambda: requests.get(
            self.emulator.url + SYSTEMS, auth=auth, timeout=30
        ).status_code == code)
        return time.monotonic() - begin


class TestAccounts(AccountManagementTestCase):

    def test_changes_are_valid_at_once(self):
        self.create()
        self.ask('GET', SYSTEMS, auth=BOB)
        for enabled, code in (False, 401), (True, 200):
            self.ask('PATCH', ACCOUNTS + '/3', {'Enabled': enabled})
            self.ask('GET', SYSTEMS, auth=BOB, code=code)
        self.ask('DELETE', ACCOUNTS + '/3', code=204)
        self.ask('GET', SYSTEMS, auth=BOB, code=401)

    def test_own_password_change_keeps_session(self):
        self.create()
        one, other = (self.ask('POST', SESSIONS, {
            'UserName': BOB[0], 'Password': BOB[1]}, auth=None,
            code=201).headers['X-Auth-Token'] for _ in range(2))
        self.ask('PATCH', ACCOUNTS + '/3', {'Password': 'secret-new'},
                 auth=None, **{'X-Auth-Token': one})
        self.ask('GET', SYSTEMS, auth=None, **{'X-Auth-Token': one})
        self.ask('GET', SYSTEMS, auth=None, code=401,
                 **{'X-Auth-Token': other})

    def test_change_of_another_host(self):
        """Only a watch shows it."""
        self.create()
        self.wait_valid()
        other = self.useFixture(emulator.Emulator(
            self.account, {
                'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': str(self.secret.path)}))
        answer = requests.patch(
            other.url + ACCOUNTS + '/3', auth=ADMIN, timeout=30,
            json={'Enabled': False})
        self.assertEqual(200, answer.status_code, answer.text)
        self.assertLess(self.wait_valid(code=401), 10)

    def test_concurrent_creation(self):
        """Each of many clients gets an account of its own, or is told."""
        codes = []

        def create(number):
            codes.append(requests.post(
                self.emulator.url + ACCOUNTS, auth=ADMIN, timeout=60, json={
                    'UserName': f'user-{number}', 'RoleId': 'ReadOnly',
                    'Password': f'secret-of-{number}'}).status_code)

        threads = [threading.Thread(target=create, args=(number,))
                   for number in range(15)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([201] * 13 + [400] * 2, sorted(codes))
        members = self.ask('GET', ACCOUNTS).json()['Members']
        self.assertEqual(14, len({one['@odata.id'] for one in members}))
        self.assertEqual(14, len({
            self.ask('GET', one['@odata.id']).json()['UserName']
            for one in members}))


class TestWithoutPermissionToWatch(AccountManagementTestCase):
    """With the permissions of earlier releases."""

    EXPECTS_DENIALS = True

    @classmethod
    def kubeconfig(cls):
        found = super().kubeconfig()
        rules = cls.sandbox.get('roles', 'sushy-kubevirt-bmc')['rules']
        for rule in rules:
            if 'sushy-kubevirt-state' in rule.get('resourceNames', ()):
                rule['verbs'] = ['get', 'patch']
        cls.sandbox.patch('roles', 'sushy-kubevirt-bmc', {'rules': rules})
        return found

    def test_accounts_work(self):
        self.create()
        self.wait_valid()
        self.emulator.process.wait_output('is read every 30 s')
        # A login is refused only after the accounts were read again.
        self.ask('PATCH', ACCOUNTS + '/3', {'Password': 'secret-new'})
        self.wait_valid(('bob', 'secret-new'))
        # One attempt was made, and no further ones.
        refused = self.sandbox.stats()['refused']
        user = f'system:serviceaccount:{sandbox.NAMESPACE}:emulator-virtbmc'
        self.assertEqual({user: {
            'list': {'secrets': 1}}}, refused)
