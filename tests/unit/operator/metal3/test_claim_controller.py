# SPDX-License-Identifier: Apache-2.0
"""VMs of claims, with what baremetal-operator and tenants may do to them."""

import asyncio
import contextlib
import itertools

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.metal3 import claim_controller
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import host_state
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import store
from tests.unit.operator import cluster

AT = 'infra'
EARLY, NOON, LATE = (f'2026-01-01T{hour}:00:00Z' for hour in (10, 12, 14))


def vm_template(**annotations):
    return {
        'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
        'metadata': {
            'name': 'small', 'namespace': AT,
            'labels': {'metal3': 'true', 'size': 'small'},
            'annotations': {stored_names.CLAIM_TEMPLATE: 'true',
                            **annotations}},
        'spec': {'runStrategy': 'Halted', 'template': {'spec': {
            'domain': {'devices': {'interfaces': [{'name': 'a'}]}}}}}}


def policy(**constraints):
    return {'apiVersion': resources.POLICY.api_version,
            'kind': resources.POLICY.kind,
            'metadata': {'name': 'tenants', 'namespace': AT},
            'spec': {'hostClaimNamespaces': constraints}}


def status(host=None, since=None):
    made = {'conditions': [{
        'type': 'Associated', 'status': 'True' if host else 'False',
        'reason': 'BareMetalHostAssociated' if host else 'NoBareMetalHost',
        'lastTransitionTime': since}]}
    if host:
        made['bareMetalHost'] = {'namespace': AT, 'name': host}
    return made


def claim(name='c', namespace='a', uid=None, selector=None, **metadata):
    return {'apiVersion': resources.CLAIM.api_version,
            'kind': resources.CLAIM.kind,
            'metadata': {'name': name, 'namespace': namespace,
                         'uid': uid or f'{namespace}-{name}', **metadata},
            'spec': {'hostSelector': selector or {}}, 'status': status()}


def host(name, consumer=None, provisioned=None, **annotations):
    return {'apiVersion': resources.HOST.api_version,
            'kind': resources.HOST.kind,
            'metadata': {'name': name, 'namespace': AT,
                         'annotations': annotations},
            'spec': {'consumerRef': consumer and claims.consumer_ref(
                *consumer)},
            'status': {'operationHistory': {
                'provision': {'start': provisioned}}}}


class ControllerTestCase(base.BaseTestCase):

    LIMIT = 2

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.kube.groups.add(resources.GROUP)
        self.kube.add(vm_template())
        self.kube.add(policy())

    def add(self, *objects):
        for one in objects:
            self.kube.add(one)

    @contextlib.asynccontextmanager
    async def running(self):
        """Run the operator; the body gets a function that waits."""
        options = command_line.Options(
            bare_metal_hosts='metal3=true', host_labels=('size',),
            claim_templates=AT, claim_limit=self.LIMIT)
        kinds = self.kinds = store.Store(self.kube, options)
        controller = claim_controller.ClaimController(
            options, self.kube, kinds)
        task = asyncio.gather(controller.run(), *(
            kinds.kind(resource).run() for resource in (
                bmc_resources.BMC, bmc_resources.VM, resources.HOST)))

        async def settle():
            idle = 0
            while idle < 20:
                await asyncio.sleep(0)
                if task.done():
                    task.result()
                # Failures are retried at once.
                queues = controller._queue, controller._events
                for queue in queues:
                    for key in list(queue._timers):
                        if queue.failures(key):
                            queue.add(key)
                idle = 0 if any(
                    len(one) or one._working for one in queues) or (
                        not controller._queue.started) else idle + 1
        try:
            await settle()
            yield settle
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def run_once(self):
        async def run():
            async with self.running():
                pass
        asyncio.run(run())

    def vms(self, namespace=None):
        """Return {name of a VM: uid of its claim}."""
        found = {one['metadata']['name']: templates.claim_of(one)
                 for one in self.kube.list('VirtualMachine')
                 if templates.claim_of(one)}
        return {name: its.uid for name, its in found.items()
                if namespace in (None, its.key.namespace)}

    def events(self):
        return [(one['involvedObject']['name'], one['reason'])
                for one in self.kube.list('Event')]

    def given_vm(self, **more):
        """Have a VM of claim a/c, which is deleted then.

        :param more: of its host
        """
        self.add(claim())
        self.run_once()
        name, = self.vms('a')
        self.kube.remove('HostClaim', 'a', 'c')
        self.add(host(name, **more))
        return name


