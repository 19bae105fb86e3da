# SPDX-License-Identifier: Apache-2.0
"""BareMetalHosts in clusters where something is missing or in the way."""

import json

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures.metal3 import hosts
from tests.fixtures import operator

METAL3 = 'baremetalhost.metal3.io'
CRD = 'crd/baremetalhosts.metal3.io'
SKIP = 'bmc.kubevirt.io/skip-host-deprovisioning=true'


@operator.other_platforms
@given_cluster.needs_sandbox('definitions of its own, and faults')
class RecoveryTestCase(hosts.Hosts, operator.OperatorTestCase):

    RUNS = False

    def setUp(self):
        super().setUp()
        self.running = None
        self.addCleanup(self.admin, 'delete', '--ignore-not-found', '-f',
                        hosts.DEFINITIONS)
        self.addCleanup(self.free)
        self.addCleanup(self.stop)

    def define(self):
        self.admin('apply', '-f', hosts.DEFINITIONS)

    def free(self):
        """Let all hosts be deleted."""
        for one in self.kubectl.run('get', 'bmh', '-o', 'name').stdout.split():
            self.kubectl('patch', one, '--type=merge', '-p',
                         '{"metadata": {"finalizers": null}}')

    def start(self, *arguments):
        """Start the operator with other arguments than before."""
        self.stop()
        self.admin('delete', 'lease', operator.NAME, '-n',
                   operator.NAMESPACE, '--ignore-not-found')
        self.running = operator.Operator(self.account, arguments)
        self.running.setUp()

    def stop(self):
        if self.running is not None:
            running, self.running = self.running, None
            running.cleanUp()

    def held_host(self):
        """Create a host that baremetal-operator knows."""
        self.define()
        self.start(*self.ARGUMENTS)
        self.bmc_with_host()
        self.wait_condition('HostCreated')
        self.merge('bmh', 'n0', {'metadata': {'finalizers': [METAL3]}})

    def delete_bmc(self):
        self.kubectl('delete', 'vmbmc', 'n0', '--wait=false')
        return self.wait_condition('WaitingForHost')

    def wait_no_bmc(self, seconds=60):
        self.until('BMC', lambda: self.kubectl.names('vmbmc'), [], seconds)
        self.assertEqual([], self.finalizers('vm'))

    def test_definition_that_comes_and_goes(self):
        self.start(*self.ARGUMENTS)
        self.vm_with_mac('n0')
        self.bmc('n0', 'n0', None)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        message = self.wait_condition('BareMetalHostAPIMissing')
        self.assertIn('--bare-metal-hosts', message)
        self.define()
        self.wait_condition('HostCreated')
        self.assertEqual(1, len([
            one for one in self.running.warnings()
            if 'API of Metal3' in one['message']]))
        self.merge('bmh', 'n0', {'metadata': {'finalizers': [METAL3]}})
        self.delete_bmc()
        # The other kinds of Metal3 stay.
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})
        self.wait_no_bmc()

    def test_definition_that_is_removed_by_force(self):
        self.held_host()
        self.delete_bmc()
        self.admin('delete', CRD, '--wait=false')
        self.admin('patch', CRD, '--type=merge', '-p',
                   '{"metadata": {"finalizers": null}}')
        self.wait_no_bmc(60)
        # It comes back with its definition, as from etcd.
        self.define()

    def test_without_the_option(self):
        self.held_host()
        self.vm_with_mac('n1', None)
        self.bmc('n1', 'n1', None)
        self.kubectl('label', 'vmbmc', 'n1', 'metal3=true')
        self.wait_condition('HostNeedsMAC', 'n1')
        self.start()
        self.wait_condition('HostNotManaged')
        self.until('no condition', lambda: self.condition('n1')[1], None)
        self.delete_bmc()
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})
        self.until('BMC', lambda: self.kubectl.names('vmbmc'),
                   ['virtualmachinebmc.bmc.kubevirt.io/n1'])

    def test_without_the_option_alone(self):
        self.define()
        self.start(*self.ARGUMENTS)
        self.vm_with_mac('n1', None)
        self.bmc('n1', 'n1', None)
        self.kubectl('label', 'vmbmc', 'n1', 'metal3=true')
        self.wait_condition('HostNeedsMAC', 'n1')
        self.start()
        self.until('no condition', lambda: self.condition('n1')[1], None)

    def test_without_the_component(self):
        self.held_host()
        self.stop()
        rules = self.admin.get('clusterrole', operator.NAME)['rules']
        self.addCleanup(self.admin.apply, {
            'apiVersion': 'rbac.authorization.k8s.io/v1',
            'kind': 'ClusterRole', 'metadata': {'name': operator.NAME},
            'rules': rules})
        self.admin('patch', 'clusterrole', operator.NAME, '--type=merge',
                   '-p', json.dumps({'rules': [
                       one for one in rules
                       if 'metal3.io' not in one.get('apiGroups', ())]}))
        self.start()
        self.wait_condition('BareMetalHostAPIForbidden')
        self.kubectl('delete', 'vmbmc', 'n0', '--wait=false')
        self.until('way out', lambda: SKIP in self.condition()[2])
        self.assertEqual([hosts.FINALIZER], self.finalizers('vm'))
        self.kubectl('annotate', 'vmbmc', 'n0', SKIP)
        self.wait_no_bmc()

    def test_host_without_a_spec(self):
        self.held_host()
        mark = self.running.process.mark()
        self.kubectl('patch', 'bmh', 'n0', '--type=json', '-p',
                     '[{"op": "remove", "path": "/spec"}]')
        self.kubectl('label', 'vm', 'n0', 'rack=r1')
        self.until('label', lambda: self.host()['metadata']['labels'].get(
            'rack'), 'r1')
        self.delete_bmc()
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})
        self.wait_no_bmc()
        self.assertEqual([], self.running.warnings(mark))

    def test_cascade_in_the_foreground(self):
        """The garbage collector deletes what a BMC owns before the BMC."""
        self.held_host()
        uid = self.kubectl.get('deployment', 'n0-virtbmc')['metadata']['uid']
        self.kubectl('delete', 'vmbmc', 'n0', '--cascade=foreground',
                     '--wait=false')
        self.until('another Deployment', lambda: self.kubectl.get(
            'deployment', 'n0-virtbmc')['metadata']['uid'] != uid)
        self.until('its credentials', lambda: self.kubectl.get(
            'secret', 'n0-virtbmc-auth')['data'] == self.kubectl.get(
            'secret', 'n0-virtbmc-host')['data'])
        self.until('ready', lambda: 'not ready' in self.condition()[2], False)
        self.assertEqual('WaitingForHost', self.condition()[1])
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})
        self.wait_no_bmc()
        self.until('nothing is left', lambda: self.owned('n0'), [])

    def test_namespace_that_is_deleted(self):
        self.held_host()
        self.admin('delete', 'namespace', self.namespace, '--wait=false')
        self.assertIn(SKIP, self.wait_condition('WaitingForHost'))
        self.kubectl('annotate', 'vm', 'n0', SKIP)
        self.until('released', lambda: self.kubectl.names('vm,vmbmc'), [])
        self.assertIn(METAL3 + '/detached',
                      self.host()['metadata']['annotations'])
        self.free()
        self.until('namespace', lambda: self.namespace in self.admin(
            'get', 'namespaces'), False)

    def test_vm_of_another_namespace(self):
        """Its owner decides whether hosts elsewhere keep it."""
        self.define()
        self.start(*self.ARGUMENTS)
        other = self.new_namespace()
        there = self.admin.within(other)
        self.vm('n0', namespace=other)
        there('annotate', 'vm', 'n0', 'bmc.kubevirt.io/allow-from='
              + self.namespace)
        there('patch', 'vm', 'n0', '--type=json', '-p', json.dumps([{
            'op': 'add', 'path': '/spec/template/spec/domain/devices/'
            'interfaces/0/macAddress', 'value': self.mac}]))
        made = operator.bmc_manifest('n0', 'n0', None)
        made['spec']['virtualMachine']['namespace'] = other
        self.kubectl.apply(made)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('HostCreated')

        def held():
            return there.get('vm', 'n0')['metadata'].get('finalizers', [])
        self.assertIn(hosts.FINALIZER, held())
        there('annotate', 'vm', 'n0', 'bmc.kubevirt.io/allow-from-')
        self.until('released', lambda: hosts.FINALIZER in held(), False)
