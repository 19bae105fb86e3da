# SPDX-License-Identifier: Apache-2.0
"""SessionService: login, sessions and logout."""

import base64
import json

from tests.unit.redfish import base

ROOT = '/redfish/v1/SessionService'


class TestLogin(base.AccountsTestCase):

    def test_log_in(self):
        answer = self.log_in('Operator')
        body = answer.json
        self.assertEqual(
            body['@odata.id'], answer.headers['Location'])
        self.assertEqual(base.SESSIONS + '/' + body['Id'], body['@odata.id'])
        self.assertEqual('Operator', body['UserName'])
        self.assertIsNone(body['Password'])
        self.assertEqual('127.0.0.1', body['ClientOriginIPAddress'])
        self.assertEqual(['Operator'], body['Roles'])
        self.assertNotIn('Context', body)
        self.assertEqual('no-store', answer.headers['Cache-Control'])
        token = answer.headers['X-Auth-Token']
        self.assertEqual(32, len(base64.urlsafe_b64decode(token + '=')))
        self.assertNotIn(token, answer.text)
        # Read back.
        found = self.ask(body['@odata.id'], 200,
                         headers={'X-Auth-Token': token}).json
        for name in set(body) - {'@odata.etag'}:
            self.assertEqual(body[name], found[name])

    def test_post_to_collection_and_members(self):
        for path in (base.SESSIONS, base.SESSIONS + '/',
                     base.SESSIONS + '/Members'):
            self.ask(path, 201, 'POST', json={
                'UserName': 'Operator', 'Password': 'password of Operator'})

    def test_login_ignores_invalid_credentials_in_headers(self):
        self.ask(base.SESSIONS, 201, 'POST', headers={
            'X-Auth-Token': 'old', 'Authorization': 'Basic nonsense'},
            json={'UserName': 'Operator', 'Context': 'mine',
                  'Password': 'password of Operator'})

    def test_wrong_credentials_get_the_same_error(self):
        answers = [self.log_in(name, password, 401) for name, password in (
            ('Operator', 'password-wrong'), ('nobody', 'password of Operator'),
            ('', 'x'), ('Operator', 'x' * 4000), ('Operator', 'a\0b'))]
        self.assertEqual(1, len({answer.text for answer in answers}))
        self.assertNotIn('X-Auth-Token', answers[0].headers)
        self.assertIn('WWW-Authenticate', answers[0].headers)

    def test_rejects_invalid_bodies(self):
        name, password = {'UserName': 'Operator'}, {'Password': 'secret-7'}
        for body, keys in (
                ({}, ['PropertyMissing', 'PropertyMissing']),
                (name, ['PropertyMissing']), (password, ['PropertyMissing']),
                ({**name, 'Password': ['secret-7']},
                 ['PropertyValueTypeError']),
                ({**name, 'Password': None}, ['PropertyValueTypeError']),
                ({**name, 'Password': 'secret-7' * 1000},
                 ['PropertyValueFormatError']),
                ({**name, 'Password': 'secret-7\ud800'}, ['MalformedJSON']),
                ({**password, 'UserName': 7}, ['PropertyValueTypeError']),
                ({**name, **password, 'Id': 'x'}, ['PropertyUnknown']),
                ({**name, **password, 'Context': 'x' * 300},
                 ['PropertyValueFormatError'])):
            answer = self.ask(base.SESSIONS, 400, 'POST', json=body)
            self.assertEqual(keys, [
                key for key, _args in self.entries(answer.json)])
            self.assertNotIn('secret-7', answer.text)
        for data in b'', b'{', b'[]', b'7':
            self.ask(base.SESSIONS, 400, 'POST', data=data,
                     content_type='application/json')

    def test_log_out(self):
        headers = self.token()
        session = self.ask(base.SESSIONS, 200, headers=headers).json[
            'Members'][0]['@odata.id']
        self.ask(session, 204, 'DELETE', headers=headers)
        self.ask(ROOT, 401, headers=headers)
        self.ask(session, 404, 'DELETE', headers=self.auth('Administrator'))
        self.ask(session, 404, headers=self.auth('Administrator'))

    def test_only_administrators_read_sessions_of_others(self):
        mine = self.log_in('ReadOnly').headers
        other = self.log_in('Operator').headers['Location']
        for headers in ({'X-Auth-Token': mine['X-Auth-Token']},
                        self.auth('ReadOnly')):
            self.ask(mine['Location'], 200, headers=headers)
            for method in 'GET', 'HEAD', 'DELETE':
                self.ask(other, 403, method, headers=headers)
                self.ask(base.SESSIONS + '/none', 403, method,
                         headers=headers)
        self.ask(mine['Location'], 204, 'DELETE',
                 headers=self.auth('ReadOnly'))
        self.ask(other, 204, 'DELETE', headers=self.auth('Administrator'))

    def test_collection(self):
        paths = [self.log_in(role).headers['Location']
                 for role in ('Operator', 'ReadOnly')]
        body = self.ask(base.SESSIONS, 200,
                        headers=self.auth('ReadOnly')).json
        self.assertEqual(set(paths), {
            member['@odata.id'] for member in body['Members']})
        self.assertEqual(2, body['Members@odata.count'])

    def test_unsupported_methods_get_405(self):
        headers = self.auth('Administrator')
        path = self.log_in().headers['Location']
        for method in 'PATCH', 'POST', 'PUT':
            self.ask(path, 405, method, headers=headers, json={})


