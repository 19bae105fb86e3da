# SPDX-License-Identifier: Apache-2.0
"""Find, read and write machines of a cluster while its API fails.

The ``machine`` package runs in this process against its own sandbox, without
Redfish or IPMI.
"""

import os
import pathlib
import socket
import ssl
import threading
import time
from urllib import parse

import fixtures

from kubevirt_sandbox.testing import machines
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import power_state
from tests.fixtures import cluster_case

MIB = 1024 * 1024

#: What can happen to one call. After drop-after, it was carried out.
BAD_MOMENTS = ('409', '429', '500', '503', 'hang', 'reset', 'drop-after')

VMS = '/virtualmachines'


class ReadTestCase(cluster_case.ClusterTestCase):

    def test_a_machine_and_its_inventory(self):
        machine = self.machine('RerunOnFailure')
        self.assertTrue(
            machine.wait(
                lambda vm, vmi: power_state.state(vm, vmi)
                is power_state.PowerState.ON,
                45,
            )
        )
        vm = self.sandbox.vm(machine.name)
        self.assertEqual(
            vm['spec']['template']['spec']['domain']['firmware']['uuid'],
            machine.uuid)
        self.until(lambda: machine.inventory().kubevirt_version)
        seen = machine.inventory()
        self.assertEqual(2, seen.cpus.total)
        self.assertEqual(1024 * MIB, seen.memory_bytes)
        vmi = self.sandbox.vmi(machine.name)
        self.assertEqual(vmi['status']['nodeName'], seen.node)
        self.assertRegex(seen.kubevirt_version, r'^v1\.')
        [nic] = seen.nics
        self.assertEqual(vmi['status']['interfaces'][0]['mac'], nic.mac)
        self.assertEqual(
            [('root', 'disk', 'virtio', 10240 * MIB),
             ('cd', 'cdrom', 'sata', None)],
            [(d.name, d.kind, d.bus, d.capacity_bytes) for d in seen.disks])

    def test_an_instance_type_tells_the_sizes_of_a_vm_that_is_off(self):
        kind = self.sandbox.create('virtualmachineinstancetypes', {
            'apiVersion': 'instancetype.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineInstancetype',
            'metadata': {'name': next(cluster_case.names)},
            'spec': {'cpu': {'guest': 3}, 'memory': {'guest': '96Mi'}}})
        vm = machines.vm(next(cluster_case.names), 'Halted')
        domain = vm['spec']['template']['spec']['domain']
        del domain['cpu'], domain['memory']
        vm['spec']['instancetype'] = {
            'kind': 'VirtualMachineInstancetype',
            'name': kind['metadata']['name']}
        self.addCleanup(self.sandbox.delete, 'virtualmachines',
                        vm['metadata']['name'])
        self.sandbox.create('virtualmachines', vm)
        machine = self.cluster().machine(vm['metadata']['name'])
        seen = machine.inventory()
        self.assertEqual((3, 96 * MIB),
                         (seen.cpus.total, seen.memory_bytes))
        self.until(lambda: machine.inventory().kubevirt_version)
        # Its controller has said all it has to: the generation stays.
        self.until(lambda: machine.objects()[0]['status'].get(
            'printableStatus') == 'Stopped')
        machine.inventory()
        before = self.calls()
        machine.inventory()
        self.assertEqual(before, self.calls())
        machine.reset(power_state.ResetType.ON)
        self.assertTrue(
            machine.wait(
                lambda vm, vmi: power_state.state(vm, vmi)
                is power_state.PowerState.ON,
                45,
            )
        )
        seen = machine.inventory()
        self.assertEqual((3, 96 * MIB),
                         (seen.cpus.total, seen.memory_bytes))

    def test_reads_cost_no_call(self):
        machine = self.machine()
        machine.objects()
        self.until(lambda: machine.inventory().kubevirt_version)
        before = self.calls()
        for _ in range(200):
            found = machine.cluster.machine(machine.uuid)
            found.power_state(), found.boot(), found.inventory()
            found.problem(), found.attributes(), found.indicator()
        self.assertEqual(before, self.calls())

    def test_what_others_change_is_read(self):
        machine = self.machine()
        for n in range(5):
            self.annotate(machine, str(n))
            self.until(lambda: self.annotation(machine) == str(n))

    def test_a_deleted_vm_is_gone_and_its_namesake_another(self):
        machine = self.machine()
        c = machine.cluster
        self.sandbox.delete('virtualmachines', machine.name)
        self.sandbox.wait('virtualmachines', machine.name,
                          lambda vm: vm is None)
        self.assertRaises(errors.MachineNotFound, machine.reset,
                          power_state.ResetType.ON)
        # The write has seen it: no need to wait for the watch.
        self.assertRaises(errors.MachineNotFound, machine.objects)
        self.assertRaises(errors.MachineNotFound, c.machine, machine.name)
        self.vm(name=machine.name)
        self.until(lambda: machine.name in [m.name for m in c.machines()])
        self.assertNotEqual(machine.uuid, c.machine(machine.name).uuid)
        self.assertRaises(errors.MachineNotFound, machine.objects)

    def test_subscribers_hear_of_changes(self):
        c = self.cluster()
        heard = []
        vm = self.vm()
        name = vm['metadata']['name']
        c.subscribe(lambda machine, vm, vmi: heard.append(
            (machine.name, vm is not None, vmi is not None)))
        c.machine(name).reset(power_state.ResetType.ON)
        self.until(lambda: (name, True, True) in heard)
        self.sandbox.delete('virtualmachines', name)
        self.until(lambda: (name, False, False) in heard)

    def test_a_child_process_starts_anew(self):
        machine = self.machine()
        machine.objects()
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            done = b'no'
            try:
                machine.set_indicator('Lit')
                if machine.indicator() == 'Lit':
                    done = b'ok'
            finally:
                os.write(write, done)
                os._exit(0)
        os.waitpid(pid, 0)
        self.assertEqual(b'ok', os.read(read, 2))
        os.close(read), os.close(write)
        self.until(lambda: machine.indicator() == 'Lit')


