# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc log`` and ``sensors``."""

import signal

from tests.fixtures import kubectl_case
from tests.fixtures import operator


class LogTestCase(kubectl_case.KubectlCase):

    def setUp(self):
        super().setUp()
        self.bmc().ready()

    def test_entries(self):
        self.plugin('power', 'box', 'on', '--wait')
        # The last two entries of a start; either may come first.
        for text in 'VirtualMachineInstance started', 'has powered on':
            self.until('entry', lambda text=text: text in self.plugin(
                'log', 'box'))
        lines = self.plugin('log', 'box').splitlines()
        times = [line.split()[0] for line in lines]
        self.assertEqual(sorted(times), times)
        self.assertEqual({'OK'}, {line.split()[1] for line in lines})
        self.assertEqual('', self.plugin('log', 'box', '--clear'))
        self.assertEqual('', self.plugin('log', 'box'))
        self.assertIn('There is no BMC x', self.refusal('log', 'x'))

    def test_follow(self):
        self.plugin('log', 'box', '--clear')
        started = self.start('log', 'box', '--follow')
        self.plugin('power', 'box', 'on')

        def wait(text):
            seen = []
            while not seen or text not in seen[-1]:
                seen.append(started.stdout.readline().decode())
                self.assertNotEqual('', seen[-1])
            return seen
        lines = wait('VirtualMachineInstance started')
        # It outlasts the BMC's pod.
        self.kubectl('delete', 'pods', '-l', operator.LABEL + 'box')
        self.until('ready', lambda: self.plugin('power', 'box'), 'On\n')
        self.sandbox.do('box', 'restart', namespace=self.namespace)
        lines += wait('VirtualMachineInstance started')
        self.assertEqual(len(lines), len(set(lines)))
        started.send_signal(signal.SIGINT)
        self.assertEqual(130, started.wait(60))


class SensorsTestCase(kubectl_case.KubectlCase):

    def sensors(self):
        """Return the cells by the name of the sensor."""
        head, *lines = self.plugin('sensors', 'box').splitlines()
        self.assertEqual(['NAME', 'STATE', 'HEALTH', 'PROBLEM'], head.split())
        columns = [head.index(name) for name in head.split()]
        return {line[:columns[1]].strip(): [
            line[begin:end].strip() for begin, end in zip(
                columns[1:], [*columns[2:], None])] for line in lines}

    def test_states(self):
        self.bmc().ready()
        sensors = self.sensors()
        self.assertEqual(['Off', '<none>', '<none>'], sensors['Power state'])
        self.assertEqual(['Absent', '<none>', '<none>'], sensors['Cd'])
        self.assertEqual('Enabled', sensors['Drives root'][0])
        self.assertIn('Memory Memory of the guest', sensors)
        self.plugin('power', 'box', 'on', '--wait')
        self.assertEqual('On', self.sensors()['Power state'][0])

    def test_vm_that_cannot_run(self):
        self.vm('box')
        self.sandbox.patch('virtualmachines', 'box', {'spec': {'template': {
            'spec': {'nodeSelector': {'no': 'node'}}}}}, self.namespace)
        self.bmc().ready()
        self.plugin('power', 'box', 'on')
        self.until('fault', lambda: self.sensors()['Power'][1], 'Critical')
        self.assertIn('cannot run', self.sensors()['Power'][2])
