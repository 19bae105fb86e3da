# SPDX-License-Identifier: Apache-2.0
"""BareMetalHosts from the label of a VM to their deletion.

A stand-in for baremetal-operator works on the hosts; `stand_in` states its
limits.
"""

import itertools
import json
import time

from testtools import content

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures.metal3 import hosts
from tests.fixtures.metal3 import stand_in
from tests.fixtures import operator
from tests.fixtures import operator_kills

IMAGE = {'url': 'http://192.0.2.1/live.iso', 'format': 'live-iso'}

#: Everything that belongs to a VM in Metal3.
KINDS = 'vmbmc,bmh,' + operator.OWNED


class Lifecycle(hosts.Hosts):
    """A mixin that reads hosts."""

    @classmethod
    def install(cls):
        super().install()
        cls.admin('apply', '-f', hosts.DEFINITIONS)

    def setUp(self):
        super().setUp()
        self.metal3 = self.useFixture(stand_in.StandIn(
            self.sandbox, self.SANDBOX != operator.PRETENDED_PODS))

    def labelled(self, name='n0'):
        self.vm_with_mac(name)
        self.kubectl('label', 'vm', name, 'metal3=true')

    def state(self, name='n0'):
        return self.host(name).get('status', {}).get('provisioning', {}).get(
            'state')

    def wait_state(self, state, seconds=60):
        self.until(state, self.state, state, seconds)

    def provision(self):
        self.merge('bmh', 'n0', {'spec': {'online': True, 'image': IMAGE}})
        self.wait_state('provisioned')

    def left(self):
        return [one for one in self.kubectl.names(KINDS) if 'n0' in one
                and not one.endswith('-bmc-state')]


@operator.other_platforms
@given_cluster.needs_sandbox('a stand-in that reaches addresses of Services')
class LifecycleTestCase(Lifecycle, operator.OperatorTestCase):
    """Hosts whose BMCs are processes."""

    SANDBOX = ()

    def test_life_of_a_host(self):
        self.labelled()
        self.wait_state('available')
        self.assertEqual(
            ['registering', 'inspecting', 'preparing', 'available'],
            self.metal3.states[self.namespace, 'n0'])
        self.provision()
        self.sandbox.wait_running('n0', self.namespace)
        self.until('status', lambda: self.kubectl.get('vmbmc', 'n0')[
            'status']['bareMetalHost'].get('state'), 'provisioned')
        # The pod of the BMC must answer until the machine is off.
        self.kubectl('delete', 'vmbmc', 'n0', '--wait=false')
        self.sandbox.wait_stopped('n0', self.namespace)
        self.kubectl('label', 'vm', 'n0', 'metal3-')
        self.until('nothing is left', self.left, [], 60)
        self.assertEqual(
            ['provisioning', 'provisioned', 'deprovisioning',
             stand_in.POWERING_OFF, 'deleting'],
            self.metal3.states[self.namespace, 'n0'][4:])
        self.assertEqual([], self.finalizers('vm'))

    def rack(self, name):
        """Change a label of the VM, and wait until the host has it."""
        self.kubectl('label', 'vm', 'n0', f'rack={name}', '--overwrite')
        self.until('label', lambda: self.host()['metadata']['labels'].get(
            'rack'), name)

    def test_detached_host(self):
        """Neither BMC nor VM waits for it, and the machine is left alone."""
        self.labelled()
        self.wait_state('available')
        self.provision()
        self.kubectl('annotate', 'bmh', 'n0', stand_in.DETACHED + '=')
        self.until('detached', lambda: self.host()['status'][
            'operationalStatus'], 'detached')
        self.kubectl('label', 'vm', 'n0', 'metal3-')
        self.until('nothing is left', self.left, [], 60)
        self.assertEqual(['provisioned', 'deleting'],
                         self.metal3.states[self.namespace, 'n0'][-2:])
        self.sandbox.wait_running('n0', self.namespace)
        self.assertEqual([], self.finalizers('vm'))

    def test_fields_of_users(self):
        self.labelled()
        self.wait_state('available')
        self.provision()
        # Read at once: a later write of the operator must not be part of it.
        before = json.loads(self.kubectl(
            'patch', 'bmh', 'n0', '--type=merge', '-o', 'json', '-p',
            json.dumps({
                'metadata': {'labels': {'mine': 'x'}, 'annotations': {
                    'mine': 'y'}},
                'spec': {'automatedCleaningMode': 'metadata', 'consumerRef': {
                    'kind': 'Metal3Machine', 'name': 'm',
                    'namespace': self.namespace},
                    'rootDeviceHints': {'hctl': '0:0:0:0'},
                    'userData': {'name': 'u'}}})))
        self.until('consumer', lambda: self.kubectl.get('vmbmc', 'n0')[
            'status']['bareMetalHost'].get('consumer'),
            f'Metal3Machine/{self.namespace}/m')
        # Each reconciliation writes to the host.
        for number in range(20):
            self.rack(f'r{number}')
        self.merge('secret', 'n0-virtbmc-auth',
                   {'data': {'password': 'YW5vdGhlcg=='}})
        self.until('password', lambda: self.kubectl.get(
            'secret', 'n0-virtbmc-host')['data']['password'], 'YW5vdGhlcg==')
        self.operator.process.send(15)
        self.assertEqual(0, self.operator.process.wait())
        self.operator.process.restart()
        # What it writes later shows that it has seen the host.
        self.rack('last')
        after = self.host()
        self.assertEqual('last', after['metadata']['labels'].pop('rack'))
        self.assertEqual(before['spec'], after['spec'])
        for key in 'labels', 'annotations', 'uid', 'finalizers':
            self.assertEqual(before['metadata'][key], after['metadata'][key])
        held = self.kubectl.get('secret', 'n0-virtbmc-host')['metadata']
        self.assertEqual([after['metadata']['uid']], [
            one['uid'] for one in held['ownerReferences']])
        self.assertEqual([stand_in.SECRET], held['finalizers'])
        self.assertEqual([(self.namespace, 'n0')], self.metal3.held)
        # With the new password.
        self.merge('bmh', 'n0', {'spec': {'image': None, 'online': False}})
        self.wait_state('available')
        self.sandbox.wait_stopped('n0', self.namespace)


