# SPDX-License-Identifier: Apache-2.0
"""BMCs while the Kubernetes API fails.

Every write succeeds in spite of the faults and takes effect once: the guest
booted as often as requested, no VMI was created and discarded, and the VM
was not updated more often than without faults. Reads do not stay stale after
a broken watch and work again when the API does.
"""

import contextlib
import itertools
import json
import threading
import time

import testtools
from testtools import content

from kubevirt_sandbox.testing import machines
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import sandbox
from tests.fixtures import vbmcd

#: Faults of one write. With drop-after the API server executes it.
WRITE_FAULTS = ('409', '429', '500', '503', 'reset', 'drop-after')

#: Parts of the messages that explain a denied API call.
_REASONS = {'403': 'lacks the right to',
            '401': 'does not accept the credentials'}

_names = (f'machine-{number}' for number in itertools.count(1))


class Redfish:
    """A VM seen through the emulator."""

    def __init__(self, test, emulator, identity):
        self._test = test
        self.emulator = emulator
        self.identity = identity

    def power(self, what):
        self.emulator.reset(self.identity, {
            'on': 'On', 'off': 'ForceOff',
            'reset': 'ForceRestart'}[what])

    def once(self):
        self.emulator.patch_system(self.identity, {'Boot': {
            'BootSourceOverrideEnabled': 'Once',
            'BootSourceOverrideTarget': 'Pxe'}})

    def is_on(self):
        return self.emulator.system(self.identity)['PowerState'] == 'On'

    def assert_access_denied(self, code):
        answer = self.emulator.reset(self.identity, 'On', expect=500).json()
        self._test.assertEqual(
            'Base.1.18.AccessDenied',
            answer['error']['@Message.ExtendedInfo'][0]['MessageId'])
        self._test.assertIn(_REASONS[code], str(answer))
        self.emulator.process.wait_output('Kubernetes API denied access')

    def assert_unavailable(self):
        answer = self.emulator.reset(self.identity, 'ForceRestart',
                                     expect=503)
        self._test.assertTrue(answer.headers['Retry-After'].isdigit())
        self._test.assertIn('ServiceTemporarilyUnavailable', answer.text)


class Ipmi:
    """A VM seen through a BMC of the daemon."""

    def __init__(self, test, vbmcd, name):
        self._test = test
        self.vbmcd = vbmcd
        self.name = name

    def power(self, what):
        self._chassis('power', what)

    def once(self):
        self._chassis('bootdev', 'pxe')

    def _chassis(self, *words):
        self.vbmcd.ipmi(self.name, 'chassis', *words, options=vbmcd.OWN_WAIT)

    def is_on(self):
        return self.vbmcd.ipmi(self.name, 'power', 'status').endswith('on')

    def assert_access_denied(self, code):
        self._assert_fails('Insufficient privilege level', 'power', 'on')
        self.vbmcd.process.wait_output(_REASONS[code])

    def assert_unavailable(self):
        self._assert_fails('Node busy', 'power', 'reset')

    def _assert_fails(self, reason, *words):
        with testtools.ExpectedException(AssertionError, '(?s).*' + reason):
            self._chassis(*words)


