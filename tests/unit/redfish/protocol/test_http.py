# SPDX-License-Identifier: Apache-2.0
"""Headers and methods of our own and of upstream's routes."""

import json

import flask

from sushy_kubevirt.redfish.protocol import request_validation
from tests.unit.redfish import base

ROOT = '/redfish/v1/'


class TestHeaders(base.RedfishTestCase):

    def test_every_response_has_odata_version_and_cache_control(self):
        for path, method, code in (
                (self.path, 'GET', 200), (self.path, 'HEAD', 200),
                (self.path, 'DELETE', 405), (ROOT + 'Nonsense', 'GET', 404),
                (self.path, 'OPTIONS', 200), (ROOT, 'NONSENSE', 501)):
            answer = self.client.open(path, method=method)
            self.assertEqual(code, answer.status_code)
            self.assertEqual('4.0', answer.headers['OData-Version'])
            self.assertIn(answer.headers['Cache-Control'],
                          ('no-cache', 'no-store'))

    def test_allow_header(self):
        for method in 'GET', 'HEAD', 'OPTIONS', 'DELETE':
            answer = self.client.open(self.path, method=method)
            self.assertEqual(
                {'GET', 'HEAD', 'OPTIONS', 'PATCH'},
                set(answer.headers['Allow'].split(', ')), method)
        answer = self.client.get(ROOT)
        self.assertNotIn('PATCH', answer.headers['Allow'])

    def test_link_header_names_schema(self):
        for path, schema in (
                (ROOT, 'ServiceRoot.v1_17_0'),
                (ROOT + 'Systems', 'ComputerSystemCollection')):
            for method in 'GET', 'HEAD':
                answer = self.client.open(path, method=method)
                self.assertEqual(
                    f'<http://redfish.dmtf.org/schemas/v1/{schema}.json>; '
                    'rel=describedby', answer.headers['Link'])

    def test_head_has_headers_of_get_and_no_body(self):
        for path in ROOT, self.path, ROOT + 'Systems', ROOT + '$metadata':
            get, head = self.client.get(path), self.client.head(path)
            self.assertEqual(b'', head.data)
            self.assertEqual(dict(get.headers), dict(head.headers))

    def test_unknown_views_of_upstream_are_postprocessed(self):
        """Such as views that a later release of upstream adds."""
        path, endpoint = ROOT + 'UpdateService', (
            'UpdateService.update_service_resource')
        views = self.app.view_functions
        self.client.get(ROOT)
        self.addCleanup(views.__setitem__, endpoint, views[endpoint])
        views[endpoint] = lambda: flask.Response(json.dumps({
            '@odata.id': path, '@odata.type': '#Other.v1_0_0.Other',
            'Name': 'x', 'Id': 'x'}), content_type='application/json')
        answer = self.client.get(path)
        self.assertEqual(200, answer.status_code)
        self.assertEqual(answer.headers['ETag'], answer.json['@odata.etag'])
        self.assertEqual(str(len(answer.data)),
                         answer.headers['Content-Length'])
        self.assertIn('Other.v1_0_0', answer.headers['Link'])
        answer = self.client.get(path + '?$select=Name')
        self.assertEqual({'@odata.id', '@odata.type', '@odata.etag', 'Name'},
                         set(answer.json))

    def test_trailing_slash_is_ignored(self):
        for path in ROOT + 'Systems', self.path, '/redfish/v1', '/redfish':
            self.assertEqual(
                self.client.get(path.rstrip('/')).data,
                self.client.get(path.rstrip('/') + '/').data)


class TestTransportSecurity(base.AccountsTestCase):

    def header(self, url, path='/redfish/v1/', **headers):
        return self.client.get(
            path, base_url=url, headers=headers).headers.get(
                'Strict-Transport-Security')

    def test_only_over_tls(self):
        for path in '/redfish/v1/', '/', self.path, '/redfish/v1/nonsense':
            # The second may be a response that is sent again.
            for _ in range(2):
                self.assertEqual('max-age=31536000',
                                 self.header('https://bmc:8443', path))
                self.assertIsNone(self.header('http://bmc:8443', path))

    def test_of_requests_that_are_refused_before(self):
        self.assertEqual('max-age=31536000',
                         self.header('https://bmc', Host='a b'))
        self.assertIsNone(self.header('http://bmc', Host='a b'))

    def test_not_for_all_ports_of_the_browsers_host(self):
        for host in 'localhost', 'localhost:8443', 'bmc.localhost':
            self.assertIsNone(self.header('https://' + host))


