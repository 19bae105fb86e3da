# SPDX-License-Identifier: Apache-2.0
"""Find, read and write machines of a cluster while its API fails.

The ``machine`` package runs in this process against its own sandbox, without
Redfish or IPMI.
"""

import pathlib
import socket
import ssl
import threading
import time
from urllib import parse

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import machines
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import power_state
from tests.fixtures import cluster_case
from tests.fixtures import sandbox

MIB = 1024 * 1024

#: Faults of one write. With drop-after the API server executes it.
WRITE_FAULTS = ('409', '429', '500', '503', 'hang', 'reset', 'drop-after')

VMS = '/virtualmachines'


class MachineTestCase(cluster_case.ClusterTestCase):

    def wait_on(self, machine):
        self.assertTrue(machine.wait(
            lambda state: power_state.of(state)
            is power_state.PowerState.ON, 45))


class ReadTestCase(MachineTestCase):

    def test_inventory_of_running_machine(self):
        machine = self.machine('RerunOnFailure')
        self.wait_on(machine)
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

    def test_inventory_of_vm_with_instance_type(self):
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
        # After the controller's last update the generation stays.
        self.until(lambda: machine.state().vm['status'].get(
            'printableStatus') == 'Stopped')
        machine.inventory()
        before = self.calls()
        machine.inventory()
        self.assertEqual(before, self.calls())
        machine.reset(power_state.ResetType.ON)
        self.wait_on(machine)
        seen = machine.inventory()
        self.assertEqual((3, 96 * MIB),
                         (seen.cpus.total, seen.memory_bytes))

    def test_reads_make_no_api_call(self):
        machine = self.machine()
        machine.state()
        self.until(lambda: machine.inventory().kubevirt_version)
        before = self.calls()
        for _ in range(200):
            found = machine.cluster.machine(machine.uuid)
            found.power_state(), found.boot(), found.inventory()
            found.problem(), found.attributes(), found.indicator()
        self.assertEqual(before, self.calls())

    def test_reads_changes_of_other_clients(self):
        machine = self.machine()
        for n in range(5):
            self.annotate(machine, str(n))
            self.until(lambda: self.annotation(machine) == str(n))

    def test_recreated_vm_is_another_machine(self):
        machine = self.machine()
        c = machine.cluster
        self.sandbox.delete('virtualmachines', machine.name)
        self.sandbox.wait('virtualmachines', machine.name,
                          lambda vm: vm is None)
        self.assertRaises(errors.MachineNotFound, machine.reset,
                          power_state.ResetType.ON)
        # The failed write marked it as deleted, before the watch did.
        self.assertRaises(errors.MachineNotFound, machine.state)
        self.assertRaises(errors.MachineNotFound, c.machine, machine.name)
        self.vm(name=machine.name)
        self.until(lambda: machine.name in [m.name for m in c.machines()])
        self.assertNotEqual(machine.uuid, c.machine(machine.name).uuid)
        self.assertRaises(errors.MachineNotFound, machine.state)

    def test_subscribers_get_changes(self):
        c = self.cluster()
        heard = []
        vm = self.vm()
        name = vm['metadata']['name']
        c.subscribe(lambda machine, state: heard.append(
            (machine.name, state is not None,
             state is not None and state.vmi is not None)))
        c.machine(name).reset(power_state.ResetType.ON)
        self.until(lambda: (name, True, True) in heard)
        self.sandbox.delete('virtualmachines', name)
        self.until(lambda: (name, False, False) in heard)


class ScopeTestCase(MachineTestCase):

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

    def test_uuid_of_two_vms_is_ambiguous(self):
        a, b = self.vm(), self.vm()
        c = self.cluster()
        uuid = c.machine(a['metadata']['name']).uuid
        self.sandbox.patch('virtualmachines', b['metadata']['name'], {
            'spec': {'template': {'spec': {'domain': {'firmware': {
                'uuid': uuid}}}}}})
        self.until(lambda: len(c.cache.find(uuid)) == 2)
        self.assertRaises(errors.AmbiguousName, c.machine, uuid)

    def test_label_selector_follows_label_changes(self):
        vm = self.vm('RerunOnFailure', labels={'bmc': 'yes'})
        other = self.vm()
        c = self.cluster(label_selector='bmc=yes')
        self.assertEqual([vm['metadata']['name']],
                         [m.name for m in c.machines()])
        # The VMI does not have the label.
        machine = c.machine(vm['metadata']['name'])
        self.wait_on(machine)

        def label(of, value):
            self.sandbox.patch('virtualmachines', of['metadata']['name'], {
                'metadata': {'labels': {'bmc': value}}})

        label(vm, None)
        label(other, 'yes')
        self.until(lambda: [m.name for m in c.machines()]
                   == [other['metadata']['name']])
        self.assertRaises(errors.MachineNotFound, machine.state)
        label(vm, 'yes')
        self.until(lambda: len(c.machines()) == 2)
        self.assertIs(power_state.PowerState.ON, machine.power_state())

    def test_scope_of_one_vm(self):
        vm, other = self.vm(), self.vm()
        name = vm['metadata']['name']
        c = self.cluster(vm=f'{sandbox.NAMESPACE}/{name}')
        self.assertEqual([name], [m.name for m in c.machines()])
        outside = other['metadata']['name']
        for identity in (outside, f'{sandbox.NAMESPACE}/{outside}',
                         other['metadata']['uid']):
            self.assertRaises(errors.MachineNotFound, c.machine, identity)
        machine = c.machine(name)
        machine.reset(power_state.ResetType.ON)
        self.wait_on(machine)


