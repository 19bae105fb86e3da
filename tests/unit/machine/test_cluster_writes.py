# SPDX-License-Identifier: Apache-2.0
"""Writes to a cluster, and the reads that follow them."""

import threading
import time
from unittest import mock

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import machine as machine_module
from tests.unit.machine import api
from tests.unit.machine import cluster_case


def custom_attributes(machine):
    """Return the attributes that are not derived from a field of the VM."""
    known = {knob.name for knob in bios.VM_ATTRIBUTES}
    return {name: value for name, value in machine.attributes().items()
            if name not in known}


class WriteTestCase(cluster_case.ClusterTestCase):

    def test_recreated_vm_is_not_written_to(self):
        machine = self.cluster().machine('a')
        machine.state()
        self.api.put('virtualmachines', api.vm('a'))
        self.assertRaises(errors.Conflict, machine.patch, [
            {'op': 'add', 'path': '/metadata/labels', 'value': {}}])

    def test_write_notices_deletion_before_watch(self):
        machine = self.cluster().machine('a')
        # No event: as if the watch lagged.
        del self.api.objects['virtualmachines'][('default', 'a')]
        self.assertRaises(errors.MachineNotFound, machine.set_indicator,
                          'Lit')
        self.assertRaises(errors.MachineNotFound, machine.state)

    def test_read_returns_own_write(self):
        self.api.rule('WATCH', '', 'hang', times=10 ** 6)
        machine = self.cluster().machine('a')
        machine.set_attributes({'Quiet': True, 'Cores': 2})
        self.assertEqual({'Quiet': True, 'Cores': 2},
                         custom_attributes(machine))
        machine.set_attributes({'Cores': None})
        self.assertEqual({'Quiet': True}, custom_attributes(machine))
        machine.set_indicator('Blinking')
        self.assertEqual('Blinking', machine.indicator())
        machine.reset_attributes()
        self.assertEqual({}, custom_attributes(machine))
        self.assertEqual('Blinking', machine.indicator())

    def test_read_returns_effect_of_own_action(self):
        self.api.rule('WATCH', '', 'hang', times=10 ** 6)
        machine = self.cluster().machine('a')
        machine.call('start')
        self.assertEqual('called', self.annotation(machine, 'start'))

    def test_read_after_action_while_the_cache_is_stale(self):
        machine = self.cluster(opts=cluster_case.STALE).machine('a')
        self.api.rule('WATCH', '', (500, {}), times=10 ** 6)
        self.api.rule('GET', '/virtualmachine(instance)?s$', (500, {}),
                      times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.stale)
        machine.fetch()     # as the action does
        machine.call('start')
        with mock.patch.object(machine_module, 'FETCHED_SECONDS', 60):
            # What was read before the action does not serve this read.
            self.assertEqual('called', self.annotation(machine, 'start'))
            reads = self.api.count('GET', '/virtualmachines/')
            machine.state()
        self.assertEqual(reads, self.api.count('GET', '/virtualmachines/'))

    def started(self):
        """Return a machine whose start was accepted, and not delivered."""
        machine = self.cluster().machine('a')
        with mock.patch.object(machine_module, 'EFFECT_SECONDS', 60):
            machine.call('start')
        self.vm['status'] = {'stateChangeRequests': [{'action': 'Start'}]}
        return machine

    def test_read_waits_until_watch_shows_effect_of_own_action(self):
        machine = self.started()
        # A response of before is not valid any more, and an event loop does
        # not wait.
        self.assertIsNone(machine.version())
        self.assertRaises(blocking.WouldBlock, blocking.attempt,
                          machine.state)
        timer = threading.Timer(0.1, self.api.put,
                                ('virtualmachines', self.vm))
        timer.start()
        self.assertTrue(machine.state().vm['status'])
        self.assertIsNotNone(machine.version())
        blocking.attempt(machine.state)
        self.assertEqual(0, self.api.count('GET', '/virtualmachines/'))

    def test_watch_shows_effect_of_own_action_before_the_next_read(self):
        machine = self.started()
        self.api.put('virtualmachines', self.vm)
        self.until(machine.version)
        self.assertTrue(blocking.attempt(machine.state).vm['status'])

    def test_read_after_action_of_which_nothing_is_delivered(self):
        self.api.rule('WATCH', '', 'hang', times=10 ** 6)
        machine = self.started()
        self.api.rule('GET', '/virtualmachines/', (403, {}))
        with mock.patch.object(machine_module, 'EFFECT_SECONDS', 0):
            machine.call('start')
        # Not from the event loop.
        self.assertRaises(blocking.WouldBlock, blocking.attempt,
                          machine.state)
        machine.state()
        self.assertEqual(1, self.api.count('GET', '/virtualmachines/'))
        # It is awaited once.
        self.assertIsNotNone(machine.version())
        blocking.attempt(machine.state)

    def test_no_response_of_before_is_valid_while_the_vm_is_read(self):
        self.api.rule('WATCH', '', 'hang', times=10 ** 6)
        machine = self.cluster().machine('a')
        with mock.patch.object(machine_module, 'EFFECT_SECONDS', 0):
            machine.call('start')
        fetch, versions = machine_module.Machine.fetch_vm, []

        def fetch_vm(machine):
            versions.append(machine.version())
            return fetch(machine)

        with mock.patch.object(machine_module.Machine, 'fetch_vm', fetch_vm):
            self.assertEqual('called', self.annotation(machine, 'start'))
        self.assertEqual([None], versions)
        self.assertIsNotNone(machine.version())

    def test_effect_on_vm_that_is_deleted(self):
        machine = self.started()
        self.api.delete('virtualmachines', self.vm)
        self.until(lambda: machine.cached_state() is None)
        self.assertRaises(errors.MachineNotFound, blocking.attempt,
                          machine.state)

    def test_action_that_changes_nothing_is_not_awaited(self):
        self.vm['spec']['runStrategy'] = 'Halted'
        self.api.put('virtualmachines', self.vm)
        machine = self.cluster().machine('a')
        machine.call('stop', {'gracePeriod': 0})
        blocking.attempt(machine.state)
        self.assertEqual(0, self.api.count('GET', '/virtualmachines/'))

    def test_attempt_from_cache_is_followed_by_a_read(self):
        machine = self.cluster().machine('a')
        for first, reads in (
                ((None,), 0), (None, 1), (errors.Conflict('x'), 1),
                (errors.WrongState('x'), 1)):
            seen = []

            def from_cache(state, first=first, seen=seen):
                seen.append(state.vm['metadata']['name'])
                if isinstance(first, Exception):
                    raise first
                return first

            before = self.api.count('GET', '/virtualmachines/')
            machine.write(lambda _state: None, from_cache)
            self.assertEqual((['a'], reads), (seen, self.api.count(
                'GET', '/virtualmachines/') - before))

    def test_refusal_of_attempt_from_cache_is_final(self):
        machine = self.cluster().machine('a')

        def refuse(state):
            raise errors.Rejected('x')

        self.assertRaises(errors.Rejected, machine.write,
                          lambda _state: None, refuse)

    def test_no_attempt_from_stale_cache(self):
        machine = self.cluster(opts={'stale_seconds': 0}).machine('a')
        self.api.rule('WATCH', '', (500, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.age)
        machine.write(lambda _state: None, self.fail)

    def test_writes_are_retried_after_faults(self):
        bad = {
            'conflict': (409, {'message': 'modified'}),
            'busy': (429, {'message': 'busy'}, {'Retry-After': '0'}),
            'failing': (500, {'message': 'already underway'}),
            'reset': 'reset', 'lost': 'drop-after', 'hang': 'hang',
        }
        machine = self.cluster(opts={'request_timeout': 1}).machine('a')
        for name, action in bad.items():
            with self.subTest(name):
                self.api.rule('PATCH', '', action)
                before = self.api.version
                machine.set_attributes({'Name': name})
                self.assertEqual({'Name': name}, custom_attributes(machine))
                self.assertEqual(before + 1, self.api.version)

    def test_hanging_request_is_retried_before_deadline(self):
        machine = self.cluster(opts={
            'write_deadline': 6, 'request_timeout': 60}).machine('a')
        self.api.rule('PATCH', '', 'hang')
        machine.set_indicator('Lit')
        self.assertEqual('Lit', machine.indicator())

    def test_effect_of_write_without_response(self):
        """The watch shows it, while the API answers no reads."""
        machine = self.cluster().machine('a')
        self.api.rule('PATCH', '', 'drop-after')
        self.api.rule('GET', '/virtualmachines/a$', 'hang', times=99)

        def step(state):
            vm = state.vm
            if vm['metadata']['annotations'].get('mark'):
                return 'done'
            return machine.patch([{
                'op': 'test', 'path': '/metadata/resourceVersion',
                'value': vm['metadata']['resourceVersion'],
            }, {
                'op': 'add', 'path': '/metadata/annotations/mark',
                'value': 'x'}])

        self.assertEqual('done', machine.write(
            step, lambda state: (step(state),)))
        self.assertEqual(1, self.api.count('PATCH'))

    def test_rejected_write_is_not_retried(self):
        machine = self.cluster().machine('a')
        self.api.rule('PATCH', '', (422, {'message': 'no'}))
        self.assertRaises(errors.Rejected, machine.set_indicator, 'Lit')
        self.assertEqual(1, self.api.count('PATCH'))
        self.assertRaises(errors.InvalidValue, machine.set_indicator, 'On')

    def test_write_fails_at_deadline(self):
        machine = self.cluster().with_options(write_deadline=0.5).machine('a')
        self.api.rule('PATCH', '', (503, {'message': 'no'}), 10 ** 6)
        began = time.monotonic()
        self.assertRaises(errors.ServerError, machine.set_indicator, 'Lit')
        # Well below the default deadline.
        self.assertLess(time.monotonic() - began, 10)

    def test_close_interrupts_waiting_write(self):
        c = self.cluster(opts={'write_deadline': 60})
        machine = c.machine('a')
        self.api.rule('PATCH', '', (429, {}, {'Retry-After': '30'}))
        threading.Timer(0.3, c.close).start()
        began = time.monotonic()
        self.assertRaises(errors.Unavailable, machine.set_indicator, 'Lit')
        self.assertLess(time.monotonic() - began, 20)

    def test_concurrent_writers_lose_no_update(self):
        machines = [self.cluster(opts={'write_deadline': 20}).machine('a')
                    for _ in range(3)]

        def write(machine, name):
            for n in range(5):
                machine.set_attributes({f'{name}{n}': n})

        threads = [threading.Thread(target=write, args=(m, name))
                   for m, name in zip(machines, 'xyz')]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        machine = self.cluster().machine('a')
        self.assertEqual(15, len(custom_attributes(machine)))