class TestNegotiation(base.RedfishTestCase):

    def code(self, path=ROOT, method='GET', **headers):
        answer = self.client.open(path, method=method, headers={
            name.replace('_', '-'): value for name, value in headers.items()})
        if answer.status_code >= 400 and method != 'HEAD':
            self.check_error(answer)
        return answer.status_code

    def test_unsupported_odata_version_gets_412(self):
        self.assertEqual(200, self.code(OData_Version='4.0'))
        for version in '4.1', '4', '3.0', '', 'x':
            for path in ROOT, self.path:
                self.assertEqual(412, self.code(path, OData_Version=version))
        self.assertEqual(412, self.code(self.path, 'PATCH',
                                        OData_Version='5'))

    def test_unacceptable_type_gets_406(self):
        for accept in ('*/*', 'application/json', 'application/*', '',
                       'application/json;charset=utf-8', 'text/html, */*',
                       'text/html,*/*;q=0.1', 'APPLICATION/JSON',
                       '*/*;charset=utf-8', 'application/*;charset=utf-8'):
            self.assertEqual(200, self.code(Accept=accept), accept)
        for accept in ('text/html', 'application/xml', 'text/*',
                       'application/json;q=0'):
            self.assertEqual(406, self.code(Accept=accept), accept)
        self.assertEqual(406, self.code(method='HEAD', Accept='text/html'))

    def test_metadata_is_xml(self):
        path = ROOT + '$metadata'
        for accept in ('application/xml', '*/*', 'application/*'):
            self.assertEqual(200, self.code(path, Accept=accept))
        self.assertEqual(406, self.code(path, Accept='application/json'))

    def test_missing_resource_gets_404_before_406(self):
        self.assertEqual(404, self.code(ROOT + 'openapi.yaml',
                                        Accept='application/yaml'))

    def test_unsupported_methods_get_405_or_501(self):
        for method in 'PATCH', 'POST', 'PUT', 'DELETE':
            self.assertEqual(405, self.code(method=method))
        for method in 'TRACE', 'FAKE', 'PROPFIND', 'CONNECT':
            self.assertEqual(501, self.code(method=method))

    def test_invalid_content_length_gets_400(self):
        for length in '\xb2', 'x', '-1':
            answer = self.client.get('/redfish/v1/', environ_overrides={
                'CONTENT_LENGTH': length})
            self.assertEqual(400, answer.status_code)
            self.check_error(answer)

    def test_rejects_cross_site_writes(self):
        path = self.path + '/LogServices/Events/Actions/LogService.ClearLog'
        for site, code in (('cross-site', 403), ('same-site', 403),
                           ('same-origin', 204), ('none', 204), (None, 204)):
            headers = {'Sec-Fetch-Site': site} if site else {}
            answer = self.client.post(path, headers=headers)
            self.assertEqual(code, answer.status_code, answer.text)
            answer = self.client.get(self.path, headers=headers)
            self.assertEqual(200, answer.status_code)
        # Browsers do not send it to other hosts without TLS.
        for headers, code in (
                ({'Origin': 'http://other'}, 403),
                ({'Origin': 'http://localhost:1'}, 403),
                ({'Origin': 'null'}, 403),
                ({'Origin': 'http://localhost'}, 204),
                ({'Origin': 'http://proxy', 'X-Auth-Token': 'x'}, 204)):
            answer = self.client.post(path, headers=headers)
            self.assertEqual(code, answer.status_code, answer.text)

    def test_page_behind_a_proxy_that_changes_host_can_log_in(self):
        headers = {'Origin': 'https://proxy'}
        for path in base.SESSIONS, base.SESSIONS + '/':
            self.assertNotEqual(403, self.client.post(
                path, headers=headers, json={}).status_code)
        self.assertEqual(415, self.client.post(
            base.SESSIONS, headers=headers, data={'UserName': 'x'}
        ).status_code)

    def test_rejects_query_parameters_of_writes(self):
        self.assertEqual(400, self.code(self.path + '?$select=Name',
                                        'PATCH'))
        self.assertEqual(501, self.code(self.path + '?$x', 'PATCH'))
        self.assertEqual([], self.machine.calls)


class TestPrefer(base.RedfishTestCase):

    def test_prefer_return_representation(self):
        def set_indicator(state):
            self.machine._indicator = state
        self.machine.set_indicator = set_indicator
        answer = self.client.patch(
            self.path, json={'IndicatorLED': 'Lit'},
            headers={'Prefer': 'wait=5, return=representation'})
        self.assertEqual(200, answer.status_code)
        self.assertEqual('Lit', answer.json['IndicatorLED'])
        self.assertEqual('return=representation',
                         answer.headers['Preference-Applied'])
        self.assertEqual(self.client.get(self.path).headers['ETag'],
                         answer.headers['ETag'])

    def test_parses_prefer_header(self):
        for header, wanted in (
                ('respond-async', True), ('Respond-Async', True),
                ('wait=1 , respond-async;x=1', True), ('', False),
                ('respond-asynchronously', False)):
            with self.app.test_request_context(headers={'Prefer': header}):
                self.assertEqual(
                    wanted, request_validation.prefers('respond-async'))
        with self.app.test_request_context():
            self.assertFalse(request_validation.prefers('respond-async'))


class TestDocuments(base.RedfishTestCase):

    def test_odata_service_document(self):
        body = self.client.get(ROOT + 'odata').json
        self.assertEqual(ROOT + '$metadata', body['@odata.context'])
        for one in body['value']:
            self.assertEqual(200, self.client.get(one['url']).status_code)

    def test_versions_document(self):
        self.assertEqual({'v1': ROOT}, json.loads(
            self.client.get('/redfish').data))

    def test_uuid_of_the_service_is_constant(self):
        first = self.client.get(ROOT).json['UUID']
        self.assertEqual(first, self.client.get(ROOT).json['UUID'])
        self.assertRegex(first, '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')

    def test_post_to_members_is_post_to_collection(self):
        """GET of Members is not supported."""
        for path in 'Systems', 'SessionService/Sessions':
            answers = [self.client.post(ROOT + path + more, json={'x': 1})
                       for more in ('', '/Members', '/Members/')]
            for answer in answers:
                self.assertEqual(answers[0].status_code, answer.status_code)
                self.assertEqual(answers[0].json, answer.json)
            self.assertEqual(404, self.client.get(
                ROOT + path + '/Members').status_code)
