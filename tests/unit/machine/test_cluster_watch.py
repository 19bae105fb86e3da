# SPDX-License-Identifier: Apache-2.0
"""The cache of a cluster: lists, watches, outages, subscribers."""

import threading
from unittest import mock

import fixtures

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from tests.unit.machine import api
from tests.unit.machine import cluster_case


class WatchTestCase(cluster_case.ClusterTestCase):

    def test_lists_are_paged(self):
        for n in range(25):
            self.api.put('virtualmachines', api.vm(f'vm{n}'))
        c = self.cluster(opts={'page_size': 10})
        self.assertEqual(26, len(c.machines()))

    def test_first_list_is_one_stream(self):
        self.api.streams = True
        for n in range(25):
            self.api.put('virtualmachines', api.vm(f'vm{n}'))
        c = self.cluster()
        self.assertEqual(26, len(c.machines()))
        self.assertEqual(2, self.api.count('STREAM'))
        self.assertEqual(0, self.api.count('GET', 'virtualmachine'))
        # The watch continues where the stream ended.
        self.api.delete('virtualmachines', self.vm)
        self.until(lambda: len(c.machines()) == 25)

    def test_single_vm_is_listed_without_stream(self):
        self.api.streams = True
        self.cluster(vm='default/a').machines()
        self.assertEqual(0, self.api.count('STREAM'))

    def test_first_list_survives_expired_token(self):
        """The list is repeated at once, with larger pages."""
        for n in range(25):
            self.api.put('virtualmachines', api.vm(f'vm{n}'))

        def expire(method, path):
            query = self.api.requests[-1][2]
            if 'continue' in query and int(query['limit']) < 40:
                return 410, {'message': 'too old'}
            return None
        self.api.next_action = expire
        c = self.cluster(opts={'page_size': 2, 'read_deadline': 30})
        self.assertEqual(26, len(c.machines()))
        self.assertEqual(['2', '2', '40'], [
            query['limit'] for method, path, query, _, _ in self.api.requests
            if method == 'GET' and path.endswith('/virtualmachines')])

    def test_watch_delivers_changes(self):
        machine = self.cluster().machine('a')
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')

    def test_stays_off_when_stop_is_delivered_after_end_of_vmi(self):
        machine = self.cluster().machine('a')
        vmi = self.api.put('virtualmachineinstances', api.vmi(self.vm))
        self.vm['spec']['runStrategy'] = 'Manual'
        self.vm['status'] = {'created': True}
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: machine.state().vmi is not None
                   and machine.state().vm.get('status'))
        self.api.delete('virtualmachineinstances', vmi)
        self.until(lambda: machine.state().vmi is None)
        states = []
        machine.cluster.subscribe(lambda machine, state: states.append(
            power_state.of(state)))
        stop = [{'action': 'Stop', 'uid': vmi['metadata']['uid']}]
        for status in (
                {'created': True, 'stateChangeRequests': stop},
                {'created': True, 'printableStatus': 'Stopping'},
                {'printableStatus': 'Stopped'},
                # The next VMI, which was not delivered yet.
                {'created': True, 'printableStatus': 'Stopping'}):
            self.vm['status'] = status
            self.api.put('virtualmachines', self.vm)
        self.until(lambda: len(states) >= 5)
        self.assertEqual(
            [power_state.PowerState.OFF] * 4
            + [power_state.PowerState.POWERING_OFF], states[-5:])

    def test_broken_watch_resumes_at_last_version(self):
        machine = self.cluster().machine('a')
        self.until(self.api.watched)
        lists = self.api.count('GET', 'virtualmachines')
        self.api.break_watches()
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')
        self.assertEqual(lists, self.api.count('GET', 'virtualmachines'))

    def test_lists_again_after_expired_watch(self):
        c = self.cluster()
        machine = c.machine('a')
        self.until(self.api.watched)
        self.api.oldest = 10 ** 6
        self.api.log.clear()
        self.api.delete('virtualmachines', self.vm)
        self.api.put('virtualmachines', api.vm('b'))
        self.api.log.clear()
        self.api.break_watches()
        self.until(lambda: [m.name for m in c.machines()] == ['b'])
        self.assertRaises(errors.MachineNotFound, machine.state)

    def test_stale_cache_reads_from_api(self):
        machine = self.cluster(opts=cluster_case.STALE).machine('a')
        self.until(self.api.watched)
        self.api.rule('WATCH', '', (500, {'message': 'no'}), times=10 ** 6)
        self.api.rule('GET', 'virtualmachines$', (500, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.stale)
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')

    def test_attempts_read_only_a_fresh_cache(self):
        c = self.cluster(opts=cluster_case.STALE)

        def read(name):
            return blocking.attempt(lambda: c.machine(name).power_state())

        self.assertRaises(blocking.WouldBlock, read, 'a')
        self.assertEqual([], self.api.requests)
        c.wait_ready()
        self.until(lambda: self.api.watched() and not c.cache.age)
        count = len(self.api.requests)
        self.assertEqual(power_state.PowerState.OFF, read('a'))
        # A new VM would be waited for.
        self.assertRaises(blocking.WouldBlock, read, 'b')
        self.assertEqual(count, len(self.api.requests))
        self.api.stop()
        self.until(lambda: c.cache.stale)
        self.assertRaises(blocking.WouldBlock, read, 'a')
        self.api.start()
        self.until(lambda: not c.cache.stale)
        self.assertEqual(power_state.PowerState.OFF, read('a'))

    def test_version_changes_with_what_is_read(self):
        c = self.cluster()
        machine = c.machine('a')
        # What is read in the background.
        self.until(lambda: not c.gates._refreshing
                   and self.api.watched())

        def changed(change):
            before = machine.version()
            self.assertEqual(before, machine.version())
            change()
            self.until(lambda: machine.version() not in (before, None))

        def annotate():
            self.vm['metadata']['annotations']['x'] = '1'
            self.api.put('virtualmachines', self.vm)

        changed(annotate)
        vmi = api.vmi(self.vm)
        changed(lambda: self.api.put('virtualmachineinstances', vmi))
        changed(lambda: self.api.delete('virtualmachineinstances', vmi))
        changed(lambda: setattr(c.gates, '_version', 'v1.99.0'))
        changed(lambda: setattr(c.media, 'changes', 10 ** 6))
        # Another VM with the UUID makes this one be identified by its uid.
        firmware = self.vm['spec']['template']['spec']['domain']['firmware']
        self.api.put('virtualmachines', api.vm(
            'b', firmware=firmware['uuid']))
        self.until(lambda: machine.version() is None)

    def test_failure_changes_version_by_time_alone(self):
        self.vm['status'] = {'conditions': [{
            'type': 'Failure', 'status': 'True', 'reason': 'FailedCreate',
            'lastTransitionTime': '2024-03-05T06:07:08Z'}]}
        self.api.put('virtualmachines', self.vm)
        c = self.cluster()
        machine = c.machine('a')
        self.until(lambda: not c.gates._refreshing)
        with mock.patch.object(power_state, 'GRACE_SECONDS', 10 ** 12):
            before = machine.version()
            self.assertEqual(before, machine.version())
        self.assertNotEqual(before, machine.version())
        self.assertIn('FailedCreate', str(machine.version()))

    def test_no_version_while_reads_call_the_api(self):
        self.vm['spec']['instancetype'] = {'name': 'small'}
        self.vm['metadata']['generation'] = 1
        self.api.put('virtualmachines', self.vm)
        self.api.rule('GET', '/expand-spec$', (503, {}), 1)
        self.api.rule('GET', '/expand-spec$', (200, {
            'metadata': {}, 'spec': {'template': {'spec': {'domain': {}}}}}))
        machine = self.cluster(opts=cluster_case.STALE).machine('a')
        self.assertIsNone(machine.version())
        self.until(lambda: machine.inventory()
                   and machine.version())
        self.api.rule('WATCH', '', (500, {'message': 'no'}), times=10 ** 6)
        self.api.rule('GET', 'virtualmachines$', (500, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.version() is None)

    def test_expired_list_is_unavailable(self):
        machine = self.cluster(opts=cluster_case.STALE).machine('a')
        self.until(self.api.watched)
        self.api.rule('WATCH', '', (500, {'message': 'no'}), times=10 ** 6)
        self.api.rule('GET', 'virtualmachines$', (410, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.stale)
        self.assertRaises(errors.Unavailable, machine.cluster.machines)

    def test_outage_is_reported_until_it_ends(self):
        machine = self.cluster(opts=cluster_case.STALE).machine('a')
        self.until(self.api.watched)
        self.api.stop()
        self.until(lambda: machine.cluster.cache.stale)
        e = self.assertRaises(errors.Unavailable, machine.state)
        self.assertIn('does not answer', str(e))
        self.assertRaises(errors.Unavailable, machine.cluster.machines)
        self.api.put('virtualmachines', self.vm)
        self.api.start()
        self.until(lambda: machine.state() and True)
        self.until(lambda: not machine.cluster.cache.stale)

    def test_cache_age_watch_problem_and_call_counters(self):
        c = self.cluster(opts=cluster_case.STALE)
        self.assertIsNone(c.cache.age)
        self.assertEqual(
            'Watches not synced: virtualmachines.kubevirt.io, '
            'virtualmachineinstances.kubevirt.io', c.cache.problem)
        c.machines()
        self.until(lambda: self.api.watched() and not c.cache.age)
        self.assertEqual(('', 0), (c.cache.problem, c.cache.age))
        self.assertEqual(
            1, c.client.calls['list', 'virtualmachines.kubevirt.io', 200])
        self.api.stop()
        self.until(lambda: c.cache.age > 0)
        self.until(lambda: c.cache.problem)
        self.assertRegex(
            c.cache.problem,
            '^Watch of virtualmachine.* failed: .* does not answer')
        self.assertLess(0, sum(
            number for key, number in c.client.calls.items()
            if not key.code))
        self.api.start()
        self.until(lambda: not c.cache.problem)
        self.until(lambda: c.cache.age == 0)

    def test_accepts_server_with_reset_resource_versions(self):
        c = self.cluster(opts=cluster_case.STALE)
        self.until(lambda: c.machines() and self.api.watched())
        self.api.stop()
        # Neither watch continues where it was.
        self.until(lambda: 2 == len({
            key.resource for key in c.client.calls
            if key.verb == 'watch' and not key.code}))
        self.until(lambda: c.cache.stale)
        self.api.version = 5
        self.api.objects['virtualmachines'].clear()
        self.api.log.clear()
        again = self.api.put('virtualmachines', api.vm('b'))
        self.api.start()
        self.until(lambda: [m.name for m in c.machines()] == ['b'])
        self.until(lambda: not c.cache.stale)
        again['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', again)
        self.until(lambda: self.annotation(c.machine('b'), 'x') == '1')

    def test_silent_watch_is_restarted(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.client.WATCH_GRACE', 0.2))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.unit.machine.api.WATCHES_END', False))
        machine = self.cluster(opts={
            'watch_seconds': 1, 'request_timeout': 10}).machine('a')
        self.until(self.api.watched)
        # The server sends no more events to the open watches.
        with self.api.lock:
            self.api.watches.clear()
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')

    def test_first_read_raises_cause_of_failure(self):
        self.api.rule('GET', 'virtualmachineinstances', (
            403, {'message': 'User "bmc" cannot list resource'}), 10 ** 6)
        e = self.assertRaises(errors.AccessDenied, self.cluster().machines)
        self.assertEqual('list', e.verb)
        self.api.stop()
        e = self.assertRaises(errors.Unavailable, self.cluster().machines)
        self.assertIn('refused', str(e))
        self.api.start()

    def test_subscribers_receive_existing_and_changed_objects(self):
        self.api.put('virtualmachineinstances', api.vmi(self.vm))
        received = []
        c = self.cluster()
        c.subscribe(lambda machine, state: received.append(
            (machine.name, state is not None,
             state is not None and state.vmi is not None)))
        c.wait_ready()
        self.until(lambda: received)
        self.assertEqual([('a', True, True)], received)
        self.api.delete('virtualmachines', self.vm)
        self.until(lambda: len(received) == 2)
        self.assertEqual(('a', False, False), received[1])

    def test_slow_subscriber_gets_no_vm_with_successor_as_machine(self):
        received, resume = [], threading.Event()

        def receive(machine, state):
            received.append((machine.uid,
                             state and state.vm['metadata']['uid']))
            resume.wait(30)

        c = self.cluster()
        c.subscribe(receive)
        c.wait_ready()
        self.until(lambda: received)
        self.api.delete('virtualmachines', self.vm)
        self.api.put('virtualmachines', api.vm('a', uid='second'))
        self.api.delete('virtualmachines', api.vm('a', uid='second'))
        self.api.put('virtualmachines', api.vm('a', uid='third'))
        self.until(lambda: c.machine('a').uid == 'third')
        resume.set()
        first = self.vm['metadata']['uid']
        self.until(lambda: ('third', 'third') in received)
        self.assertEqual(
            [(first, first), (first, None), ('third', 'third')], received)

    def test_failing_subscriber_does_not_affect_others(self):
        c = self.cluster()
        received = []
        c.subscribe(lambda *args: 1 / 0)
        c.subscribe(lambda *args: received.append(args))
        c.wait_ready()
        self.until(lambda: received)
