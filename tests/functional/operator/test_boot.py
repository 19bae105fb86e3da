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


class BootTestCase(operator.OperatorTestCase):

    RUN_STRATEGY = 'Halted'

    def setUp(self):
        super().setUp()
        self.vm('box', self.RUN_STRATEGY)
        self.owner = self.look()['spec']
        self.one = self.bmc().ready()

    def look(self):
        return self.sandbox.vm('box', self.namespace)

    def annotations(self):
        """What BMCs keep on the VM."""
        return {name: value for name, value in self.look()['metadata'].get(
            'annotations', {}).items()
            if name.startswith('sushy-kubevirt.openstack.org/')}

    def pids(self):
        """Process ids of the containers of the pod."""
        pods = self.kubectl.get('pods', '-l', operator.LABEL + 'box')['items']
        found = []
        for one in os.listdir('/proc'):
            if not one.isdecimal():
                continue
            try:
                with open(f'/proc/{one}/environ', 'rb') as stream:
                    env = stream.read()
            except OSError:
                continue
            if any(pod['status'].get('podIP') and (
                    b'POD_IP=' + pod['status']['podIP'].encode() + b'\0'
                    in env) for pod in pods):
                found.append(int(one))
        return found

    def kill(self):
        """Kill both containers, so that neither has time for a word."""
        pids = self.pids()
        self.assertEqual(2, len(pids))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def away(self):
        """Have no pod, until `back`; the operator rests meanwhile."""
        self.operator.process.cleanUp()
        self.kubectl('scale', 'deployment', self.one.base, '--replicas=0')
        self.until('pods', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])

    def back(self):
        self.operator.setUp()
        self.one.ready()

    def set_once(self):
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
        """The boot orders of the VM's template."""
        domain = self.look()['spec']['template']['spec']['domain']
        return [domain.get('rebootPolicy')] + [
            device.get('bootOrder') for kind in ('disks', 'interfaces')
            for device in domain['devices'][kind]]

    def put_back(self):
        """Wait until the VM is to boot as its owner wants."""
        domain = self.owner['template']['spec']['domain']
        self.until('boot order', self.order, [None] + [
            device.get('bootOrder') for kind in ('disks', 'interfaces')
            for device in domain['devices'][kind]])

    def next_boot(self):
        """What the VM boots the next time."""
        vmi = self.sandbox.vmi('box', self.namespace)
        count = len(self.boots())
        self.one.ipmi('power', 'cycle' if vmi else 'on')
        return self.sandbox.wait_boot('box', count + 1,
                                      self.namespace)['class']


class PodGoneTest(BootTestCase):

    def test_gone_when_it_started(self):
        self.set_once()
        self.away()
        self.start()
        self.assertEqual(['Pxe'], self.boots())
        self.back()
        self.put_back()
        self.assertEqual('Hdd', self.next_boot())

    def test_gone_while_it_came_and_went(self):
        self.set_once()
        self.away()
        self.start()
        self.sandbox.do('box', 'stop', namespace=self.namespace)
        self.sandbox.wait_stopped('box', self.namespace)
        self.back()
        self.put_back()
        self.assertEqual('Hdd', self.next_boot())

    def test_gone_and_back_before_it_starts(self):
        self.set_once()
        self.away()
        self.back()
        self.assertIn('"once"', str(self.annotations()))
        self.assertEqual('Pxe', self.next_boot())
        self.put_back()

    def test_killed_as_it_starts(self):
        # By turns before, in and after the moment that it is told to start.
        for turn in range(3):
            self.set_once()
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
            self.put_back()
            self.until('ready', lambda: self.one.condition()[0], 'True')
            self.one.ready()

    def test_its_pod_deleted_as_it_starts(self):
        self.set_once()
        self.kubectl('delete', 'pods', '-l', operator.LABEL + 'box',
                     '--wait=false')
        self.start()
        self.put_back()
        self.assertEqual(['Pxe'], self.boots())
        self.one.ready()
        self.assertEqual('Hdd', self.next_boot())