class CreationTestCase(ControllerTestCase):

    def test_one_vm_with_its_bmc(self):
        self.add(claim())
        for _ in range(3):
            self.run_once()
        name, = self.vms()
        self.assertEqual([name], [
            one['metadata']['name']
            for one in self.kube.list('VirtualMachineBMC')])
        self.assertEqual([('create', 'VirtualMachine', name),
                          ('create', 'VirtualMachineBMC', name)],
                         self.kube.writes)

    def test_host_of_a_user_without_a_spec(self):
        """baremetal-operator's definition allows it."""
        empty = host('mine')
        del empty['spec']
        self.add(empty, claim())
        self.run_once()
        self.assertEqual(1, len(self.vms()))

    def test_lost_response(self):
        """The request was executed; others must not exceed the limit."""
        self.LIMIT = 1
        self.add(claim(), claim('d'))
        create, lost = self.kube.create, []

        async def losing(resource, namespace, body):
            made = await create(resource, namespace, body)
            if resource.kind == 'VirtualMachine' and not lost:
                lost.append(made)
                raise errors.ConnectionLost('lost', maybe_done=True)
            return made
        self.kube.create = losing
        self.run_once()
        self.assertEqual(1, len(self.vms()))
        self.assertTrue(lost)

    def test_refused(self):
        """A quota is told once; the VM is created when there is room."""
        self.patch(claim_controller, 'REFUSED_SECONDS', 0.01)
        self.add(claim())
        refusals = iter([errors.Rejected('exceeded quota: few')] * 3)
        self.kube.faults.append(
            lambda verb, kind, name: next(refusals, None)
            if (verb, kind) == ('create', 'VirtualMachine') else None)
        self.run_once()
        self.assertEqual([('c', 'VirtualMachineRefused')], self.events())
        self.assertEqual(1, len(self.vms()))

    def test_many_refused(self):
        """One claim tries what all would be refused.

        An API server, or a webhook, that does not answer takes seconds each.
        """
        self.patch(claim_controller, 'REFUSED_SECONDS', 600)
        self.add(*(claim('c', f'n{number}') for number in range(100)))

        async def run(tried):
            settling = asyncio.create_task(self.running().__aenter__())
            async with asyncio.timeout(30):
                while not tried:
                    await asyncio.sleep(0)
            # All claims fail again and again.
            await asyncio.sleep(0.5)
            settling.cancel()

        for error in (errors.Rejected('exceeded quota: few'),
                      errors.ConnectionLost('timeout', maybe_done=True)):
            tried = []

            def refuse(verb, kind, name, error=error, tried=tried):
                if (verb, kind) == ('create', 'VirtualMachine'):
                    tried.append(name)
                    return error
                return None
            self.kube.faults[:] = [refuse]
            asyncio.run(run(tried))
            self.assertEqual(1, len(tried))

    def test_failure_of_kubevirt(self):
        self.add(claim())
        self.run_once()
        name, = self.vms()
        self.kube.change('VirtualMachine', AT, name, lambda vm: vm.update(
            status={'conditions': [{
                'type': 'Failure', 'status': 'True', 'reason': 'FailedCreate',
                'message': 'exceeded quota: disks'}]}))
        self.run_once()
        event, = self.kube.list('Event')
        self.assertEqual('VirtualMachineFailed', event['reason'])
        self.assertEqual(f'VM {name}: exceeded quota: disks',
                         event['message'])

    def test_limits(self):
        self.add(*(claim(name, namespace) for name, namespace in
                   itertools.product('abc', 'xy')))
        self.run_once()
        self.assertEqual([2, 2], [len(self.vms(one)) for one in 'xy'])
        self.assertEqual([('c', 'ClaimLimitReached')] * 2, self.events())
        self.kube.change(
            'VirtualMachine', AT, 'small', lambda vm: vm['metadata'][
                'annotations'].update({stored_names.CLAIM_LIMIT: '4'}))
        self.add(claim('d', 'z'))
        self.run_once()
        self.assertIn(('d', 'NoTemplate'), self.events())
        self.kube.remove('HostClaim', 'x', 'a')
        self.run_once()
        self.assertEqual(4, len(self.vms()))
        self.assertNotIn('x-a', self.vms().values())

    def test_template_without_the_label_of_hosts(self):
        """Its VMs would have no hosts, and count for the limits."""
        self.kube.change('VirtualMachine', AT, 'small', lambda vm: vm[
            'metadata'].update(labels={'metal3': 'false', 'size': 'small'}))
        self.add(claim())
        self.run_once()
        self.assertEqual([('c', 'NoTemplate')], self.events())
        self.assertIn('"metal3=true"', self.kube.list('Event')[0]['message'])
        self.assertEqual({}, self.vms())

    def test_template_after_one_that_the_policy_refuses(self):
        refused = vm_template()
        refused['metadata']['name'] = 'a-sidecar'
        refused['spec']['template']['metadata'] = {
            'annotations': {'hooks.kubevirt.io/hookSidecars': '[]'}}
        self.add(refused, claim())
        self.run_once()
        name, = self.vms()
        self.assertTrue(name.startswith('small-'), name)

    def test_waits_until_hosts_are_listed_again(self):
        """A host that is not listed yet may be paused."""
        self.add(claim())

        async def run():
            async with self.running() as settle:
                hosts = self.kinds.kind(resources.HOST)
                hosts.clear()
                self.kube.remove('HostClaim', 'a', 'c')
                await settle()
                self.assertEqual(1, len(self.vms()))
                hosts.listed.set()
                for subscriber in hosts._subscribers:
                    subscriber.listed(None)
                await settle()
                self.assertEqual({}, self.vms())
        asyncio.run(run())

    def test_labels_of_the_link_to_the_bmc(self):
        """Every host has them: such a claim would never get its VM's host."""
        for key in stored_names.BMC_UID, 'app.kubernetes.io/managed-by', (
                'kubevirt.io/virtualmachinebmc-name'):
            self.add(claim(uid=key.partition('/')[0], selector={
                'matchExpressions': [{'key': key, 'operator': '!'}]},
                name=key.partition('/')[2]))
        self.run_once()
        self.assertEqual({}, self.vms())

    def test_long_selector(self):
        self.add(claim(selector={'matchExpressions': [{
            'key': 'size', 'operator': 'in', 'values': [
                'small', *map(str, range(claims.LONGEST_SELECTOR))]}]}))
        self.run_once()
        self.assertEqual([('c', 'SelectorTooLong')], self.events())
        self.assertEqual({}, self.vms())

    def test_many_claims_of_a_tenant(self):
        """Another one does not wait for their Events and namespaces."""
        self.LIMIT = 1
        self.kube.remove('HostDeployPolicy', AT, 'tenants')
        self.add(policy(hasLabels=[{'name': 'tier'}]))
        for name in 'a', 'z':
            self.kube.objects['Namespace', None, name] = {
                'kind': 'Namespace',
                'metadata': {'name': name, 'labels': {'tier': 'x'}}}
        self.add(*(claim(f'c{number}') for number in range(500)),
                 claim('other', 'z'))
        create, gets = self.kube.create, []

        async def no_event(resource, namespace, body):
            if resource.kind == 'Event':
                await asyncio.Event().wait()
            return await create(resource, namespace, body)
        self.kube.create = no_event
        self.kube.faults.append(lambda verb, kind, name: gets.append(
            (verb, kind, name)))

        async def run():
            async with asyncio.timeout(30):
                running = self.running()
                settling = asyncio.create_task(running.__aenter__())
                while len(self.vms()) < 2:
                    await asyncio.sleep(0)
                settling.cancel()
        asyncio.run(run())
        self.assertEqual(1, len(self.vms('z')))
        self.assertEqual(2, len([one for one in gets
                                 if one[1] == 'Namespace']))