class ScopeTestCase(cluster_case.ClusterTestCase):

    def test_namespaces_and_ambiguous_names(self):
        one, two, three = (self.namespace() for _ in range(3))
        for namespace in (one, two, three):
            self.vm(namespace=namespace, name='same')
        both = self.cluster((one, two))
        self.assertEqual(
            [f'{one}/same', f'{two}/same'],
            [m.qualified_name for m in both.machines()])
        e = self.assertRaises(errors.AmbiguousName, both.machine, 'same')
        self.assertEqual((f'{one}/same', f'{two}/same'), e.candidates)
        self.assertEqual(two, both.machine(f'{two}/same').namespace)
        self.assertRaises(errors.MachineNotFound, both.machine,
                          f'{three}/same')
        self.assertEqual(one, self.cluster((one,)).machine('same').namespace)
        everywhere = self.cluster(()).machines()
        self.assertLessEqual(
            {one, two, three}, {m.namespace for m in everywhere})

    def test_a_uuid_of_two_vms_is_ambiguous(self):
        a, b = self.vm(), self.vm()
        c = self.cluster()
        uuid = c.machine(a['metadata']['name']).uuid
        self.sandbox.patch('virtualmachines', b['metadata']['name'], {
            'spec': {'template': {'spec': {'domain': {'firmware': {
                'uuid': uuid}}}}}})
        self.until(lambda: len(c._cache.find(uuid)) == 2)
        self.assertRaises(errors.AmbiguousName, c.machine, uuid)

    def test_a_label_brings_vms_in_and_takes_them_out(self):
        vm = self.vm('RerunOnFailure', labels={'bmc': 'yes'})
        other = self.vm()
        c = self.cluster(label_selector='bmc=yes')
        self.assertEqual([vm['metadata']['name']],
                         [m.name for m in c.machines()])
        # Its VMI has no such label.
        machine = c.machine(vm['metadata']['name'])
        self.assertTrue(
            machine.wait(
                lambda vm, vmi: power_state.state(vm, vmi)
                is power_state.PowerState.ON,
                45,
            )
        )

        def label(of, value):
            self.sandbox.patch('virtualmachines', of['metadata']['name'], {
                'metadata': {'labels': {'bmc': value}}})

        label(vm, None)
        label(other, 'yes')
        self.until(lambda: [m.name for m in c.machines()]
                   == [other['metadata']['name']])
        self.assertRaises(errors.MachineNotFound, machine.objects)
        label(vm, 'yes')
        self.until(lambda: len(c.machines()) == 2)
        self.assertIs(power_state.PowerState.ON, machine.power_state())

    def test_one_vm_alone(self):
        vm, other = self.vm(), self.vm()
        name = vm['metadata']['name']
        c = self.cluster(vm=f'default/{name}')
        self.assertEqual([name], [m.name for m in c.machines()])
        for identity in (other['metadata']['name'], 'default/%s' % other[
                'metadata']['name'], other['metadata']['uid']):
            self.assertRaises(errors.MachineNotFound, c.machine, identity)
        machine = c.machine(name)
        machine.reset(power_state.ResetType.ON)
        self.assertTrue(
            machine.wait(
                lambda vm, vmi: power_state.state(vm, vmi)
                is power_state.PowerState.ON,
                45,
            )
        )


