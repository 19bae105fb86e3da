# SPDX-License-Identifier: Apache-2.0
"""The API calls of each action when nothing else is in progress.

The table in ``doc/source/internals.rst`` gives the reason of each call.
"""

import collections
from concurrent import futures
import threading

import fixtures

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_on_off
from sushy_kubevirt.machine import power_state
from tests.fixtures import machine_case
from tests.fixtures import media_case

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF

GET_VM = ('get', 'virtualmachines.kubevirt.io')
GET_VMI = ('get', 'virtualmachineinstances.kubevirt.io')
PATCH_VM = ('patch', 'virtualmachines.kubevirt.io')
GET_CLAIM = ('get', 'persistentvolumeclaims')
CREATE_VOLUME = ('create', 'datavolumes.cdi.kubevirt.io')


def call(action, resource='virtualmachines'):
    return 'update', f'{resource}/{action}.subresources.kubevirt.io'


def made(bmc):
    """Count a BMC's API calls by verb and resource.

    Without those in the background: watches, feature gates, a look for CDI.
    """
    found = collections.Counter()
    for (verb, resource, _), count in bmc.client.calls.items():
        if verb not in ('watch', 'list') and not resource.startswith('apis.'):
            found[verb, resource] += count
    return found


def drop_network(spec):
    spec['domain']['devices'].update(interfaces=[],
                                     autoattachPodInterface=False)
    spec['networks'] = []


class CallsTestCase(machine_case.MachineTestCase):

    def assert_calls(self, expected, machine, function, *args, again=()):
        """Check the API calls of one call of a function.

        :param expected: list of (verb, resource) in any order
        :param again: calls that a conflict with KubeVirt's controllers may
            add, once each
        """
        before = made(machine.cluster)
        function(*args)
        expected = collections.Counter(expected)
        calls = made(machine.cluster) - before
        repeated = collections.Counter(again) & (calls - expected)
        self.assertEqual(expected, calls - repeated)

    def settles(self, machine, state):
        """Wait until KubeVirt and the BMC have nothing left to do."""
        status = 'Running' if state is ON else 'Stopped'
        self.becomes(machine, state)
        self.assertTrue(machine.wait(lambda now: (
            now.vm['status'].get('printableStatus') == status
            and now.vm['status'].get('created') is (
                True if state is ON else None)
            and not now.vmi_gone
            and not now.vm['status'].get('stateChangeRequests')
            and (now.vmi is not None) is (state is ON)), 20))