class FaultTestCase(cluster_case.ClusterTestCase):

    def assert_hit(self):
        [fault] = self.sandbox.faults()['faults']
        self.assertEqual(1, fault['hits'], fault)

    def test_reads_changes_after_broken_watch(self):
        machine = self.machine()
        machine.state()
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

    def test_lists_again_after_silent_watch(self):
        machine = self.machine(opts={'watch_seconds': 1})
        machine.state()
        # Watches open but deliver no events, as through a dead middle box,
        # so only a new list shows the change.
        self.sandbox.fault('hang', verb='WATCH', where=VMS, count=10 ** 6)
        self.until(lambda: self.sandbox.faults()['faults'][0]['hits'] == 1)
        self.annotate(machine, 'missed')
        self.assertNotEqual('missed', self.annotation(machine))
        self.until(lambda: self.annotation(machine) == 'missed')

    def test_reads_from_api_without_watches(self):
        machine = self.machine()
        machine.state()
        self.sandbox.fault('500', verb='WATCH', where=VMS, count=10 ** 6)
        self.sandbox.fault('break', verb='WATCH', where=VMS, count=10)
        self.until(lambda: machine.cluster.cache.stale)
        for n in range(3):
            self.annotate(machine, str(n))
            self.until(lambda: self.annotation(machine) == str(n))

    def test_reads_raise_unavailable_only_during_outage(self):
        machine = self.machine()
        machine.state()
        self.sandbox.outage(8)
        ends = time.monotonic() + 8
        raised = None
        while raised is None and time.monotonic() < ends:
            try:
                machine.state()
                time.sleep(0.02)
            except errors.Unavailable as e:
                raised = e
        self.assertIsNotNone(raised, 'no error in the outage')
        self.assertIn('does not answer', str(raised))
        self.assertRaises(errors.Unavailable, machine.cluster.machines)
        self.until(lambda: machine.state() and True)
        self.until(lambda: not machine.cluster.cache.stale)
        self.annotate(machine, 'after')
        self.until(lambda: self.annotation(machine) == 'after')

    def test_outage_closes_all_connections(self):
        """A connection without TLS handshake when it begins is closed too."""
        where = parse.urlsplit(self.sandbox.url)
        context = ssl.create_default_context(cafile=str(self.sandbox.ca))
        with socket.create_connection((where.hostname, where.port)) as half:
            # A later connection is served, so the server has accepted this.
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

    def test_write_survives_outage(self):
        machine = self.machine()
        machine.state()
        self.sandbox.outage(2)
        self.addCleanup(self.until, self.sandbox.is_available)
        machine.set_indicator('Lit')
        self.assertEqual('Lit', machine.indicator())

    def test_patch_survives_each_fault_and_applies_once(self):
        for action in WRITE_FAULTS:
            with self.subTest(action):
                machine = self.machine()
                machine.state()
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

    def test_restart_survives_each_fault_and_happens_once(self):
        for action in WRITE_FAULTS:
            with self.subTest(action):
                machine = self.machine('RerunOnFailure')
                self.sandbox.wait_running(machine.name)
                self.sandbox.wait_boot(machine.name, 1)
                machine.wait(lambda state: power_state.of(state)
                             is power_state.PowerState.ON, 45)
                uid = self.sandbox.vmi(machine.name)['metadata']['uid']
                self.sandbox.fault(action, verb='PUT', where='/restart$')
                machine.reset(power_state.ResetType.FORCE_RESTART)
                self.sandbox.wait_running(machine.name, other_than=uid)
                self.sandbox.wait_boot(machine.name, 2)
                machine.wait(lambda state: power_state.of(state)
                             is power_state.PowerState.ON, 45)
                self.assertEqual(2, len(self.sandbox.boots(machine.name)))
                self.assert_hit()
                self.sandbox.clear_faults()

    def test_write_fails_at_deadline(self):
        machine = self.machine(opts={'write_deadline': 4})
        self.sandbox.fault('503', verb='PATCH', where=machine.name,
                           count=10 ** 6)
        began = time.monotonic()
        self.assertRaises(errors.ServerError, machine.set_indicator, 'Lit')
        # Well below the default deadline.
        self.assertLess(time.monotonic() - began, 10)

    def test_concurrent_writers_lose_no_update(self):
        name = self.vm()['metadata']['name']
        handles = [self.cluster().machine(name) for _ in range(3)]
        stop = threading.Event()

        def other():
            n = 0
            while not stop.wait(0.01):
                n += 1
                self.annotate(handles[0], str(n))

        def write(machine, prefix):
            for n in range(5):
                machine.set_attributes({f'{prefix}{n}': n})

        threads = [threading.Thread(target=write, args=(m, p))
                   for m, p in zip(handles, 'xyz')]
        disturber = threading.Thread(target=other)
        for each in threads + [disturber]:
            each.start()
        for each in threads:
            each.join()
        stop.set()
        disturber.join()
        found = self.cluster().machine(name).attributes()
        self.assertEqual(15, len(found) - len(bios.VM_ATTRIBUTES))

    def test_concurrent_restarts_do_not_fail(self):
        name = self.vm('RerunOnFailure')['metadata']['name']
        self.sandbox.wait_running(name)
        handles = [self.cluster().machine(name) for _ in range(2)]
        failed = []

        def restart(machine):
            try:
                machine.reset(power_state.ResetType.FORCE_RESTART)
            except errors.MachineError as e:
                failed.append(e)

        threads = [threading.Thread(target=restart, args=(m,))
                   for m in handles]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual([], failed)


