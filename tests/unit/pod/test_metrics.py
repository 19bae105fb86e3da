# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import prometheus
from tests.unit.redfish import fakes


class MetricsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        cluster = fakes.Cluster(fakes.Machine(fakes.A, 'vm-a'))
        self.app = fakes.application(self, cluster)
        self.client = self.app.test_client()
        self.metrics = metrics.of(self.app, lambda: 4)

    def text(self):
        return prometheus.text(self.metrics).decode()

    def line(self, start):
        for line in self.text().splitlines():
            if line.startswith(start):
                return line
        return None

    def requests(self, route, method, code):
        found = self.line(
            f'virtbmc_redfish_requests_total{{route="{route}",'
            f'method="{method}",code="{code}"}}')
        return 0 if found is None else int(found.rpartition(' ')[2])

    def test_counts_requests_by_url_rule(self):
        rule = '/redfish/v1/Systems/<identity>'
        for identity in fakes.A, fakes.A, 'nobody', 'nobody-else':
            self.client.get('/redfish/v1/Systems/' + identity)
        self.assertEqual(2, self.requests(rule, 'GET', 200))
        self.assertEqual(2, self.requests(rule, 'GET', 404))
        self.assertNotIn('nobody', self.text())

    def test_unknown_paths_and_methods_share_one_label(self):
        for number in range(5):
            self.client.get(f'/made/up/{number}')
            self.client.open('/redfish/v1/', method=f'MADEUP{number}')
        self.assertEqual(5, self.requests('none', 'GET', 404))
        text = self.text()
        self.assertEqual(1, text.count('method="other"'))
        self.assertNotIn('MADEUP', text)

    def test_counts_failed_requests(self):
        self.client.get('/redfish')     # installs our views
        with mock.patch.dict(self.app.view_functions, {
                'root_resource': mock.Mock(side_effect=KeyError('x'))}):
            self.client.get('/redfish/v1/')
        self.assertEqual(1, self.requests('/redfish/v1/', 'GET', 500))

    def test_sessions_and_connections(self):
        self.assertEqual('virtbmc_redfish_sessions 0',
                         self.line('virtbmc_redfish_sessions'))
        self.assertEqual('virtbmc_redfish_connections 4',
                         self.line('virtbmc_redfish_connections'))
