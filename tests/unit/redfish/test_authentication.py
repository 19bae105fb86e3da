# SPDX-License-Identifier: Apache-2.0
"""Authentication by password and token, and its errors."""

import base64
import ipaddress
from unittest import mock

import bcrypt
import fixtures
import flask

from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.services import authenticator
from tests.unit.redfish import base

SYSTEMS = '/redfish/v1/Systems'
OPEN = ('', '/redfish', '/redfish/', '/redfish/v1', '/redfish/v1/',
        '/redfish/v1/odata', '/redfish/v1/$metadata')


class TestWithoutCredentials(base.RedfishTestCase):
    """Without credentials all is open, as in upstream."""

    def test_all_is_open(self):
        for headers in ({}, {'X-Auth-Token': 'x'},
                        {'Authorization': 'Basic !!!'},
                        {'Authorization': 'Bearer x'}):
            answer = self.client.get(SYSTEMS, headers=headers)
            self.assertEqual(200, answer.status_code)
        with self.client:
            self.client.get(SYSTEMS)
            self.assertIsNone(flask.g.account)


class TestAuthentication(base.AccountsTestCase):

    def assert_refused(self, code, headers, path=SYSTEMS, method='GET'):
        answer = self.ask(path, code, method, headers=headers)
        if code == 401:
            self.assertEqual(
                'Basic realm="Redfish", charset="UTF-8"',
                answer.headers['WWW-Authenticate'])
        return answer

    def test_public_paths(self):
        for path in OPEN:
            for method in 'GET', 'HEAD':
                for headers in ({}, {'X-Auth-Token': 'x'},
                                self.auth('Administrator', 'wrong')):
                    answer = self.client.open(path, method=method,
                                              headers=headers)
                    self.assertEqual(200, answer.status_code, path)
            for method in 'POST', 'PATCH', 'DELETE':
                self.assert_refused(401, {}, path, method)

    def test_other_paths_need_authentication(self):
        paths = [
            rule.rule.replace('<identity>', 'x').replace('<', '').replace(
                '>', '') for rule in self.rules()]
        self.assertGreater(len(paths), 100)
        for path in (*paths, '/redfish/v1/none', '/x', '/web', '//redfish/v1',
                     '/redfish/v1/../v1/Systems', '/redfish/v1/%2e%2e/Systems',
                     '/redfish%2Fv1%2FSystems', '/redfish/v1/Systems%2F',
                     '/redfish/v1//', '/redfish/v1/ODATA'):
            if path.rstrip('/') in OPEN or path.startswith('/web/'):
                continue
            for method in ('GET', 'HEAD', 'POST', 'PATCH', 'PUT', 'DELETE',
                           'OPTIONS', 'NONSENSE'):
                if (path, method) != (base.SESSIONS, 'POST'):
                    self.assert_refused(401, {}, path, method)

    def test_basic_authentication(self):
        answer = self.client.get(SYSTEMS, headers=self.auth('Administrator'))
        self.assertEqual(200, answer.status_code)
        with self.client:
            self.client.get(SYSTEMS, headers=self.auth('Operator'))
            self.assertEqual(('Operator', 'Operator'), (
                flask.g.account.name, flask.g.account.role))
        header = self.auth('ReadOnly')['Authorization']
        for text in (header.replace('Basic', 'basic'),
                     header.replace(' ', '   ') + ' '):
            self.ask(SYSTEMS, 200, headers={'Authorization': text})

    def test_wrong_name_and_wrong_password_get_the_same_error(self):
        answers = [self.assert_refused(401, self.auth(*pair)) for pair in (
            ('Administrator', 'wrong'),
            ('nobody', 'password of Administrator'), ('nobody', 'x' * 100),
            ('Administrator', 'x' * 100),
            ('Administrator', 'password of Administrator\0'))]
        self.assertEqual(1, len({answer.text for answer in answers}))
        self.assertIn('ResourceAtUriUnauthorized', answers[0].text)
        self.assertEqual(1, len({tuple(sorted(
            answer.headers.items())) for answer in answers}))

    def test_unusable_authorization_header_gets_challenge(self):
        for value in ('', 'Basic', 'Basic !!!', 'Bearer x', 'x', 'Basic  ',
                      'Basic \xe9', 'Bearer \xe9', 'Basic a:b', 'Digest x="y"',
                      'Negotiate YII=', 'Basic eDp5,Basic eDp5',
                      'Basic ' + base64.b64encode(b'nocolon').decode()):
            answer = self.assert_refused(401, {'Authorization': value})
            self.assertIn('HeaderInvalid', answer.text)
            # A token counts alone.
            self.ask(SYSTEMS, 200, headers={
                'Authorization': value, **self.token('ReadOnly')})

    def test_credentials_in_utf8_and_latin1(self):
        digest = bcrypt.hashpw('p\xe4ss'.encode(), bcrypt.gensalt(4)).decode()
        self.accounts.write_text(f'J\xfcrgen:{digest}:Operator\n')
        self.app.sushy_kubevirt.services.login.account('x', recheck=True)
        for name in 'utf-8', 'latin-1':
            for password in 'utf-8', 'latin-1':
                pair = b':'.join(('J\xfcrgen'.encode(name),
                                  'p\xe4ss'.encode(password)))
                self.ask(SYSTEMS, 200, headers={
                    'Authorization': 'Basic ' + base64.b64encode(
                        pair).decode()})
        for pair in (b'J\xfcrgen:p\xe5ss', b'J\xfbrgen:p\xe4ss', b'\xff:\xff',
                     b'\xed\xa0\xbd:\xed\xa0\xbd'):
            answer = self.assert_refused(401, {
                'Authorization': 'Basic ' + base64.b64encode(pair).decode()})
            self.assertIn('ResourceAtUriUnauthorized', answer.text)

    def test_response_that_lasts_uses_its_session(self):
        """A user that watches a console is not logged out."""
        headers = self.token()
        services = self.app.sushy_kubevirt.services
        [session] = services.sessions._open.values()
        with self.app.test_request_context(headers=headers):
            flask.g.account = services.login.account('Administrator')
            authorized = authentication.still_authorized()
        session.used -= 1000
        before = session.used
        self.assertTrue(authorized())
        self.assertGreater(session.used, before + 900)
        services.sessions.close(session)
        self.assertFalse(authorized())

    def test_session_token(self):
        headers = self.token('Operator')
        with self.client:
            self.ask(SYSTEMS, 200, headers=headers)
            self.assertEqual('Operator', flask.g.account.name)
        # The token takes precedence over the password.
        self.ask(SYSTEMS, 200, headers={
            **headers, **self.auth('Operator', 'wrong')})
        for token in ('', 'x', headers['X-Auth-Token'][:-1], 'é'):
            answer = self.assert_refused(401, {'X-Auth-Token': token})
            self.assertIn('NoValidSession', answer.text)
        self.assert_refused(401, {'X-Auth-Token': 'x',
                                  **self.auth('Administrator')})

    def test_authentication_comes_first(self):
        """Before checks of body, conditions, method and Accept."""
        for options in ({'data': '{', 'content_type': 'text/plain'},
                        {'headers': {'If-Match': '"x"'}},
                        {'headers': {'If-None-Match': '*'}},
                        {'headers': {'OData-Version': '9'}},
                        {'headers': {'Accept': 'image/png'}},
                        {'query_string': '$expand=nonsense'}):
            for method in 'GET', 'PATCH':
                self.ask(self.path, 401, method, **options)

    def test_password_change_ends_access(self):
        headers = self.token()
        self.ask(SYSTEMS, 200, headers=headers)
        self.ask(SYSTEMS, 200, headers=self.auth('Administrator'))
        self.write('Operator')
        self.app.sushy_kubevirt.services.login.account('x', recheck=True)
        self.assert_refused(401, headers)
        self.assert_refused(401, self.auth('Administrator'))
        self.ask(SYSTEMS, 200, headers=self.auth('Operator'))

    def test_answers_503_only_if_password_is_not_checked(self):
        login = self.app.sushy_kubevirt.services.login
        self.ask(SYSTEMS, 200, headers=self.auth('Administrator'))
        self.useFixture(fixtures.MockPatchObject(
            login, '_check_with_bcrypt', mock.Mock(
                side_effect=authenticator.LoginThrottled())))
        answer = self.ask(SYSTEMS, 503,
                          headers=self.auth('Administrator', 'guess'))
        self.assertEqual('1', answer.headers['Retry-After'])
        self.assertIn('ServiceTemporarilyUnavailable', answer.text)
        answer = self.client.post(base.SESSIONS, json={
            'UserName': 'Administrator', 'Password': 'other guess'})
        self.assertEqual(503, answer.status_code)
        self.ask(SYSTEMS, 200, headers=self.auth('Administrator'))
        self.ask(SYSTEMS, 200, headers=self.token())

    def test_expand_checks_login_once(self):
        """Not for each expanded member."""
        login = self.app.sushy_kubevirt.services.login
        check = self.useFixture(fixtures.MockPatchObject(
            login, 'check', wraps=login.check)).mock
        answer = self.ask(SYSTEMS + '?$expand=.', 200,
                          headers=self.auth('ReadOnly'))
        self.assertIn('PowerState', answer.json['Members'][0])
        self.assertEqual(1, check.call_count)

    def test_expand_of_service_root_needs_authentication(self):
        """The service root itself is public."""
        for query in '$expand=.', '$expand=*', '$expand=.($levels=5)':
            for headers in {}, self.auth('Administrator', 'wrong'):
                answer = self.ask('/redfish/v1/?' + query, 200,
                                  headers=headers)
                self.assertNotIn('Members', answer.text)
                self.assertNotIn('SessionTimeout', answer.text)
            answer = self.ask('/redfish/v1/?' + query, 200,
                              headers=self.auth('ReadOnly'))
            self.assertIn('Members', answer.text)
        # A condition reveals no state either.
        for tag in '*', '"x"':
            self.ask(base.SESSIONS, 400, 'POST', headers={'If-Match': tag},
                     json={})

    def test_headers_cannot_set_the_account(self):
        for name in ('sushy_kubevirt.account', 'sushy_kubevirt_account',
                     'Sushy-KubeVirt.Account', 'X-User'):
            self.assert_refused(401, {name: 'Administrator'})


