# SPDX-License-Identifier: Apache-2.0
"""Machines of a cluster, and how they are found."""

import threading
from unittest import mock

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from tests.unit.machine import api
from tests.unit.machine import cluster_case


class ClusterTestCase(cluster_case.ClusterTestCase):

    def test_other_options_share_cache_and_connections(self):
        c = self.cluster()
        quick = c.with_options(write_deadline=40)
        [machine] = quick.machines()
        self.assertIs(quick, machine.cluster)
        self.assertEqual((40, 60), (machine.options.write_deadline,
                                    c.options.write_deadline))
        lists = c.client.calls[('list', 'virtualmachines.kubevirt.io', 200)]
        [own] = c.machines()
        self.assertIs(c, own.cluster)
        self.assertEqual(1, lists)
        self.assertEqual(c.client.calls, quick.client.calls)
        # What one writes, the other reads at once.
        machine.set_asset_tag('rack 7')
        self.assertEqual('rack 7', own.asset_tag())

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
        self.until(self.api.watched)
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
        with mock.patch.object(cluster, 'NEW_VM_WAIT_SECONDS', 30):
            self.assertEqual('b', c.machine('b').name)

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
        self.until(self.api.watched)
        c.close()
        self.until(lambda: not [
            t for t in threading.enumerate()
            if t.name.startswith('watch-') and t.is_alive()])
