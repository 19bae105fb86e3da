# SPDX-License-Identifier: Apache-2.0
"""Finding, reading and writing machines, with faults of the API."""

import threading
import time
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import machine as machine_module
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from tests.unit.machine import api

QUICK = dict(reconcile=False, watch_seconds=20, watch_backoff=0.2,
             stale_seconds=0.5, request_timeout=1, write_deadline=3,
             read_deadline=3)


def custom_attributes(machine):
    """Return the attributes that are not derived from a field of the VM."""
    known = {knob.name for knob in bios.VM_ATTRIBUTES}
    return {name: value for name, value in machine.attributes().items()
            if name not in known}


class ClusterTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = api.Api()
        self.api.start()
        self.addCleanup(self.api.stop)
        self.vm = self.api.put('virtualmachines', api.vm('a'))

    def cluster(self, **scope):
        made = cluster.Cluster(
            self.api.connection(),
            options=options.Options(**{**QUICK, **scope.pop('opts', {})}),
            **scope)
        self.addCleanup(made.close)
        return made

    def until(self, check, seconds=30):
        end = time.monotonic() + seconds
        while True:
            try:
                if check():
                    return
            except errors.Unavailable:
                pass
            self.assertLess(time.monotonic(), end, 'condition not met in time')
            time.sleep(0.01)

    def annotation(self, machine, name):
        return machine.state().vm['metadata'].get(
            'annotations', {}).get(name)

    def test_other_options_share_cache_and_connections(self):
        c = self.cluster()
        quick = c.with_options(write_deadline=0.5)
        [machine] = quick.machines()
        self.assertIs(quick, machine.cluster)
        self.assertEqual((0.5, 3), (machine.options.write_deadline,
                                    c.options.write_deadline))
        lists = c.client.calls[('list', 'virtualmachines.kubevirt.io', 200)]
        [own] = c.machines()
        self.assertIs(c, own.cluster)
        self.assertEqual(1, lists)
        self.assertEqual(c.client.calls, quick.client.calls)
        # What one writes, the other reads at once.
        machine.set_asset_tag('rack 7')
        self.assertEqual('rack 7', own.asset_tag())

    # Finding

    def test_machines_are_found_by_uuid_name_and_qualified_name(self):
        c = self.cluster()
        [machine] = c.machines()
        for identity in (machine.uuid, machine.uuid.upper(),
                         machine.uuid.replace('-', ''), 'a', 'default/a'):
            self.assertEqual('default/a',
                             c.machine(identity).qualified_name)
        self.assertRaises(errors.MachineNotFound, c.machine, 'b')
        self.assertRaises(errors.MachineNotFound, c.machine, 'x/a')

    def test_uid_identifies_vm_without_firmware_uuid(self):
        vm = api.vm('b')
        del vm['spec']['template']['spec']['domain']['firmware']
        self.api.put('virtualmachines', vm)
        self.assertEqual('b', self.cluster().machine(
            vm['metadata']['uid']).name)

    def test_name_in_two_namespaces_is_ambiguous(self):
        self.api.put('virtualmachines', api.vm('a', 'other'))
        e = self.assertRaises(errors.AmbiguousName, self.cluster().machine,
                              'a')
        self.assertEqual(('default/a', 'other/a'), e.candidates)
        self.assertEqual('other', self.cluster().machine('other/a').namespace)

    def test_uuid_of_two_vms_is_ambiguous(self):
        c = self.cluster()
        uuid = c.machine('a').uuid
        other = self.api.put('virtualmachines', api.vm('b', firmware=uuid))
        self.until(lambda: len(c.machines()) == 2)
        e = self.assertRaises(errors.AmbiguousName, c.machine, uuid)
        self.assertEqual(('default/a', 'default/b'), e.candidates)
        # The second VM has not replaced the first, and both are reachable by
        # name and uid.
        for vm in self.vm, other:
            name, uid = vm['metadata']['name'], vm['metadata']['uid']
            self.assertEqual(uid, c.machine('default/' + name).uuid)
            self.assertEqual(name, c.machine(uid).name)
        self.api.delete('virtualmachines', other)
        self.until(lambda: len(c.machines()) == 1)
        self.assertEqual('a', c.machine(uuid).name)
        self.assertEqual(uuid, c.machine('a').uuid)

    def test_uid_of_one_vm_as_uuid_of_another(self):
        vm = api.vm('b')
        del vm['spec']['template']['spec']['domain']['firmware']
        self.api.put('virtualmachines', vm)
        uid = vm['metadata']['uid']
        other = self.api.put('virtualmachines', api.vm('c', firmware=uid))
        c = self.cluster()
        self.assertEqual('b', c.machine(uid).name)
        self.assertEqual(other['metadata']['uid'], c.machine('c').uuid)

    def test_name_that_looks_like_uuid_needs_namespace(self):
        gone = '9a2ae0de-b2a1-4a83-9b5e-ea5c0a7d8d83'
        for name in gone, gone.replace('-', ''):
            self.api.put('virtualmachines', api.vm(name))
            c = self.cluster()
            self.assertRaises(errors.MachineNotFound, c.machine, name)
            self.assertEqual(name, c.machine('default/' + name).name)

    def test_several_namespaces(self):
        for namespace in ('one', 'two', 'three'):
            self.api.put('virtualmachines', api.vm('b', namespace))
        c = self.cluster(namespaces=('one', 'two'))
        self.assertEqual(['one/b', 'two/b'],
                         [m.qualified_name for m in c.machines()])

    def test_single_vm_scope_requests_only_that_vm(self):
        self.api.put('virtualmachines', api.vm('b'))
        c = self.cluster(vm='default/a')
        self.assertEqual(['a'], [m.name for m in c.machines()])
        self.assertRaises(errors.MachineNotFound, c.machine, 'b')
        for method, path, query, _, _ in self.api.requests:
            if 'kubevirts' not in path and not path.endswith('.io'):
                self.assertIn('/namespaces/default/', path)
                self.assertEqual('metadata.name=a', query['fieldSelector'])

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

    def test_machines_are_the_same_until_one_is_added_or_renamed(self):
        c = self.cluster()
        first = c.machines()
        self.assertIs(first, c.machines())
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(first[0], 'x') == '1')
        self.assertIs(first, c.machines())
        other = api.vm('b')
        firmware = self.vm['spec']['template']['spec']['domain']['firmware']
        other['spec']['template']['spec']['domain']['firmware'] = firmware
        self.api.put('virtualmachines', other)
        self.until(lambda: len(c.machines()) == 2)
        # Each is now identified by its uid.
        self.assertEqual({self.vm['metadata']['uid'],
                          other['metadata']['uid']},
                         {machine.uuid for machine in c.machines()})
        self.assertIsNot(first, c.machines())

    # Reading

    def test_sizes_of_stopped_vm_come_from_instance_type(self):
        self.vm['spec']['instancetype'] = {'name': 'small'}
        self.vm['metadata']['generation'] = 1
        self.api.put('virtualmachines', self.vm)
        answer = {'metadata': {}, 'spec': {'template': {'spec': {'domain': {
            'cpu': {'sockets': 3}, 'memory': {'guest': '1Ki'}}}}}}
        self.api.rule('GET', '/expand-spec$', (200, answer))
        machine = self.cluster().machine('a')
        for _ in range(2):
            seen = machine.inventory()
            self.assertEqual((3, 1024), (seen.cpus.total, seen.memory_bytes))
        self.assertEqual(1, self.api.count('GET', '/expand-spec$'))
        self.vm['metadata']['generation'] = 2
        self.api.put('virtualmachines', self.vm)
        self.api.rule('GET', '/expand-spec$', (403, {'message': 'no'}), 9)
        self.until(lambda: machine.state().vm['metadata']['generation']
                   == 2)
        for _ in range(2):
            self.assertEqual(0, machine.inventory().memory_bytes)
        self.assertEqual(2, self.api.count('GET', '/expand-spec$'))
        self.api.put('virtualmachineinstances', api.vmi(self.vm))
        self.until(lambda: machine.state().vmi)
        machine.inventory()
        self.assertEqual(2, self.api.count('GET', '/expand-spec$'))

    def test_reads_send_no_request(self):
        machine = self.cluster().machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
        # A thread asks for CDI and feature gates at the same time.
        before = self.api.count('GET', '/virtualmachine')
        for _ in range(100):
            machine.state()
        self.assertEqual(before, self.api.count('GET', '/virtualmachine'))

    def test_waits_for_vm_that_was_just_created(self):
        c = self.cluster()
        c.wait_ready()
        self.assertRaises(errors.MachineNotFound, c.machine, 'b',
                          wait=False)
        timer = threading.Timer(
            0.05, self.api.put, ('virtualmachines', api.vm('b')))
        timer.start()
        self.addCleanup(timer.join)
        self.assertEqual('b', c.machine('b').name)

    def test_watch_delivers_changes(self):
        machine = self.cluster().machine('a')
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')

    def test_vmi_of_another_owner_is_ignored(self):
        machine = self.cluster().machine('a')
        stray = self.api.put('virtualmachineinstances',
                             api.vmi(api.vm('a')))
        own_vmi = api.vmi(self.vm)
        self.until(lambda: machine.cluster.cache.vmi_uid(('default', 'a')))
        self.assertIsNone(machine.state().vmi)
        self.api.delete('virtualmachineinstances', stray)
        self.api.put('virtualmachineinstances', own_vmi)
        self.until(lambda: machine.state().vmi is not None)

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

    def test_recreated_vm_is_another_machine(self):
        c = self.cluster()
        machine = c.machine('a')
        self.api.delete('virtualmachines', self.vm)
        self.until(lambda: not c.machines())
        self.assertRaises(errors.MachineNotFound, machine.state)
        self.assertRaises(errors.MachineNotFound, machine.fetch)
        self.api.put('virtualmachines', api.vm('a'))
        self.until(lambda: c.machines())
        self.assertRaises(errors.MachineNotFound, machine.state)

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

    # Broken watches and outages

    def test_broken_watch_resumes_at_last_version(self):
        machine = self.cluster().machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
        lists = self.api.count('GET', 'virtualmachines')
        self.api.break_watches()
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')
        self.assertEqual(lists, self.api.count('GET', 'virtualmachines'))

    def test_lists_again_after_expired_watch(self):
        c = self.cluster()
        machine = c.machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
        self.api.oldest = 10 ** 6
        self.api.log.clear()
        self.api.delete('virtualmachines', self.vm)
        self.api.put('virtualmachines', api.vm('b'))
        self.api.log.clear()
        self.api.break_watches()
        self.until(lambda: [m.name for m in c.machines()] == ['b'])
        self.assertRaises(errors.MachineNotFound, machine.state)

    def test_stale_cache_reads_from_api(self):
        machine = self.cluster().machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
        self.api.rule('WATCH', '', (500, {'message': 'no'}), times=10 ** 6)
        self.api.rule('GET', 'virtualmachines$', (500, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.stale)
        self.vm['metadata']['annotations']['x'] = '1'
        self.api.put('virtualmachines', self.vm)
        self.until(lambda: self.annotation(machine, 'x') == '1')

    def test_attempts_read_only_a_fresh_cache(self):
        c = self.cluster()

        def read(name):
            return blocking.attempt(lambda: c.machine(name).power_state())

        self.assertRaises(blocking.WouldBlock, read, 'a')
        self.assertEqual([], self.api.requests)
        c.wait_ready()
        self.until(lambda: self.api.count('WATCH') == 2)
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
                   and self.api.count('WATCH') == 2)

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
        machine = self.cluster().machine('a')
        self.assertIsNone(machine.version())
        self.until(lambda: machine.inventory()
                   and machine.version())
        self.api.rule('WATCH', '', (500, {'message': 'no'}), times=10 ** 6)
        self.api.rule('GET', 'virtualmachines$', (500, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.version() is None)

    def test_expired_list_is_unavailable(self):
        machine = self.cluster().machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
        self.api.rule('WATCH', '', (500, {'message': 'no'}), times=10 ** 6)
        self.api.rule('GET', 'virtualmachines$', (410, {}), times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.stale)
        self.assertRaises(errors.Unavailable, machine.cluster.machines)

    def test_outage_is_reported_until_it_ends(self):
        machine = self.cluster().machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
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
        c = self.cluster()
        self.assertIsNone(c.cache.age)
        self.assertEqual(
            'Watches not synced: virtualmachines.kubevirt.io, '
            'virtualmachineinstances.kubevirt.io', c.cache.problem)
        c.machines()
        self.until(lambda: self.api.count('WATCH') == 2 and not c.cache.age)
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
        c = self.cluster()
        self.until(lambda: c.machines() and self.api.count('WATCH') == 2)
        self.api.stop()
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
        machine = self.cluster(opts={'watch_seconds': 1}).machine('a')
        self.until(lambda: self.api.count('WATCH') == 2)
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

    # Writing

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
        machine = self.cluster().machine('a')
        self.api.rule('WATCH', '', (500, {}), times=10 ** 6)
        self.api.rule('GET', '/virtualmachine(instance)?s$', (500, {}),
                      times=10 ** 6)
        self.api.break_watches()
        self.until(lambda: machine.cluster.cache.stale)
        machine.fetch()     # as the action does
        machine.call('start')
        # What was read before the action does not serve this read.
        self.assertEqual('called', self.annotation(machine, 'start'))
        reads = self.api.count('GET', '/virtualmachines/')
        machine.state()
        self.assertEqual(reads, self.api.count('GET', '/virtualmachines/'))

    def started(self):
        """Return a machine whose start was accepted, and not delivered."""
        machine = self.cluster().machine('a')
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
        machine = self.cluster().machine('a')
        for name, action in bad.items():
            with self.subTest(name):
                self.api.rule('PATCH', '', action)
                before = self.api.version
                machine.set_attributes({'Name': name})
                self.assertEqual({'Name': name}, custom_attributes(machine))
                self.assertEqual(before + 1, self.api.version)

    def test_hanging_request_is_retried_before_deadline(self):
        machine = self.cluster(opts={
            'write_deadline': 3, 'request_timeout': 10}).machine('a')
        self.api.rule('PATCH', '', 'hang')
        machine.set_indicator('Lit')
        self.assertEqual('Lit', machine.indicator())

    def test_effect_of_write_without_response(self):
        """The watch shows it, while the API answers no reads."""
        # A busy host delays the watch.
        machine = self.cluster(opts={
            'write_deadline': 60, 'stale_seconds': 60}).machine('a')
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
        machine = self.cluster(opts={'write_deadline': 0.5}).machine('a')
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

    # Subscribers

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

    # Processes

    def test_starts_no_threads_or_requests_before_first_use(self):
        before = set(threading.enumerate())
        requests = len(self.api.requests)
        self.cluster()
        # The server of another test may still handle a request.
        self.assertEqual([], [
            thread.name for thread in threading.enumerate()
            if thread not in before
            and 'process_request' not in thread.name])
        self.assertEqual(requests, len(self.api.requests))

    def test_close_stops_watch_threads(self):
        c = self.cluster()
        c.wait_ready()
        self.until(lambda: self.api.count('WATCH') == 2)
        c.close()
        self.until(lambda: not [
            t for t in threading.enumerate()
            if t.name.startswith('watch-') and t.is_alive()])
