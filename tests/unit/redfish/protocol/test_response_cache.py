# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import fixtures

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.redfish.protocol import response_cache
from tests.unit.redfish import base
from tests.unit.redfish import fakes


class CacheMixin(base.CacheMixin):

    def observed(self, response):
        return response.environ['REQUEST_METHOD'], response.rule

    def fetch(self, path=None, code=200, **options):
        """Return a response, and whether it was sent again."""
        before = len(self.sent_again)
        answer = self.client.open(path or self.path, **options)
        self.assertEqual(code, answer.status_code, answer.text)
        return answer, len(self.sent_again) > before

    def assert_again(self, expected, *args, **options):
        answer, again = self.fetch(*args, **options)
        self.assertIs(expected, again)
        return answer


class ResponseCacheTestCase(CacheMixin, base.RedfishTestCase):

    def test_sends_same_bytes_again(self):
        first = self.assert_again(False)
        second = self.assert_again(True)
        self.assertEqual(first.data, second.data)
        self.assertEqual(list(first.headers), list(second.headers))
        self.assertEqual(
            [('GET', '/redfish/v1/Systems/<identity>')], self.sent_again)

    def test_changed_machine_is_read(self):
        self.fetch()
        size = self.responses._sizes.total()
        self.machine.led = 'Lit'
        self.cluster.versions[fakes.A] = 2
        self.assert_again(False)
        self.assert_again(True)
        # It has replaced the other.
        self.assertLess(self.responses._sizes.total(), 1.1 * size)
        # Another machine's version does not matter.
        self.cluster.versions[fakes.B] = 2
        self.assert_again(True)

    def test_unknown_version_is_not_cached(self):
        self.fetch()
        self.cluster.versions.clear()
        self.assert_again(False)
        self.assert_again(False)

    def test_change_during_request_is_not_cached(self):
        # Else the end of the patch removes what the first request installs.
        self.app.sushy_kubevirt.serves_kubevirt()
        view = self.app.view_functions['system_resource']

        def change(**arguments):
            self.cluster.versions[fakes.A] += 1
            return view(**arguments)

        with mock.patch.dict(self.app.view_functions,
                             {'system_resource': change}):
            self.assert_again(False)
        # Nor when it is undone.
        self.cluster.versions[fakes.A] = 1
        self.assert_again(False)
        self.assert_again(True)

    def test_head_and_if_none_match(self):
        tag = self.fetch()[0].headers['ETag']
        for options, code in (({'method': 'HEAD'}, 200),
                              ({'headers': {'If-None-Match': tag}}, 304),
                              ({'headers': {'If-None-Match': '"x"'}}, 200)):
            first = self.assert_again(False, code=code, **options)
            second = self.assert_again(True, code=code, **options)
            self.assertEqual(first.data, second.data)
            self.assertEqual(tag, second.headers['ETag'])
            self.assertEqual(first.headers.get('Content-Length'),
                             second.headers.get('Content-Length'))
        self.assertEqual(b'', self.fetch(method='HEAD')[0].data)

    def test_headers_and_query_count(self):
        self.fetch()
        self.assert_again(False, code=406, headers={'Accept': 'text/html'})
        self.assert_again(False, code=412, headers={'OData-Version': '3.0'})
        for _ in range(2):
            self.assertEqual('vm-a', self.fetch(
                self.path + '?$select=Name')[0].json['Name'])
        self.assertEqual(1, len(self.sent_again))

    def test_expanded_resources_are_not_cached(self):
        for query in '?$expand=*', '?$expand=.($levels=2)':
            self.assert_again(False, self.path + query)
            self.assert_again(False, self.path + query)
        for _ in range(2):
            self.assert_again(False, self.path + '/Memory?only')

    def test_errors_and_changes_are_not_cached(self):
        for _ in range(2):
            self.assert_again(False, self.path + '/Processors/none', code=404)
            self.assert_again(False, method='PATCH', code=204,
                              json={'IndicatorLED': 'Lit'})
            self.assert_again(False, method='GET', json={})
        self.assertEqual(0, self.responses._sizes.total())

    def test_routes_that_depend_on_more_are_not_cached(self):
        for path in ('/redfish/v1/Managers/' + fakes.A,
                     '/redfish/v1/Systems',
                     self.path + '/LogServices/Events/Entries',
                     '/redfish/v1/SessionService'):
            for _ in range(2):
                self.assert_again(False, path)

    def test_size_is_limited(self):
        size = 4 * response_cache._OVERHEAD
        # That of one of many BMCs of a process.
        self.assertLess(4 * plugin._State(
            None, mock.Mock(), None).responses._most, self.responses._most)
        self.useFixture(fixtures.MockPatchObject(
            self.responses, '_most', size))
        for number in range(20):
            self.fetch(f'/redfish/v1/?x={number}')
            self.assertLessEqual(self.responses._sizes.total(), size)
        self.assertIn(len(self.responses._responses), (1, 2, 3))
        self.assert_again(True, '/redfish/v1/?x=19')
        self.assert_again(False, '/redfish/v1/?x=0')
        # The least recently used is removed.
        self.responses.clear()
        self.fetch('/redfish/v1/?x=kept')
        for number in range(20):
            self.fetch(f'/redfish/v1/?x={number}')
            self.assert_again(True, '/redfish/v1/?x=kept')
        # What is kept of the request counts, too.
        self.fetch('/redfish/v1/?x=' + size * 'y')
        self.assertEqual({}, self.responses._responses)
        self.assertEqual({}, self.responses._sizes)
        with mock.patch.object(response_cache, 'MAX_BODY_BYTES', 10):
            self.assert_again(False, '/redfish/v1/?x=large')
        self.assert_again(False, '/redfish/v1/?x=large')


