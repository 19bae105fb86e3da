# SPDX-License-Identifier: Apache-2.0
"""The newer version wins, whichever way it comes."""

from oslotest import base

from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.machine import trim
from sushy_kubevirt.machine import vm_cache
from tests.unit.machine import api

KEY = ('default', 'a')


class StoreTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.store = object_cache.ObjectCache(trim.vm, vm_cache.firmware_uuid)

    def held(self):
        entry = self.store.get(KEY)
        return entry and entry.unpack()['metadata']['resourceVersion']

    def put(self, version, uid='u'):
        return self.store.put(api.vm('a', version=version, uid=uid))

    def test_an_older_version_never_replaces_a_newer(self):
        self.assertTrue(self.put('20'))
        self.assertFalse(self.put('9'))
        self.assertFalse(self.put('20'))
        self.assertEqual('20', self.held())

    def test_versions_are_compared_as_numbers(self):
        self.put('9')
        self.assertTrue(self.put('10'))
        self.assertEqual('10', self.held())

    def test_a_late_event_does_not_bring_a_deleted_object_back(self):
        self.put('5')
        self.store.remove(api.vm('a', version='7', uid='u'))
        self.assertFalse(self.put('6'))
        self.assertIsNone(self.held())

    def test_an_object_that_matches_again_comes_back(self):
        # What leaves a label selector is told as deleted, and may return.
        self.put('5')
        self.store.remove(api.vm('a', version='7', uid='u'))
        self.assertTrue(self.put('8'))

    def test_a_late_deletion_of_the_predecessor_spares_the_successor(self):
        self.put('5', uid='old')
        self.put('9', uid='new')
        self.assertEqual(
            [], self.store.remove(api.vm('a', version='8', uid='old')))
        self.assertEqual('9', self.held())

    def test_what_the_api_has_no_more_stays_gone(self):
        self.put('5')
        self.store.discard_deleted(KEY, 'u')
        self.assertFalse(self.put('6'))
        self.assertTrue(self.put('7', uid='another'))

    def test_a_list_takes_out_what_it_lacks_but_not_what_is_newer(self):
        self.put('5')
        self.store.put(api.vm('b', version='30'))
        gone = self.store.retain_listed(lambda key: True, set(), '20')
        self.assertEqual([KEY], [entry.key for entry in gone])
        self.assertIsNotNone(self.store.get(('default', 'b')))

    def test_a_list_of_one_namespace_spares_the_others(self):
        self.put('5')
        gone = self.store.retain_listed(lambda key: key[0] == 'x', set(), '20')
        self.assertEqual([], gone)

    def test_what_nobody_asks_for_is_not_kept(self):
        vm = api.vm('a')
        vm['spec']['template']['spec']['volumes'] = [
            {'name': 'init', 'cloudInitNoCloud': {'userData': 'password'}}]
        self.store.put(vm)
        text = str(self.store.get(KEY).unpack())
        self.assertNotIn('managedFields', text)
        self.assertNotIn('password', text)
        self.assertIn('cloudInitNoCloud', text)
