# SPDX-License-Identifier: Apache-2.0
"""A one-time boot happens once even if the BMC's pod is lost meanwhile.

The same holds if the BMC is deleted: a VM without a BMC has the spec that
its owner wrote.
"""

import json
import os
import signal

from tests.fixtures import machine_case
from tests.fixtures import operator
from tests.fixtures import processes


class BootTestCase(operator.OperatorTestCase):

    RUN_STRATEGY = 'Halted'

    def setUp(self):
        super().setUp()
        self.vm('box', self.RUN_STRATEGY)
        self.owner = self.get_vm()['spec']
        self.one = self.bmc().ready()

    def get_vm(self):
        return self.sandbox.vm('box', self.namespace)

    def annotations(self):
        """Return the annotations that BMCs keep on the VM."""
        return {name: value for name, value in self.get_vm()['metadata'].get(
            'annotations', {}).items()
            if name.startswith('sushy-kubevirt.openstack.org/')}

    def pids(self):
        """List the process ids of the pod's container."""
        pods = self.kubectl.get('pods', '-l', operator.LABEL + 'box')['items']
        return [pid for pod in pods if pod['status'].get('podIP')
                for pid in processes.with_environment(
                    f"POD_IP={pod['status']['podIP']}\0")]

    def kill(self):
        """Kill the container without a chance to clean up."""
        pid, = self.pids()
        os.kill(pid, signal.SIGKILL)

    def delete_pod(self):
        """Stop the operator and delete the pod, until `restore_pod`."""
        self.operator.process.cleanUp()
        self.kubectl('scale', 'deployment', self.one.base, '--replicas=0')
        self.until('pods', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])

    def restore_pod(self):
        self.operator.setUp()
        # The BMC's condition Ready may still be that of the deleted pod.
        self.until('pod', lambda: self.kubectl.get(
            'deployment', self.one.base)['status'].get('readyReplicas'), 1)
        self.one.ready()

    def set_pxe_once(self):
        self.one.ipmi('chassis', 'bootdev', 'pxe')
        self.assertIn('"once"', str(self.annotations()))

    def start(self):
        """Start the VM, or restart it, as another client."""
        before = self.sandbox.vmi('box', self.namespace)
        verb = 'restart' if before else 'start'
        self.sandbox.do('box', verb, namespace=self.namespace)
        self.sandbox.wait_running(
            'box', self.namespace,
            other_than=before and before['metadata']['uid'])

    def boots(self):
        return [boot['class'] for boot in self.sandbox.boots(
            'box', self.namespace)]

    def order(self):
        """Return reboot policy and boot orders of the VM's template."""
        domain = self.get_vm()['spec']['template']['spec']['domain']
        return [domain.get('rebootPolicy')] + [
            device.get('bootOrder') for kind in ('disks', 'interfaces')
            for device in domain['devices'][kind]]

    def wait_restored(self):
        """Wait until the VM has its owner's boot order again."""
        domain = self.owner['template']['spec']['domain']
        self.until('boot order', self.order, [None] + [
            device.get('bootOrder') for kind in ('disks', 'interfaces')
            for device in domain['devices'][kind]])

    def next_boot(self):
        """Restart or start the VM; return the class of device it boots."""
        vmi = self.sandbox.vmi('box', self.namespace)
        count = len(self.boots())
        self.one.ipmi('power', 'cycle' if vmi else 'on')
        return self.sandbox.wait_boot('box', count + 1,
                                      self.namespace)['class']


class LostPodTest(BootTestCase):

    def test_started_without_pod(self):
        self.set_pxe_once()
        self.delete_pod()
        self.start()
        self.assertEqual(['Pxe'], self.boots())
        self.restore_pod()
        self.wait_restored()
        self.assertEqual('Hdd', self.next_boot())

    def test_started_and_stopped_without_pod(self):
        self.set_pxe_once()
        self.delete_pod()
        self.start()
        self.sandbox.do('box', 'stop', namespace=self.namespace)
        self.sandbox.wait_stopped('box', self.namespace)
        self.restore_pod()
        self.wait_restored()
        self.assertEqual('Hdd', self.next_boot())

    def test_pod_replaced_before_start(self):
        self.set_pxe_once()
        self.delete_pod()
        self.restore_pod()
        self.assertIn('"once"', str(self.annotations()))
        self.assertEqual('Pxe', self.next_boot())
        self.wait_restored()

    def test_container_killed_during_start(self):
        # Before, during and after the start, in turn.
        for turn in range(3):
            self.set_pxe_once()
            count = len(self.boots())
            if turn == 0:
                self.kill()
            self.sandbox.do('box', 'restart' if count else 'start',
                            namespace=self.namespace)
            if turn == 1:
                self.kill()
            boot = self.sandbox.wait_boot('box', count + 1, self.namespace)
            self.assertEqual('Pxe', boot['class'])
            if turn == 2:
                self.kill()
            self.wait_restored()
            self.until('ready', lambda: self.one.condition()[0], 'True')
            self.one.ready()

    def test_pod_deleted_during_start(self):
        self.set_pxe_once()
        self.kubectl('delete', 'pods', '-l', operator.LABEL + 'box',
                     '--wait=false')
        self.start()
        self.wait_restored()
        self.assertEqual(['Pxe'], self.boots())
        self.one.ready()
        self.assertEqual('Hdd', self.next_boot())