class TestService(base.AccountsTestCase):

    def patch(self, body, code):
        return self.ask(ROOT, code, 'PATCH', json=body,
                        headers=self.auth('Administrator'))

    def test_administrator_sets_session_timeout(self):
        headers = self.auth('ReadOnly')
        self.assertEqual(1800, self.ask(ROOT, 200, headers=headers).json[
            'SessionTimeout'])
        answer = self.patch({'SessionTimeout': 45}, 200)
        self.assertEqual(45, answer.json['SessionTimeout'])
        self.assertEqual(45, self.ask(ROOT, 200, headers=headers).json[
            'SessionTimeout'])
        self.assertIn('sessions', json.dumps(self.cluster.client.object))
        self.ask(ROOT, 403, 'PATCH', json={'SessionTimeout': 60},
                 headers=self.auth('Operator'))

    def test_rejects_invalid_session_timeout(self):
        for value, key in ((29, 'PropertyValueOutOfRange'),
                           (86401, 'PropertyValueOutOfRange'),
                           (10 ** 30, 'PropertyValueOutOfRange'),
                           (True, 'PropertyValueTypeError'),
                           (60.5, 'PropertyValueTypeError'),
                           ('60', 'PropertyValueTypeError'),
                           (None, 'PropertyValueTypeError')):
            answer = self.patch({'SessionTimeout': value}, 400)
            self.assertIn(key, answer.text)
        self.assertIn('PropertyNotWritable', self.patch(
            {'ServiceEnabled': False}, 400).text)

    def test_default_timeout(self):
        self.app.sushy_kubevirt.services.sessions._default = 77
        self.assertEqual(77, self.ask(ROOT, 200, headers=self.auth(
            'ReadOnly')).json['SessionTimeout'])


class TestWithoutCredentials(base.RedfishTestCase):
    """No credentials are configured; clients may insist on a session."""

    def test_log_in(self):
        answer = self.client.post(base.SESSIONS, json={
            'UserName': 'who', 'Password': 'ever'})
        self.assertEqual(201, answer.status_code)
        self.assertEqual('who', answer.json['UserName'])
        path = answer.headers['Location']
        token = {'X-Auth-Token': answer.headers['X-Auth-Token']}
        self.assertEqual(200, self.client.get(
            '/redfish/v1/Systems', headers=token).status_code)
        self.get(path=path)
        self.assertEqual(204, self.client.delete(path).status_code)

    def test_service_root_links_sessions(self):
        root = self.get(path='/redfish/v1/')
        self.assertEqual(base.SESSIONS,
                         root['Links']['Sessions']['@odata.id'])
        self.assertEqual(ROOT, root['SessionService']['@odata.id'])
        self.get(path=ROOT)
        self.get(path=base.SESSIONS)


class TestMinimumFeatureSet(TestWithoutCredentials):

    CONFIG = {'SUSHY_EMULATOR_FEATURE_SET': 'minimum'}
