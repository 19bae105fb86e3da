# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.pod import prometheus


class ExpositionTestCase(base.BaseTestCase):

    def text(self, *metrics):
        return prometheus.text(metrics).decode().splitlines()

    def test_counter_without_labels(self):
        plain = prometheus.Counter('a_total', 'All of them.')
        self.assertEqual(['# HELP a_total All of them.',
                          '# TYPE a_total counter', 'a_total 0'],
                         self.text(plain))
        plain.add()
        plain.add(number=2)
        self.assertEqual('a_total 3', self.text(plain)[-1])

    def test_counter_with_labels(self):
        counter = prometheus.Counter('b_total', 'B.', ('route', 'code'))
        self.assertEqual(2, len(self.text(counter)))
        counter.add('/x', 200)
        counter.add('/x', 404)
        counter.add('/x', 200)
        self.assertEqual(['b_total{route="/x",code="200"} 2',
                          'b_total{route="/x",code="404"} 1'],
                         self.text(counter)[2:])

    def test_escapes_label_values(self):
        counter = prometheus.Counter('c_total', 'C.', ('x',))
        counter.add('a"b\\c\nd')
        self.assertEqual(r'c_total{x="a\"b\\c\nd"} 1',
                         self.text(counter)[-1])

    def test_gauges(self):
        self.assertEqual(['g 1.5'], self.text(
            prometheus.Gauge('g', 'G.', lambda: 1.5))[2:])
        self.assertEqual([], self.text(
            prometheus.Gauge('g', 'G.', lambda: None))[2:])
        counts = prometheus.Gauge(
            'h_total', 'H.', lambda: [({'verb': 'get'}, 2)], 'counter')
        self.assertEqual(['# TYPE h_total counter',
                          'h_total{verb="get"} 2'], self.text(counts)[1:])

    def test_process_metrics(self):
        lines = self.text(*prometheus.process())
        values = {line.split()[0]: float(line.split()[1])
                  for line in lines if not line.startswith('#')}
        self.assertGreater(values['process_resident_memory_bytes'], 1 << 20)
        self.assertGreater(values['process_cpu_seconds_total'], 0)
        self.assertGreater(values['process_open_fds'], 2)
