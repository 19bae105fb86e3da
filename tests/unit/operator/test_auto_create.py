# SPDX-License-Identifier: Apache-2.0
"""Select the VMs that get a BMC by their labels."""

import asyncio
import copy

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import auto_create
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from tests.unit.operator import timeless

LAB = 'lab'
MACHINE = auto_create.SelectedVm(LAB, 'vm', 'u1')


def made(name='vm', vm='vm', automatic_=False, namespace=LAB):
    return auto_create.ExistingBmc(namespace, name, 'uid-' + name, (LAB, vm),
                                   automatic_)


OURS = made(automatic_=True)
THEIRS = made('mine')
ELSEWHERE = made('mine', namespace='far')


class DecideTestCase(base.BaseTestCase):

    def decides(self, create, delete, machine, *naming_it, of_its_name=None):
        if of_its_name is None:
            of_its_name = next((
                one for one in naming_it
                if (one.namespace, one.name) == (LAB, 'vm')), None)
        self.assertEqual((create, delete), auto_create.decide(
            machine, list(naming_it), of_its_name))

    def test_table(self):
        leaving = auto_create.SelectedVm(LAB, 'vm', 'u1', deleting=True)
        permitting = auto_create.SelectedVm(LAB, 'vm', 'u1', allowed='x, far')
        other = made('vm', 'other')
        for create, delete, machine, *naming_it in (
                (True, [], MACHINE),
                (False, [], MACHINE, OURS),
                (False, [], MACHINE, THEIRS),
                (False, [], MACHINE, made()),
                # A user's comes later.
                (False, [OURS], MACHINE, OURS, THEIRS),
                (False, [OURS], permitting, OURS, ELSEWHERE),
                # Nobody stops it from outside.
                (True, [], MACHINE, ELSEWHERE),
                (False, [], MACHINE, OURS, ELSEWHERE),
                (False, [], permitting, ELSEWHERE),
                # The labels match no more, or the VM is gone.
                (False, [], None),
                (False, [OURS], None, OURS),
                (False, [], None, THEIRS),
                (False, [OURS], None, OURS, THEIRS, ELSEWHERE),
                # What a VM owns goes with it.
                (False, [], leaving),
                (False, [], leaving, OURS)):
            self.decides(create, delete, machine, *naming_it)
        self.decides(False, [], MACHINE, of_its_name=other)

    def test_what_is_made_is_known_again(self):
        body = auto_create.manifest(MACHINE)
        self.assertTrue(auto_create.is_auto_created(body))
        self.assertEqual({'virtualMachineRef': {'name': 'vm'}}, body['spec'])
        reference, = body['metadata']['ownerReferences']
        self.assertEqual(('kubevirt.io/v1', 'VirtualMachine', 'vm', 'u1'), (
            reference['apiVersion'], reference['kind'], reference['name'],
            reference['uid']))

    def test_what_a_user_made_is_not(self):
        def without(*keys):
            body = auto_create.manifest(MACHINE)
            for key in keys:
                del body['metadata'][key]
            return body

        self.assertFalse(auto_create.is_auto_created(without('labels')))
        self.assertFalse(auto_create.is_auto_created(
            without('ownerReferences')))
        self.assertFalse(auto_create.is_auto_created(
            without('labels', 'ownerReferences')))
        for value in ('false', '', 'True'):
            body = auto_create.manifest(MACHINE)
            body['metadata']['labels'][auto_create.LABEL] = value
            self.assertFalse(auto_create.is_auto_created(body))
        body = auto_create.manifest(MACHINE)
        body['metadata']['name'] = 'another'
        self.assertFalse(auto_create.is_auto_created(body))


class Cluster:
    """VMs and BMCs, and watches of them."""

    def __init__(self):
        self.objects = {bmc_resources.VM: {}, bmc_resources.BMC: {}}
        self.watches = []
        self.log = []
        self.problems = []
        self.uid = 0

    def vm(self, name, namespace=LAB, **metadata):
        self._put(bmc_resources.VM, {'metadata': {
            'name': name, 'namespace': namespace, 'uid': 'u-' + name,
            **metadata}})

    def bmc(self, name, vm=None):
        self._put(bmc_resources.BMC, {
            'metadata': {'name': name, 'namespace': LAB},
            'spec': {'virtualMachineRef': {'name': vm or name}}})

    def _put(self, resource, obj):
        meta = obj['metadata']
        self.uid += 1
        meta.setdefault('uid', 'u%d' % self.uid)
        self.objects[resource][meta['namespace'], meta['name']] = obj
        self.tell(resource, 'ADDED', obj)

    def drop(self, resource, name, namespace=LAB):
        self.tell(resource, 'DELETED',
                  self.objects[resource].pop((namespace, name)))

    def tell(self, resource, kind, obj):
        for watched, namespace, queue in self.watches:
            if watched == resource and namespace in (
                    None, obj['metadata']['namespace']):
                queue.put_nowait((kind, copy.deepcopy(obj)))

    def relist(self):
        for watched, namespace, queue in self.watches:
            queue.put_nowait((api.LISTED, {
                key for key in self.objects[watched]
                if namespace in (None, key[0])}))

    async def watch(self, resource, namespace=None, label_selector='',
                    metadata_only=False):
        assert (label_selector, metadata_only) == (
            ('bmc=auto', True) if resource == bmc_resources.VM
            else ('', False))
        queue = asyncio.Queue()
        self.watches.append((resource, namespace, queue))
        there = {key: obj for key, obj in self.objects[resource].items()
                 if namespace in (None, key[0])}
        for obj in there.values():
            yield 'ADDED', copy.deepcopy(obj)
        # A list takes its time.
        await asyncio.sleep(1)
        yield api.LISTED, set(there)
        while True:
            yield await queue.get()

    async def create(self, resource, namespace, body):
        self.log.append(('create', body['metadata']['name']))
        if self.problems:
            raise self.problems.pop(0)
        if (namespace, body['metadata']['name']) in self.objects[resource]:
            raise errors.Conflict('there is one')
        self._put(resource, copy.deepcopy(body))

    async def delete(self, resource, namespace, name, uid):
        self.log.append(('delete', name))
        if self.problems:
            raise self.problems.pop(0)
        found = self.objects[resource].get((namespace, name))
        if found is None:
            raise errors.ObjectNotFound('gone')
        if found['metadata']['uid'] != uid:
            raise errors.Conflict('another one')
        self.drop(resource, name)


class AutomaticTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()

    def run_with(self, what, **more):
        async def main(loop):
            task = asyncio.ensure_future(auto_create.AutoCreator(
                command_line.Options(auto_create='bmc=auto', **more),
                self.cluster).run())
            await asyncio.sleep(2)
            await what()
            await asyncio.sleep(1)
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        timeless.run(main)
        return self.cluster.log

    async def nothing(self):
        pass

    def names(self):
        return sorted(
            name for _, name in self.cluster.objects[bmc_resources.BMC])

    def test_what_there_is_when_it_begins(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.vm('b')
        cluster.bmc('mine', 'b')
        # Made earlier, for a VM whose labels match no more.
        cluster._put(bmc_resources.BMC, auto_create.manifest(
            auto_create.SelectedVm(LAB, 'c', 'u-c')))
        self.assertEqual({('create', 'a'), ('delete', 'c')},
                         set(self.run_with(self.nothing)))
        self.assertEqual(['a', 'mine'], self.names())

    def test_one_that_names_no_vm(self):
        cluster = self.cluster
        for name in 'ab':
            cluster.vm(name)
        cluster._put(bmc_resources.BMC, {
            'metadata': {'name': 'a', 'namespace': LAB}, 'spec': {}})

        async def live():
            self.assertEqual([('create', 'b')], cluster.log)
            cluster.drop(bmc_resources.BMC, 'a')
        self.assertEqual([('create', 'b'), ('create', 'a')],
                         self.run_with(live))

    def test_nothing_is_done_before_all_is_known(self):
        # The list of BMCs comes first to its end, that of VMs later.
        cluster = self.cluster
        for name in 'abc':
            cluster.vm(name)
            cluster._put(bmc_resources.BMC, auto_create.manifest(
                auto_create.SelectedVm(LAB, name, 'u-' + name)))
        self.assertEqual([], self.run_with(self.nothing))

    def test_a_life(self):
        cluster = self.cluster
        log = cluster.log

        async def live():
            cluster.vm('a')
            await asyncio.sleep(0.1)
            self.assertEqual([('create', 'a')], log)
            # A user deletes it.
            cluster.drop(bmc_resources.BMC, 'a')
            await asyncio.sleep(0.1)
            self.assertEqual([('create', 'a')] * 2, log)
            # The labels match no more.
            cluster.drop(bmc_resources.VM, 'a')
            await asyncio.sleep(0.1)
            self.assertEqual(('delete', 'a'), log[-1])

        self.assertEqual(3, len(self.run_with(live)))

    def test_a_name_that_is_taken_and_then_free(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.bmc('a', 'other')

        async def free():
            self.assertEqual([], cluster.log)
            cluster.drop(bmc_resources.BMC, 'a')

        self.assertEqual([('create', 'a')], self.run_with(free))

    def test_what_vanished_while_the_watch_was_broken(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.vm('b')

        async def miss():
            cluster.log.clear()
            # Nobody is told.
            del cluster.objects[bmc_resources.VM][LAB, 'a']
            del cluster.objects[bmc_resources.BMC][LAB, 'b']
            cluster.relist()

        self.assertEqual({('delete', 'a'), ('create', 'b')},
                         set(self.run_with(miss)))

    def test_what_failed_is_tried_again(self):
        cluster = self.cluster
        cluster.problems = [errors.Unavailable('away'),
                            errors.AccessDenied('no')]
        cluster.vm('a')

        async def wait():
            await asyncio.sleep(10)

        self.assertEqual([('create', 'a')] * 3, self.run_with(wait))
        self.assertEqual(['a'], self.names())

    def test_a_namespace_that_goes_is_no_warning(self):
        self.cluster.problems = [errors.NamespaceTerminating('it goes')]
        self.cluster.vm('a')

        async def wait():
            await asyncio.sleep(10)

        with self.assertNoLogs(auto_create.LOG, 'WARNING'):
            self.run_with(wait)

    def test_a_delete_that_comes_too_late(self):
        cluster = self.cluster
        cluster.vm('a')

        async def late():
            cluster.problems = [errors.ObjectNotFound('gone')]
            cluster.drop(bmc_resources.VM, 'a')
            await asyncio.sleep(10)

        self.assertEqual([('create', 'a'), ('delete', 'a')],
                         self.run_with(late))

    def test_namespaces(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.vm('b', 'far')
        cluster.vm('c', 'farther')
        log = self.run_with(self.nothing, namespaces=(LAB, 'far'))
        self.assertEqual({('create', 'a'), ('create', 'b')}, set(log))
