# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc console``, in a terminal and with pipes."""

import signal
import termios

from kubevirt_sandbox.testing import console as consoles
from tests.fixtures import kubectl_case
from tests.fixtures import operator
from tests.fixtures import terminal


class ConsoleTestCase(kubectl_case.KubectlCase):

    def setUp(self):
        super().setUp()
        self.vm('box', 'Always')
        self.bmc().ready()
        self.sandbox.wait_running('box', self.namespace)

    def modes(self, started):
        return termios.tcgetattr(started._fd)[terminal.LOCAL]

    def open(self):
        """Open the console in a terminal as a user has it."""
        started = self.terminal(
            'console', 'box',
            modes=termios.ECHO | termios.ICANON | termios.ISIG)
        started.wait(rb'Connected to the BMC of')
        return started

    def test_terminal(self):
        started = self.open()
        self.assertFalse(self.modes(started) & (
            termios.ECHO | termios.ICANON | termios.ISIG))
        started.say(b'hello', b'# ')
        # Keys of the guest, not of this terminal.
        started.say(b'a\x03b', b'# ')

        mark = started.mark()
        started.send(b'~?')
        started.wait(rb'~\.  end the console.*~~  send', mark)
        mark = started.mark()
        started.send(b'~~home\r')
        started.wait(rb'~home\r\n# ', mark)

        started.send(b'~.')
        self.assertEqual(0, started.wait_end())
        self.assertTrue(self.modes(started) & termios.ECHO)

    def test_restart_stop_and_loss_of_the_pod(self):
        started = self.open()
        mark = started.mark()
        self.sandbox.do('box', 'restart', namespace=self.namespace)
        started.wait(rb'is connected', mark)
        started.say(b'restarted', b'# ')

        mark = started.mark()
        self.sandbox.do('box', 'stop', namespace=self.namespace)
        started.wait(rb'is off\. The console connects', mark)
        started.send(b'lost\r')
        self.sandbox.do('box', 'start', namespace=self.namespace)
        started.wait(rb'is connected', mark)
        started.say(b'started', b'# ')

        mark = started.mark()
        self.kubectl('delete', 'pods', '-l', operator.LABEL + 'box')
        started.wait(rb'Connecting again', mark)
        started.wait(rb'Connected to the BMC', mark)
        started.say(b'replaced', b'# ')

    def test_changed_password(self):
        started = self.open()
        mark = started.mark()
        self.secret()
        started.wait(rb'Connecting again.*Connected to the BMC', mark, 180)
        started.say(b'changed', b'# ')

    def test_ends_while_the_bmc_is_away(self):
        started = self.open()
        mark = started.mark()
        self.kubectl('scale', 'deployment', 'box-virtbmc', '--replicas=0')
        self.kubectl('delete', 'vmbmc', 'box', '--wait=false')
        started.wait(rb'There is no BMC.*Trying again', mark)
        self.assertTrue(self.modes(started) & termios.ISIG)
        # Of Ctrl+C, which is no key of the guest now.
        started.process.send_signal(signal.SIGINT)
        self.assertEqual(130, started.wait_end())

    def test_taken_by_another_client(self):
        started = self.open()
        started.say(b'mine', b'# ')
        mark = started.mark()
        other = consoles.connect(self.sandbox, consoles.url(
            self.sandbox, 'box', namespace=self.namespace))
        self.addCleanup(other.shutdown)
        started.wait(rb'another client', mark)
        mark = started.mark()
        started.send(b'\r')
        started.wait(rb'is connected', mark)
        started.say(b'mine again', b'# ')

    def test_signals_restore_the_terminal(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT,
                       signal.SIGQUIT):
            started = self.open()
            started.process.send_signal(number)
            self.assertEqual(128 + number, started.wait_end())
            self.assertTrue(self.modes(started) & termios.ECHO)

    def test_too_many_consoles(self):
        first = [self.start('console', 'box') for _ in range(7)]
        for process in first:
            self.assertIn(b'Connected', process.stderr.readline())
        started = self.open()
        last = self.terminal('console', 'box')
        self.assertEqual(1, last.wait_end())
        self.assertIn(b'The maximum number of consoles is open', last.output)
        self.assertIsNone(started.process.poll())

    def test_pipes(self):
        started = self.start('console', 'box')
        started.stdin.write(b'from a pipe\r')
        started.stdin.close()
        output = b''
        while not output.endswith(b'from a pipe\r\n# '):
            data = started.stdout.read1(1000)
            self.assertTrue(data, output)
            output += data
        started.send_signal(signal.SIGTERM)
        self.assertEqual(128 + signal.SIGTERM, started.wait(60))
        self.assertNotIn(b'[', output)
        self.assertIn(b'[Connected to the BMC', started.stderr.read())
        self.assertEqual('', self.plugin('console', 'box', stdin='~.'))

    def test_refusals(self):
        self.assertIn('There is no BMC nonsense',
                      self.refusal('console', 'nonsense'))
        self.kubectl.patch('vmbmc', 'box', {'spec': {
            'redfish': {'webPage': False}}})
        self.until('no console', lambda: 'redfish.webPage' in self.refusal(
            'console', 'box', stdin='~.'))