class TestClientAddress(base.RedfishTestCase):

    def source(self, forwarded, *trusted, address='10.0.0.1'):
        services = self.app.sushy_kubevirt.services
        services.settings = type('Settings', (), {
            'trusted_proxies': tuple(map(ipaddress.ip_network, trusted))})
        headers = {'X-Forwarded-For': forwarded} if forwarded else {}
        with self.app.test_request_context(
                headers=headers, environ_base={'REMOTE_ADDR': address}):
            return authentication.client_address()

    def test_ignores_forwarded_header_without_trusted_proxy(self):
        self.assertEqual('10.0.0.1', self.source('1.1.1.1'))
        self.assertEqual('10.0.0.1', self.source('1.1.1.1', '10.0.0.2'))

    def test_trusted_proxies(self):
        self.assertEqual('1.1.1.1', self.source('1.1.1.1', '10.0.0.1'))
        # Earlier addresses were written by the client.
        self.assertEqual('1.1.1.1', self.source('2.2.2.2, 1.1.1.1',
                                                '10.0.0.0/24'))
        self.assertEqual('2.2.2.2', self.source('2.2.2.2, 10.0.0.9',
                                                '10.0.0.0/24'))
        self.assertEqual('1.1.1.1', self.source(
            '1.1.1.1', '10.0.0.1', address='::ffff:10.0.0.1'))

    def test_ignores_invalid_addresses(self):
        for text in ('', 'x', ',', '1.1.1.1, x', 'x' * 1000, '\xe9'):
            self.assertEqual('10.0.0.1', self.source(text, '10.0.0.1'))
        self.assertEqual('', self.source('x', '10.0.0.1', address=''))

    def test_unix_socket(self):
        self.assertEqual('', self.source('1.1.1.1', address=''))
        self.assertEqual('1.1.1.1', self.source('2.2.2.2, 1.1.1.1',
                                                '10.0.0.1', address=''))
