# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator.metal3 import host_controller
from sushy_kubevirt.operator.metal3 import host_state
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator import store
from tests.unit.operator import bodies
from tests.unit.operator import cluster

LAB = bodies.NAMESPACE
URL = 'https://10.0.0.7/redfish/v1/Systems/1'
HOST = 'BareMetalHost', LAB, 'node'
BMC = 'VirtualMachineBMC', LAB, 'node'
VM = 'VirtualMachine', LAB, 'vm'


class VmTestCase(base.BaseTestCase):

    def test_preferred_firmware(self):
        """A preference has the firmware of a VM that names it."""
        vm = {'metadata': {'name': 'n0'}, 'spec': {'template': 1}}
        expanded = {'spec': {'template': 2}}
        api = mock.Mock(
            get=mock.AsyncMock(return_value=vm),
            expand_spec=mock.AsyncMock(return_value=expanded))
        options = command_line.parse([])
        one = host_controller.HostController(
            options, api, store.Store(api, options))
        ref = objects.ObjectKey('lab', 'n0')
        self.assertEqual(vm, asyncio.run(one._whole_vm(ref)))
        api.expand_spec.assert_not_called()
        vm['spec']['preference'] = {'name': 'uefi'}
        self.assertEqual({**vm, **expanded}, asyncio.run(one._whole_vm(ref)))
        api.expand_spec.assert_called_once_with('lab', 'n0')