class Faults:
    """Mixin with the tests, for a BMC of either protocol."""

    VMS = 0

    #: Seconds after which the BMC gives up a write. A busy machine needs some
    #: of them for the retries of a power-on with three faults.
    WRITE_DEADLINE = None

    def setUp(self):
        super().setUp()
        self.name = next(_names)
        vm = self.sandbox.create('virtualmachines', machines.vm(
            self.name, 'Halted'))
        self.bmc = self.make_bmc(vm)

    @contextlib.contextmanager
    def case(self, name):
        """Name the case in the details of a failed test."""
        try:
            yield
        except Exception:
            self.addDetail('case', content.text_content(name))
            raise

    def start(self):
        """Start the guest and return the number of its boots so far."""
        self.sandbox.patch('virtualmachines', self.name,
                           {'spec': {'runStrategy': 'RerunOnFailure'}})
        self.sandbox.wait_running(self.name)
        self.until(self.bmc.is_on, 15)
        return len(self.sandbox.boots(self.name))

    # Writes

    @contextlib.contextmanager
    def faulty_write(self, action):
        """Make the next write of each kind fail; check that one did."""
        self.sandbox.clear_faults()
        # Only writes fail; the verbs exclude reads.
        for verb in 'PUT', 'PATCH', 'POST':
            self.sandbox.fault(action, verb=verb,
                               where=f'/{self.name}(/|$)')
        yield
        hits = sum(fault['hits'] for fault in self.sandbox.faults()['faults'])
        self.assertGreater(hits, 0, 'the write was not disturbed')
        self.sandbox.clear_faults()

    def version(self):
        """Return the current resourceVersion of the VMIs' collection."""
        return self.sandbox.request(
            'GET', sandbox.path('virtualmachineinstances'),
            expect=200).json()['metadata']['resourceVersion']

    def vmis_since(self, version):
        """List the uids of all VMIs of the VM created after a version.

        A watch from that version delivers them, up to a change that this
        method makes to mark the end.
        """
        mark = self.sandbox.patch('virtualmachineinstances', self.name, {
            'metadata': {'annotations': {'mark': version}}})
        uids = []
        with self.sandbox.request(
                'GET', sandbox.path('virtualmachineinstances'), stream=True,
                params={'watch': 'true', 'resourceVersion': version,
                        'fieldSelector': 'metadata.name=' + self.name},
                expect=200) as response:
            for line in response.iter_lines(chunk_size=2 ** 16):
                event = json.loads(line)
                metadata = event['object']['metadata']
                if event['type'] == 'ADDED':
                    uids.append(metadata['uid'])
                if (metadata['resourceVersion']
                        == mark['metadata']['resourceVersion']):
                    return uids

    def test_power_on_survives_each_fault(self):
        for action in WRITE_FAULTS:
            with self.case(action):
                version = self.version()
                boots = len(self.sandbox.boots(self.name))
                with self.faulty_write(action):
                    self.bmc.power('on')
                self.sandbox.wait_boot(self.name, boots + 1)
                self.sandbox.wait_running(self.name)
                self.assertEqual(1, len(self.vmis_since(version)))
                self.assertEqual(boots + 1,
                                 len(self.sandbox.boots(self.name)))
                self.bmc.power('off')
                self.sandbox.wait_stopped(self.name)

    def test_reset_survives_each_fault(self):
        boots = self.start()
        for number, action in enumerate(WRITE_FAULTS, 1):
            with self.case(action):
                version = self.version()
                before = self.sandbox.vmi(self.name)['metadata']['uid']
                with self.faulty_write(action):
                    self.bmc.power('reset')
                self.sandbox.wait_running(self.name, other_than=before)
                self.sandbox.wait_boot(self.name, boots + number)
                self.assertEqual(1, len(self.vmis_since(version)))
                self.assertEqual(boots + number,
                                 len(self.sandbox.boots(self.name)))
                self.until(self.bmc.is_on, 15)

    def test_power_off_survives_each_fault(self):
        for action in WRITE_FAULTS:
            with self.case(action):
                boots = self.start()
                with self.faulty_write(action):
                    self.bmc.power('off')
                stopped = self.sandbox.wait_stopped(self.name)
                self.until(lambda: not self.bmc.is_on(), 15)
                self.assertEqual(boots, len(self.sandbox.boots(self.name)))
                self.assertFalse(stopped['status'].get(
                    'stateChangeRequests'))
                self.sandbox.patch('virtualmachines', self.name,
                                   {'spec': {'runStrategy': 'Halted'}})

    def test_one_time_boot_survives_each_fault(self):
        for action in WRITE_FAULTS:
            with self.case(action):
                boots = len(self.sandbox.boots(self.name))
                before = self.sandbox.vm(self.name)
                with self.faulty_write(action):
                    self.bmc.once()
                after = self.sandbox.vm(self.name)
                # One change of the VM, however often the write was sent.
                self.assertEqual(before['metadata']['generation'] + 1,
                                 after['metadata']['generation'])
                # The second fault hits the write that restores the spec.
                with self.faulty_write(action):
                    self.bmc.power('on')
                    boot = self.sandbox.wait_boot(self.name, boots + 1)
                    self.assertEqual('Pxe', boot['class'])
                    self.sandbox.wait(
                        'virtualmachines', self.name, lambda vm:
                        vm['spec']['template']
                        == before['spec']['template'])
                self.bmc.power('off')
                self.sandbox.wait_stopped(self.name)
                self.sandbox.patch('virtualmachines', self.name,
                                   {'spec': {'runStrategy': 'Halted'}})

    def test_write_is_repeated_after_timeout(self):
        """A write without response is repeated after its timeout."""
        self.sandbox.fault('hang', verb='PATCH', where=f'/{self.name}$',
                           delay=2)
        begin = time.monotonic()
        self.bmc.power('on')
        self.assertGreater(time.monotonic() - begin, 1.9)
        self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(1, len(self.sandbox.boots(self.name)))

    def test_late_answers_are_not_lost(self):
        """What the API carries out succeeds although no answer comes.

        After the write the API answers no reads either, as under load. The
        watches show what has become of it.
        """
        for number, (action, reads) in enumerate((
                ('on', 0), ('reset', 2), ('off', 2)), 1):
            with self.case(action):
                self.sandbox.fault('silence', verb='WRITE', count=100,
                                   where=f'/{self.name}(/|$)')
                self.sandbox.fault('hang', verb='GET', count=100,
                                   where=f'/{self.name}$', after=reads)
                self.bmc.power(action)
                self.sandbox.clear_faults()
                if action == 'off':
                    self.sandbox.wait_stopped(self.name)
                else:
                    self.sandbox.wait_boot(self.name, number)
                    self.sandbox.wait_running(self.name)
                    self.until(self.bmc.is_on, 15)
        self.assertEqual(2, len(self.sandbox.boots(self.name)))

    # Reads

    def _test_watch(self, *actions, count=1, **more):
        """Break the watches; check that later changes are read."""
        self.start()
        for action in actions:
            with self.case(action):
                for plural in ('virtualmachines',
                               'virtualmachineinstances'):
                    self.sandbox.fault(action, verb='WATCH', count=count,
                                       where=f'/{plural}$', **more)
                    # The fault above affects new watches only.
                    self.sandbox.fault('break', verb='WATCH', count=1,
                                       where=f'/{plural}$')
                self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
                self.until(lambda: not self.bmc.is_on(), 15)
                self.sandbox.wait_stopped(self.name)
                self.sandbox.do(self.name, 'start')
                self.until(self.bmc.is_on, 15)
                # A VM that is stopped before it runs is never Stopped.
                self.sandbox.wait_running(self.name)
                self.sandbox.clear_faults()

    def test_reads_changes_after_broken_watch(self):
        self._test_watch('break', '429', '500', '503', 'reset')

    def test_denied_write_is_reported_at_once(self):
        """A denied write is reported at once and changes nothing."""
        for action in '403', '401':
            with self.case(action):
                self.sandbox.fault(action, verb='PATCH',
                                   where=f'/{self.name}$', count=100)
                self.bmc.assert_access_denied(action)
                # It is not repeated but once, with renewed credentials.
                self.assertIn(self.sandbox.faults()['faults'][0]['hits'],
                              (1, 2))
                self.assertEqual('Halted', self.sandbox.vm(self.name)[
                    'spec']['runStrategy'])
                self.sandbox.clear_faults()
        # It succeeds when the API allows it.
        self.bmc.power('on')
        self.sandbox.wait_boot(self.name, 1)

    def test_long_outage_is_reported(self):
        """An outage longer than a BMC's deadline is reported as such."""
        boots = self.start()
        before = self.sandbox.vmi(self.name)['metadata']['uid']
        self.sandbox.outage(self.WRITE_DEADLINE + 3)
        # A response after the outage would be a success.
        self.bmc.assert_unavailable()
        self.until(self.sandbox.is_available, 20)
        self.assertEqual(boots, len(self.sandbox.boots(self.name)))
        self.until(self.bmc.is_on, 15)
        self.bmc.power('reset')
        self.sandbox.wait_running(self.name, other_than=before)

    def test_state_is_current_after_short_outage(self):
        self.start()
        threading.Timer(0.2, self.bmc.is_on).start()
        self.sandbox.outage(3)
        self.until(self.sandbox.is_available, 10)
        # A change by another client shows whether a read is stale.
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})

        def is_off():
            try:
                return not self.bmc.is_on()
            except AssertionError:
                return False

        self.until(is_off, 15)
        self.bmc.power('on')
        self.until(self.bmc.is_on, 15)


class RedfishTestCase(Faults, base.SandboxTestCase):

    WRITE_DEADLINE = 12

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_KUBEVIRT_STALE_SECONDS': 2,
             'SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE':
                 cls.WRITE_DEADLINE},
            'gunicorn'))

    def make_bmc(self, vm):
        uuid = machines.uuid_of(vm)
        # After the faults of another test, its watch may still be paused.
        self.emulator.wait_system(uuid)
        return Redfish(self, self.emulator, uuid)

    # The watches are the same for IPMI.

    def test_reads_changes_after_expired_watch(self):
        self._test_watch('gone')
        self._test_watch('gone', event=True)

    def test_reads_changes_while_watches_fail(self):
        self._test_watch('500', 'reset', count=100)


class IpmiTestCase(Faults, base.SandboxTestCase):

    # ipmitool waits 10 s for a response.
    WRITE_DEADLINE = 7

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vbmcd = cls.share(vbmcd.Vbmcd(
            cls.sandbox.bmc_account(), {'kubevirt': {
                'stale_seconds': 2,
                'write_deadline': cls.WRITE_DEADLINE}}))

    def make_bmc(self, vm):
        name = vm['metadata']['name']
        self.vbmcd.add(name)
        return Ipmi(self, self.vbmcd, name)