class PowerCallsTestCase(CallsTestCase):

    def test_on_and_force_off(self):
        for strategy, on, off in (
                ('Halted', [PATCH_VM, call('start')], [call('stop')]),
                ('RerunOnFailure', [GET_VM, call('start')], [call('stop')]),
                ('Manual', [GET_VM, call('start')], [call('stop')]),
                ('Always', [PATCH_VM], [PATCH_VM, call('stop')])):
            machine = self.machine(strategy)
            # KubeVirt refuses the start of a VM that it has just started for
            # its new strategy. That is read if no watch shows it in time.
            again = [GET_VM, GET_VMI] if strategy == 'Halted' else ()
            for stop in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN):
                self.settles(machine, OFF)
                if strategy == 'Halted' and stop is R.GRACEFUL_SHUTDOWN:
                    # Now RerunOnFailure.
                    on, again = [GET_VM, call('start')], ()
                self.assert_calls(on, machine, machine.reset, R.ON,
                                  again=again)
                self.settles(machine, ON)
                self.until('no annotations',
                           lambda: not self.annotations(machine.name))
                self.assert_calls([GET_VM, GET_VMI, *off], machine,
                                  machine.reset, stop)

    def test_restart(self):
        for strategy in ('RerunOnFailure', 'Always', 'Manual'):
            machine = self.machine(strategy, off=False)
            for kind in (R.FORCE_RESTART, R.GRACEFUL_RESTART):
                uid = self.uid(machine.name)
                self.settles(machine, ON)
                self.assert_calls([GET_VM, GET_VMI, call('restart')],
                                  machine, machine.reset, kind)
                self.until('a new VMI', lambda: self.uid(
                    machine.name) not in (None, uid))

    def test_nothing_to_do_is_confirmed_by_a_read(self):
        for strategy, state, kind in (('Manual', OFF, R.FORCE_OFF),
                                      ('Always', ON, R.ON)):
            machine = self.machine(strategy, off=state is OFF)
            self.settles(machine, state)
            self.assert_calls([GET_VM, GET_VMI], machine, machine.reset, kind)

    def test_pause_and_resume(self):
        machine = self.machine(off=False)
        self.settles(machine, ON)
        for kind, action in ((R.PAUSE, 'pause'), (R.RESUME, 'unpause')):
            self.assert_calls(
                [GET_VM, GET_VMI, call(action, 'virtualmachineinstances')],
                machine, machine.reset, kind)

    def test_reads_show_the_action(self):
        # Without a read after it, in this process and in another.
        machine = self.machine('Manual')
        for kind, before, after in ((R.ON, OFF, ON), (R.FORCE_OFF, ON, OFF)):
            self.settles(machine, before)
            machine.reset(kind)
            self.assertIsNot(before, machine.power_state())
            self.becomes(machine, after)

    def test_answers_when_kubevirt_has_accepted(self):
        """Before the watches deliver anything; then a read waits for it."""
        machine = self.machine('Manual')
        self.settles(machine, OFF)
        self.addCleanup(self.sandbox.clear_faults)
        for action, count in ('hang', 2), ('break', 1):
            self.sandbox.fault(action, verb='WATCH', count=count,
                               where='/virtualmachine(instance)?s$')
        self.until('silent watches', lambda: self.fault_hits()[0] == 2)
        self.assert_calls([GET_VM, call('start')], machine, machine.reset,
                          R.ON)
        self.assertIsNone(machine.version())
        # A client that repeats the request does not start it twice.
        self.sandbox.wait_boot(machine.name, 1)
        self.assert_calls([GET_VM, GET_VM, GET_VMI], machine, machine.reset,
                          R.ON)
        self.assertIs(ON, machine.power_state())
        self.assert_calls([GET_VM, GET_VMI, call('stop')], machine,
                          machine.reset, R.FORCE_OFF)
        self.assert_calls([GET_VM], machine, machine.power_state)
        self.assertIsNot(ON, machine.power_state())
        self.assertEqual(1, len(self.sandbox.boots(machine.name)))


