# SPDX-License-Identifier: Apache-2.0
"""AccountService and roles, and accounts of files, which are read-only."""

from sushy_kubevirt.bmc import accounts
from tests.unit.redfish import base

ROOT = '/redfish/v1/AccountService'
ACCOUNTS = ROOT + '/Accounts'
ROLES = ROOT + '/Roles'


class TestAccounts(base.AccountsTestCase):

    def ask(self, path, code=200, method='GET', role='Administrator',
            **options):
        return super().ask(path, code, method, headers=self.auth(role),
                           **options).json

    def test_service(self):
        body = self.ask(ROOT)
        self.assertEqual((0, True, 'Enabled', 8, 20, ['Redfish']), (
            body['AccountLockoutThreshold'], body['ServiceEnabled'],
            body['LocalAccountAuth'], body['MinPasswordLength'],
            body['MaxPasswordLength'], body['SupportedAccountTypes']))

    def test_accounts(self):
        members = self.ask(ACCOUNTS)['Members']
        self.assertEqual(
            [f'{ACCOUNTS}/{name}' for name in (
                'Administrator', 'Operator', 'ReadOnly')],
            [member['@odata.id'] for member in members])
        for member in members:
            body = self.ask(member['@odata.id'])
            self.assertEqual(body['UserName'], body['RoleId'])
            self.assertIsNone(body['Password'])
            self.assertEqual((True, False, False), (
                body['Enabled'], body['Locked'],
                body['PasswordChangeRequired']))
            role = self.ask(body['Links']['Role']['@odata.id'])
            self.assertEqual(body['RoleId'], role['RoleId'])
        for name in 'none', '..', 'name-00', 'operator':
            super().ask(f'{ACCOUNTS}/{name}', 404,
                        headers=self.auth('Administrator'))

    def test_only_administrators_read_accounts_of_others(self):
        for role in 'Operator', 'ReadOnly':
            self.ask(f'{ACCOUNTS}/{role}', role=role)
            self.ask(ACCOUNTS + '/Administrator', 403, role=role)

    def test_special_characters_in_names(self):
        digest = self.accounts.read_text().split(':')[1]
        with self.accounts.open('a') as stream:
            for name in ('a b', 'ä/..', '.', '..', 'name', "'"):
                stream.write(f'{name}:{digest}\n')
        paths = [member['@odata.id']
                 for member in self.ask(ACCOUNTS)['Members']]
        self.assertEqual(9, len(set(paths)))
        self.assertEqual({'a b', 'ä/..', '.', '..', 'name', "'", 'Operator',
                          'ReadOnly', 'Administrator'},
                         {self.ask(path)['UserName'] for path in paths})

    def test_roles(self):
        for member in self.ask(ROLES)['Members']:
            body = self.ask(member['@odata.id'])
            self.assertTrue(body['IsPredefined'])
            self.assertIn('Login', body['AssignedPrivileges'])
        self.ask(ROLES + '/none', 404)

    def test_service_is_read_only(self):
        for path, body in (
                (ROOT, {'AccountLockoutThreshold': 3}),
                (ACCOUNTS + '/Operator', {'Password': 'secret-7'}),
                (ACCOUNTS + '/Operator', {'RoleId': 'Administrator'}),
                (ACCOUNTS + '/Operator', {'Enabled': False}),
                (ROLES + '/ReadOnly', {'AssignedPrivileges': ['Login']})):
            answer = self.ask(path, 400, 'PATCH', json=body)
            self.assertEqual('PropertyNotWritable',
                             self.entries(answer)[0][0])
            self.assertNotIn('secret-7', str(answer))
            self.ask(path, 403, 'PATCH', role='ReadOnly', json=body)
        super().ask(ROLES, 405, 'POST', json={},
                    headers=self.auth('Administrator'))
        for path in ACCOUNTS + '/Operator', ROLES + '/Operator':
            super().ask(path, 405, 'DELETE',
                        headers=self.auth('Administrator'))
        # An account of a file cannot change its own password either.
        answer = self.ask(ACCOUNTS + '/Operator', 400, 'PATCH', 'Operator',
                          json={'Password': 'secret-8'})
        self.assertIn('comes from a file or Secret', str(answer))

    def test_collection_follows_accounts_file(self):
        self.write('Administrator', 'ReadOnly')
        self.assertEqual(2, self.ask(ACCOUNTS)['Members@odata.count'])


class TestAccountManagementDisabled(base.AccountsTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_ACCOUNT_MANAGEMENT': False}

    def test_accounts_are_read_only(self):
        admin = self.auth('Administrator')
        answer = self.ask(ACCOUNTS, 405, 'POST', headers=admin, json={
            'UserName': 'bob', 'Password': 'secret-7', 'RoleId': 'Operator'})
        self.assertIn('account management is disabled', answer.text)
        for answer in answer, self.ask(ACCOUNTS, 200, headers=admin):
            self.assertNotIn('POST', answer.headers['Allow'])
        self.assertIsNone(self.app.sushy_kubevirt.services.accounts)
        self.assertNotIn('MinPasswordLength', self.ask(
            ROOT, 200, headers=admin).json)

    def test_stored_accounts_are_invalid(self):
        accounts.Accounts(self.app.sushy_kubevirt.services.state).create(
            'x', name='bob', password='secret-7', role='Operator')
        self.ask('/redfish/v1/Systems', 401, headers=self.auth(
            'bob', 'secret-7'))
        self.assertEqual(3, self.ask(
            ACCOUNTS, 200, headers=self.auth('Administrator')).json[
                'Members@odata.count'])


class TestWithoutCredentials(base.RedfishTestCase):

    def test_service(self):
        body = self.get(path=ROOT)
        self.assertEqual((False, 'Disabled'), (
            body['ServiceEnabled'], body['LocalAccountAuth']))
        self.assertEqual([], self.get(path=ACCOUNTS)['Members'])
        answer = self.client.post(ACCOUNTS, json={
            'UserName': 'bob', 'Password': 'secret-7', 'RoleId': 'Operator'})
        self.assertEqual(405, answer.status_code)
        self.assertEqual(3, len(self.get(path=ROLES)['Members']))
