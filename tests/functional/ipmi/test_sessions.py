# SPDX-License-Identifier: Apache-2.0
"""IPMI sessions of a running BMC: authentication and cleanup."""

import os
import secrets
import socket
import threading
import time

from pyghmi.ipmi import command

from tests.fixtures import base
from tests.fixtures import processes
from tests.fixtures import sandbox
from tests.fixtures import udp_relay
from tests.fixtures import vbmcd


class SessionTestCase(base.VbmcdTestCase):

    VMS = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # It has a letter, so that its upper case is another password.
        cls.bmc = cls.vbmcd.add('vm-0', password='p' + secrets.token_hex(7))
        cls.host, = processes.children(cls.vbmcd.process.pid)

    def assertAlive(self, **options):
        self.assertIn('Chassis Power', self.vbmcd.ipmi(
            'vm-0', 'power', 'status', **options))
        self.assertEqual([self.host],
                         processes.children(self.vbmcd.process.pid))
        self.assertNotIn('Traceback', self.vbmcd.process.output)


class LanplusLoginTest(SessionTestCase):

    def assert_fails(self, *options, **credentials):
        started = time.monotonic()
        done = vbmcd.ipmitool(self.bmc, 'power', 'status', options=options,
                              **credentials)
        self.assertNotEqual(0, done.returncode, done.stdout)
        self.assertIn('Unable to establish', done.stdout)
        # The BMC responds; without a response, ipmitool waits 20 s.
        self.assertLess(time.monotonic() - started, 15)
        return done.stdout

    def test_cipher_suites_3_and_17(self):
        for suite in '3', '17':
            self.assertIn('Chassis Power', self.vbmcd.ipmi(
                'vm-0', 'power', 'status', options=('-C', suite)))

    def test_wrong_password_is_refused(self):
        for password in ('', 'x', self.bmc.password[:-1],
                         self.bmc.password + 'x', self.bmc.password.upper()):
            for suite in '3', '17':
                self.assertIn('RAKP 2 HMAC is invalid', self.assert_fails(
                    '-v', '-C', suite, password=password))
        self.assertAlive()

    def test_unknown_user_is_refused(self):
        for username in '', 'root', 'Admin', 'x' * 16:
            self.assertIn('unauthorized name', self.assert_fails(
                '-v', username=username))
        self.assertAlive()

    def test_other_suites_are_refused(self):
        for suite in '0', '1', '2', '6', '15', '16':
            self.assert_fails('-C', suite)
        self.assertAlive()

    def test_commands_need_their_privilege_level(self):
        for level, words, fine in (
                ('USER', ('power', 'status'), True),
                ('USER', ('power', 'on'), False),
                ('USER', ('raw', '0', '8', '0', '0'), False),
                ('OPERATOR', ('chassis', 'bootdev', 'none'), True),
                ('OPERATOR', ('raw', '6', '2'), False),
                ('ADMINISTRATOR', ('mc', 'reset', 'cold'), True)):
            done = vbmcd.ipmitool(self.bmc, *words, options=('-L', level))
            self.assertEqual(fine, done.returncode == 0, done.stdout)
            if not fine:
                self.assertIn('Insufficient privilege', done.stdout)

    def test_pyghmi_client(self):
        """pyghmi's client works as ipmitool does."""
        client = command.Command(self.bmc.address, self.bmc.username,
                                 self.bmc.password, port=self.bmc.port)
        self.addCleanup(client.ipmi_session.logout)
        self.assertIn(client.get_power()['powerstate'], ('on', 'off'))
        client.set_bootdev('network', persist=True, uefiboot=True)
        self.assertEqual(
            {'bootdev': 'network', 'persistent': True, 'uefimode': True},
            client.get_bootdev())
        client.set_bootdev('default')
        self.assertEqual('default', client.get_bootdev()['bootdev'])