class BadMomentsTestCase(cluster_case.ClusterTestCase):

    def assert_hit(self):
        [fault] = self.sandbox.faults()['faults']
        self.assertEqual(1, fault['hits'], fault)

    def test_a_broken_watch_freezes_nothing(self):
        machine = self.machine()
        machine.objects()
        for action, verb in (('break', 'WATCH'), ('gone', 'WATCH'),
                             ('500', 'WATCH'), ('reset', 'WATCH')):
            self.sandbox.fault(action, verb=verb, where='kubevirt.io',
                               count=2)
            if action != 'break':
                self.sandbox.fault('break', verb=verb, where='kubevirt.io',
                                   count=2)
            self.annotate(machine, action)
            self.until(lambda: self.annotation(machine) == action)
            self.sandbox.clear_faults()

    def test_a_watch_that_is_silent_for_too_long_is_given_up(self):
        machine = self.machine(opts={'watch_seconds': 1})
        machine.objects()
        # Opened and then without a word: as through a dead middle box.
        # The next one is no better; it takes a list.
        self.sandbox.fault('hang', verb='WATCH', where=VMS, count=10 ** 6)
        self.until(lambda: self.sandbox.faults()['faults'][0]['hits'] == 1)
        self.annotate(machine, 'missed')
        self.assertNotEqual('missed', self.annotation(machine))
        self.until(lambda: self.annotation(machine) == 'missed')

    def test_without_watches_reads_go_to_the_api(self):
        machine = self.machine()
        machine.objects()
        self.sandbox.fault('500', verb='WATCH', where=VMS, count=10 ** 6)
        self.sandbox.fault('break', verb='WATCH', where=VMS, count=10)
        self.until(lambda: machine.cluster._cache.stale)
        for n in range(3):
            self.annotate(machine, str(n))
            self.until(lambda: self.annotation(machine) == str(n))

    def test_an_outage_is_told_and_its_end_noticed(self):
        machine = self.machine()
        machine.objects()
        self.sandbox.outage(8)
        ends = time.monotonic() + 8
        told = None
        while told is None and time.monotonic() < ends:
            try:
                machine.objects()
                time.sleep(0.02)
            except errors.Unavailable as e:
                told = e
        self.assertIsNotNone(told, 'nobody noticed')
        self.assertIn('does not answer', str(told))
        self.assertRaises(errors.Unavailable, machine.cluster.machines)
        self.until(lambda: machine.objects() and True)
        self.until(lambda: not machine.cluster._cache.stale)
        self.annotate(machine, 'after')
        self.until(lambda: self.annotation(machine) == 'after')

    def test_an_outage_spares_no_connection(self):
        """Not even one that is being made when it begins."""
        where = parse.urlsplit(self.sandbox.url)
        context = ssl.create_default_context(cafile=str(self.sandbox.ca))
        with socket.create_connection((where.hostname, where.port)) as half:
            # Another one is served: that one was accepted before.
            self.assertTrue(self.sandbox.is_available())
            self.sandbox.outage(1)
            self.addCleanup(self.until, self.sandbox.is_available)
            try:
                with context.wrap_socket(
                        half, server_hostname=where.hostname) as whole:
                    whole.sendall(b'GET /version HTTP/1.1\r\nHost: a\r\n\r\n')
                    self.assertEqual(b'', whole.recv(1))
            except OSError:
                pass

    def test_a_write_outlives_an_outage(self):
        machine = self.machine()
        machine.objects()
        self.sandbox.outage(2)
        self.addCleanup(self.until, self.sandbox.is_available)
        machine.set_indicator('Lit')
        self.assertEqual('Lit', machine.indicator())

    def test_patches_survive_and_are_made_once(self):
        for action in BAD_MOMENTS:
            with self.subTest(action):
                machine = self.machine()
                machine.objects()
                self.sandbox.fault(action, verb='PATCH', where=machine.name)
                version = self.sandbox.vm(machine.name)['metadata'][
                    'generation']
                machine.set_attributes({'Moment': action})
                self.assertEqual(action, machine.attributes()['Moment'])
                self.assertEqual(
                    version, self.sandbox.vm(machine.name)['metadata'][
                        'generation'])
                self.assert_hit()
                self.sandbox.clear_faults()

    def test_restarts_survive_and_are_made_once(self):
        for action in BAD_MOMENTS:
            with self.subTest(action):
                machine = self.machine('RerunOnFailure')
                self.sandbox.wait_running(machine.name)
                self.sandbox.wait_boot(machine.name, 1)
                machine.wait(lambda vm, vmi: power_state.state(vm, vmi)
                             is power_state.PowerState.ON, 45)
                uid = self.sandbox.vmi(machine.name)['metadata']['uid']
                self.sandbox.fault(action, verb='PUT', where='/restart$')
                machine.reset(power_state.ResetType.FORCE_RESTART)
                self.sandbox.wait_running(machine.name, other_than=uid)
                self.sandbox.wait_boot(machine.name, 2)
                machine.wait(lambda vm, vmi: power_state.state(vm, vmi)
                             is power_state.PowerState.ON, 45)
                self.assertEqual(2, len(self.sandbox.boots(machine.name)))
                self.assert_hit()
                self.sandbox.clear_faults()

    def test_a_deadline_is_kept(self):
        machine = self.machine(opts={'write_deadline': 1})
        self.sandbox.fault('503', verb='PATCH', where=machine.name,
                           count=10 ** 6)
        began = time.monotonic()
        self.assertRaises(errors.ServerError, machine.set_indicator, 'Lit')
        # Far from the usual deadline.
        self.assertLess(time.monotonic() - began, 10)

    def test_many_writers_lose_nothing(self):
        name = self.vm()['metadata']['name']
        mine = [self.cluster().machine(name) for _ in range(3)]
        stop = threading.Event()

        def other():
            n = 0
            while not stop.wait(0.01):
                n += 1
                self.annotate(mine[0], str(n))

        def write(machine, prefix):
            for n in range(5):
                machine.set_attributes({'%s%d' % (prefix, n): n})

        # Not joined in vain if a write fails.
        threads = [threading.Thread(target=write, args=(m, p))
                   for m, p in zip(mine, 'xyz')]
        disturber = threading.Thread(target=other)
        for each in threads + [disturber]:
            each.start()
        for each in threads:
            each.join()
        stop.set()
        disturber.join()
        found = self.cluster().machine(name).attributes()
        self.assertEqual(15, len(found) - len(bios.VM_ATTRIBUTES))

    def test_restarts_of_two_bmcs_at_once(self):
        name = self.vm('RerunOnFailure')['metadata']['name']
        self.sandbox.wait_running(name)
        mine = [self.cluster().machine(name) for _ in range(2)]
        failed = []

        def restart(machine):
            try:
                machine.reset(power_state.ResetType.FORCE_RESTART)
            except errors.MachineError as e:
                failed.append(e)

        threads = [threading.Thread(target=restart, args=(m,))
                   for m in mine]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual([], failed)


