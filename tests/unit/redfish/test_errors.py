# SPDX-License-Identifier: Apache-2.0

import io
import json

import flask
from werkzeug import exceptions

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from tests.unit.redfish import base
from tests.unit.redfish import fakes

RESET = '/Actions/ComputerSystem.Reset'


class TestMessages(base.base.BaseTestCase):

    def test_arguments_are_not_expanded_again(self):
        found = messages.message('PropertyValueTypeError', '%2 %1', 'Name')
        self.assertEqual(
            "The value '%2 %1' for the property Name is not a type that the "
            'property can accept.', found['Message'])
        self.assertEqual(['%2 %1', 'Name'], found['MessageArgs'])

    def test_truncates_long_values(self):
        found = messages.message('PropertyUnknown', 'x' * 10000)
        self.assertLess(len(found['Message']), 400)

    def test_arguments_are_json(self):
        for value, text in ((None, 'null'), (True, 'true'), (5, '5'),
                            (['On', None], '["On", null]'), ('On', 'On')):
            found = messages.message('PropertyValueTypeError', value, 'Name')
            self.assertEqual(text, found['MessageArgs'][0])

    def test_deeply_nested_value(self):
        value = []
        for _ in range(100000):
            value = [value]
        found = messages.message('PropertyValueTypeError', value, 'Name')
        self.assertEqual('(list)', found['MessageArgs'][0])

    def test_all_messages_can_be_formatted(self):
        for key in messages._MESSAGES:
            messages.message(key, 'one', 'two', 'three')


class TestMachineErrors(base.RedfishTestCase):

    def reset(self, code):
        answer = self.client.post(self.path + RESET,
                                  json={'ResetType': 'On'})
        self.assertEqual(code, answer.status_code)
        return answer, self.check_error(answer)

    def test_deleted_machine_gets_404(self):
        self.machine.fails = errors.MachineNotFound('default/vm-a')
        _answer, error = self.reset(404)
        self.assertIn('ResourceNotFound', error['code'])

    def test_unavailable_cluster_gets_503(self):
        self.machine.fails = errors.Unavailable('connection refused', 2.3)
        answer, error = self.reset(503)
        self.assertEqual('3', answer.headers['Retry-After'])
        self.assertIn('connection refused', error['message'])
        self.cluster.fails = errors.Unavailable('no list yet')
        for path in ('/redfish/v1/Systems', '/redfish/v1/Managers',
                     self.path, self.path + '/VirtualMedia',
                     '/redfish/v1/Chassis/' + self.app.chassis.chassis[0]):
            answer = self.client.get(path)
            self.assertEqual(503, answer.status_code, path)
            self.assertEqual('5', answer.headers['Retry-After'])
            self.check_error(answer)

    def test_access_denied_gets_500(self):
        self.machine.fails = errors.AccessDenied(
            'the account may not patch virtualmachines.kubevirt.io',
            'patch', 'virtualmachines.kubevirt.io', 'default')
        answer, error = self.reset(500)
        self.assertIn('AccessDenied', error['code'])
        self.assertIn('may not patch virtualmachines', error['message'])
        self.assertNotIn('Retry-After', answer.headers)

    def test_unsupported_operation_gets_501(self):
        self.machine.fails = errors.Unsupported('KubeVirt cannot')
        _answer, error = self.reset(501)
        self.assertIn('KubeVirt cannot', error['message'])

    def test_configuration_error_hides_details(self):
        self.machine.fails = errors.ConfigError('/root/secret is gone')
        _answer, error = self.reset(500)
        self.assertNotIn('secret', json.dumps(error))

    def test_unexpected_exception_hides_details(self):
        self.machine.fails = KeyError('internals')
        _answer, error = self.reset(500)
        self.assertIn('InternalError', error['code'])
        self.assertNotIn('internals', json.dumps(error))

    def test_unexpected_in_debug_mode(self):
        self.app.debug = True
        self.addCleanup(setattr, self.app, 'debug', False)
        self.test_unexpected_exception_hides_details()


