# SPDX-License-Identifier: Apache-2.0
import asyncio
import copy
import unittest
from unittest import mock

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import store
from sushy_kubevirt.operator import vm_cleanup
from sushy_kubevirt.operator import workqueue
from tests.unit.machine import fakes
from tests.unit.operator import bodies

AT = 'default', 'node'


class Api:
    """A cluster with one VM, one VMI and a Secret."""

    def __init__(self, machine):
        self.machine = machine
        self.calls = []
        self.failures = []

    async def get(self, resource, namespace, name):
        self.calls.append('get ' + resource.kind)
        found = {bmc_resources.VM: self.machine.vm,
                 api_resources.VMI: self.machine.vmi}[resource]
        if found is None:
            raise errors.ObjectNotFound('gone')
        return copy.deepcopy(found)

    async def patch(self, resource, namespace, name, operations):
        self.calls.append('patch')
        if self.failures:
            raise self.failures.pop(0)
        self.tests = [each for each in operations if each['op'] == 'test']
        self.machine.patch([each for each in operations
                            if each['path'] != '/metadata/uid'])

    async def delete(self, resource, namespace, name, uid):
        self.calls.append(f'delete {resource.kind} {namespace}/{name} {uid}')


class VmCleanupTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.machine = fakes.Machine(fakes.vm('RerunOnFailure'))
        self.vm = self.machine.vm['metadata']
        self.vm.setdefault('uid', 'v1')
        self.api = Api(self.machine)
        self.bmcs, self.roles = [], {}
        kinds = mock.Mock()
        kinds.users_of = lambda resource, *at: self.bmcs
        kinds.kind.return_value.keys = lambda: list(self.roles)
        kinds.kind.return_value.get = self.roles.get
        kinds.secrets.version.return_value = None
        self.cleanup = vm_cleanup.VmCleanup(self.api, kinds)
        patch = mock.patch.object(workqueue, 'FIRST_PAUSE', 0.001)
        patch.start()
        self.addCleanup(patch.stop)
        self.addAsyncCleanup(self.cleanup.close)

    def pending(self):
        fakes.set_boot(self.machine, boot.Target.PXE, boot.Enabled.ONCE)

    def start(self, uid='u1', phase='Running'):
        self.machine.vmi = fakes.vmi(phase, uid, of=self.machine.vm)

    async def settle(self):
        for _turn in range(20):
            await asyncio.sleep(0.002)

    async def publish_secret(self, gone=False, **metadata):
        """Deliver a watch event of the state Secret."""
        secret = rbac.state({
            'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': self.vm})
        secret['metadata'].update({'uid': 's1'}, **metadata)
        self.cleanup.see_secret(store.Change(
            object_cache.object_key(secret), secret, gone, True))
        await self.settle()

    async def enqueue_all_vms(self):
        self.cleanup.enqueue_all()
        await self.settle()

    def assert_cleaned_up(self, strategy='RerunOnFailure'):
        self.assertEqual(fakes.vm(strategy)['spec'], self.machine.vm['spec'])
        kept = self.machine.vm['metadata']['annotations']
        self.assertNotIn(stored_names.BOOT, kept)
        self.assertNotIn(stored_names.RUN_STRATEGY, kept)
        self.assertEqual('delete Secret default/node-bmc-state s1',
                         self.api.calls[-1])


