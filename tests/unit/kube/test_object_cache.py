# SPDX-License-Identifier: Apache-2.0
"""The newer version of an object wins, from a list, an event or a write."""

import base64
import os
import sys

from oslotest import base

from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.machine import trim
from sushy_kubevirt.machine import vm_cache
from tests.unit.machine import api

KEY = ('default', 'a')


class ObjectCacheTestCase(base.BaseTestCase):

    #: It cannot be compressed.
    STATUS = {'status': {'x': base64.b85encode(os.urandom(500)).decode()}}

    def setUp(self):
        super().setUp()
        self.cache = object_cache.ObjectCache(trim.vm, vm_cache.firmware_uuid)

    def cached_version(self):
        entry = self.cache.get(KEY)
        return entry and entry.unpack()['metadata']['resourceVersion']

    def put(self, version, uid='u'):
        return self.cache.put(api.vm('a', version=version, uid=uid))

    def test_older_version_does_not_replace_newer(self):
        self.assertTrue(self.put('20'))
        self.assertFalse(self.put('9'))
        self.assertFalse(self.put('20'))
        self.assertEqual('20', self.cached_version())

    def test_object_with_more_fields_is_a_dictionary_of_its_own(self):
        sizes = []
        for name, fields in (('a', {}), ('b', self.STATUS),
                             ('c', self.STATUS), ('d', {})):
            self.cache.put({**api.vm(name), **fields})
            sizes.append(len(self.cache.get(('default', name)).data))
            self.assertEqual(fields.get('status'), self.cache.get(
                ('default', name)).unpack().get('status'))
        self.assertLess(sizes[2], 200)
        self.assertLess(sizes[3], 200)

    def test_dictionary_of_a_large_object_is_small(self):
        packer = object_cache.Packer()
        for obj in {'a': 'x' * 10 ** 6, 'b': self.STATUS}, {'b': self.STATUS}:
            data = packer.pack(obj)
            self.assertEqual(obj, packer.unpack(data))
        self.assertLess(len(data), 100)
        self.assertLess(sys.getsizeof(packer._dictionary), 20000)

    def test_versions_are_compared_as_numbers(self):
        self.put('9')
        self.assertTrue(self.put('10'))
        self.assertEqual('10', self.cached_version())

    def test_late_event_does_not_restore_deleted_object(self):
        self.put('5')
        self.cache.remove(api.vm('a', version='7', uid='u'))
        self.assertFalse(self.put('6'))
        self.assertIsNone(self.cached_version())

    def test_object_that_matches_selector_again_is_cached(self):
        # An object that leaves a label selector is reported as deleted.
        self.put('5')
        self.cache.remove(api.vm('a', version='7', uid='u'))
        self.assertTrue(self.put('8'))

    def test_late_deletion_of_predecessor_is_ignored(self):
        self.put('5', uid='old')
        self.put('9', uid='new')
        self.assertEqual(
            [], self.cache.remove(api.vm('a', version='8', uid='old')))
        self.assertEqual('9', self.cached_version())

    def test_object_missing_in_api_stays_deleted(self):
        self.put('5')
        self.cache.discard_deleted(KEY, 'u')
        self.assertFalse(self.put('6'))
        self.assertTrue(self.put('7', uid='another'))

    def test_list_removes_missing_but_not_newer_objects(self):
        self.put('5')
        self.cache.put(api.vm('b', version='30'))
        removed = self.cache.retain_listed(lambda key: True, set(), '20')
        self.assertEqual([KEY], [entry.key for entry in removed])
        self.assertIsNotNone(self.cache.get(('default', 'b')))

    def test_list_of_one_namespace_keeps_others(self):
        self.put('5')
        removed = self.cache.retain_listed(
            lambda key: key[0] == 'x', set(), '20')
        self.assertEqual([], removed)

    def test_unused_and_secret_fields_are_trimmed(self):
        vm = api.vm('a')
        vm['spec']['template']['spec']['volumes'] = [
            {'name': 'init', 'cloudInitNoCloud': {'userData': 'password'}}]
        self.cache.put(vm)
        text = str(self.cache.get(KEY).unpack())
        self.assertNotIn('managedFields', text)
        self.assertNotIn('password', text)
        self.assertIn('cloudInitNoCloud', text)
