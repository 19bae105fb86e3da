# SPDX-License-Identifier: Apache-2.0
"""Creating and deleting BMCs of VMs that match a label selector."""

import asyncio
import copy

from oslotest import base

from kubevirt_sandbox.testing import timeless
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import auto_create
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import store

LAB = 'lab'


def selected(name='vm', uid='u1', **metadata):
    return {'metadata': {'namespace': LAB, 'name': name, 'uid': uid,
                         **metadata}}


MACHINE = selected()


def existing(name='vm', vm='vm', namespace=LAB):
    return {'metadata': {'namespace': namespace, 'name': name,
                         'uid': 'uid-' + name},
            'spec': {'virtualMachine': {'namespace': LAB, 'name': vm}}}


AUTO_CREATED = auto_create.manifest(MACHINE, {})
BY_USER = existing('mine')
FAR = existing('mine', namespace='far')


class DecideTestCase(base.BaseTestCase):

    def assert_decides(self, create, delete, machine, *bmcs, same_name=None):
        if same_name is None:
            same_name = next((
                one for one in bmcs
                if (one['metadata']['namespace'], one['metadata']['name'])
                == (LAB, 'vm')), None)
        self.assertEqual((create, delete), auto_create.decide(
            machine, list(bmcs), same_name))

    def test_decisions(self):
        leaving = selected(deletionTimestamp='')
        permitting = selected(annotations={stored_names.ALLOW_FROM: 'x, far'})
        other = existing('vm', 'other')
        for create, delete, machine, *bmcs in (
                (True, [], MACHINE),
                (False, [], MACHINE, AUTO_CREATED),
                (False, [], MACHINE, BY_USER),
                (False, [], MACHINE, existing()),
                # A user creates a BMC later.
                (False, [AUTO_CREATED], MACHINE, AUTO_CREATED, BY_USER),
                (False, [AUTO_CREATED], permitting, AUTO_CREATED, FAR),
                # A BMC in another namespace does not prevent it.
                (True, [], MACHINE, FAR),
                (False, [], MACHINE, AUTO_CREATED, FAR),
                (False, [], permitting, FAR),
                # The labels do not match any more, or the VM is deleted.
                (False, [], None),
                (False, [AUTO_CREATED], None, AUTO_CREATED),
                (False, [], None, BY_USER),
                (False, [AUTO_CREATED], None, AUTO_CREATED, BY_USER, FAR),
                # Kubernetes deletes what a deleted VM owns.
                (False, [], leaving),
                (False, [], leaving, AUTO_CREATED)):
            self.assert_decides(create, delete, machine, *bmcs)
        self.assert_decides(False, [], MACHINE, same_name=other)

    def test_manifest_is_recognized_as_auto_created(self):
        body = auto_create.manifest(MACHINE, {})
        self.assertTrue(auto_create.is_auto_created(body))
        self.assertEqual({'virtualMachine': {'name': 'vm'}}, body['spec'])
        reference, = body['metadata']['ownerReferences']
        self.assertEqual(('kubevirt.io/v1', 'VirtualMachine', 'vm', 'u1'), (
            reference['apiVersion'], reference['kind'], reference['name'],
            reference['uid']))

    def test_labels_of_hosts(self):
        body = auto_create.manifest(MACHINE, {'metal3': 'true'})
        self.assertTrue(auto_create.is_auto_created(body))
        self.assertEqual('true', body['metadata']['labels']['metal3'])
        for selector, names in (
                ('', set()), ('a=b', {'a'}), ('x.test/a', {'x.test/a'}),
                ('a in (b, c), d!=e,!f', {'a', 'd'})):
            self.assertEqual(names, command_line.selector_labels(selector))
        self.assertEqual({'a', 'x.test/b', 'c'}, command_line.selector_labels(
            'a in (b, c), ! x.test/b,!c', negated=True))

    def test_selectors(self):
        for labels, met, unmet in (
                ({}, ('!a', 'a!=b', 'a notin (b,c)', '!in'),
                 ('a', 'a=', 'a=b', 'a in (b)', 'in')),
                ({'a': 'b'}, ('a', 'a=b', 'a == b', 'a in (c, b )', 'a!=c',
                              'a notin (c),a'),
                 ('!a', 'a=c', 'a in (c,bb)', 'a!=b', 'a notin (b)')),
                ({'x.test/a': ''}, ('x.test/a=', 'x.test/a', 'x.test/a in ()'),
                 ('a', 'x.test/a=b'))):
            for selector in met:
                self.assertIsNone(command_line.unmet(selector, labels),
                                  selector)
            for selector in unmet:
                self.assertEqual(selector, command_line.unmet(
                    f'!n, {selector} ,!m', labels))

    def test_bmc_of_user_is_not_auto_created(self):
        def without(*keys):
            body = auto_create.manifest(MACHINE, {})
            for key in keys:
                del body['metadata'][key]
            return body

        self.assertFalse(auto_create.is_auto_created(without('labels')))
        self.assertFalse(auto_create.is_auto_created(
            without('ownerReferences')))
        self.assertFalse(auto_create.is_auto_created(
            without('labels', 'ownerReferences')))
        for value in ('false', '', 'True'):
            body = auto_create.manifest(MACHINE, {})
            body['metadata']['labels'][stored_names.AUTO_CREATED] = value
            self.assertFalse(auto_create.is_auto_created(body))
        body = auto_create.manifest(MACHINE, {})
        body['metadata']['name'] = 'another'
        self.assertFalse(auto_create.is_auto_created(body))