class RefusalTestCase(cluster_case.ClusterTestCase):

    def test_what_admission_refuses(self):
        machine = self.machine()
        e = self.assertRaises(errors.Rejected, machine.patch, [{
            'op': 'add', 'path': '/spec/template/spec/domain/devices/disks'
            '/0/bootOrder', 'value': 0}])
        self.assertIn('boot order > 0', str(e))
        self.assertNotIn('webhook', str(e))

    def test_a_guard_that_has_passed(self):
        machine = self.machine()
        vm, _ = machine.fetch()
        self.annotate(machine, 'newer')
        self.assertRaises(errors.Conflict, machine.patch, [], guard=vm)
        self.assertRaises(errors.Conflict, machine.patch, [
            {'op': 'remove', 'path': '/metadata/annotations/none'}])

    def test_a_wrong_token(self):
        access = self.connection.access()
        stranger = connection.Connection(lambda: connection.Access(
            access.server, ca=access.ca, authorization='Bearer wrong'))
        c = cluster.Cluster(stranger, ('default',))
        self.addCleanup(c.close)
        e = self.assertRaises(errors.AccessDenied, c.machines)
        self.assertEqual('list', e.verb)
        self.assertNotIn('wrong', str(e))

    def test_an_action_that_the_state_forbids(self):
        machine = self.machine()
        machine.objects()
        self.assertRaises(errors.Conflict, machine.call, 'restart')
        self.assertRaises(errors.Conflict, machine.call, 'pause',
                          resource=api_resources.VMI)