class CleanupTest(VmCleanupTestCase):

    async def test_removes_override_that_has_not_booted(self):
        self.pending()
        await self.publish_secret()
        await self.enqueue_all_vms()
        self.assert_cleaned_up()
        self.assertEqual('/metadata/uid', self.api.tests[0]['path'])

    async def test_vm_without_settings_is_not_patched(self):
        await self.publish_secret()
        await self.enqueue_all_vms()
        self.assert_cleaned_up()
        self.assertNotIn('patch', self.api.calls)

    async def test_waits_for_reboot_in_one_time_boot(self):
        self.pending()
        self.start()
        await self.publish_secret()
        await self.enqueue_all_vms()
        # The guest may still reboot and must be started again then.
        self.assertEqual('Always', self.machine.strategy)
        self.assertNotIn('delete', str(self.api.calls))
        calls = len(self.api.calls)
        await self.settle()
        self.assertEqual(calls, len(self.api.calls))
        self.machine.vmi = fakes.vmi('Running', 'u2', of=self.machine.vm)
        self.cleanup.enqueue(*AT)
        await self.settle()
        self.assert_cleaned_up()

    async def test_vm_that_was_halted_during_one_time_boot(self):
        self.pending()
        self.start()
        await self.publish_secret()
        await self.enqueue_all_vms()
        self.machine.vmi = None
        self.machine.vm['spec']['runStrategy'] = 'Halted'
        self.cleanup.enqueue(*AT)
        await self.settle()
        self.assert_cleaned_up('Halted')

    async def test_waits_until_vm_has_no_bmc(self):
        self.pending()
        self.bmcs.append(('default', 'other'))
        await self.publish_secret()
        await self.enqueue_all_vms()
        self.assertEqual([], self.api.calls)
        self.bmcs.clear()
        self.cleanup.enqueue(*AT)
        await self.settle()
        self.assert_cleaned_up()

    async def test_waits_until_bmcs_are_listed(self):
        self.pending()
        await self.publish_secret()
        self.cleanup.enqueue(*AT)
        await self.settle()
        self.assertEqual([], self.api.calls)

    async def test_waits_until_roles_are_deleted(self):
        self.pending()
        role = rbac.role(spec.read(bodies.body(
            virtualMachineRef={'name': 'node'})))
        self.roles[objects.ObjectKey('default', 'r')] = role
        self.roles[objects.ObjectKey('elsewhere', 'r')] = role
        await self.publish_secret()
        await self.enqueue_all_vms()
        self.assertEqual([], self.api.calls)
        del self.roles['default', 'r']
        self.cleanup.role_changed('default')
        await self.settle()
        self.assert_cleaned_up()

    async def test_new_bmc_ends_cleanup(self):
        self.pending()
        self.start()
        await self.publish_secret()
        await self.enqueue_all_vms()
        calls = len(self.api.calls)
        self.bmcs.append(('default', 'other'))
        self.cleanup.enqueue(*AT)
        await self.settle()
        self.assertEqual(calls, len(self.api.calls))
        self.assertEqual(0, len(self.cleanup._queue))

    async def test_failed_writes_are_retried(self):
        self.pending()
        self.api.failures = [errors.Conflict('no'), errors.Unavailable('no')]
        await self.publish_secret()
        await self.enqueue_all_vms()
        self.assert_cleaned_up()
        self.assertEqual(3, self.api.calls.count('patch'))

    async def test_recreated_vm_is_not_patched(self):
        self.pending()
        await self.publish_secret()
        self.vm = self.machine.vm['metadata']
        self.vm['uid'] = 'v2'
        await self.enqueue_all_vms()
        self.assertNotIn('patch', self.api.calls)
        self.assertEqual('delete Secret default/node-bmc-state s1',
                         self.api.calls[-1])

    async def test_deletes_secret_of_deleted_vm(self):
        await self.publish_secret()
        self.machine.vm = None
        await self.enqueue_all_vms()
        self.assertEqual('delete Secret default/node-bmc-state s1',
                         self.api.calls[-1])


class SecretTest(VmCleanupTestCase):
    """State Secrets show which VMs have had a BMC."""

    async def assert_not_cleaned_up(self):
        self.pending()
        await self.enqueue_all_vms()
        self.assertEqual([], self.api.calls)

    async def test_other_secrets_are_ignored(self):
        await self.publish_secret(name='node-bmc-auth')
        await self.assert_not_cleaned_up()

    async def test_secret_without_owner_is_ignored(self):
        await self.publish_secret(ownerReferences=[])
        await self.assert_not_cleaned_up()

    async def test_deleted_secret_is_ignored(self):
        await self.publish_secret()
        await self.publish_secret(gone=True)
        await self.assert_not_cleaned_up()

    async def test_secret_that_lost_its_label_is_ignored(self):
        await self.publish_secret()
        await self.publish_secret(labels={})
        await self.assert_not_cleaned_up()

    async def test_secret_deleted_during_downtime_is_ignored(self):
        await self.publish_secret()
        self.cleanup.forget_unlisted()
        await self.assert_not_cleaned_up()