class Cluster:
    """A fake API with VMs, BMCs and watches of them."""

    def __init__(self):
        self.objects = {bmc_resources.VM: {}, bmc_resources.BMC: {}}
        self.watches = []
        self.log = []
        self.problems = []
        self.uid = 0

    def vm(self, name, namespace=LAB, **metadata):
        self._put(bmc_resources.VM, {'metadata': {
            'name': name, 'namespace': namespace, 'uid': 'u-' + name,
            **metadata, 'labels': {
                'bmc': 'auto', **metadata.get('labels', {})}}, 'spec': {}})

    def bmc(self, name, vm=None):
        self._put(bmc_resources.BMC, {
            'metadata': {'name': name, 'namespace': LAB},
            'spec': {'virtualMachineRef': {'name': vm or name}}})

    def _put(self, resource, obj):
        meta = obj['metadata']
        self.uid += 1
        meta.setdefault('uid', f'u{self.uid}')
        meta['resourceVersion'] = str(self.uid)
        self.objects[resource][meta['namespace'], meta['name']] = obj
        self.publish(resource, 'ADDED', obj)

    def drop(self, resource, name, namespace=LAB):
        self.publish(resource, 'DELETED',
                     self.objects[resource].pop((namespace, name)))

    def publish(self, resource, kind, obj):
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
                    field_selector='', metadata_only=False, failed=None):
        queue = asyncio.Queue()
        self.watches.append((resource, namespace, queue))
        found = {key: obj for key, obj in self.objects[resource].items()
                 if namespace in (None, key[0])}
        for obj in found.values():
            yield 'ADDED', copy.deepcopy(obj)
        # Listing takes a second.
        await asyncio.sleep(1)
        yield api.LISTED, set(found)
        while True:
            yield await queue.get()

    async def get(self, resource, namespace, name, metadata_only):
        if (namespace, name) not in self.objects[resource]:
            raise errors.ObjectNotFound('gone')

    async def create(self, resource, namespace, body):
        self.log.append(('create', body['metadata']['name']))
        if self.problems:
            raise self.problems.pop(0)
        if (namespace, body['metadata']['name']) in self.objects[resource]:
            raise errors.Conflict('already exists')
        self._put(resource, copy.deepcopy(body))

    async def delete(self, resource, namespace, name, uid, version):
        self.log.append(('delete', name))
        if self.problems:
            raise self.problems.pop(0)
        found = self.objects[resource].get((namespace, name))
        if found is None:
            raise errors.ObjectNotFound('gone')
        if (uid, version) != (found['metadata']['uid'],
                              found['metadata']['resourceVersion']):
            raise errors.Conflict('another one')
        self.drop(resource, name)


class AutoCreatorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()

    def run_with(self, scenario, selector='bmc=auto', **more):
        async def main(loop):
            options = command_line.Options(auto_create=selector, **more)
            kinds = store.Store(self.cluster, options)
            task = asyncio.gather(
                auto_create.AutoCreator(options, self.cluster, kinds).run(),
                *(kinds.kind(resource).run() for resource in (
                    bmc_resources.VM, bmc_resources.BMC)))
            await asyncio.sleep(2)
            await scenario()
            await asyncio.sleep(1)
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        timeless.run(main)
        return self.cluster.log

    async def do_nothing(self):
        pass

    def names(self):
        return sorted(
            name for _, name in self.cluster.objects[bmc_resources.BMC])

    def test_existing_objects_at_start(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.vm('b')
        cluster.bmc('mine', 'b')
        # Created earlier, for a VM whose labels do not match any more.
        cluster._put(bmc_resources.BMC, auto_create.manifest(
            selected('c', 'u-c'), {}))
        self.assertEqual({('create', 'a'), ('delete', 'c')},
                         set(self.run_with(self.do_nothing)))
        self.assertEqual(['a', 'mine'], self.names())

    def test_vms_with_excluded_label(self):
        self.cluster.vm('a')
        self.cluster.vm('b', labels={'bmc': 'auto', 'no-bmc': ''})
        self.assertEqual([('create', 'a')], self.run_with(
            self.do_nothing, 'bmc=auto,!no-bmc'))

    def test_vms_for_claims(self):
        """They are left alone without --claim-templates, too.

        The disks may have data of the tenant whose claim the VM was for.
        """
        for at in LAB, None:
            self.cluster = Cluster()
            self.cluster.vm('template',
                            annotations={stored_names.CLAIM_TEMPLATE: 'true'})
            self.cluster.vm('made', labels={stored_names.CLAIM_UID: 'u'},
                            annotations={stored_names.CLAIM: 'tenant/c'})
            self.assertEqual([], self.run_with(
                self.do_nothing, claim_templates=at))

    def test_bmc_without_vm_reference_occupies_name(self):
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

    def test_waits_until_vms_and_bmcs_are_listed(self):
        # The list of BMCs is complete before that of VMs.
        cluster = self.cluster
        for name in 'abc':
            cluster.vm(name)
            cluster._put(bmc_resources.BMC, auto_create.manifest(
                selected(name, 'u-' + name), {}))
        self.assertEqual([], self.run_with(self.do_nothing))

    def test_lifecycle(self):
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
            # The labels do not match any more.
            cluster.drop(bmc_resources.VM, 'a')
            await asyncio.sleep(0.1)
            self.assertEqual(('delete', 'a'), log[-1])

        self.assertEqual(3, len(self.run_with(live)))

    def test_creates_when_name_becomes_free(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.bmc('a', 'other')

        async def free():
            self.assertEqual([], cluster.log)
            cluster.drop(bmc_resources.BMC, 'a')

        self.assertEqual([('create', 'a')], self.run_with(free))

    def test_notices_deletions_during_broken_watch(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.vm('b')

        async def miss():
            cluster.log.clear()
            # Without events.
            del cluster.objects[bmc_resources.VM][LAB, 'a']
            del cluster.objects[bmc_resources.BMC][LAB, 'b']
            cluster.relist()

        self.assertEqual({('delete', 'a'), ('create', 'b')},
                         set(self.run_with(miss)))

    def test_failures_are_retried(self):
        cluster = self.cluster
        cluster.problems = [errors.Unavailable('away'),
                            errors.AccessDenied('no')]
        cluster.vm('a')

        async def wait():
            await asyncio.sleep(10)

        self.assertEqual([('create', 'a')] * 3, self.run_with(wait))
        self.assertEqual(['a'], self.names())

    def test_terminating_namespace_logs_no_warning(self):
        self.cluster.problems = [errors.NamespaceTerminating('it goes')]
        self.cluster.vm('a')

        async def wait():
            await asyncio.sleep(10)

        with self.assertNoLogs(auto_create.LOG, 'WARNING'):
            self.run_with(wait)

    def test_delete_of_missing_bmc_is_not_retried(self):
        cluster = self.cluster
        cluster.vm('a')

        async def late():
            cluster.problems = [errors.ObjectNotFound('gone')]
            cluster.drop(bmc_resources.VM, 'a')
            await asyncio.sleep(10)

        self.assertEqual([('create', 'a'), ('delete', 'a')],
                         self.run_with(late))

    def test_bmc_that_has_changed_is_not_deleted_before_it_is_seen(self):
        # A user keeps it, or only its status has changed.
        for kept, remaining in (True, ['a']), (False, []):
            cluster = self.cluster = Cluster()
            cluster.vm('a')

            async def late():
                bmc = copy.deepcopy(
                    cluster.objects[bmc_resources.BMC][LAB, 'a'])
                if kept:
                    del bmc['metadata']['labels'][stored_names.AUTO_CREATED]
                bmc['metadata']['resourceVersion'] = '100'
                cluster.objects[bmc_resources.BMC][LAB, 'a'] = bmc
                cluster.drop(bmc_resources.VM, 'a')
                await asyncio.sleep(0.1)
                self.assertEqual(['a'], self.names())
                cluster.publish(bmc_resources.BMC, 'MODIFIED', bmc)

            self.run_with(late)
            self.assertEqual(remaining, self.names())

    def test_only_given_namespaces(self):
        cluster = self.cluster
        cluster.vm('a')
        cluster.vm('b', 'far')
        cluster.vm('c', 'farther')
        log = self.run_with(self.do_nothing, namespaces=(LAB, 'far'))
        self.assertEqual({('create', 'a'), ('create', 'b')}, set(log))