class AccountsTestCase(CacheMixin, base.AccountsTestCase):

    def test_account_counts(self):
        basic = self.auth('ReadOnly')
        self.fetch(headers=basic)
        self.assert_again(True, headers=basic)
        self.assert_again(False, code=401)
        self.assert_again(False, headers=self.auth('ReadOnly', 'x'), code=401)
        self.assert_again(True, headers=basic)

    def changed(self, headers, *roles):
        """Change the accounts; check that nothing is sent again."""
        self.assert_again(True, headers=headers)
        self.write(*roles)
        accounts = self.app.sushy_kubevirt.services.login._accounts
        accounts.current(recheck=True)

    def test_changed_role_and_removed_account(self):
        basic = self.auth('ReadOnly')
        self.fetch(headers=basic)
        text = self.accounts.read_text()
        self.changed(basic)
        self.accounts.write_text(text.replace(':ReadOnly\n', ':Operator\n'))
        self.app.sushy_kubevirt.services.login._accounts.current(recheck=True)
        self.assert_again(False, headers=basic)
        self.changed(basic, 'Administrator')
        self.assert_again(False, headers=basic, code=401)

    def test_closed_session(self):
        answer = self.log_in()
        token = {'X-Auth-Token': answer.headers['X-Auth-Token']}
        self.fetch(headers=token)
        self.assert_again(True, headers=token)
        self.ask(answer.headers['Location'], 204, 'DELETE', headers=token)
        self.assert_again(False, headers=token, code=401)

    def test_session_ends_with_its_account(self):
        token = self.token('ReadOnly')
        self.fetch(headers=token)
        self.changed(token, 'Administrator')
        self.assert_again(False, headers=token, code=401)

    def test_check_that_may_block_is_left_to_the_application(self):
        """An event loop looks for responses, see `http_server`."""
        token = self.token('ReadOnly')
        self.fetch(headers=token)
        self.changed(token, 'Administrator')
        state = self.app.sushy_kubevirt
        login = state.services.login._accounts
        current, find = login.current, state.responses.find
        looking, read = [], []

        def read_again(recheck=False, *args):
            if recheck:
                # As before the API call for stored accounts.
                blocking.check()
                read.append(bool(looking))
            return current(recheck, *args)

        def look(environ):
            looking.append(True)
            try:
                return find(environ)
            finally:
                looking.clear()

        with mock.patch.object(login, 'current', read_again), \
                mock.patch.object(state.responses, 'find', look):
            self.assert_again(False, headers=token, code=401)
        self.assertEqual({False}, set(read))

    def test_service_root_needs_no_login(self):
        self.fetch('/redfish/v1/')
        self.assert_again(True, '/redfish/v1/')

    def test_keeps_no_token_of_an_anonymous_request(self):
        # Its length does not count as the response's.
        self.fetch('/redfish/v1/', headers={'X-Auth-Token': 'x' * 30000})
        [response] = self.responses._responses.values()
        self.assertIsNone(response.conditions._token)

    def test_digest_of_other_scheme(self):
        self.assertNotEqual(response_cache.digest('https', b'GET / \r\n'),
                            response_cache.digest('http', b'sGET / \r\n'))

    def test_owners_do_not_displace_responses_of_others(self):
        self.useFixture(fixtures.MockPatchObject(
            self.responses, '_most', 8 * response_cache._OVERHEAD))
        other = self.auth('Operator')
        self.fetch(headers=other)
        for headers in {}, self.auth('ReadOnly'):
            for number in range(20):
                self.fetch(f'/redfish/v1/?x={number}', headers=headers)
            self.assert_again(True, f'/redfish/v1/?x={number}',
                              headers=headers)
            self.assert_again(True, headers=other)
