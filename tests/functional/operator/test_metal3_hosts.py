# SPDX-License-Identifier: Apache-2.0
"""BareMetalHosts that the operator creates for BMCs."""

import json

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures.metal3 import hosts
from tests.fixtures import operator

#: What baremetal-operator keeps on hosts.
METAL3 = 'baremetalhost.metal3.io'


@operator.other_platforms
class HostsTestCase(hosts.Hosts, operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.admin('apply', '-f', hosts.DEFINITIONS)

    def test_host_of_a_bmc(self):
        self.vm_with_mac('n0')
        self.kubectl('label', 'vm', 'n0', 'rack=r1', 'other=x')
        self.bmc('n0', 'n0', None)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('HostCreated')
        # The operator may see the label after the BMC.
        self.until('label', lambda: self.host()['metadata']['labels'].get(
            'rack'), 'r1')
        made = self.host()
        self.assertEqual(self.mac, made['spec']['bootMACAddress'])
        self.assertNotIn('other', made['metadata']['labels'])
        self.assertEqual(
            f'redfish-virtualmedia+https://n0-virtbmc.{self.namespace}.svc'
            '/redfish/v1/Systems/1', made['spec']['bmc']['address'])
        own, its = (self.kubectl.get('secret', name)['data'] for name in (
            'n0-virtbmc-auth', made['spec']['bmc']['credentialsName']))
        self.assertEqual(own, its)
        for kind in 'vm', 'vmbmc':
            self.assertEqual([hosts.FINALIZER], self.finalizers(kind))
        self.assertEqual(
            made['metadata']['uid'],
            self.kubectl.get('vmbmc', 'n0')['status']['bareMetalHost']['uid'])
        # Password and labels are kept up to date.
        self.merge('secret', 'n0-virtbmc-auth',
                   {'data': {'password': 'YW5vdGhlcg=='}})
        self.until('password', lambda: self.kubectl.get(
            'secret', 'n0-virtbmc-host')['data']['password'], 'YW5vdGhlcg==')
        self.kubectl('label', 'vm', 'n0', 'rack=r2', '--overwrite')
        self.until('label', lambda: self.host()['metadata']['labels']['rack'],
                   'r2')
        self.kubectl('label', 'bmh', 'n0', 'mine=x')
        self.kubectl('label', 'vm', 'n0', 'rack-')
        self.until('label', lambda: self.host()['metadata']['labels'].get(
            'rack'), None)
        self.assertEqual('x', self.host()['metadata']['labels']['mine'])

    def test_label_of_a_vm(self):
        self.vm_with_mac('n0')
        self.kubectl('label', 'vm', 'n0', 'metal3=true')
        self.until('host', self.hosts, ['baremetalhost.metal3.io/n0'])
        self.kubectl('label', 'vmbmc', 'n0', 'metal3-')
        self.until('label', lambda: self.kubectl.get('vmbmc', 'n0')[
            'metadata']['labels'].get('metal3'), 'true')
        self.kubectl('label', 'vm', 'n0', 'metal3-')
        self.until('nothing is left', lambda: (
            self.hosts(), self.kubectl.names('vmbmc')), ([], []))
        self.assertEqual([], self.finalizers('vm'))

    def test_vm_without_a_mac(self):
        self.vm_with_mac('n0', None)
        self.bmc('n0', 'n0', None)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('HostNeedsMAC')
        self.assertEqual([], self.hosts())
        self.set_mac('n0', self.mac)
        self.wait_condition('HostCreated')

    def test_two_vms_with_one_mac(self):
        """Ironic would refuse the second host."""
        for name in 'n0', 'n1':
            self.vm_with_mac(name)
            self.bmc(name, name, None)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('HostCreated')
        self.kubectl('label', 'vmbmc', 'n1', 'metal3=true')
        message = self.wait_condition('HostMACInUse', 'n1')
        self.assertIn(f'BareMetalHost n0 has MAC address {self.mac}',
                      message)
        self.assertEqual(['baremetalhost.metal3.io/n0'], self.hosts())
        # It gets its host when the other one is gone.
        self.kubectl('label', 'vmbmc', 'n0', 'metal3-')
        self.wait_condition('HostNotManaged')
        self.kubectl('delete', 'bmh', 'n0')
        self.wait_condition('HostCreated', 'n1')
        self.assertEqual(['baremetalhost.metal3.io/n1'], self.hosts())
        # A host of somebody else counts, too, however the address is written.
        self.kubectl('label', 'vmbmc', 'n1', 'metal3-')
        self.wait_condition('HostNotManaged', 'n1')
        self.kubectl('delete', 'bmh', 'n1')
        self.kubectl.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': 'theirs'},
            'spec': {'bootMACAddress': self.mac.upper(), 'online': False}})
        self.kubectl('label', 'vmbmc', 'n1', 'metal3=true')
        self.assertIn('theirs', self.wait_condition('HostMACInUse', 'n1'))
        self.set_mac('n1', '02:00:00:00:00:99')
        self.wait_condition('HostCreated', 'n1')

    def test_deletion_waits_for_the_host(self):
        self.bmc_with_host()
        self.merge('bmh', 'n0', {'metadata': {'finalizers': [METAL3]}})
        self.kubectl('delete', 'vm', 'n0', '--wait=false')
        self.wait_condition('WaitingForHost')
        self.kubectl('delete', 'vmbmc', 'n0', '--wait=false')
        self.assertIn('deletionTimestamp', self.host()['metadata'])
        self.assertIn('deployment.apps/n0-virtbmc', self.owned('n0'))
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})
        self.until('nothing is left', lambda: (
            self.hosts(), self.owned('n0'),
            self.kubectl.names('vm,vmbmc')), ([], [], []))
        self.assertNotIn('secret/n0-virtbmc-host',
                         self.kubectl.names('secret'))

    def test_override(self):
        self.bmc_with_host()
        self.merge('bmh', 'n0', {'metadata': {'finalizers': [METAL3]}})
        self.kubectl('delete', 'vmbmc', 'n0', '--wait=false')
        message = self.wait_condition('WaitingForHost')
        self.assertIn('skip-host-deprovisioning=true', message)
        self.kubectl('annotate', 'vmbmc', 'n0',
                     'bmc.kubevirt.io/skip-host-deprovisioning=true')
        self.until('BMC', lambda: self.kubectl.names('vmbmc'), [])
        self.assertIn(METAL3 + '/detached',
                      self.host()['metadata']['annotations'])
        self.assertEqual([], self.finalizers('vm'))
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})

    @given_cluster.needs_sandbox('a webhook that fails')
    def test_webhook_of_metal3_fails(self):
        # That of a baremetal-operator that is stopped.
        self.sandbox.fault(500, where='/baremetalhosts', verb='POST',
                           count=1000)
        self.vm_with_mac('n0')
        self.bmc('n0', 'n0', None)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('Refused')
        self.sandbox.clear_faults()
        self.wait_condition('HostCreated')
        self.merge('bmh', 'n0', {'metadata': {'finalizers': [METAL3]}})
        self.kubectl('annotate', 'bmh', 'n0', METAL3 + '/paused=')
        self.wait_condition('HostPaused')
        self.sandbox.fault(500, where='/baremetalhosts/', verb='PATCH',
                           count=1000)
        self.kubectl('label', 'vm', 'n0', 'rack=r1')
        self.wait_condition('Refused')
        self.assertIs(True, self.kubectl.get('vmbmc', 'n0')['status'][
            'bareMetalHost']['paused'])
        self.kubectl('delete', 'vm,vmbmc', 'n0', '--wait=false')
        self.wait_condition('WaitingForHost')
        # The BMC cannot be changed at the same time as the VM.
        self.sandbox.fault(409, where='/virtualmachinebmcs/n0$', verb='PATCH',
                           count=1)
        self.kubectl('annotate', 'vm', 'n0',
                     'bmc.kubevirt.io/skip-host-deprovisioning=true')
        self.until('BMC', lambda: self.kubectl.names('vm,vmbmc'), [])
        self.sandbox.clear_faults()
        self.merge('bmh', 'n0', {'metadata': {'finalizers': None}})

    def test_bmc_that_is_removed_by_force(self):
        self.bmc_with_host()
        self.operator.process.send(15)
        self.assertEqual(0, self.operator.process.wait())
        self.merge('vmbmc', 'n0', {'metadata': {'finalizers': None}})
        self.kubectl('delete', 'vmbmc', 'n0')
        self.kubectl('delete', 'vm', 'n0', '--wait=false')
        self.operator.process.restart()
        self.until('VM', lambda: self.kubectl.names('vm'), [])
        self.kubectl('delete', 'bmh', 'n0')

    def test_two_bmcs_of_a_vm(self):
        self.bmc_with_host()
        self.bmc('n1', 'n0', None)
        self.kubectl('label', 'vmbmc', 'n1', 'metal3=true')
        self.wait_condition('HostMACInUse', 'n1')
        self.set_mac('n0', '02:00:00:00:00:99')
        self.wait_condition('HostCreated', 'n1')
        self.kubectl('delete', 'vmbmc', 'n1')
        self.assertEqual([hosts.FINALIZER], self.finalizers('vm'))
        self.kubectl('delete', 'vmbmc', 'n0')
        self.assertEqual([], self.finalizers('vm'))

    def test_host_of_a_user_deleted(self):
        self.bmc_with_host()
        uid = self.host()['metadata']['uid']
        self.kubectl('delete', 'bmh', 'n0')
        self.until('another host', lambda: self.hosts() and self.host()[
            'metadata']['uid'] != uid)
        self.merge('vmbmc', 'n0',
                   {'spec': {'bareMetalHost': {'enabled': False}}})
        self.wait_condition('HostNotManaged')
        self.kubectl('delete', 'bmh', 'n0')
        self.until('finalizers', lambda: (
            self.finalizers('vm'), self.finalizers('vmbmc')), ([], []))
        self.assertEqual([], self.hosts())

    def test_host_that_is_moved(self):
        self.bmc_with_host()
        self.kubectl('annotate', 'bmh', 'n0', METAL3 + '/paused=')
        self.wait_condition('HostPaused')
        self.kubectl('delete', 'bmh', 'n0')
        message = self.wait_condition('HostMoved')
        self.until('finalizers', lambda: self.finalizers('vm'), [])
        self.assertEqual([], self.hosts())
        self.assertNotIn('secret/n0-virtbmc-host',
                         self.kubectl.names('secret'))
        self.kubectl(*message.partition('kubectl ')[2].split())
        self.wait_condition('HostCreated')
        # As clusterctl does, whose pause it removes with all annotations.
        self.merge('bmh', 'n0', {'metadata': {'finalizers': [METAL3]}})
        self.kubectl(
            'patch', 'bmh', 'n0', '--type=json', '-p', json.dumps([{
                'op': 'add', 'path': '/metadata/annotations', 'value': {
                    'clusterctl.cluster.x-k8s.io/delete-for-move': ''}}]))
        self.kubectl('delete', 'bmh', 'n0', '--wait=false')
        self.wait_condition('HostMoving')
        self.merge('bmh', 'n0', {'metadata': {'finalizers': []}})
        self.wait_condition('HostMoved')

    def test_foreign_host(self):
        self.vm_with_mac('n0')
        self.kubectl.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': 'n0'}, 'spec': {'online': False}})
        self.bmc('n0', 'n0', None)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('NameTaken')
        self.assertNotIn('bmc', self.host()['spec'])
        self.kubectl('delete', 'bmh', 'n0')
        self.wait_condition('HostCreated')