class ReleaseTestCase(ControllerTestCase):

    def test_claim_with_finalizers_of_its_own(self):
        self.add(claim())
        self.run_once()
        self.kube.change('HostClaim', 'a', 'c', lambda one: one[
            'metadata'].update(deletionTimestamp='x', finalizers=['my/own']))
        self.run_once()
        self.assertEqual({}, self.vms())

    def test_bmc_is_deleted_first(self):
        name = self.given_vm()
        self.kube.change(
            'VirtualMachineBMC', AT, name,
            lambda bmc: bmc['metadata'].update(finalizers=['host']))
        self.run_once()
        self.assertIn('deletionTimestamp', self.kube.objects[
            'VirtualMachineBMC', AT, name]['metadata'])
        self.assertIn(name, self.vms())
        self.kube.objects['VirtualMachineBMC', AT, name]['metadata'][
            'finalizers'] = None
        self.kube.remove('VirtualMachineBMC', AT, name)
        self.run_once()
        self.assertEqual({}, self.vms())

    def test_unused_host_of_another_claim(self):
        name = self.given_vm(consumer=('b', 'd'))
        self.add(claim('d', 'b'))
        self.kube.objects['HostClaim', 'b', 'd']['status'] = status(name)
        self.run_once()
        self.assertEqual({name: 'b-d'}, self.vms())

    def test_disks_with_data_of_another_claim(self):
        """They are deleted, unless the new claim wrote them itself."""
        for since, expected in (
                (EARLY, True), (NOON, True), (LATE, False), (None, False)):
            self.kube = cluster.Cluster()
            self.kube.groups.add(resources.GROUP)
            self.add(vm_template(), policy())
            name = self.given_vm(consumer=('b', 'd'), provisioned=NOON)
            new = claim('d', 'b')
            new['status'] = status(since and name, since)
            self.add(new)
            self.run_once()
            self.assertEqual(expected, name in self.vms(), since)

    def test_disks_with_data_from_before_the_host(self):
        """Its former host was deleted by hand."""
        name = self.given_vm(consumer=(
            'b', 'd'), **{stored_names.HAD_HOST: 'true'})
        self.kube.change('BareMetalHost', AT, name, lambda one: one[
            'metadata'].update(creationTimestamp=NOON))
        self.add(claim('d', 'b'))
        self.kube.objects['HostClaim', 'b', 'd']['status'] = status(
            name, LATE)
        self.run_once()
        self.assertEqual({}, self.vms())

    def test_hosts_do_not_exceed_a_limit(self):
        self.add(*(claim(one, 'b') for one in 'xy'))
        name = self.given_vm(consumer=('b', 'd'))
        self.add(claim('d', 'b'))
        self.kube.objects['HostClaim', 'b', 'd']['status'] = status(name)
        self.run_once()
        self.assertEqual({'b-x', 'b-y'}, {*self.vms().values()})

    def test_claim_made_again(self):
        """baremetal-operator finds its host by name and not by uid."""
        name = self.given_vm(consumer=('a', 'c'))
        self.add(claim(uid='new'))
        self.kube.objects['HostClaim', 'a', 'c']['status'] = status(name)
        self.run_once()
        self.assertEqual({name: 'new'}, self.vms())

    def test_claim_made_again_by_another_tenant(self):
        name = self.given_vm(consumer=('a', 'c'), provisioned=NOON)
        self.add(claim(uid='new'))
        self.kube.objects['HostClaim', 'a', 'c']['status'] = status(
            name, LATE)
        self.run_once()
        self.assertEqual({}, self.vms())

    def test_other_host(self):
        """The consumer of the VM's host is what the operator wrote."""
        self.add(claim())
        self.run_once()
        name, = self.vms()
        self.add(host(name, ('a', 'c')))
        self.kube.change('HostClaim', 'a', 'c', lambda one: one.update(
            status=status('physical')))
        self.run_once()
        self.assertEqual({}, self.vms())

    def test_moved_host(self):
        """The machine is in use by another cluster."""
        for annotation in host_state.PAUSED, host_state.DELETE_FOR_MOVE, None:
            self.kube = cluster.Cluster()
            self.kube.groups.add(resources.GROUP)
            self.add(vm_template(), policy())
            name = self.given_vm(**({annotation: ''} if annotation else {}))
            if annotation is None:
                self.kube.remove('BareMetalHost', AT, name)
                self.kube.change(
                    'VirtualMachineBMC', AT, name, lambda bmc: bmc.update(
                        status={'bareMetalHost': {'paused': True}}))
            self.run_once()
            self.assertIn(name, self.vms(), annotation)
