# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from oslotest import base

from vbmc_kubevirt import bmc_pod


class BmcPodTest(base.BaseTestCase):

    def pod(self, **values):
        cluster = mock.Mock(**{'cache.age': 1.5, 'client.calls': {
            ('patch', 'virtualmachines.kubevirt.io', 200): 4}})
        redfish = mock.Mock(**{'cluster': cluster, 'metrics.return_value': (),
                               **values})
        return bmc_pod.BmcPod(redfish, None, '127.0.0.1', 0)

    def test_metrics_of_process_and_cluster(self):
        text = self.pod().metrics().decode()
        for line in (
                'virtbmc_api_calls_total{verb="patch",'
                'resource="virtualmachines.kubevirt.io",code="200"} 4',
                'virtbmc_cache_age_seconds 1.5'):
            self.assertIn(line + '\n', text)
        self.assertIn('\nprocess_cpu_seconds_total ', text)

    def test_metrics_without_cluster(self):
        text = self.pod(cluster=None).metrics().decode()
        self.assertNotRegex(text, '(?m)^virtbmc_(api|cache)')

    def test_probes_report_the_first_problem(self):
        pod = self.pod(**{'liveness_problem.return_value': '',
                          'readiness_problem.return_value': 'no account'})
        self.assertEqual(('', 'no account'), (
            pod.liveness_problem(), pod.readiness_problem()))