@operator.other_platforms
@given_cluster.needs_sandbox('pods that start at once, and faults')
class KilledTestCase(Lifecycle, operator_kills.Kills,
                     operator.OperatorTestCase):
    """The operator is killed after each of its writes."""

    SANDBOX = operator.PRETENDED_PODS

    def setUp(self):
        super().setUp()
        self.start()

    def is_available(self):
        status = self.kubectl.get('vmbmc', 'n0').get('status', {})
        return (self.condition()[1] == 'HostCreated' and status.get(
            'bareMetalHost', {}).get('state') == 'available')

    def check_held(self):
        """Neither VM nor BMC can be deleted before the host."""
        if self.hosts():
            for kind in 'vm', 'vmbmc':
                self.assertEqual([hosts.FINALIZER], self.finalizers(kind))

    def test_killed_while_a_host_is_created(self):
        self.vm_with_mac('n0')
        for writes in itertools.count(1):
            self.allow_writes(writes)
            self.kubectl('label', 'vm', 'n0', 'metal3=true')

            def is_available():
                return bool(self.hosts()) and self.is_available()
            finished = self.kill_after_writes(is_available)
            self.check_held()
            self.start()
            self.until(f'available, after {writes}', is_available)
            self.assertEqual(['baremetalhost.metal3.io/n0'], self.hosts())
            for kind in 'vm', 'vmbmc':
                self.assertEqual([hosts.FINALIZER], self.finalizers(kind))
            self.kubectl('label', 'vm', 'n0', 'metal3-')
            self.until(f'nothing left, after {writes}', self.left, [])
            if finished:
                break
        self.assertGreater(writes, 12)

    def test_killed_while_a_host_is_deleted(self):
        self.vm_with_mac('n0')
        for writes in itertools.count(1):
            self.kubectl('label', 'vm', 'n0', 'metal3=true')
            self.until('available', lambda: bool(
                self.hosts()) and self.is_available())
            self.provision()
            states = self.metal3.states[self.namespace, 'n0']
            seen = len(states)
            self.allow_writes(writes)
            self.kubectl('label', 'vm', 'n0', 'metal3-')
            finished = self.kill_after_writes(lambda: not self.left())
            self.check_held()
            self.start()
            self.until(f'nothing left, after {writes}', self.left, [])
            self.assertEqual(['deprovisioning', stand_in.POWERING_OFF,
                              'deleting'], states[seen:])
            self.assertEqual([], self.finalizers('vm'))
            if finished:
                break
        self.assertGreater(writes, 4)


@operator.other_platforms
@given_cluster.needs_sandbox('pods that start at once')
class PausedTestCase(Lifecycle, operator.OperatorTestCase):

    def test_paused_host(self):
        self.labelled()
        self.wait_state('available')
        self.kubectl('annotate', 'bmh', 'n0', stand_in.PAUSED + '=')
        self.wait_condition('HostPaused')
        self.kubectl('delete', 'vm', 'n0', '--wait=false')
        self.assertIn('It is paused', self.wait_condition('WaitingForHost'))
        self.assertIn('deletionTimestamp', self.host()['metadata'])
        self.kubectl('annotate', 'bmh', 'n0', stand_in.PAUSED + '-')
        self.until('nothing is left', lambda: (
            self.left(), self.kubectl.names('vm')), ([], []), 60)


@operator.other_platforms
@given_cluster.needs_sandbox('pods that start at once, for many BMCs')
class ManyHostsTestCase(Lifecycle, operator.OperatorTestCase):

    COUNT = 100

    def test_many_hosts_at_once(self):
        names = [f'n{number}' for number in range(self.COUNT)]
        for number, name in enumerate(names):
            vm = self.vm(name)
            device = vm['spec']['template']['spec']['domain']['devices'][
                'interfaces'][0]
            device['macAddress'] = f'52:54:00:00:01:{number:02x}'
            self.sandbox.patch('virtualmachines', name, {
                'spec': vm['spec']}, self.namespace)
        mark, began = self.operator.process.mark(), time.monotonic()
        self.kubectl('label', 'vm', '--all', 'metal3=true')

        def available():
            return sum(
                (one.get('status') or {}).get('bareMetalHost', {}).get(
                    'state') == 'available'
                for one in self.kubectl.get('vmbmc')['items'])
        self.until('available', available, self.COUNT, 240)
        created = time.monotonic() - began
        self.kubectl('delete', 'vm', '--all', '--wait=false')
        self.until('deleted', lambda: self.kubectl.names('vm,vmbmc,bmh'), [],
                   240)
        self.addDetail('seconds', content.text_content(json.dumps({
            'available': created,
            'deleted': time.monotonic() - began - created})))
        print(f'{self.COUNT} hosts: available after {created:.1f} s, deleted '
              f'{time.monotonic() - began - created:.1f} s later')
        self.assert_no_warnings(mark)
