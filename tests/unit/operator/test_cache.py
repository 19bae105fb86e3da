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

    def test_the_newer_wins(self):
        self.assertTrue(self.put(5))
        self.assertFalse(self.put(5))
        self.assertFalse(self.put(4))
        self.assertEqual('5', self.version)
        # By number, not by letter.
        self.assertTrue(self.put(10))
        self.assertEqual('10', self.version)

    def test_what_is_gone_does_not_come_back(self):
        self.put(5)
        self.assertTrue(self.deleted(6))
        self.assertFalse(self.put(5))
        self.assertIsNone(self.version)
        self.assertTrue(self.put(7))

    def test_the_end_of_another_one(self):
        self.put(7)
        self.assertFalse(self.deleted(6))
        self.assertEqual('7', self.version)

    def test_one_that_lost_its_label(self):
        self.put(5)
        # The watch tells of it as gone, with the version that it has.
        self.deleted(6)
        self.assertTrue(self.put(6))

    def test_little_is_remembered_of_what_is_gone(self):
        for number in range(object_cache._MAX_TOMBSTONES + 10):
            self.objects.deleted(bmc_resources.SERVICE, service(
                number, name='a%d' % number, uid='u%d' % number))
        self.assertEqual(object_cache._MAX_TOMBSTONES, len(self.objects._of(
            bmc_resources.SERVICE)._tombstones))

    def test_what_is_not_kept(self):
        self.put(1, managedFields=[{}], annotations={
            'kubectl.kubernetes.io/last-applied-configuration': 'x',
            'b': 'c'})
        found = self.objects.get(bmc_resources.SERVICE, 'lab', 'a')['metadata']
        self.assertNotIn('managedFields', found)
        self.assertEqual({'b': 'c'}, found['annotations'])

    def test_each_kind_for_itself(self):
        self.put(1)
        self.assertIsNone(self.objects.get(bmc_resources.ROLE, 'lab', 'a'))
        self.assertEqual(
            [('lab', 'a')], self.objects.names(bmc_resources.SERVICE))
        self.assertEqual([], self.objects.names(bmc_resources.ROLE))


class SecretsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.asked = []
        self.kube.faults.append(
            lambda *what: self.asked.append(what))
        self.secrets = cache.Secrets(self.kube)

    def given(self):
        return self.kube.add({'kind': 'Secret', 'type': 'Opaque',
                              **bodies.secret()})

    def get(self):
        return asyncio.run(self.secrets.get(AT))

    def test_read_when_it_has_moved(self):
        self.assertIsNone(self.get())
        one = self.given()
        self.assertTrue(self.secrets.put(one))
        self.assertEqual(self.get(), self.get())
        self.assertEqual(1, len(self.asked))
        two = self.given()
        self.assertTrue(self.secrets.put(two))
        # That is older, or known.
        self.assertFalse(self.secrets.put(one))
        self.assertFalse(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(2, len(self.asked))

    def test_one_that_was_made_anew_is_not_gone(self):
        one, two = self.given(), self.given()
        self.secrets.take(two)
        self.assertFalse(self.secrets.deleted(one))
        self.assertIsNotNone(self.get())
        self.assertTrue(self.secrets.deleted(two))
        self.assertIsNone(self.get())
        self.assertEqual([], self.asked)

    def test_what_one_bmc_has_read_is_news_to_another(self):
        one, two = self.given(), self.given()
        self.secrets.put(one)
        # It is read before the watch tells.
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        # An answer that was late, and the end of one before.
        self.secrets.take(one)
        self.assertFalse(self.secrets.deleted(one))
        self.assertTrue(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(1, len(self.asked))

    def test_an_answer_that_comes_after_its_end(self):
        one = self.given()
        self.secrets.put(one)
        gone = self.given()
        self.assertTrue(self.secrets.deleted(gone))
        # The caller has it all the same.
        self.assertIsNotNone(self.secrets.take(one))
        self.assertIsNone(self.get())
        self.assertEqual(({}, []), (self.secrets._summaries,
                                    self.secrets.names()))
        # One that is made anew is there.
        self.assertTrue(self.secrets.put(self.given()))
        self.assertIsNotNone(self.get())

    def test_one_that_is_not_there_when_it_is_read(self):
        self.secrets.put(self.given())
        self.kube.remove('Secret', 'lab', 'key')
        self.assertIsNone(self.get())
        self.assertEqual({}, self.secrets._summaries)
