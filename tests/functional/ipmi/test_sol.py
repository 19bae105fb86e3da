# SPDX-License-Identifier: Apache-2.0
"""Serial over LAN: the console of a VM through a BMC, by ``ipmitool``."""

import os
import random
import re
import signal
import threading
import time

from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from tests.fixtures import ipmi_pod
from tests.fixtures import processes
from tests.fixtures import terminal
from tests.fixtures import udp_relay

OPERATIONAL = rb'SOL Session operational'
OFF = rb'\[[-\w]+/[-\w]+ is off\. The console connects when it starts\.\]'
CONNECTED = rb'console of [-\w]+/[-\w]+ is connected\.\]'
PROMPT = rb'\r\n# '

#: MiB of anonymous memory that an open console adds, after 10 MB of output.
MAX_GROWTH = 4


def lines(size):
    """Return what the guest prints on ``print SIZE``."""
    return b''.join(b'%010d %s\r\n' % (number, b'.' * 51)
                    for number in range(-(-size // 64)))[:size]


@given_cluster.needs_sandbox("the sandbox's guest, which prints on command")
class SolTestCase(ipmi_pod.PodTestCase):

    def sol(self, pod, *options, port=None):
        """Run ``ipmitool sol activate`` in a terminal."""
        return self.useFixture(terminal.Terminal(
            ['ipmitool', '-I', 'lanplus', '-H', pod.address, '-p',
             str(port or pod.port), '-U', 'admin', '-E', *options, 'sol',
             'activate'],
            process.environment(process.NO_HOME, {
                'IPMI_PASSWORD': pod.password, 'TERM': 'dumb'})))

    def running(self, **variables):
        """Make a VM that runs, and a pod."""
        pod = self.pod('Always', **variables)
        self.sandbox.wait_running(self.name)
        return pod

    def shell(self, client):
        """Wait until the guest's shell answers."""
        client.wait(OPERATIONAL)
        self.say(client, b'')

    def say(self, client, line):
        return client.say(line, PROMPT)

    def quit(self, client):
        client.send(b'\r~.')
        self.assertEqual(0, client.wait_end(), client.output)


class IpmitoolTest(SolTestCase):

    def test_input_output_and_second_client(self):
        pod = self.running()
        one = self.sol(pod)
        self.shell(one)
        self.assertIn(lines(128), self.say(one, b'print 128')[0])
        two = self.sol(pod)
        self.assertNotEqual(0, two.wait_end())
        self.assertIn(b'already active on another session', two.output)
        pod.ipmi('sol', 'deactivate')
        one.wait(rb'\[Deactivated by another session\.\]')
        two = self.sol(pod)
        self.shell(two)
        self.quit(two)
        self.assertIn('already de-activated',
                      pod.ipmitool('sol', 'deactivate').stdout)
        pod.process.wait_output('SOL deactivated')

    def test_ten_megabytes(self):
        pod = self.running()
        client = self.sol(pod)
        self.shell(client)
        before = processes.anonymous(pod.process.pid)
        size = 10 ** 7
        mark = client.mark()
        client.send(b'print %d\r' % size)
        deadline = time.monotonic() + 240
        while len(client.output) < mark + size:
            self.assertTrue(client.read(deadline), client.output[-300:])
        client.wait(rb'# ', mark + size)
        self.assertEqual(b'print %d\r\n%s# ' % (size, lines(size)),
                         client.output[mark:])
        self.assertLess(processes.anonymous(pod.process.pid) - before,
                        MAX_GROWTH * 1024)

    def test_lossy_network_behind_a_service(self):
        """A tenth of the packets of either direction is lost.

        With more, all eight transmissions of a packet may be lost in a run:
        the BMC drops its characters then.
        """
        chance = random.Random(623)
        lossy = threading.Event()
        lost = []

        def lose(number):
            if lossy.is_set() and chance.random() < 0.1:
                lost.append(number)
                return True
            return False

        relay = self.useFixture(udp_relay.Relay(lose, lose))
        pod = self.running(VIRTBMC_SERVICE_PORT=relay.port)
        # The pod's own port is not the one that it reports.
        done = self.sol(pod)
        self.assertNotEqual(0, done.wait_end())
        self.assertIn(b'SOL session on different port', done.output)
        relay.connect(pod.address, pod.port)
        pod.ipmi('sol', 'set', 'retry-interval', '3', '1')
        client = self.sol(pod, port=relay.port)
        self.shell(client)
        mark = client.mark()
        client.send(b'print 64000\r')
        client.wait(rb'print 64000\r\n', mark)
        lossy.set()
        client.wait(rb'\.\r\n# ', mark)
        self.assertEqual(b'print 64000\r\n%s# ' % lines(64000),
                         client.output[mark:])
        lossy.clear()
        self.assertTrue(lost)
        self.quit(client)

    def test_waits_for_vm_and_follows_it(self):
        """Power on, a reboot of the guest, a restart, power off."""
        pod = self.pod()
        self.wait_ready(pod)
        client = self.sol(pod)
        client.wait(OPERATIONAL)
        client.wait(OFF)
        # ipmitool drops input that is refused.
        client.send(b'lost')
        pod.ipmi('power', 'on')
        client.wait(CONNECTED)
        self.say(client, b'hello')
        mark = client.mark()
        self.sandbox.guest_does(self.name, 'reboot')
        client.wait(rb'firmware, booted from', mark)
        self.assertNotIn(b'connected', client.output[mark:])
        mark = client.mark()
        pod.ipmi('power', 'reset')
        client.wait(CONNECTED, mark)
        self.say(client, b'hello')
        mark = client.mark()
        pod.ipmi('power', 'off')
        client.wait(OFF, mark)
        self.assertNotIn(b'lost', client.output)
        self.quit(client)

    def test_another_client_of_the_console(self):
        """It keeps the console until a key is pressed."""
        pod = self.running()
        client = self.sol(pod)
        self.shell(client)
        other = self.sandbox_console()
        client.wait(rb'another client has connected to it\. Press a key')
        other.send_binary(b'mine\r')
        self.assertIn(b'mine', other.recv())
        client.send(b'x')
        client.wait(CONNECTED)
        self.say(client, b'hello')

    def sandbox_console(self):
        other = console.connect(self.sandbox,
                                console.url(self.sandbox, self.name))
        self.addCleanup(other.shutdown)
        other.settimeout(30)
        return other

    def test_faults_of_the_api(self):
        """Messages say why there is no console; it connects afterwards."""
        pod = self.running()
        where = self.name + '/console'
        for action in 503, 'reset', 401:
            self.sandbox.fault(action, verb='GET', where=where, count=2)
        client = self.sol(pod)
        client.wait(b'virtualmachineinstances/console')
        client.wait(CONNECTED)
        self.say(client, b'hello')
        self.quit(client)

    def test_vm_without_serial_port(self):
        pod = self.pod()
        self.sandbox.patch('virtualmachines', self.name, [{
            'op': 'add', 'path': '/spec/template/spec/domain/devices/'
            'autoattachSerialConsole', 'value': False}])
        pod.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        client = self.sol(pod)
        client.wait(rb'\[No serial consoles are present\.\]')
        self.quit(client)

    def test_sigterm_ends_it(self):
        pod = self.running()
        client = self.sol(pod)
        self.shell(client)
        os.kill(pod.process.pid, signal.SIGTERM)
        self.until(lambda: pod.process.returncode is not None)
        self.assertEqual(0, pod.process.returncode)
        pod.process.wait_output('console disconnected')
        self.assertNotIn('Traceback', pod.process.output)
        client.wait(b'SOL session closed by BMC')
        client.wait_end()

    def test_new_password_ends_it_without_a_packet(self):
        pod = self.running()
        client = self.sol(pod)
        self.shell(client)
        os.kill(client.process.pid, signal.SIGSTOP)
        # The BMC has read what the client sent before.
        pod.ipmi('power', 'status')
        pod.mount.write(username=b'admin', password=b'another')
        self.until(lambda: 'console disconnected' in pod.process.output, 30)
        pod.process.wait_output('its user has changed')

    def test_info_and_settings(self):
        pod = self.pod()
        found = dict(re.findall(r'^(.*\S) +: (.*\S)$', pod.ipmi(
            'sol', 'info', '1'), re.MULTILINE))
        self.assertEqual(('true', 'OPERATOR', '1 (0x01)', str(pod.port)), (
            found['Enabled'], found['Privilege Level'],
            found['Payload Channel'], found['Payload Port']))
        pod.ipmi('sol', 'set', 'privilege-level', 'admin', '1')
        pod.ipmi('sol', 'set', 'enabled', 'false', '1')
        self.assertIn('ADMINISTRATOR', pod.ipmi('sol', 'info', '1'))
        done = pod.ipmitool('sol', 'activate')
        self.assertIn('SOL payload disabled', done.stdout)
        pod.ipmi('sol', 'set', 'enabled', 'true', '1')
        done = pod.ipmitool('sol', 'activate', options=('-L', 'OPERATOR'))
        self.assertIn('nsufficient privilege', done.stdout)
        done = pod.ipmitool('sol', 'set', 'force-encryption', 'false', '1')
        self.assertIn('Invalid data field', done.stdout)
        self.assertIn('is enabled', pod.ipmi(
            'sol', 'payload', 'status', '1', '2'))
        # IPMI v1.5 has no payloads.
        done = pod.ipmitool('raw', '6', '0x48', '1', '1', '0xc0', '0', '0',
                            '0', interface='lan')
        self.assertIn('0xd5', done.stdout)
