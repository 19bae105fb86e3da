# SPDX-License-Identifier: Apache-2.0
"""Accounts that clients create, change and delete."""

import fixtures

from sushy_kubevirt.kube import errors
from tests.unit.redfish import base

ACCOUNTS = '/redfish/v1/AccountService/Accounts'
SYSTEMS = '/redfish/v1/Systems'
BOB = {'UserName': 'bob', 'Password': 'secret-of-bob', 'RoleId': 'Operator'}


class ManagerAccountsTestCase(base.AccountsTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_SERVICE_PORTS': {
        'HTTPS': 443, 'IPMI': 623}}

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.admin = self.auth('Administrator')

    def create(self, code=201, **values):
        answer = self.ask(ACCOUNTS, code, 'POST', headers=self.admin,
                          json={**BOB, **values})
        self.assertNotIn('secret-', answer.text)
        return answer.json

    def change(self, values, code=200, headers=None, path=ACCOUNTS + '/3'):
        answer = self.ask(path, code, 'PATCH', headers=headers or self.admin,
                          json=values)
        self.assertNotIn('secret-', answer.text)
        return answer.json

    def bob(self, password='secret-of-bob'):
        return self.auth('bob', password)

    def session(self, password='secret-of-bob'):
        answer = self.log_in('bob', password)
        return {'X-Auth-Token': answer.headers['X-Auth-Token']}, answer.json

    def test_create(self):
        answer = self.ask(ACCOUNTS, 201, 'POST', headers=self.admin, json=BOB)
        self.assertEqual(ACCOUNTS + '/3', answer.headers['Location'])
        body = answer.json
        del body['@odata.etag']
        self.assertEqual({
            '@odata.id': ACCOUNTS + '/3',
            '@odata.type': '#ManagerAccount.v1_12_1.ManagerAccount',
            'Id': '3', 'Name': 'Account bob',
            'Description': 'This account is stored by this service.',
            'UserName': 'bob', 'Password': None, 'RoleId': 'Operator',
            'Enabled': True, 'Locked': False, 'PasswordChangeRequired': False,
            'AccountTypes': ['Redfish', 'IPMI'],
            'Links': {'Role': {
                '@odata.id': '/redfish/v1/AccountService/Roles/Operator'}},
        }, body)
        self.ask(SYSTEMS, 200, headers=self.bob())
        self.ask(SYSTEMS, 401, headers=self.bob('secret-wrong'))
        self.assertEqual(4, self.ask(ACCOUNTS, 200, headers=self.admin).json[
            'Members@odata.count'])
        self.assertIn('Account 3 (bob) created by Administrator over Redfish',
                      self.log.output)
        self.assertNotIn('secret-', self.log.output)

    def test_role_of_created_account_is_enforced(self):
        self.create(RoleId='ReadOnly')
        reset = self.path + '/Actions/ComputerSystem.Reset'
        self.ask(reset, 403, 'POST', headers=self.bob(),
                 json={'ResetType': 'ForceRestart'})
        for role, code in ('Operator', 204), ('ReadOnly', 403):
            self.change({'RoleId': role})
            self.ask(reset, code, 'POST', headers=self.bob(),
                     json={'ResetType': 'ForceRestart'})

    def test_create_refuses_invalid_values(self):
        for values, key, name in (
                ({'UserName': ''}, 'PropertyValueFormatError', 'UserName'),
                ({'UserName': 'a:b'}, 'PropertyValueFormatError', 'UserName'),
                ({'UserName': 'x' * 17}, 'PropertyValueFormatError',
                 'UserName'),
                ({'UserName': 7}, 'PropertyValueTypeError', 'UserName'),
                ({'Password': 'secret-'}, 'PropertyValueFormatError',
                 'Password'),
                ({'Password': 'secret-' + 14 * 'x'},
                 'PropertyValueFormatError', 'Password'),
                ({'Password': ['secret-7']}, 'PropertyValueTypeError',
                 'Password'),
                ({'Password': None}, 'PropertyValueTypeError', 'Password'),
                ({'RoleId': 'root'}, 'PropertyValueNotInList', 'RoleId'),
                ({'Enabled': 'yes'}, 'PropertyValueTypeError', 'Enabled'),
                ({'AccountTypes': ['SNMP']}, 'PropertyValueNotInList',
                 'AccountTypes'),
                ({'AccountTypes': [7]}, 'PropertyValueTypeError',
                 'AccountTypes'),
                ({'AccountTypes': []}, 'PropertyValueFormatError',
                 'AccountTypes'),
                ({'Id': '9'}, 'PropertyNotWritable', 'Id'),
                ({'More': 1}, 'PropertyUnknown', 'More')):
            [(found, args)] = self.entries(self.create(400, **values))
            self.assertEqual(key, found, values)
            self.assertIn(name, args)
        answer = self.ask(ACCOUNTS, 400, 'POST', headers=self.admin,
                          json={'UserName': 'bob'})
        self.assertEqual([('PropertyMissing', ['Password']),
                          ('PropertyMissing', ['RoleId'])],
                         self.entries(answer.json))
        self.assertEqual(3, self.ask(ACCOUNTS, 200, headers=self.admin).json[
            'Members@odata.count'])

    def test_create_refuses_names_in_use(self):
        self.create()
        for name in 'bob', 'Operator':
            [(key, args)] = self.entries(self.create(409, UserName=name))
            self.assertEqual('ResourceAlreadyExists', key)
            self.assertEqual(['ManagerAccount', 'UserName', name], args)

    def test_number_of_accounts_is_limited(self):
        for number in range(13):
            self.create(UserName=f'u{number}')
        [(key, _args)] = self.entries(self.create(400))
        self.assertEqual('CreateLimitReachedForResource', key)

    def test_only_administrators_manage_accounts(self):
        self.create()
        for role in 'Operator', 'ReadOnly':
            headers = self.auth(role)
            self.ask(ACCOUNTS, 403, 'POST', headers=headers, json=BOB)
            self.ask(ACCOUNTS + '/3', 403, headers=headers)
            self.ask(ACCOUNTS + '/3', 403, 'DELETE', headers=headers)
            self.change({'Password': 'secret-new'}, 403, headers)

    def test_account_changes_its_own_password_alone(self):
        self.create(RoleId='ReadOnly')
        self.ask(ACCOUNTS + '/3', 200, headers=self.bob())
        for values in ({'RoleId': 'Administrator'}, {'UserName': 'eve'},
                       {'Enabled': False}, {'PasswordChangeRequired': False},
                       {'Password': 'secret-new', 'RoleId': 'Operator'}):
            self.change(values, 403, self.bob())
        self.ask(ACCOUNTS + '/3', 403, 'DELETE', headers=self.bob())
        self.change({'Password': 'secret-new'}, headers=self.bob())
        self.ask(SYSTEMS, 401, headers=self.bob())
        self.ask(SYSTEMS, 200, headers=self.bob('secret-new'))

    def test_own_password_change_ends_other_sessions(self):
        self.create()
        [(one, _), (other, _)] = self.session(), self.session()
        self.change({'Password': 'secret-new'}, headers=one)
        self.ask(SYSTEMS, 401, headers=other)
        self.ask(SYSTEMS, 200, headers=one)

    def test_changes_end_sessions(self):
        self.create()
        for values in ({'Password': 'secret-new'}, {'RoleId': 'ReadOnly'},
                       {'Locked': True}, {'AccountTypes': ['IPMI']},
                       {'Enabled': False}, {'UserName': 'eve'}):
            before = {'UserName': 'bob', 'Locked': False, 'Enabled': True,
                      'AccountTypes': ['Redfish', 'IPMI'],
                      'Password': 'secret-of-bob'}
            headers, _body = self.session()
            self.ask(SYSTEMS, 200, headers=headers)
            self.change(values)
            self.ask(SYSTEMS, 401, headers=headers)
            self.change(before)
            self.ask(SYSTEMS, 401, headers=headers)
        headers, _body = self.session()
        self.ask(ACCOUNTS + '/3', 204, 'DELETE', headers=self.admin)
        self.ask(SYSTEMS, 401, headers=headers)

    def test_disabled_and_locked_accounts_cannot_log_in(self):
        self.create()
        for off, on in (({'Enabled': False}, {'Enabled': True}),
                        ({'Locked': True}, {'Locked': False}),
                        ({'AccountTypes': ['IPMI']},
                         {'AccountTypes': ['Redfish']})):
            body = self.change(off)
            self.assertEqual(off, {name: body[name] for name in off})
            self.ask(SYSTEMS, 401, headers=self.bob())
            self.log_in('bob', 'secret-of-bob', 401)
            self.change(on)
            self.ask(SYSTEMS, 200, headers=self.bob())

    def test_rename(self):
        self.create()
        self.assertEqual('eve', self.change({'UserName': 'eve'})['UserName'])
        self.ask(SYSTEMS, 401, headers=self.bob())
        self.ask(SYSTEMS, 200, headers=self.auth('eve', 'secret-of-bob'))
        self.change({'UserName': 'Operator'}, 409)
        self.change({'UserName': ''}, 400)

    def test_delete(self):
        self.create()
        self.ask(ACCOUNTS + '/3', 204, 'DELETE', headers=self.admin)
        self.ask(ACCOUNTS + '/3', 404, headers=self.admin)
        self.ask(ACCOUNTS + '/3', 404, 'DELETE', headers=self.admin)
        self.ask(SYSTEMS, 401, headers=self.bob())
        self.assertIn('Account 3 (bob) deleted by Administrator over Redfish',
                      self.log.output)
        # Accounts of files stay, so an administrator is always left.
        answer = self.ask(ACCOUNTS + '/Administrator', 405, 'DELETE',
                          headers=self.admin)
        self.assertIn('comes from a file or Secret', answer.text)
        self.assertNotIn('DELETE', answer.headers['Allow'])

    def test_password_change_required(self):
        self.create(PasswordChangeRequired=True, RoleId='Administrator')
        token, body = self.session()
        [info] = body['@Message.ExtendedInfo']
        self.assertEqual([ACCOUNTS + '/3'], info['MessageArgs'])
        self.assertTrue(info['MessageId'].endswith('PasswordChangeRequired'))
        for headers in token, self.bob():
            for path, method in (
                    (SYSTEMS, 'GET'), (ACCOUNTS, 'GET'), (ACCOUNTS, 'POST'),
                    (ACCOUNTS + '/Operator', 'GET'),
                    (ACCOUNTS + '/3', 'DELETE'),
                    (self.path + '/Actions/ComputerSystem.Reset', 'POST')):
                answer = self.ask(path, 403, method, headers=headers)
                [(key, args)] = self.entries(answer.json)
                self.assertEqual(('PasswordChangeRequired',
                                  [ACCOUNTS + '/3']), (key, args))
            self.ask(ACCOUNTS + '/3', 200, headers=headers)
            self.change({'PasswordChangeRequired': False}, 403, headers)
        self.ask(body['@odata.id'], 200, headers=token)
        self.change({'Password': 'short'}, 400, token)
        answer = self.change({'Password': 'secret-of-bob'}, 400, token)
        self.assertIn('use another one', answer['error']['message'])
        self.ask(SYSTEMS, 403, headers=token)
        self.assertFalse(self.change({'Password': 'secret-new'},
                                     headers=token)['PasswordChangeRequired'])
        self.ask(SYSTEMS, 200, headers=token)
        self.ask(SYSTEMS, 200, headers=self.bob('secret-new'))

    def meanwhile(self, *changes):
        """Do something at another worker just before this one writes."""
        store = self.app.sushy_kubevirt.services.accounts
        update = store._state.update

        def late(*args):
            store._state.update = update
            for change in changes:
                change(store)
            return update(*args)

        store._state.update = late

    def test_id_is_used_again_while_its_owner_changes_the_password(self):
        """What was deleted cannot take over what follows."""
        for name, role, code in (('boss', 'Administrator', 412),
                                 ('bob', 'Administrator', 412)):
            self.create(RoleId='ReadOnly')
            self.meanwhile(
                lambda store: store.delete(3, 'x'),
                lambda store, name=name, role=role: store.create(
                    'x', name=name, password='secret-of-boss', role=role))
            self.change({'Password': 'secret-new'}, code, self.bob())
            self.ask(SYSTEMS, 401, headers=self.auth(name, 'secret-new'))
            self.ask(SYSTEMS, 200, headers=self.auth(name, 'secret-of-boss'))
            self.ask(ACCOUNTS + '/3', 204, 'DELETE', headers=self.admin)

    def test_id_is_used_again_while_an_administrator_writes(self):
        for values in {'RoleId': 'Administrator'}, None:
            self.create()
            self.meanwhile(
                lambda store: store.delete(3, 'x'),
                lambda store: store.create(
                    'x', name='eve', password='secret-of-eve',
                    role='ReadOnly'))
            if values:
                self.change(values, 412)
            else:
                self.ask(ACCOUNTS + '/3', 412, 'DELETE', headers=self.admin)
            self.assertEqual('ReadOnly', self.ask(
                ACCOUNTS + '/3', 200, headers=self.admin).json['RoleId'])
            self.ask(ACCOUNTS + '/3', 204, 'DELETE', headers=self.admin)

    def test_deleted_account_is_not_changed(self):
        self.create()
        for headers in self.admin, self.bob():
            self.meanwhile(lambda store: store.delete(3, 'x'))
            self.change({'Password': 'secret-new'}, 404, headers)
            self.assertEqual(
                (), self.app.sushy_kubevirt.services.accounts.all())
            self.create()

    def test_if_match(self):
        self.create()
        tag = self.ask(ACCOUNTS + '/3', 200,
                       headers=self.admin).headers['ETag']
        headers = {**self.admin, 'If-Match': tag}
        self.change({'RoleId': 'ReadOnly'}, headers=headers)
        self.change({'RoleId': 'Operator'}, 412, headers)

    def test_account_of_file_replaces_stored_one_of_its_name(self):
        self.create(UserName='eve', RoleId='ReadOnly')
        digest = self.accounts.read_text().split(':')[1]
        with self.accounts.open('a') as stream:
            stream.write(f'eve:{digest}:Operator\n\n')
        self.app.sushy_kubevirt.services.login.account('x', recheck=True)
        self.ask(SYSTEMS, 401, headers=self.auth('eve', 'secret-of-bob'))
        eve = self.auth('eve', 'password of Administrator')
        self.ask(ACCOUNTS + '/eve', 200, headers=eve)
        self.ask(ACCOUNTS + '/3', 403, headers=eve)

    def test_names_that_are_numbers(self):
        digest = self.accounts.read_text().split(':')[1]
        self.create()
        with self.accounts.open('a') as stream:
            stream.write(f'3:{digest}\n\n')
        self.app.sushy_kubevirt.services.login.account('x', recheck=True)
        self.assertEqual('bob', self.ask(
            ACCOUNTS + '/3', 200, headers=self.admin).json['UserName'])
        self.assertEqual('3', self.ask(
            ACCOUNTS + '/name-33', 200, headers=self.admin).json['UserName'])

    def test_cluster_errors(self):
        for error, code in ((errors.Unavailable('away'), 503), (
                errors.AccessDenied('no', 'patch', 'secrets', ''), 500)):
            store = self.app.sushy_kubevirt.services.accounts
            with fixtures.MockPatchObject(store._state, 'update',
                                          side_effect=error):
                self.create(code)