class GatesTestCase(cluster_case.ClusterTestCase):

    def test_gates_follow_the_kubevirt_object(self):
        gates = self.cluster().gates
        self.addCleanup(self.sandbox.set_gates,
                        ['RebootPolicy', 'DeclarativeHotplugVolumes'])
        for on, off, expected in (
                (['RebootPolicy'], [], True),
                ([], ['RebootPolicy'], False),
                ([], [], True)):
            self.sandbox.set_gates(on, off)
            self.assertIs(expected, gates.enabled('RebootPolicy'), (on, off))


class ThousandTestCase(cluster_case.ClusterTestCase):
    """As many VMs as the issue asks for."""

    VMS = 1000

    def test_a_thousand_vms(self):
        c = self.cluster()
        c.wait_ready(30)
        found = c.machines()
        self.assertEqual(1000, len(found))
        before = self.calls()
        for machine in found:
            self.assertEqual(machine.qualified_name,
                             c.machine(machine.uuid).qualified_name)
            machine.power_state()
        self.assertEqual(before, self.calls())
        self.annotate(found[500], 'x')
        self.until(lambda: self.annotation(found[500]) == 'x')


class WayInTestCase(cluster_case.ClusterTestCase):

    def test_the_account_of_a_pod_whose_token_rotates(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        url = parse.urlsplit(self.sandbox.url)
        (home / 'ca.crt').write_bytes(self.sandbox.ca.read_bytes())
        (home / 'namespace').write_text('default')
        (home / 'token').write_text('expired')
        for name, value in (
                ('KUBECONFIG', None), ('KUBERNETES_SERVICE_HOST',
                                       url.hostname),
                ('KUBERNETES_SERVICE_PORT', str(url.port))):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        for name, value in (('ACCOUNT_DIR', str(home)),
                            ('TOKEN_SECONDS', 0.1)):
            self.useFixture(fixtures.MonkeyPatch(
                'sushy_kubevirt.kube.connection.' + name, value))
        way = connection.Connection.from_options()
        c = cluster.Cluster(way, (way.namespace,))
        self.addCleanup(c.close)
        name = self.vm()['metadata']['name']
        self.assertRaises(errors.AccessDenied, c.machine, name)
        (home / 'token').write_text(self.sandbox.token)

        def found():
            try:
                return c.machine(name)
            except errors.AccessDenied:
                return None

        self.until(found)

    def test_the_environment_names_it(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBECONFIG', str(self.sandbox.kubeconfig)))
        c = cluster.Cluster(connection.Connection.from_options())
        self.addCleanup(c.close)
        name = self.vm()['metadata']['name']
        self.assertEqual(name, c.machine(name).name)
