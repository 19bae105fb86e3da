# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-ipmi``, tested with ``ipmitool``."""

from concurrent import futures
from importlib import metadata
import os
import re
import secrets
import signal
import subprocess

import requests

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from sushy_kubevirt.machine import options
from tests.fixtures import ipmi_pod
from tests.fixtures import processes
from tests.fixtures import sandbox

#: MiB of anonymous memory of IPMI alone, which does not depend on other
#: processes of this host.
MAX_MEMORY = 23


class ServeTest(ipmi_pod.PodTestCase):

    def test_power_boot_and_metrics(self):
        pod = self.pod()
        self.wait_ready(pod)
        self.assertEqual('Chassis Power is off', pod.ipmi('power', 'status'))
        pod.ipmi('chassis', 'bootdev', 'pxe')
        pod.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.until(lambda: pod.ipmi('power', 'status').endswith('on'))
        self.assertEqual(1, pod.metric(
            'virtbmc_ipmi_commands_total{command="Chassis Control",'
            'code="0x00"}'))
        self.assertEqual(0, pod.metric('virtbmc_cache_age_seconds'))
        self.assertEqual(1, pod.metric(
            'virtbmc_api_calls_total{verb="list",'
            'resource="virtualmachines.kubevirt.io",code="200"}'))
        self.assertEqual({}, self.denied_calls())

    def test_identity_network_and_sessions(self):
        pod = self.pod()
        self.wait_ready(pod)
        uuid = self.sandbox.get('virtualmachines', self.name)['spec'][
            'template']['spec']['domain']['firmware']['uuid']
        for encoding in '', 'ipmi':
            self.assertIn(uuid, pod.ipmi('mc', 'guid', *encoding.split()))
        numbers = re.match(r'(\d+)\.(\d+)', metadata.version(
            'sushy-kubevirt'))
        self.assertRegex(pod.ipmi('mc', 'info'), (
            r'Firmware Revision +: '
            f'{numbers[1]}\\.{int(numbers[2]):02}\n'))
        self.assertIn('warm reset', pod.ipmi('mc', 'reset', 'warm'))
        self.assertIn('passed', pod.ipmi('mc', 'selftest'))
        text = pod.ipmi('lan', 'print')
        for line in (r'IP Address  +: 127\.0\.0\.1', 'Set Complete',
                     r'Subnet Mask +: 255\.0\.0\.0',
                     'RMCP[+] Cipher Suites +: 17,3'):
            self.assertRegex(text, line)
        done = pod.ipmitool('lan', 'set', '1', 'ipaddr', '192.0.2.1')
        self.assertNotEqual(0, done.returncode)
        self.assertIn('rsp=0x82', pod.ipmitool(
            'raw', '0xc', '1', '1', '3', '192', '0', '2', '1').stdout)
        self.assertRegex(pod.ipmi('channel', 'info'),
                         'Session Support +: multi-session')
        with pod.shell() as say:
            self.assertEqual('Chassis Power is off', say('power status'))
            self.assertRegex(pod.ipmi('session', 'info', 'active'),
                             'active sessions +: 2\n(?s:.*)'
                             'console ip +: 127')

    def test_chassis_and_dcmi(self):
        pod = self.pod()
        self.wait_ready(pod)

        def annotation(name, vm=None):
            vm = vm or self.sandbox.vm(self.name)
            return vm['metadata'].get('annotations', {}).get(
                'sushy-kubevirt.openstack.org/' + name)

        version = self.sandbox.vm(self.name)['metadata']['resourceVersion']
        pod.ipmi('chassis', 'identify', '1')
        self.sandbox.wait_since(
            version, 'virtualmachines', self.name,
            lambda vm: annotation('indicator', vm) == 'Blinking')
        self.until(lambda: annotation('indicator') is None)
        pod.ipmi('chassis', 'identify', 'force')
        self.assertEqual('Lit', annotation('indicator'))
        pod.ipmi('dcmi', 'set_asset_tag', 'rack 7, unit 12, row 3')
        self.assertEqual('rack 7, unit 12, row 3', annotation('asset-tag'))
        self.assertIn('rack 7, unit 12, row 3', pod.ipmi('dcmi', 'asset_tag'))
        self.assertIn(f'{sandbox.NAMESPACE}/{self.name}',
                      pod.ipmi('dcmi', 'get_mc_id_string'))
        pod.ipmi('dcmi', 'set_mc_id_string', 'controller 7')
        self.assertIn('controller 7', pod.ipmi('dcmi', 'get_mc_id_string'))
        self.assertIn('unknown', pod.ipmi('chassis', 'restart_cause'))
        pod.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.until(lambda: 'chassis power control command' in pod.ipmi(
            'chassis', 'restart_cause'))
        self.assertRegex(pod.ipmi('chassis', 'poh'), '0 days, 0 hours')
        self.assertEqual({}, self.denied_calls())

    def test_watchdog(self):
        pod = self.pod('Always')
        self.wait_ready(pod)
        uid = self.sandbox.wait_running(self.name)['metadata']['uid']
        self.assertIn('uninitialized',
                      pod.ipmitool('mc', 'watchdog', 'reset').stdout)

        def expire(action, state):
            """Let the timer expire, until sensor and SEL show it."""
            pod.ipmi('mc', 'watchdog', 'set', 'timeout=1', 'use=sms',
                     'clear=sms', f'action={action}')
            pod.ipmi('mc', 'watchdog', 'reset')
            self.until(lambda: re.search(
                rf'Watchdog .*[|] {state}$', pod.ipmi('sdr', 'elist'),
                re.MULTILINE))
            # The entry follows the action.
            self.until(lambda: re.search(rf'Watchdog.*[|] {state}',
                                         pod.ipmi('sel', 'elist')))
            self.assertRegex(pod.ipmi('mc', 'watchdog', 'get'),
                             'Stopped(?s:.*)Expiration Flags(?s:.*)SMS/OS')

        expire('none', 'Timer expired')
        self.assertEqual(uid, self.sandbox.wait_running(self.name)[
            'metadata']['uid'])
        self.assertIn('unknown', pod.ipmi('chassis', 'restart_cause'))
        for action, state in ('reset', 'Hard reset'), ('cycle', 'Power cycle'):
            expire(action, state)
            uid = self.sandbox.wait_running(self.name, other_than=uid)[
                'metadata']['uid']
            self.until(lambda: 'atchdog' in pod.ipmi(
                'chassis', 'restart_cause'))
        expire('poweroff', 'Power down')
        self.sandbox.wait_stopped(self.name)
        self.assertEqual({}, self.denied_calls())

    def test_ping(self):
        pod = self.pod()
        # ipmitool sends an ASF ping with -I lan only.
        done = pod.ipmitool('mc', 'info', options=('-vvv',), interface='lan')
        self.assertIn('IPMI Supported', done.stdout)
        self.assertEqual(0, done.returncode)

    def test_idle_memory(self):
        pod = self.pod()
        self.wait_ready(pod)
        for _ in range(20):
            pod.ipmi('power', 'status')
        self.assertLess(processes.anonymous(pod.process.pid),
                        MAX_MEMORY * 1024)

    def test_sigterm_finishes_commands(self):
        pod = self.pod()
        self.wait_ready(pod)
        self.sandbox.fault('delay', verb='PATCH',
                           where='virtualmachines/' + self.name, delay=1)
        with subprocess.Popen(
                ['ipmitool', '-I', 'lanplus', '-H', pod.address, '-p',
                 str(pod.port), '-U', 'admin', '-E', '-N', '5', 'power',
                 'on'], env=process.environment(process.NO_HOME, {
                     'IPMI_PASSWORD': pod.password}),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
            self.until(lambda: self.sandbox.faults()['faults'][0]['hits'])
            os.kill(pod.process.pid, signal.SIGTERM)
            # The command is finished, and its response sent.
            self.assertIn(b'Up/On', client.communicate(timeout=20)[0])
        self.until(lambda: pod.process.returncode is not None)
        self.assertEqual(0, pod.process.returncode)
        pod.process.wait_output('IPMI stopped')
        self.sandbox.wait_running(self.name)

    def test_vm_is_created_and_deleted(self):
        pod = self.pod(vm=False)
        self.wait_ready(pod)
        self.assertIn('not found', pod.ipmitool('power', 'status').stdout)
        self.make(self.name)
        self.until(lambda: pod.ipmitool('power', 'status').stdout.strip()
                   == 'Chassis Power is off')
        self.sandbox.delete('virtualmachines', self.name)
        self.sandbox.wait('virtualmachines', self.name,
                          lambda vm: vm is None)
        self.until(lambda: 'not found' in pod.ipmitool(
            'power', 'status').stdout)
        self.sandbox.create('virtualmachines',
                            machines.vm(self.name, 'Halted'))
        self.until(lambda: pod.ipmitool('power', 'status').stdout.strip()
                   == 'Chassis Power is off')
        self.assertEqual(200, pod.probe('/readyz')[0])

    def test_not_ready_during_outage(self):
        pod = self.pod()
        self.wait_ready(pod)
        self.sandbox.outage(15)
        code, text = self.until(
            lambda: (found := pod.probe('/readyz'))[0] == 503 and found)
        self.assertRegex(text, 'Watch of virtualmachine')
        self.assertEqual((200, 'ok'), pod.probe('/livez'))
        self.assertLess(0, pod.metric('virtbmc_cache_age_seconds'))
        self.wait_ready(pod)

    def test_hanging_api_delays_no_other_session(self):
        pod = self.pod()
        self.wait_ready(pod)
        self.sandbox.fault('hang', verb='GET', count=1000,
                           where=f'virtualmachines/{self.name}$')
        self.addCleanup(self.sandbox.clear_faults)
        with pod.shell() as one, pod.shell() as other:
            for say in one, other:
                self.assertEqual('Chassis Power is off', say('power status'))
            # The cache is fresh: nothing was asked.
            self.assertEqual(0, self.hits())
            self.sandbox.fault('503', verb='WATCH', count=1000)
            self.sandbox.fault('503', verb='GET', count=1000,
                               where='virtualmachines$')
            self.sandbox.fault('break', verb='WATCH')
            self.until(lambda: pod.metric('virtbmc_cache_age_seconds')
                       > options.Options().stale_seconds)
            with futures.ThreadPoolExecutor(1) as pool:
                asked = pool.submit(one, 'power status')
                self.until(self.hits)
                self.assertRegex(other('mc info'), r'^Device ID +: ')
                self.assertNotEqual('Chassis Power is off', asked.result())
        self.sandbox.clear_faults()
        self.wait_ready(pod)
        self.assertEqual('Chassis Power is off', pod.ipmi('power', 'status'))

    def hits(self):
        """Return how many API calls the first fault has met."""
        return self.sandbox.faults()['faults'][0]['hits']

    def test_liveness_fails_while_process_hangs(self):
        pod = self.pod()
        self.wait_ready(pod)
        os.kill(pod.process.pid, signal.SIGSTOP)
        try:
            self.assertRaises(requests.RequestException, requests.get,
                              f'http://{pod.address}:{pod.health_port}/livez',
                              timeout=1)
        finally:
            os.kill(pod.process.pid, signal.SIGCONT)
        self.assertEqual((200, 'ok'), pod.probe('/livez'))


class RotationTest(ipmi_pod.PodTestCase):

    def setUp(self):
        super().setUp()
        self.one = self.pod()
        self.wait_ready(self.one)
        self.pid = self.one.process.pid

    def change(self, **files):
        self.one.mount.write(**files)

    def assert_refused(self, **options):
        done = self.one.ipmitool('power', 'status', options=(
            '-N', '1', '-R', '1'), **options)
        self.assertNotEqual(0, done.returncode, done.stdout)
        return done.stdout

    def test_new_password_ends_sessions(self):
        old = self.one.password
        with self.one.shell() as say:
            self.assertEqual('Chassis Power is off', say('power status'))
            self.assertEqual(1, self.one.metric('virtbmc_ipmi_sessions'))
            self.one.password = secrets.token_hex(10)
            self.change(username=b'admin',
                        password=self.one.password.encode())
            # The session was opened with the old password.
            self.assertNotEqual('Chassis Power is off', say('power status'))
        self.assertEqual('Chassis Power is off',
                         self.one.ipmi('power', 'status'))
        self.assertIn('Unable to establish', self.assert_refused(password=old))
        self.assertEqual(200, self.one.probe('/readyz')[0])
        self.assertNotIn(old, self.one.process.output)
        self.assertNotIn(self.one.password, self.one.process.output)
        self.assertEqual(self.pid, self.one.process.pid)

    def test_new_password_over_v15(self):
        with self.one.shell('lan') as say:
            self.assertEqual('Chassis Power is off', say('power status'))
            self.assertEqual(1, self.one.metric('virtbmc_ipmi_sessions'))
            old, self.one.password = self.one.password, 'x' * 17
            self.change(username=b'admin', password=b'x' * 17)
            self.assertNotEqual('Chassis Power is off', say('power status'))
        # IPMI v1.5 has no space for 17 bytes: every v1.5 login fails.
        for password in old, 'x' * 16:
            self.assertIn('not supported', self.assert_refused(
                password=password, interface='lan'))
        self.assertEqual('Chassis Power is off',
                         self.one.ipmi('power', 'status'))
        self.one.password = 'x' * 16
        self.change(username=b'admin', password=b'x' * 16)
        self.assertEqual('Chassis Power is off', self.one.ipmi(
            'power', 'status', interface='lan'))
        self.assert_refused(password=old, interface='lan')

    def test_role_limits_privileges(self):
        password = self.one.password.encode()
        with self.one.shell() as say:
            self.assertEqual('Chassis Power is off', say('power status'))
            self.change(username=b'admin', password=password,
                        role=b'ReadOnly')
            # The session was opened by an administrator.
            self.assertNotEqual('Chassis Power is off', say('power status'))
        for interface, refusal in (('lanplus', 'Unable to establish'),
                                   ('lan', 'level exceeds limit')):
            # ipmitool asks for ADMINISTRATOR by itself.
            self.assertIn(refusal, self.assert_refused(interface=interface))
            self.assertEqual('Chassis Power is off', self.one.ipmi(
                'power', 'status', options=('-L', 'USER'),
                interface=interface))
            for words in (('power', 'on'), ('chassis', 'bootdev', 'pxe'),
                          ('chassis', 'policy', 'always-on')):
                done = self.one.ipmitool(*words, options=('-L', 'USER'),
                                         interface=interface)
                self.assertIn('nsufficient privilege', done.stdout)
        self.change(username=b'admin', password=password, role=b'Operator')
        self.assert_refused()
        operator = {'options': ('-L', 'OPERATOR')}
        self.one.ipmi('power', 'on', **operator)
        self.sandbox.wait_running(self.name)
        done = self.one.ipmitool('raw', '6', '2', **operator)
        self.assertIn('nsufficient privilege', done.stdout)
        self.change(username=b'admin', password=password)
        self.one.ipmi('mc', 'reset', 'cold')

    def test_new_user_name(self):
        self.change(username=b'root', password=self.one.password.encode())
        self.assert_refused()
        done = self.one.ipmitool('power', 'status', username='root')
        self.assertEqual(0, done.returncode, done.stdout)

    def test_unchanged_secret_keeps_sessions(self):
        with self.one.shell() as say:
            self.assertEqual('Chassis Power is off', say('power status'))
            self.change(username=b'admin', more=b'x',
                        password=self.one.password.encode())
            self.assertEqual('Chassis Power is off', say('power status'))

    def test_unusable_secret_is_not_ready(self):
        password = self.one.password.encode()
        for files in ({'username': b'admin'}, {},
                      {'username': b'admin', 'password': b''},
                      {'username': b'admin', 'password': password * 3},
                      {'username': b'\xff', 'password': password}):
            self.change(**files)
            code, text = self.one.probe('/readyz')
            self.assertEqual(503, code)
            self.assertIn('is unusable', text)
            self.assertEqual(200, self.one.probe('/livez')[0])
        self.assert_refused()
        self.assert_refused(password='')
        self.assert_refused(username='', password='')
        self.change(username=b'admin', password=password)
        self.assertEqual('Chassis Power is off',
                         self.one.ipmi('power', 'status'))
        self.assertEqual(200, self.one.probe('/readyz')[0])
        self.assertEqual(self.pid, self.one.process.pid)
        self.assertIsNone(self.one.process.returncode)
