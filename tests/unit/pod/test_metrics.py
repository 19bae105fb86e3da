# SPDX-License-Identifier: Apache-2.0
import collections
import re
from unittest import mock

from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import prometheus
from sushy_kubevirt.redfish.services import server_threads
from tests.unit.pod import redfish_case
from tests.unit.redfish import base
from tests.unit.redfish import fakes

request = redfish_case.request

SYSTEM = '/redfish/v1/Systems/<identity>'


class RequestsMixin(redfish_case.ServerMixin):
    """Compares what is counted with the responses that clients get."""

    def counted(self):
        return collections.Counter({
            (labels['route'], labels['method'], labels['code']): int(number)
            for labels, number in self.requests.samples()})

    def assert_counted(self, expected, *pieces):
        """Send pieces; check what is counted.

        :param expected: (route, method, code) of each response
        """
        before = self.counted()
        received = self.exchange(*pieces)
        self.assertEqual(collections.Counter(expected),
                         self.counted() - before, pieces)
        self.assertEqual([code for *_, code in expected], [
            int(code) for code in re.findall(rb'HTTP/1\.1 (\d+) ', received)])


class RequestsTestCase(RequestsMixin, base.AccountsTestCase):

    def setUp(self):
        super().setUp()
        self.headers = redfish_case.lines(self.token('Operator'))

    def test_application_and_cache(self):
        tag = re.search(r'(?m)^etag: (.*)\r$', self.exchange(
            request(*self.headers)).decode())[1]
        for code, method, *headers in (
                (200, 'GET'), (200, 'HEAD'), (200, 'GET', 'Connection: close'),
                (304, 'GET', f'If-None-Match: {tag}')):
            data = request(*self.headers, *headers, method=method)
            self.responses.clear()
            for again in 0, 1, 1:
                before = len(self.sent_again)
                self.assert_counted([(SYSTEM, method, code)], data)
                self.assertEqual(again, len(self.sent_again) - before)

    def test_account_without_a_slot(self):
        server, = self.servers
        for headers in (), ('Connection: close',):
            data = request(*self.headers, *headers)
            self.assert_counted([(SYSTEM, 'GET', 200)], data)
            server._requests = server_threads.Slots(1)
            with server._requests.take('Operator'):
                self.assert_counted(
                    [(SYSTEM, 'GET', 503 if headers else 200)], data)
                self.assert_counted([(SYSTEM, 'GET', 503)], data[:9], data[9:])

    def test_errors(self):
        rest = f'/redfish/v1/Systems/{fakes.A}/none'
        for expected, data in (
                ((SYSTEM, 'GET', 401), request()),
                ((SYSTEM, 'GET', 404),
                 request(*self.headers, path='/redfish/v1/Systems/nobody')),
                (('none', 'GET', 404), request(*self.headers, path=rest)),
                (('none', 'PUT', 405), request(*self.headers, method='PUT')),
                (('none', 'other', 501),
                 request(*self.headers, method='TRACE')),
                (('none', 'other', 400), b'GET\r\n\r\n'),
                (('none', 'other', 501), request(method='MADEUP')),
                (('none', 'other', 505), request(version='2.0')),
                (('none', 'other', 431), request(*['X: y'] * 200))):
            self.assert_counted([expected], data)
        text = prometheus.text([self.requests]).decode()
        for word in 'nobody', 'TRACE', 'MADEUP', fakes.A:
            self.assertNotIn(word, text)

    def test_several_requests(self):
        data = request(*self.headers)
        get = SYSTEM, 'GET', 200
        self.assert_counted([get] * 2, data + data)
        self.assert_counted([get] * 2, data, data)
        self.assert_counted([get, ('none', 'other', 400)], data, b'x\r\n\r\n')

    def test_failed_requests(self):
        for view in (
                mock.Mock(side_effect=KeyError('x')),
                # A body that fails while it is read.
                lambda: self.app.response_class(iter([b'x', 1]))):
            with mock.patch.dict(self.app.view_functions,
                                 {'root_resource': view}):
                self.assert_counted([('/redfish/v1/', 'GET', 500)],
                                    request(path='/redfish/v1/'))


class HostTestCase(RequestsMixin, base.RedfishTestCase):

    def test_other_host(self):
        self.assert_counted([('none', 'GET', 421)],
                            request(host='attacker.test'))


class GaugesTestCase(base.RedfishTestCase):

    def test_sessions_and_connections(self):
        text = prometheus.text(metrics.gauges(
            [self.app.sushy_kubevirt.services], lambda: 4)).decode()
        self.assertIn('\nvirtbmc_redfish_sessions 0\n', text)
        self.assertIn('\nvirtbmc_redfish_connections 4\n', text)