class HostTestCase(base.BaseTestCase):
    """The controller in a cluster in memory."""

    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        self.kube = cluster.Cluster()
        self.kube.groups.add(resources.GROUP)
        self.kube.add(self.vm())
        self.kube.add({**bodies.secret(name='node-virtbmc-auth'),
                       'kind': 'Secret'})
        self.kube.add(self.bmc())

    def vm(self, **more):
        made = cluster.vm(**more)
        made['spec']['template']['spec']['domain']['devices'] = {
            'interfaces': [{'name': 'a', 'macAddress': '52:54:00:00:00:0a'}]}
        return made

    def bmc(self, **more):
        made = bodies.body(**more)
        made['metadata']['labels'] = {'metal3': 'true'}
        made['status'] = {
            'clusterIP': '10.0.0.7', 'endpoints': {'redfish': {'url': URL}},
            'conditions': [
                {'type': type_, 'status': 'True', 'reason': 'x',
                 'message': '', 'lastTransitionTime': '2026-01-01T00:00:00Z'}
                for type_ in (conditions.EMULATOR, conditions.READY)]}
        return made

    def controller(self, *namespaces):
        """Return the controller, and a coroutine that runs it."""
        options = command_line.Options(
            bare_metal_hosts='metal3=true', namespaces=namespaces,
            claim_templates=LAB)
        kinds = store.Store(self.kube, options)
        controller = host_controller.HostController(options, self.kube, kinds)

        async def run():
            async with asyncio.TaskGroup() as group:
                for resource in (bmc_resources.BMC, bmc_resources.VM,
                                 bmc_resources.SECRET):
                    group.create_task(kinds.kind(resource).run())
                group.create_task(controller.run())
        return controller, run()

    @contextlib.asynccontextmanager
    async def running(self, *namespaces):
        """Run the operator; the body gets a function that waits."""
        controller, run = self.controller(*namespaces)
        task = asyncio.create_task(run)

        async def settle():
            idle = 0
            while idle < 20:
                await asyncio.sleep(0)
                if task.done():
                    task.result()
                queue = controller._queue
                for key in list(queue._timers):
                    queue.add(key)
                idle = 0 if len(queue) or queue._working or (
                    not queue.started) else idle + 1
        try:
            async with asyncio.timeout(30):
                await settle()
                yield settle
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def run_once(self, *namespaces):
        async def run():
            async with self.running(*namespaces):
                pass
        asyncio.run(run())

    def reason(self):
        return next((
            one['reason'] for one in self.kube.objects[BMC]['status'][
                'conditions'] if one['type'] == conditions.HOST), None)

    def names(self):
        return sorted(one['metadata']['name']
                      for kind in ('Secret', 'BareMetalHost')
                      for one in self.kube.list(kind))

    def annotate(self, annotations):
        self.kube.change(*HOST, lambda one: one['metadata'].update(
            annotations=annotations))

    def test_host(self):
        self.run_once()
        self.assertEqual(['node', 'node-virtbmc-auth', 'node-virtbmc-host'],
                         self.names())
        self.assertEqual('HostCreated', self.reason())
        writes = list(self.kube.writes)
        self.run_once()
        self.assertEqual(writes, self.kube.writes)

    def test_vm_that_gets_a_mac(self):
        self.prepare()
        self.kube.add(cluster.vm())

        async def run():
            async with self.running() as settle:
                self.assertEqual('HostNeedsMAC', self.reason())
                self.kube.change(*VM, lambda vm: vm.update(
                    spec=self.vm()['spec']))
                await settle()
                self.assertEqual('HostCreated', self.reason())
        asyncio.run(run())

    def test_moved_before_the_pause_is_recorded(self):
        for pause in host_state.PAUSED, host_state.DELETE_FOR_MOVE:
            async def run(annotation=pause):
                async with self.running() as settle:
                    uid = self.kube.objects[HOST]['metadata']['uid']
                    self.annotate({annotation: ''})
                    self.kube.remove(*HOST)
                    await settle()
                    self.assertEqual(('HostMoved', uid), (
                        self.reason(), self.kube.objects[BMC]['metadata'][
                            'annotations'][stored_names.HOST_MOVED]))
                    self.kube.change(*BMC, lambda one: one[
                        'metadata'].update(annotations={}))
                    await settle()
                    self.assertEqual('HostCreated', self.reason())
            asyncio.run(run())

    def test_deleted_before_the_end_of_a_pause_is_recorded(self):
        async def run():
            async with self.running() as settle:
                self.annotate({host_state.PAUSED: ''})
                await settle()
                self.assertEqual('HostPaused', self.reason())
                self.annotate({})
                self.kube.remove(*HOST)
                await settle()
                self.assertEqual('HostCreated', self.reason())
        asyncio.run(run())

    def test_foreign_host_that_was_paused(self):
        self.kube.add({
            'apiVersion': resources.HOST.api_version,
            'kind': resources.HOST.kind, 'spec': {}, 'metadata': {
                'name': 'node', 'namespace': LAB,
                'annotations': {host_state.PAUSED: ''}}})

        async def run():
            async with self.running() as settle:
                self.assertEqual('NameTaken', self.reason())
                self.kube.remove(*HOST)
                await settle()
                self.assertEqual('HostCreated', self.reason())
        asyncio.run(run())

    def test_killed_after_each_write(self):
        """A BMC that is deleted meanwhile leaves no credentials behind."""
        for writes in range(20):
            self.prepare()
            self.kube.kill_after = writes, False
            self.run_once()
            finished = self.kube.kill_after[0] > 0
            self.kube.kill_after = None
            self.kube.remove(*BMC)
            if BMC in self.kube.objects:
                self.run_once()
            # The host is deleted first, then its BMC lets go.
            self.run_once()
            self.assertEqual(['node-virtbmc-auth'], self.names(), writes)
            self.assertNotIn(BMC, self.kube.objects)
            self.assertFalse(self.kube.objects[VM]['metadata'].get(
                'finalizers'))
            if finished:
                break
        self.assertGreater(writes, 4)

    def test_label_removed_before_the_host_exists(self):
        refused = []

        def refuse(verb, kind, name):
            if (verb, kind) != ('create', 'BareMetalHost'):
                return None
            refused.append(self.names())
            self.kube.change(
                *BMC, lambda one: one['metadata'].update(labels={}))
            return errors.Rejected('no')
        self.kube.faults.append(refuse)
        self.run_once()
        self.assertIn('node-virtbmc-host', refused[0])
        self.assertEqual(['node-virtbmc-auth'], self.names())

    def test_refusals_that_differ(self):
        """Such as a webhook's, with the port of the connection."""
        tried = []

        def refuse(verb, kind, name):
            if (verb, kind) == ('create', 'BareMetalHost'):
                tried.append(name)
                # Without a pause, the loop would never end.
                self.assertLess(len(tried), 20)
                return errors.ServerError(f'read tcp 10.0.0.1:{len(tried)}')
            return None
        self.kube.faults.append(refuse)
        _, work = self.controller()

        async def run():
            task = asyncio.create_task(work)
            async with asyncio.timeout(30):
                while not tried or self.reason() != 'Refused':
                    await asyncio.sleep(0)
            await asyncio.sleep(0.5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        asyncio.run(run())
        # Pauses are 0.1 s and longer, and double.
        self.assertLess(len(tried), 5)

    def test_vm_in_a_namespace_that_is_not_served(self):
        """A host is not deleted because the operator cannot see its VM."""
        self.kube.add(self.vm(namespace='far', allowed=LAB))
        self.kube.change(*BMC, lambda one: one['spec'].update(
            virtualMachine={'namespace': 'far', 'name': 'vm'}))
        self.run_once()
        self.assertIn(HOST, self.kube.objects)
        self.run_once(LAB)
        self.assertEqual('HostNotManaged', self.reason())
        self.assertIn(HOST, self.kube.objects)
        self.kube.remove('VirtualMachine', 'far', 'vm')
        self.run_once(LAB, 'far')
        self.assertNotIn(HOST, self.kube.objects)

    def test_consumer(self):
        """Only VMs in the namespace of the templates are for claims."""
        for namespace, expected in (LAB, 'c'), ('far', None):
            self.prepare()
            vm = self.vm(namespace=namespace, allowed=LAB)
            vm['metadata']['labels'] = {stored_names.CLAIM_UID: 'u'}
            vm['metadata']['annotations'][stored_names.CLAIM] = 'tenant/c'
            self.kube.add(vm)
            self.kube.change(*BMC, lambda one, at=namespace: one[
                'spec'].update(virtualMachine={'namespace': at,
                                               'name': 'vm'}))
            self.run_once()
            self.assertEqual(expected, self.kube.objects[HOST]['spec'].get(
                'consumerRef', {}).get('name'))
            # `ClaimController` knows that another host may have had an image.
            for had in (), (stored_names.HAD_HOST,):
                its = self.kube.objects[HOST]['metadata'].get(
                    'annotations', {})
                self.assertEqual(had if expected else (), tuple(its))
                self.kube.remove(*HOST)
                self.run_once()

    def test_link_to_the_bmc(self):
        self.run_once()
        for ref in HOST, ('Secret', LAB, 'node-virtbmc-host'):
            metadata = self.kube.objects[ref]['metadata']
            self.assertEqual(bodies.UID, metadata['labels'][
                stored_names.BMC_UID])
            self.assertNotIn('ownerReferences', metadata)