class BmcGoneTest(BootTestCase):

    STATE = 'secret/box-bmc-state'

    def delete(self):
        self.kubectl('delete', 'vmbmc', 'box')

    def gone(self):
        """Wait until nothing tells that there was a BMC."""
        self.until('state', lambda: self.STATE in self.kubectl.names(
            'secrets'), False)
        self.until('annotations', self.annotations, {})
        self.assertEqual(self.owner['template'],
                         self.look()['spec']['template'])

    def test_before_that_boot(self):
        self.set_once()
        self.delete()
        self.gone()
        self.assertEqual('Halted', self.look()['spec']['runStrategy'])
        self.start()
        self.assertEqual(['Hdd'], self.boots())
        self.quiet()

    def test_the_operator_was_away(self):
        self.set_once()
        self.operator.process.cleanUp()
        self.delete()
        self.until('pods', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])
        self.assertIn('"once"', str(self.annotations()))
        self.operator.setUp()
        self.gone()
        self.assertEqual('Halted', self.look()['spec']['runStrategy'])

    def test_nothing_was_pending(self):
        self.delete()
        self.gone()
        self.quiet()

    def test_another_bmc_minds_the_vm(self):
        self.kubectl.apply(operator.bmc_manifest('other', 'box', 'box-bmc'))
        other = operator.Bmc(self.kubectl, 'other', 'admin',
                             self.one.password).ready()
        self.set_once()
        self.delete()
        self.until('role', lambda: 'role.rbac.authorization.k8s.io/'
                   'box-virtbmc' in self.kubectl.names('roles'), False)
        self.one = other
        self.assertIn('"once"', str(self.annotations()))
        self.assertEqual('Pxe', self.next_boot())
        self.put_back()

    def test_made_again_at_once(self):
        self.set_once()
        self.delete()
        self.kubectl.apply(operator.bmc_manifest('box', 'box', 'box-bmc'))
        self.one.ready()
        # With the old BMC's order or without: what comes is for one time.
        self.next_boot()
        self.put_back()
        self.assertEqual('Hdd', self.next_boot())


class BootRunsTest(BootTestCase):

    RUN_STRATEGY = 'RerunOnFailure'

    def test_deleted_while_that_boot_is_on_its_way(self):
        # A guest that does not heed the power button: a restart takes a
        # while, in which the BMC is deleted.
        template = {'metadata': {'annotations': {
            machine_case.IGNORE_ACPI: 'true'}},
            'spec': {'terminationGracePeriodSeconds': 3}}
        self.kubectl('patch', 'vm', 'box', '--type=merge', '--patch',
                     json.dumps({'spec': {'template': template}}))
        self.start()
        self.owner = self.look()['spec']
        self.set_once()
        count = len(self.boots())
        self.sandbox.do('box', 'restart', namespace=self.namespace)
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('role', lambda: 'role.rbac.authorization.k8s.io/'
                   'box-virtbmc' in self.kubectl.names('roles'), False)
        self.assertEqual(count, len(self.boots()))
        boot = self.sandbox.wait_boot('box', count + 1, self.namespace)
        self.assertEqual('Pxe', boot['class'])
        self.put_back()

    def test_deleted_in_that_boot(self):
        self.sandbox.wait_boot('box', 1, self.namespace)
        self.set_once()
        self.start()
        self.assertEqual('Pxe', self.boots()[-1])
        self.put_back()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('pods', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])
        count = len(self.boots())
        self.sandbox.guest_does('box', 'reboot', self.namespace)
        boot = self.sandbox.wait_boot('box', count + 1, self.namespace)
        self.assertEqual('Hdd', boot['class'])
        self.until('annotations', self.annotations, {})
        self.until('spec', lambda: self.look()['spec'], self.owner)
        self.until('state', lambda: 'secret/box-bmc-state'
                   in self.kubectl.names('secrets'), False)
        self.quiet()