class LanLoginTest(SessionTestCase):
    """IPMI v1.5: ``ipmitool -I lan``."""

    def ipmi(self, *words, **options):
        return self.vbmcd.ipmi('vm-0', *words, interface='lan', **options)

    def assert_fails(self, *options, bmc=None, words=('power', 'status'),
                     **credentials):
        done = vbmcd.ipmitool(
            bmc or self.bmc, *words, interface='lan',
            options=('-N', '1', '-R', '1', *options), **credentials)
        self.assertNotEqual(0, done.returncode, done.stdout)
        return done.stdout

    def test_power_and_boot_over_v15(self):
        self.assertIn('IPMI Version              : 2.0',
                      self.ipmi('mc', 'info'))
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped('vm-0')
        self.wait_power('off')
        self.assertRegex(self.ipmi('chassis', 'status'),
                         'System Power +: off')
        boots = len(self.sandbox.boots('vm-0'))
        self.ipmi('chassis', 'bootdev', 'pxe')
        self.assertIn('Force PXE', self.ipmi('chassis', 'bootparam', 'get',
                                             '5'))
        self.assertEqual('Chassis Power Control: Up/On',
                         self.ipmi('power', 'on'))
        self.assertEqual('Pxe', self.sandbox.wait_boot(
            'vm-0', boots + 1)['class'])
        self.wait_power('on')
        self.assertEqual('Chassis Power Control: Cycle',
                         self.ipmi('power', 'cycle'))
        self.sandbox.wait_boot('vm-0', boots + 2)
        self.assertEqual('Chassis Power Control: Down/Off',
                         self.ipmi('power', 'off', options=('-A', 'MD5')))
        self.wait_power('off')

    def wait_power(self, state):
        deadline = time.monotonic() + 30
        while self.ipmi('power', 'status') != 'Chassis Power is ' + state:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_wrong_password_or_user_is_refused(self):
        for credentials in ({'password': 'x'},
                            {'password': self.bmc.password[:-1] + 'X'},
                            {'username': 'root'}, {'username': ''}):
            # The message does not tell which of them is wrong.
            self.assertIn('Activate Session command failed',
                          self.assert_fails(**credentials))
        self.assertAlive()

    def test_other_authentication_types_are_refused(self):
        for kind in 'NONE', 'MD2', 'PASSWORD', 'OEM':
            self.assertIn(f'type {kind} not supported',
                          self.assert_fails('-A', kind))
        self.assertAlive()

    def test_commands_need_their_privilege_level(self):
        self.assertIn('Insufficient privilege', self.assert_fails(
            '-L', 'USER', words=('power', 'on')))
        self.assertIn('Chassis Power', self.ipmi(
            'power', 'status', options=('-L', 'USER')))
        self.ipmi('chassis', 'bootdev', 'none', options=('-L', 'OPERATOR'))
        self.ipmi('mc', 'reset', 'cold')

    def test_v15_refuses_password_over_16_bytes(self):
        # A second BMC of the same VM.
        long = self.vbmcd.add(f'{sandbox.NAMESPACE}/vm-0', password='x' * 17)
        self.addCleanup(self.vbmcd.vbmc, 'delete', f'{sandbox.NAMESPACE}/vm-0')
        for options in (), ('-A', 'MD5'):
            self.assertIn('not supported', self.assert_fails(
                *options, bmc=long, password='x' * 16))
        # ipmitool refuses the password itself.
        self.assertIn('longer than 16 bytes', self.assert_fails(bmc=long))

    def test_v20_client_chooses_best_suite(self):
        """A client of IPMI v2.0 chooses the best suite although v1.5 is on."""
        done = vbmcd.ipmitool(self.bmc, 'power', 'status', options=('-vvv',))
        self.assertEqual(0, done.returncode)
        self.assertIn('Using best available cipher suite 17', done.stdout)


class GarbageTest(SessionTestCase):

    def test_garbage_does_no_harm(self):
        self.assertAlive()
        before = processes.anonymous(self.host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((self.bmc.address, self.bmc.port))
            for number in range(20000):
                noise = os.urandom(number % 90)
                sock.send((b'', b'\x06\x00\xff\x07',
                           b'\x06\x00\xff\x07\x06',
                           b'\x06\x00\xff\x07\x02',
                           b'\x06\x00\xff\x07\x06\x12\0\0\0\0\0\0\0\0',
                           )[number % 5] + noise)
        self.assertAlive()
        self.assertLess(processes.anonymous(self.host) - before, 512)

    def test_flood_of_open_requests_does_no_harm(self):
        """Open requests from many ports do not disturb a valid client.

        2,000 requests per second are a rate that a network could deliver.
        """
        self.assertAlive()
        before = processes.anonymous(self.host)
        request = (b'\x06\x00\xff\x07\x06\x10' + bytes(8) + b'\x20\x00'
                   + b'\0\0\0\0abcd' + b''.join(
                       bytes((kind, 0, 0, 8, number, 0, 0, 0))
                       for kind, number in enumerate((3, 4, 1))))
        stop = threading.Event()

        def flood():
            while not stop.is_set():
                with socket.socket(socket.AF_INET,
                                   socket.SOCK_DGRAM) as sock:
                    for _ in range(20):
                        sock.sendto(request,
                                    (self.bmc.address, self.bmc.port))
                stop.wait(0.01)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            for _ in range(20):
                # The flood displaces packets, which are soon sent again.
                self.assertAlive(options=vbmcd.OWN_WAIT)
        finally:
            stop.set()
            thread.join()
        self.assertLess(processes.anonymous(self.host) - before, 1536)


class LossTest(SessionTestCase):
    """A request is executed once although responses are lost."""

    def test_power_cycle_happens_once(self):
        self.vbmcd.ipmi('vm-0', 'power', 'on')
        self.sandbox.wait_running('vm-0')
        count = len(self.sandbox.boots('vm-0'))
        self.sandbox.reset_stats()
        lost = []

        def lose(number):
            # The response to the command is the first one after the API
            # call, those to the login come before.
            if len(lost) == 2 or 'restart' not in str(
                    self.sandbox.stats()['calls']):
                return False
            lost.append(number)
            return True

        relay = self.useFixture(udp_relay.Relay(lose))
        relay.connect(self.bmc.address, self.bmc.port)
        relayed = vbmcd.Bmc('vm-0', password=self.bmc.password,
                            port=relay.port)
        self.useFixture(relayed)
        done = vbmcd.ipmitool(relayed, 'power', 'cycle',
                              options=('-N', '1', '-R', '6'))
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertIn('Cycle', done.stdout)
        self.assertEqual(2, len(lost))
        self.sandbox.wait_boot('vm-0', count + 1)
        self.sandbox.wait_running('vm-0')
        self.assertEqual(count + 1, len(self.sandbox.boots('vm-0')))


class GrowthTest(SessionTestCase):

    def test_polls_do_not_grow_memory(self):
        for _ in range(100):
            self.assertAlive()
        before = processes.anonymous(self.host)
        for _ in range(600):
            self.vbmcd.ipmi('vm-0', 'power', 'status')
        # In KiB: a fifth of one for each session.
        self.assertLess(processes.anonymous(self.host) - before, 128)
        self.assertAlive()