class ErrorTestCase(cluster_case.ClusterTestCase):

    def test_admission_error_raises_rejected(self):
        machine = self.machine()
        e = self.assertRaises(errors.Rejected, machine.patch, [{
            'op': 'add', 'path': '/spec/template/spec/domain/devices/disks'
            '/0/bootOrder', 'value': 0}])
        self.assertIn('boot order > 0', str(e))
        self.assertNotIn('webhook', str(e))

    def test_outdated_guard_raises_conflict(self):
        machine = self.machine()
        vm = machine.fetch().vm
        self.annotate(machine, 'newer')
        self.assertRaises(errors.Conflict, machine.patch_status, [], vm)
        self.assertRaises(errors.Conflict, machine.patch, [
            {'op': 'remove', 'path': '/metadata/annotations/none'}])

    def test_wrong_token_raises_access_denied(self):
        access = self.connection.access()
        other = connection.Connection(lambda: connection.Access(
            access.server, ca=access.ca, authorization='Bearer wrong'))
        c = cluster.Cluster(other, (sandbox.NAMESPACE,))
        self.addCleanup(c.close)
        e = self.assertRaises(errors.AccessDenied, c.machines)
        # The first list is a stream; where it fails, a list.
        self.assertIn(e.verb, ('list', 'watch'))
        self.assertNotIn('wrong', str(e))

    def test_action_in_wrong_state_raises_conflict(self):
        machine = self.machine()
        machine.state()
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


@given_cluster.needs_sandbox("the sandbox's record of API calls")
class ThousandTestCase(cluster_case.ClusterTestCase):
    """A cluster with 1,000 VMs."""

    VMS = 1000

    def test_reads_of_1000_vms_make_no_api_call(self):
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


class ConnectionTestCase(cluster_case.ClusterTestCase):

    def test_rotated_service_account_token(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        url = parse.urlsplit(self.sandbox.url)
        (home / 'ca.crt').write_bytes(self.sandbox.ca.read_bytes())
        (home / 'namespace').write_text(sandbox.NAMESPACE)
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
        in_cluster = connection.Connection.from_options()
        c = cluster.Cluster(in_cluster, (in_cluster.namespace,))
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

    def test_kubeconfig_from_environment(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBECONFIG', str(self.sandbox.kubeconfig)))
        c = cluster.Cluster(connection.Connection.from_options())
        self.addCleanup(c.close)
        name = self.vm()['metadata']['name']
        self.assertEqual(name, c.machine(name).name)
