# SPDX-License-Identifier: Apache-2.0
"""The cache's contents do not depend on the order of events."""

import asyncio

from oslotest import base

from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies
from tests.unit.operator import cluster

AT = spec.Reference('lab', 'key')


def service(version, **metadata):
    return {'metadata': {'name': 'a', 'namespace': 'lab',
                         'resourceVersion': str(version), **metadata}}


class ObjectsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.objects = cache.Objects()

    def put(self, version, **metadata):
        return self.objects.put(
            bmc_resources.SERVICE, service(version, **metadata))

    def deleted(self, version):
        return self.objects.deleted(bmc_resources.SERVICE, service(version))

    @property
    def version(self):
        found = self.objects.get(bmc_resources.SERVICE, 'lab', 'a')
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
        self.assertTrue(self.deleted(6))
        self.assertFalse(self.put(5))
        self.assertIsNone(self.version)
        self.assertTrue(self.put(7))

    def test_old_deletion_is_ignored(self):
        self.put(7)
        self.assertFalse(self.deleted(6))
        self.assertEqual('7', self.version)

    def test_object_that_matches_selector_again_is_cached(self):
        self.put(5)
        # The watch reports a deletion, with the object's current version.
        self.deleted(6)
        self.assertTrue(self.put(6))

    def test_number_of_tombstones_is_limited(self):
        for number in range(object_cache._MAX_TOMBSTONES + 10):
            self.objects.deleted(bmc_resources.SERVICE, service(
                number, name=f'a{number}', uid=f'u{number}'))
        self.assertEqual(object_cache._MAX_TOMBSTONES, len(self.objects._of(
            bmc_resources.SERVICE)._tombstones))

    def test_unused_metadata_is_trimmed(self):
        self.put(1, managedFields=[{}], annotations={
            'kubectl.kubernetes.io/last-applied-configuration': 'x',
            'b': 'c'})
        found = self.objects.get(bmc_resources.SERVICE, 'lab', 'a')['metadata']
        self.assertNotIn('managedFields', found)
        self.assertEqual({'b': 'c'}, found['annotations'])

    def test_kinds_are_separate(self):
        self.put(1)
        self.assertIsNone(self.objects.get(bmc_resources.ROLE, 'lab', 'a'))
        self.assertEqual(
            [('lab', 'a')], self.objects.names(bmc_resources.SERVICE))
        self.assertEqual([], self.objects.names(bmc_resources.ROLE))


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
        self.assertFalse(self.secrets.deleted(one))
        self.assertIsNotNone(self.get())
        self.assertTrue(self.secrets.deleted(two))
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
        self.assertFalse(self.secrets.deleted(one))
        self.assertTrue(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(1, len(self.requests))

    def test_late_read_does_not_restore_deleted_secret(self):
        one = self.add_secret()
        self.secrets.put(one)
        gone = self.add_secret()
        self.assertTrue(self.secrets.deleted(gone))
        # The caller gets it nevertheless.
        self.assertIsNotNone(self.secrets.take(one))
        self.assertIsNone(self.get())
        self.assertEqual(({}, []), (self.secrets._summaries,
                                    self.secrets.names()))
        # A Secret that is created again is cached.
        self.assertTrue(self.secrets.put(self.add_secret()))
        self.assertIsNotNone(self.get())

    def test_secret_deleted_before_read(self):
        self.secrets.put(self.add_secret())
        self.kube.remove('Secret', 'lab', 'key')
        self.assertIsNone(self.get())
        self.assertEqual({}, self.secrets._summaries)
