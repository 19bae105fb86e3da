# SPDX-License-Identifier: Apache-2.0
import asyncio
import copy
import unittest
from unittest import mock

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import vm_cleanup
from sushy_kubevirt.operator import workqueue
from tests.unit.machine import fakes
from tests.unit.operator import bodies

AT = 'default', 'node'


class Api:
    """A cluster with one VM, one VMI and a Secret."""

    def __init__(self, machine):
        self.machine = machine
        self.events = asyncio.Queue()
        self.calls = []
        self.failures = []

    async def watch(self, resource, namespace, **more):
        while True:
            yield await self.events.get()

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
        self.minding, self.roles = [], {}
        cache = mock.Mock()
        cache.users_of = lambda resource, *at: self.minding
        cache.objects.names = lambda resource: list(self.roles)
        cache.objects.get = lambda resource, *at: self.roles[at]
        self.one = vm_cleanup.VmCleanup(self.api, cache)
        patch = mock.patch.object(workqueue, 'FIRST_PAUSE', 0.001)
        patch.start()
        self.addCleanup(patch.stop)
        task = asyncio.create_task(self.one.watch(None))
        self.addAsyncCleanup(self.one.close)
        self.addCleanup(task.cancel)

    def pending(self):
        boot.set(self.machine, boot.Target.PXE, boot.Enabled.ONCE)

    def start(self, uid='u1', phase='Running'):
        self.machine.vmi = fakes.vmi(phase, uid, of=self.machine.vm)

    async def settle(self):
        for _turn in range(20):
            await asyncio.sleep(0.002)

    async def served(self, kind='ADDED', **metadata):
        """The watch tells of a Secret."""
        secret = rbac.state({
            'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': self.vm})
        secret['metadata'].update({'uid': 's1'}, **metadata)
        await self.api.events.put((kind, secret))
        await self.settle()

    async def begin(self):
        self.one.enqueue_all()
        await self.settle()

    def is_clean(self, strategy='RerunOnFailure'):
        self.assertEqual(fakes.vm(strategy)['spec'], self.machine.vm['spec'])
        kept = self.machine.vm['metadata']['annotations']
        self.assertNotIn(annotations.BOOT, kept)
        self.assertNotIn(annotations.RUN_STRATEGY, kept)
        self.assertEqual('delete Secret default/node-bmc-state s1',
                         self.api.calls[-1])


class SettleTest(VmCleanupTestCase):

    async def test_a_boot_that_has_not_come(self):
        self.pending()
        await self.served()
        await self.begin()
        self.is_clean()
        self.assertEqual('/metadata/uid', self.api.tests[0]['path'])

    async def test_nothing_to_put_back(self):
        await self.served()
        await self.begin()
        self.is_clean()
        self.assertNotIn('patch', self.api.calls)

    async def test_a_boot_that_runs(self):
        self.pending()
        self.start()
        await self.served()
        await self.begin()
        # Its guest may reboot yet, and shall come back.
        self.assertEqual('Always', self.machine.strategy)
        self.assertNotIn('delete', str(self.api.calls))
        calls = len(self.api.calls)
        await self.settle()
        self.assertEqual(calls, len(self.api.calls))
        self.machine.vmi = fakes.vmi('Running', 'u2', of=self.machine.vm)
        self.one.enqueue(*AT)
        await self.settle()
        self.is_clean()

    async def test_a_vm_that_was_switched_off_meanwhile(self):
        self.pending()
        self.start()
        await self.served()
        await self.begin()
        self.machine.vmi = None
        self.machine.vm['spec']['runStrategy'] = 'Halted'
        self.one.enqueue(*AT)
        await self.settle()
        self.is_clean('Halted')

    async def test_not_while_there_is_a_bmc(self):
        self.pending()
        self.minding.append(('default', 'other'))
        await self.served()
        await self.begin()
        self.assertEqual([], self.api.calls)
        self.minding.clear()
        self.one.enqueue(*AT)
        await self.settle()
        self.is_clean()

    async def test_not_before_all_bmcs_are_known(self):
        self.pending()
        await self.served()
        self.one.enqueue(*AT)
        await self.settle()
        self.assertEqual([], self.api.calls)

    async def test_not_while_a_pod_may_write(self):
        self.pending()
        role = rbac.role(spec.read(bodies.body(
            virtualMachineRef={'name': 'node'})))
        self.roles['default', 'r'] = role
        self.roles['elsewhere', 'r'] = role
        await self.served()
        await self.begin()
        self.assertEqual([], self.api.calls)
        del self.roles['default', 'r']
        self.one.role_deleted(dict(role, metadata={'namespace': 'default'}))
        await self.settle()
        self.is_clean()

    async def test_a_bmc_that_comes_while_it_waits(self):
        self.pending()
        self.start()
        await self.served()
        await self.begin()
        calls = len(self.api.calls)
        self.minding.append(('default', 'other'))
        self.one.enqueue(*AT)
        await self.settle()
        self.assertEqual(calls, len(self.api.calls))
        self.assertEqual(0, len(self.one._queue))

    async def test_writes_that_fail(self):
        self.pending()
        self.api.failures = [errors.Conflict('no'), errors.Unavailable('no')]
        await self.served()
        await self.begin()
        self.is_clean()
        self.assertEqual(3, self.api.calls.count('patch'))

    async def test_another_vm_of_that_name(self):
        self.pending()
        await self.served()
        self.vm = self.machine.vm['metadata']
        self.vm['uid'] = 'v2'
        await self.begin()
        self.assertNotIn('patch', self.api.calls)
        self.assertEqual('delete Secret default/node-bmc-state s1',
                         self.api.calls[-1])

    async def test_a_vm_that_is_gone(self):
        await self.served()
        self.machine.vm = None
        await self.begin()
        self.assertEqual('delete Secret default/node-bmc-state s1',
                         self.api.calls[-1])


class SecretTest(VmCleanupTestCase):
    """Which VMs had a BMC of ours."""

    async def nothing(self):
        self.pending()
        await self.begin()
        self.assertEqual([], self.api.calls)

    async def test_another_secret(self):
        await self.served(name='node-bmc-auth')
        await self.nothing()

    async def test_of_no_vm(self):
        await self.served(ownerReferences=[])
        await self.nothing()

    async def test_gone(self):
        await self.served()
        await self.served('DELETED')
        await self.nothing()

    async def test_gone_while_nobody_watched(self):
        await self.served()
        await self.api.events.put((api.LISTED, set()))
        await self.settle()
        await self.nothing()
