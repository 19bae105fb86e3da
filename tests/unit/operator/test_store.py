# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import api_resources
from sushy_kubevirt.operator import store


def service(version, **metadata):
    return {'metadata': {'name': 'a', 'namespace': 'lab',
                         'resourceVersion': str(version), **metadata}}


class StoreTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.store = store.Store()

    def put(self, version, **metadata):
        return self.store.put(api_resources.SERVICE, service(version, **metadata))

    def gone(self, version):
        return self.store.gone(api_resources.SERVICE, service(version))

    @property
    def version(self):
        found = self.store.get(api_resources.SERVICE, 'lab', 'a')
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
        self.assertTrue(self.gone(6))
        self.assertFalse(self.put(5))
        self.assertIsNone(self.version)
        self.assertTrue(self.put(7))

    def test_the_end_of_another_one(self):
        self.put(7)
        self.assertFalse(self.gone(6))
        self.assertEqual('7', self.version)

    def test_one_that_lost_its_label(self):
        self.put(5)
        # The watch tells of it as gone, with the version that it has.
        self.gone(6)
        self.assertTrue(self.put(6))

    def test_little_is_remembered_of_what_is_gone(self):
        for number in range(store._MOST_GONE + 10):
            self.store.gone(api_resources.SERVICE, service(
                number, name='a%d' % number))
        self.assertEqual(store._MOST_GONE, len(self.store._gone))

    def test_what_is_not_kept(self):
        self.put(1, managedFields=[{}], annotations={
            'kubectl.kubernetes.io/last-applied-configuration': 'x',
            'b': 'c'})
        found = self.store.get(api_resources.SERVICE, 'lab', 'a')['metadata']
        self.assertNotIn('managedFields', found)
        self.assertEqual({'b': 'c'}, found['annotations'])

    def test_each_kind_for_itself(self):
        self.put(1)
        self.assertIsNone(self.store.get(api_resources.ROLE, 'lab', 'a'))
        self.assertEqual([('lab', 'a')], self.store.names(api_resources.SERVICE))
        self.assertEqual([], self.store.names(api_resources.ROLE))