class DeletedBmcTest(BootTestCase):

    STATE = 'secret/box-bmc-state'

    def delete(self):
        self.kubectl('delete', 'vmbmc', 'box')

    def wait_removed(self):
        """Wait until no trace of the BMC is left on the VM."""
        self.until('state', lambda: self.STATE in self.kubectl.names(
            'secrets'), False)
        self.until('annotations', self.annotations, {})
        self.assertEqual(self.owner['template'],
                         self.get_vm()['spec']['template'])

    def test_deleted_before_start(self):
        self.set_pxe_once()
        self.delete()
        self.wait_removed()
        self.assertEqual('Halted', self.get_vm()['spec']['runStrategy'])
        self.start()
        self.assertEqual(['Hdd'], self.boots())
        self.assert_no_warnings()

    def test_operator_stopped_while_bmc_is_deleted(self):
        self.set_pxe_once()
        self.operator.process.cleanUp()
        self.delete()
        self.until('pods', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])
        self.assertIn('"once"', str(self.annotations()))
        self.operator.setUp()
        self.wait_removed()
        self.assertEqual('Halted', self.get_vm()['spec']['runStrategy'])

    def test_deleted_without_override(self):
        self.delete()
        self.wait_removed()
        self.assert_no_warnings()

    def test_override_stays_for_another_bmc(self):
        self.kubectl.apply(operator.bmc_manifest('other', 'box', 'box-bmc'))
        other = operator.Bmc(self.kubectl, 'other', 'admin',
                             self.one.password).ready()
        self.set_pxe_once()
        self.delete()
        self.until('role', lambda: 'role.rbac.authorization.k8s.io/'
                   'box-virtbmc' in self.kubectl.names('roles'), False)
        self.one = other
        self.assertIn('"once"', str(self.annotations()))
        self.assertEqual('Pxe', self.next_boot())
        self.wait_restored()

    def test_bmc_recreated_at_once(self):
        self.set_pxe_once()
        self.delete()
        self.kubectl.apply(operator.bmc_manifest('box', 'box', 'box-bmc'))
        self.one.ready()
        # With or without the old BMC's order, the override ends after it.
        self.next_boot()
        self.wait_restored()
        self.assertEqual('Hdd', self.next_boot())


class RunningVmTest(BootTestCase):

    RUN_STRATEGY = 'RerunOnFailure'

    def test_vm_restarts_while_bmc_is_deleted(self):
        # The guest ignores ACPI: the restart lasts until it is told to shut
        # down, when the BMC is deleted.
        template = {'metadata': {'annotations': {
            machine_case.IGNORE_ACPI: 'true'}},
            'spec': {'terminationGracePeriodSeconds': 600}}
        self.kubectl('patch', 'vm', 'box', '--type=merge', '--patch',
                     json.dumps({'spec': {'template': template}}))
        self.start()
        self.owner = self.get_vm()['spec']
        self.set_pxe_once()
        count = len(self.boots())
        self.sandbox.do('box', 'restart', namespace=self.namespace)
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('role', lambda: 'role.rbac.authorization.k8s.io/'
                   'box-virtbmc' in self.kubectl.names('roles'), False)
        self.assertEqual(count, len(self.boots()))
        self.sandbox.guest_does('box', 'shutdown', self.namespace)
        boot = self.sandbox.wait_boot('box', count + 1, self.namespace)
        self.assertEqual('Pxe', boot['class'])
        self.wait_restored()

    def test_bmc_deleted_in_one_time_boot(self):
        self.sandbox.wait_boot('box', 1, self.namespace)
        self.set_pxe_once()
        self.start()
        self.assertEqual('Pxe', self.boots()[-1])
        self.wait_restored()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('pods', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])
        count = len(self.boots())
        self.sandbox.guest_does('box', 'reboot', self.namespace)
        boot = self.sandbox.wait_boot('box', count + 1, self.namespace)
        self.assertEqual('Hdd', boot['class'])
        self.until('annotations', self.annotations, {})
        self.until('spec', lambda: self.get_vm()['spec'], self.owner)
        self.until('state', lambda: 'secret/box-bmc-state'
                   in self.kubectl.names('secrets'), False)
        self.assert_no_warnings()