class DeadWatchTestCase(machine_case.MachineTestCase):
    """Watches that report nothing any more, and have not been noticed."""

    def frozen(self, machine):
        """End the watches of the machine's BMC."""
        for each in machine.cluster.cache._watchers:
            each.stop()
        return machine

    def test_on_of_machine_that_was_started(self):
        for strategy in ('Manual', 'Halted'):
            machine = self.frozen(self.machine(strategy))
            self.sandbox.do(machine.name, 'start')
            self.sandbox.wait_running(machine.name)
            machine.reset(R.ON)
            self.assertIs(ON, machine.power_state())
            self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_on_of_machine_that_was_stopped(self):
        for strategy in ('Manual', 'Always'):
            machine = self.frozen(self.machine(strategy, off=False))
            self.sandbox.do(machine.name, 'stop')
            self.sandbox.wait_stopped(machine.name)
            machine.reset(R.ON)
            self.sandbox.wait_running(machine.name)

    def test_on_of_machine_that_was_halted(self):
        machine = self.frozen(self.machine('Manual'))
        self.sandbox.patch('virtualmachines', machine.name,
                           {'spec': {'runStrategy': 'Halted'}})
        machine.reset(R.ON)
        self.sandbox.wait_running(machine.name)
        self.assertEqual('RerunOnFailure', self.strategy(machine.name))

    def test_on_of_machine_that_was_replaced(self):
        for strategy in ('Manual', 'Halted'):
            machine = self.frozen(self.machine(strategy))
            vm = self.sandbox.vm(machine.name)
            self.sandbox.delete('virtualmachines', machine.name)
            self.sandbox.wait('virtualmachines', machine.name,
                              lambda vm: vm is None)
            self.sandbox.create('virtualmachines', {
                **vm, 'metadata': {'name': machine.name}, 'status': {}})
            self.assertRaises(errors.MachineNotFound, machine.reset, R.ON)
            self.assertRaises(errors.MachineNotFound, machine.set_boot,
                              boot.Target.PXE, boot.Enabled.ONCE)
            self.stays(lambda: not self.sandbox.boots(machine.name))
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_on_with_override_of_another_bmc(self):
        for strategy in ('Manual', 'Halted'):
            machine = self.frozen(self.machine(strategy))
            self.bmc().machine(machine.name).set_boot(
                boot.Target.PXE, boot.Enabled.ONCE)
            machine.reset(R.ON)
            self.assertEqual('Pxe', self.sandbox.wait_boot(
                machine.name, 1)['class'])
            self.wait_override_removed(machine.name)

    def test_on_after_change_of_strategy(self):
        for before, after in (
                ('Halted', 'Always'), ('Halted', 'RerunOnFailure'),
                ('Halted', 'Manual'), ('Manual', 'Always'),
                ('RerunOnFailure', 'Halted'), ('Manual', 'Once')):
            machine = self.frozen(self.machine(before))
            boots = len(self.sandbox.boots(machine.name))
            self.sandbox.patch('virtualmachines', machine.name,
                               {'spec': {'runStrategy': after}})
            machine.reset(R.ON)
            self.sandbox.wait_running(machine.name)
            self.stays(lambda: len(self.sandbox.boots(machine.name))
                       == boots + 1)
            self.assertEqual(
                {'Halted': 'RerunOnFailure'}.get(after, after),
                self.strategy(machine.name))

    def test_on_while_vmi_ends(self):
        for strategy in ('Manual', 'Halted'):
            machine = self.frozen(self.machine(
                strategy, annotations={machine_case.IGNORE_ACPI: 'true'},
                grace=2))
            self.sandbox.do(machine.name, 'start')
            self.sandbox.wait_running(machine.name)
            uid = self.uid(machine.name)
            self.sandbox.do(machine.name, 'stop')
            machine.reset(R.ON)
            self.sandbox.wait_running(machine.name, other_than=uid)

    def test_off_and_restart_of_machine_that_was_started(self):
        for kind, boots in ((R.FORCE_OFF, 1), (R.FORCE_RESTART, 2)):
            machine = self.frozen(self.machine('Manual'))
            self.sandbox.do(machine.name, 'start')
            self.sandbox.wait_running(machine.name)
            self.until('the boot', lambda: self.sandbox.boots(machine.name))
            machine.reset(kind)
            if kind is R.FORCE_OFF:
                self.assertIsNot(ON, machine.power_state())
                self.sandbox.wait_stopped(machine.name)
            self.sandbox.wait_boot(machine.name, boots)

    def test_override_after_that_of_another_bmc(self):
        machine = self.frozen(self.machine('Halted'))
        self.bmc().machine(machine.name).set_boot(
            boot.Target.PXE, boot.Enabled.ONCE)
        machine.set_boot(boot.Target.CD, boot.Enabled.CONTINUOUS)
        other = self.bmc().machine(machine.name).boot()
        self.assertEqual((boot.Target.CD, boot.Enabled.CONTINUOUS),
                         (other.target, other.enabled))