class TestRequests(base.RedfishTestCase):

    def ask(self, method, path, code, **options):
        answer = self.client.open(path, method=method, **options)
        self.assertEqual(code, answer.status_code, answer.text)
        return answer, self.check_error(answer)

    def test_unknown_route_gets_404(self):
        for path in ('/redfish/v1/Nonsense', '/x', '/static/x',
                     f'/redfish/v1/Systems/{fakes.A}/Nonsense'):
            _answer, error = self.ask('GET', path, 404)
            self.assertIn('ResourceMissingAtURI', error['code'])

    def test_unknown_system_gets_404(self):
        _answer, error = self.ask('GET', '/redfish/v1/Systems/none', 404)
        self.assertEqual(['ComputerSystem', 'none'],
                         error['@Message.ExtendedInfo'][0]['MessageArgs'])

    def test_unsupported_method_gets_405(self):
        answer, error = self.ask('DELETE', self.path, 405)
        self.assertIn('PATCH', answer.headers['Allow'])
        self.assertIn('OperationNotAllowed', error['code'])

    def test_malformed_bodies_get_400(self):
        json_type = {'content_type': 'application/json'}
        for body in ('', '{', '[]', '"On"', 'null', '1', '[' * 100000,
                     b'\xff', '{"ResetType": "On"', '{"a":' * 5000):
            for path, method in ((self.path, 'PATCH'),
                                 (self.path + RESET, 'POST'),
                                 (self.path + '/BIOS/Settings', 'PATCH'),
                                 (self.path + '/SecureBoot', 'PATCH')):
                _answer, error = self.ask(method, path, 400, data=body,
                                          **json_type)
                self.assertIn('MalformedJSON', error['code'])

    def test_malformed_bodies_of_upstream_routes_get_400(self):
        chassis = '/redfish/v1/Chassis/' + fakes.A
        for path, method in (
                (chassis, 'PATCH'),
                (self.path + '/VirtualMedia/Cd', 'PATCH'),
                (self.path + '/VirtualMedia/Cd/Actions/'
                 'VirtualMedia.InsertMedia', 'POST'),
                ('/redfish/v1/CertificateService/Actions/'
                 'CertificateService.ReplaceCertificate', 'POST')):
            for body in '', '{', '[]', 'null':
                self.ask(method, path, 400, data=body,
                         content_type='application/json')

    def test_unsupported_content_type_gets_415(self):
        _answer, error = self.ask(
            'POST', self.path + RESET, 415, data='{"ResetType": "On"}',
            content_type='text/plain')
        self.assertIn('text/plain', error['message'])
        self.assertEqual([], self.machine.calls)

    def test_long_body_gets_413(self):
        _answer, error = self.ask(
            'PATCH', self.path, 413, data='x' * (payload.MAX_BODY + 1),
            content_type='application/json')
        self.assertIn('PayloadTooLarge', error['code'])

    def test_truncated_chunk_gets_400(self):
        self.client.get('/redfish')     # The first request adds the routes.
        with self.app.test_request_context(
                self.path, method='PATCH', content_type='application/json',
                environ_overrides={
                    'HTTP_TRANSFER_ENCODING': 'chunked',
                    'wsgi.input_terminated': True,
                    'wsgi.input': http_framing.ChunkedBody(
                        io.BytesIO(b'FFFFFF\r\n{}'))}):
            self.assertRaises(exceptions.BadRequest, payload.check)
            self.assertRaises(exceptions.BadRequest, flask.request.get_data)

    def test_unpaired_surrogates_get_400(self):
        for body in (b'{"AssetTag": "\\ud83d"}', b'{"AssetTag": "a\\ude00"}',
                     b'{"AssetTag": "\\ude00\\ud83d"}', b'{"\\ud83d": 1}',
                     b'{"Boot": {"HttpBootUri": ["x", {"y": "\\udfff"}]}}',
                     b'{"@odata.x": "\\ud83d"}',
                     b'{"AssetTag": "\xed\xa0\xbd"}'):
            for method, path in (
                    ('PATCH', self.path), ('POST', self.path + RESET),
                    ('POST', base.SESSIONS),
                    ('POST', '/redfish/v1/EventService/Subscriptions')):
                _answer, error = self.ask(method, path, 400, data=body,
                                          content_type='application/json')
                self.assertIn('MalformedJSON', error['code'])
        self.assertEqual([], self.machine.calls)
        # A pair is text.
        self.assertEqual(204, self.client.patch(
            self.path, data=b'{"AssetTag": "\\ud83d\\ude00"}',
            content_type='application/json').status_code)

    def test_limits_size_of_error(self):
        for body in ({f'x{number}': 1 for number in range(20000)},
                     {'x' * 250000: 1}):
            answer, error = self.ask('PATCH', self.path, 400, json=body)
            self.assertLessEqual(len(error['@Message.ExtendedInfo']), 20)
            self.assertLess(len(answer.data), 20000)

    def test_hostile_values(self):
        for value in ('\ud800', '\x00', '\n' * 5, 'x' * 100000, '%1%2%s',
                      '<script>'):
            self.ask('POST', self.path + RESET, 400,
                     data=json.dumps({'ResetType': value}),
                     content_type='application/json')
            self.ask('PATCH', self.path, 400, data=json.dumps({value: 1}),
                     content_type='application/json')
        for path in '/redfish/v1/Systems/%00', '/redfish/v1/Systems/%0a%ff':
            self.ask('GET', path, 404)
