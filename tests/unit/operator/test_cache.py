# SPDX-License-Identifier: Apache-2.0
"""The cache's contents do not depend on the order of events."""

import asyncio
import json

from oslotest import base

from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import command_line
from tests.unit.operator import bodies
from tests.unit.operator import cluster

AT = objects.ObjectKey('lab', 'key')


def service(version, **metadata):
    return {'metadata': {'name': 'a', 'namespace': 'lab',
                         'resourceVersion': str(version), **metadata}}


class ObjectsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.objects = cache.Compressed(cache.trimmed)

    def put(self, version, **metadata):
        return self.objects.put(service(version, **metadata))

    def remove(self, version, **metadata):
        return bool(self.objects.remove(service(version, **metadata)))

    @property
    def version(self):
        found = self.objects.last(objects.ObjectKey('lab', 'a'))
        return found and found['metadata']['resourceVersion']

    def test_newer_version_wins(self):
        self.assertTrue(self.put(5))
        self.assertFalse(self.put(5))
        self.assertFalse(self.put(4))
        self.assertEqual('5', self.version)
        # Versions are compared as numbers.
        self.assertTrue(self.put(10))
        self.assertEqual('10', self.version)

    def test_late_event_does_not_restore_deleted_object(self):
        self.put(5)
        self.assertTrue(self.remove(6))
        self.assertFalse(self.put(5))
        self.assertIsNone(self.version)
        self.assertTrue(self.put(7))

    def test_old_deletion_is_ignored(self):
        self.put(7)
        self.assertFalse(self.remove(6))
        self.assertEqual('7', self.version)

    def test_object_that_matches_selector_again_is_cached(self):
        self.put(5)
        # The watch reports a deletion, with the object's current version.
        self.remove(6)
        self.assertTrue(self.put(6))

    def test_number_of_tombstones_is_limited(self):
        for number in range(object_cache._MAX_TOMBSTONES + 10):
            self.remove(number, name=f'a{number}', uid=f'u{number}')
        self.assertEqual(object_cache._MAX_TOMBSTONES,
                         len(self.objects._tombstones))

    def test_unused_metadata_is_trimmed(self):
        self.put(1, managedFields=[{}], annotations={
            'kubectl.kubernetes.io/last-applied-configuration': 'x',
            'b': 'c'})
        found = self.objects.last(objects.ObjectKey('lab', 'a'))['metadata']
        self.assertNotIn('managedFields', found)
        self.assertEqual({'b': 'c'}, found['annotations'])


class SecretsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.requests = []
        self.kube.faults.append(
            lambda *what: self.requests.append(what))
        self.secrets = cache.Secrets(self.kube)

    def add_secret(self):
        return self.kube.add({'kind': 'Secret', 'type': 'Opaque',
                              **bodies.secret()})

    def get(self):
        return asyncio.run(self.secrets.get(AT))

    def test_secret_is_read_after_change(self):
        self.assertIsNone(self.get())
        one = self.add_secret()
        self.assertTrue(self.secrets.put(one))
        self.assertEqual(self.get(), self.get())
        self.assertEqual(1, len(self.requests))
        two = self.add_secret()
        self.assertTrue(self.secrets.put(two))
        # These versions are older, or cached.
        self.assertFalse(self.secrets.put(one))
        self.assertFalse(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(2, len(self.requests))

    def test_deletion_of_predecessor_is_ignored(self):
        one, two = self.add_secret(), self.add_secret()
        self.secrets.take(two)
        self.assertFalse(self.secrets.remove(one))
        self.assertIsNotNone(self.get())
        self.assertTrue(self.secrets.remove(two))
        self.assertIsNone(self.get())
        self.assertEqual([], self.requests)

    def test_event_after_read_is_still_reported_as_change(self):
        one, two = self.add_secret(), self.add_secret()
        self.secrets.put(one)
        # It is read before the watch event.
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        # A late response, and the deletion of the predecessor.
        self.secrets.take(one)
        self.assertFalse(self.secrets.remove(one))
        self.assertTrue(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(1, len(self.requests))

    def test_late_read_does_not_restore_deleted_secret(self):
        one = self.add_secret()
        self.secrets.put(one)
        gone = self.add_secret()
        self.assertTrue(self.secrets.remove(gone))
        # The caller gets it nevertheless.
        self.assertIsNotNone(self.secrets.take(one))
        self.assertIsNone(self.get())
        self.assertEqual(({}, []), (self.secrets._summaries,
                                    self.secrets.keys()))
        # A Secret that is created again is cached.
        self.assertTrue(self.secrets.put(self.add_secret()))
        self.assertIsNotNone(self.get())

    def test_late_answer_does_not_restore_deleted_secret(self):
        created, gone = self.add_secret(), self.add_secret()
        self.assertTrue(self.secrets.put(created))
        self.assertTrue(self.secrets.remove(gone))
        # The answer to the request that has created it.
        self.assertFalse(self.secrets.put(created))
        self.assertEqual([], self.secrets.keys())

    def test_secret_deleted_before_read(self):
        self.secrets.put(self.add_secret())
        self.kube.remove('Secret', 'lab', 'key')
        self.assertIsNone(self.get())
        self.assertEqual({}, self.secrets._summaries)

    def test_versions_and_sources(self):
        key = objects.ObjectKey('lab', 'key')
        self.assertIsNone(self.secrets.version(key))
        self.secrets.put(service(5, name='key', annotations={
            stored_names.SECRET_VERSION: '3'}))
        self.assertEqual(('5', {key: '3'}), (
            self.secrets.version(key), self.secrets.sources))
        self.secrets.put(service(6, name='key'))
        self.assertEqual(('6', {}), (
            self.secrets.version(key), self.secrets.sources))


class VirtualMachinesTestCase(base.BaseTestCase):

    KEY = objects.ObjectKey('lab', 'a')

    def setUp(self):
        super().setUp()
        self.make()

    def make(self, **options):
        self.vms = cache.VirtualMachines(command_line.Options(**options))

    def vm(self, version=1, status=None, **metadata):
        return {'spec': {'x': 1}, 'status': status or {}, 'metadata': {
            'name': 'a', 'namespace': 'lab', 'uid': 'u',
            'resourceVersion': str(version), **metadata}}

    def kept(self, vm):
        self.vms.put(vm)
        return self.vms.last(self.KEY)

    def test_what_does_not_matter_is_dropped(self):
        kept = self.kept(self.vm(
            labels={'a': 'b', 'topology.kubernetes.io/zone': 'z'},
            annotations={'a': 'b'}, finalizers=['x'], creationTimestamp='t'))
        self.assertEqual({
            'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': {'namespace': 'lab', 'name': 'a', 'uid': 'u',
                         'resourceVersion': '1'}}, kept)
        self.assertEqual([self.KEY], self.vms.keys())

    def test_what_matters_is_kept(self):
        metadata = {
            'annotations': {'bmc.kubevirt.io/allow-from': 'far'},
            'finalizers': [stored_names.HOST_FINALIZER],
            'labels': {'bmc.kubevirt.io/claim-uid': 'u'}}
        kept = self.kept(self.vm(
            **metadata, deletionTimestamp='t'))['metadata']
        self.assertEqual({**kept, **metadata}, kept)
        self.assertIn('deletionTimestamp', kept)

    def test_labels_that_options_name_are_kept(self):
        self.make(auto_create='a=b, !n', bare_metal_hosts='!c,d in (e)',
                  host_labels=('f', 'g.test/*'))
        wanted = {name: 'x' for name in (
            'a', 'd', 'f', 'g.test/h', 'n', 'topology.kubernetes.io/zone')}
        self.assertEqual(wanted, self.kept(self.vm(
            labels={**wanted, 'other': 'x', 'h.test/g': 'x'}))[
                'metadata']['labels'])

    def test_templates_are_kept(self):
        annotations = {stored_names.CLAIM_TEMPLATE: 'true', 'other': 'x'}
        for namespace in 'lab', 'far':
            self.make(claim_templates=namespace)
            kept = self.kept(self.vm(
                annotations=annotations, labels={'a': 'b'}))
            self.assertEqual(namespace == 'lab', 'spec' in kept)
            self.assertEqual(namespace == 'lab', 'other' in kept[
                'metadata']['annotations'])
            self.assertEqual(namespace == 'lab', 'labels' in kept['metadata'])

    def test_failure_is_kept(self):
        failure = {'type': 'Failure', 'status': 'True', 'message': 'no'}
        self.assertEqual({'conditions': [failure]}, self.kept(self.vm(
            status={'conditions': [{'type': 'Ready'}, failure]}))['status'])

    def test_what_changes_nothing_is_no_change(self):
        self.assertTrue(self.vms.put(self.vm()))
        self.assertFalse(self.vms.put(self.vm(2, labels={'a': 'b'})))
        self.assertEqual('2', self.vms.last(self.KEY)['metadata'][
            'resourceVersion'])
        self.assertTrue(self.vms.put(self.vm(3, uid='v')))
        self.assertTrue(self.vms.put(self.vm(4, uid='v', annotations={
            'bmc.kubevirt.io/allow-from': 'far'})))

    def test_boot_override_is_kept_alone(self):
        notes = {stored_names.BOOT: json.dumps({
            'continuous': {'target': 'Pxe', 'changes': {}}})}
        self.assertIsNone(self.vms.boot_override(self.KEY))
        self.vms.put(self.vm())
        self.assertIsNone(self.vms.boot_override(self.KEY))
        self.assertTrue(self.vms.put(self.vm(2, annotations=notes)))
        self.assertEqual({'mode': 'Persistent'},
                         self.vms.boot_override(self.KEY))
        self.assertNotIn('annotations',
                         self.vms.last(self.KEY)['metadata'])
        # Of another order, and of no override.
        notes[stored_names.BOOT] = notes[stored_names.BOOT].replace(
            'Pxe', 'Cd')
        self.assertFalse(self.vms.put(self.vm(3, annotations=notes)))
        self.assertTrue(self.vms.put(self.vm(4)))
        self.assertIsNone(self.vms.boot_override(self.KEY))

    def test_late_answer_does_not_restore_vm(self):
        self.vms.put(self.vm(5))
        self.assertFalse(self.vms.put(self.vm(4, deletionTimestamp='t')))
        self.assertTrue(self.vms.remove(self.vm(6)))
        self.assertFalse(self.vms.remove(self.vm(6)))
        self.assertFalse(self.vms.put(self.vm(6)))
        self.assertEqual([], self.vms.keys())
        self.assertTrue(self.vms.put(self.vm(7, uid='v')))
        # The deletion of the one before.
        self.assertFalse(self.vms.remove(self.vm(6)))
        self.assertEqual([self.KEY], self.vms.keys())

    def test_vms_share_what_is_kept(self):
        self.vms.put(self.vm())
        self.vms.put(self.vm(name='b', uid='v'))
        first, second = self.vms._vms.values()
        self.assertIs(first.text, second.text)
        self.assertIs(first.override, second.override)