class TwoBmcsTestCase(machine_case.MachineTestCase):
    """Actions of two BMC processes at the same time."""

    def both(self, machine, *functions):
        """Call one function of a machine in each of two BMCs at once."""
        together = threading.Barrier(2)
        machines = machine, self.bmc().machine(machine.name)

        def call(machine, function):
            together.wait()
            function(machine)

        with futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(call, machines, functions))

    def test_on(self):
        for strategy in ('Halted', 'Manual', 'RerunOnFailure', 'Always'):
            machine = self.machine(strategy)
            for _ in range(3):
                boots = len(self.sandbox.boots(machine.name))
                self.both(machine, *[lambda each: each.reset(R.ON)] * 2)
                self.becomes(machine, ON)
                self.stays(lambda: len(self.sandbox.boots(machine.name))
                           == boots + 1, 0.2)
                machine.reset(R.FORCE_OFF)
                self.becomes(machine, OFF)

    def test_on_between_the_reads_of_another_on(self):
        """A BMC reads the VM before another starts it, its VMI afterwards."""
        self.useFixture(fixtures.MockPatchObject(
            power_on_off, '_start_cached', lambda machine, state: None))
        machine = self.machine('Halted')
        other = self.bmc().machine(machine.name)
        client = other.cluster.client
        read = client.get

        def get(resource, *key):
            if resource is api_resources.VMI:
                client.get = read
                machine.reset(R.ON)
                self.sandbox.wait_running(machine.name)
            return read(resource, *key)

        client.get = get
        other.reset(R.ON)
        self.assertIs(ON, other.power_state())
        self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_on_and_boot_override(self):
        # Whichever is first: the override is in effect in one boot.
        machine = self.machine('Halted')
        for _ in range(4):
            boots = len(self.sandbox.boots(machine.name))
            self.both(machine, lambda each: each.reset(R.ON),
                      lambda each: each.set_boot(boot.Target.PXE,
                                                 boot.Enabled.ONCE))
            self.becomes(machine, ON)
            if self.sandbox.wait_boot(
                    machine.name, boots + 1)['class'] != 'Pxe':
                machine.reset(R.FORCE_RESTART)
                self.assertEqual('Pxe', self.sandbox.wait_boot(
                    machine.name, boots + 2)['class'])
            self.wait_override_removed(machine.name)
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)


class BootCallsTestCase(CallsTestCase):

    def test_override(self):
        machine = self.machine('Halted')
        self.settles(machine, OFF)
        self.assert_calls([PATCH_VM], machine, machine.set_boot,
                          boot.Target.PXE, boot.Enabled.ONCE)
        # Pending: whether its boot has started is read from the VMI.
        self.assert_calls([GET_VM, GET_VMI, PATCH_VM],
                          machine, machine.set_boot,
                          boot.Target.HDD, boot.Enabled.ONCE)
        # Always, until the boot has started.
        self.assert_calls([PATCH_VM], machine, machine.reset, R.ON)

    def test_override_of_running_machine(self):
        machine = self.machine(off=False)
        self.settles(machine, ON)
        self.assert_calls([PATCH_VM], machine, machine.set_boot,
                          boot.Target.PXE, boot.Enabled.CONTINUOUS)

    def test_nothing_to_do_and_refusals_are_confirmed_by_a_read(self):
        machine = self.machine('Halted', change=drop_network)
        self.settles(machine, OFF)
        self.assert_calls([GET_VM, GET_VMI], machine, machine.set_boot,
                          boot.Target.NONE, boot.Enabled.DISABLED)

        self.assert_calls([GET_VM, GET_VMI], machine, self.assertRaises,
                          errors.InvalidValue, machine.set_boot,
                          boot.Target.PXE, boot.Enabled.ONCE)


class MediaCallsTestCase(media_case.MediaTestCase, CallsTestCase):

    def test_insert(self):
        for off, second in ((True, []), (False, [GET_VM, GET_VMI])):
            machine = self.machine('Manual', off=off,
                                   change=media_case.drop_medium)
            self.settles(machine, OFF if off else ON)
            self.assert_calls(
                [GET_VM, GET_VMI, PATCH_VM, GET_CLAIM, CREATE_VOLUME,
                 *second, PATCH_VM],
                machine, machine.insert_media, 'Cd', self.source(),
                again=[GET_VM, GET_VMI])
            machine.eject_media('Cd')
