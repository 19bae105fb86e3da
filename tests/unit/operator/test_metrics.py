# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the operator."""

from oslotest import base

from sushy_kubevirt.operator import metrics

PREFIX = 'sushy_kubevirt_operator_'


def samples(exported):
    return dict(line.rsplit(' ', 1)
                for line in exported.text().decode().splitlines()
                if line.startswith(PREFIX))


class MetricsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.metrics = metrics.Metrics()

    def samples(self):
        return {name.removeprefix(PREFIX): float(value)
                for name, value in samples(self.metrics).items()}

    def test_candidate_has_no_metrics_of_bmcs(self):
        self.assertEqual({
            'reconciles_total{result="done"}': 0,
            'reconciles_total{result="failed"}': 0,
            'reconcile_seconds_total': 0, 'leader': 0}, self.samples())

    def test_metrics_of_leader(self):
        leader = metrics.Metrics(lambda: (
            {('GET', 200): 1}, {('GET', 200): 1, ('PATCH', 0): 1}))
        self.metrics = leader
        leader.is_leader = True
        leader.count_reconcile(0.5)
        leader.count_reconcile(0.25, failed=True)
        leader.queue_length = 3
        leader.bmcs = {'ServiceReady': 8}
        self.assertEqual({
            'reconciles_total{result="done"}': 1,
            'reconciles_total{result="failed"}': 1,
            'reconcile_seconds_total': 0.75, 'queue_length': 3, 'leader': 1,
            'bmcs{reason="ServiceReady"}': 8,
            'api_calls_total{method="GET",code="200"}': 2,
            'api_calls_total{method="PATCH",code="0"}': 1}, self.samples())

    def test_process_metrics(self):
        self.assertIn(b'\nprocess_resident_memory_bytes ',
                      self.metrics.text())
