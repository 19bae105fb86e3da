# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from tests.unit.api import base


class GarbageCollectionTestCase(unittest.TestCase):

    def setUp(self):
        self.server = base.cluster()
        self.store = self.server.store
        self.kind = self.server.kinds.find('example.test', 'v1', 'things')

    def create(self, name, *owners, finalizers=(), **reference):
        obj = base.make(name)
        obj['metadata']['finalizers'] = list(finalizers)
        obj['metadata']['ownerReferences'] = [
            {'apiVersion': 'example.test/v1', 'kind': 'Thing',
             'name': o['metadata']['name'], 'uid': o['metadata']['uid'],
             **reference} for o in owners]
        made = self.store.create(self.kind, obj)
        self.server.settle()
        return made

    def delete(self, name, policy=None):
        self.store.delete(self.kind, 'default', name, propagation=policy)
        self.server.settle()

    def names(self):
        return [o['metadata']['name'] for o in self.store.list(self.kind)]

    def test_deletes_dependents_of_deleted_owner(self):
        a = self.create('a')
        b = self.create('b', a)
        self.create('c', b)
        self.delete('a')
        self.assertEqual([], self.names())

    def test_keeps_dependent_with_another_owner(self):
        a, b = self.create('a'), self.create('b')
        self.create('c', a, b)
        self.delete('a')
        self.assertEqual(['b', 'c'], self.names())
        references = self.store.get(self.kind, 'default', 'c')['metadata'][
            'ownerReferences']
        self.assertEqual(['b'], [r['name'] for r in references])
        self.delete('b')
        self.assertEqual([], self.names())

    def test_deletes_dependent_created_after_deletion_of_owner(self):
        a = self.create('a')
        self.delete('a')
        self.create('b', a)
        self.assertEqual([], self.names())

    def test_foreground_deletion_waits_for_blocking_dependents(self):
        a = self.create('a')
        self.create('b', a, finalizers=['example.test/f'],
                    blockOwnerDeletion=True)
        self.create('c', a, finalizers=['example.test/f'])
        self.delete('a', 'Foreground')
        self.assertEqual(['a', 'b', 'c'], self.names())
        self.assertEqual(['foregroundDeletion'], self.store.get(
            self.kind, 'default', 'a')['metadata']['finalizers'])
        self.store.change(self.kind, 'default', 'b',
                          lambda o: o['metadata'].pop('finalizers'))
        self.server.settle()
        # c does not block, though it is being deleted.
        self.assertEqual(['c'], self.names())
        self.assertIn('deletionTimestamp', self.store.get(
            self.kind, 'default', 'c')['metadata'])

    def test_foreground_deletion_keeps_dependent_with_another_owner(self):
        a, b = self.create('a'), self.create('b')
        self.create('c', a, b, blockOwnerDeletion=True)
        self.delete('a', 'Foreground')
        self.assertEqual(['b', 'c'], self.names())
        self.assertEqual([b['metadata']['uid']], [
            one['uid'] for one in self.store.get(
                self.kind, 'default', 'c')['metadata']['ownerReferences']])
        self.delete('b', 'Foreground')
        self.assertEqual([], self.names())

    def test_orphan_deletion_keeps_dependents(self):
        a = self.create('a')
        self.create('b', a)
        self.delete('a', 'Orphan')
        self.assertEqual(['b'], self.names())
        self.assertNotIn('ownerReferences', self.store.get(
            self.kind, 'default', 'b')['metadata'])


class NamespaceTestCase(unittest.TestCase):

    def setUp(self):
        self.server = base.cluster()
        self.store = self.server.store
        self.kind = self.server.kinds.find('example.test', 'v1', 'things')
        self.store.create(core.NAMESPACE, {'metadata': {'name': 'mine'}})

    def thing(self, **meta):
        obj = base.make()
        obj['metadata'].update(namespace='mine', **meta)
        return obj

    def assert_error(self, code, call, *args):
        with self.assertRaises(errors.ApiError) as caught:
            call(*args)
        self.assertEqual(code, caught.exception.code)
        return caught.exception.message

    def test_new_namespace_has_default_account(self):
        made = self.store.get(core.NAMESPACE, '', 'mine')
        self.assertEqual({'phase': 'Active'}, made['status'])
        self.assertTrue(self.store.find(core.SERVICE_ACCOUNT, 'mine',
                                        'default'))

    def test_deletes_objects_of_namespace(self):
        self.store.create(self.kind, self.thing())
        self.store.create(self.kind, base.make())
        self.store.delete(core.NAMESPACE, '', 'mine')
        self.server.settle()
        self.assertIsNone(self.store.find(core.NAMESPACE, '', 'mine'))
        self.assertEqual(['default'], [o['metadata']['namespace'] for o in
                                       self.store.list(self.kind)])

    def test_terminating_namespace_rejects_new_objects(self):
        self.store.create(self.kind, self.thing(
            finalizers=['example.test/f']))
        self.store.delete(core.NAMESPACE, '', 'mine')
        self.server.settle()
        self.assertEqual('Terminating', self.store.get(
            core.NAMESPACE, '', 'mine')['status']['phase'])
        message = self.assert_error(403, self.store.create, self.kind,
                                    self.thing(name='b'))
        self.assertIn('because it is being terminated', message)
        self.store.change(self.kind, 'mine', 'a',
                          lambda o: o['metadata'].pop('finalizers'))
        self.server.settle()
        self.assertIsNone(self.store.find(core.NAMESPACE, '', 'mine'))

    def test_system_namespaces_cannot_be_deleted(self):
        self.assertEqual(
            'namespaces "default" is forbidden: this namespace may not be '
            'deleted', self.assert_error(
                403, self.store.delete, core.NAMESPACE, '', 'default'))
        self.assert_error(404, self.store.create, self.kind, {
            **base.make(), 'metadata': {'name': 'a', 'namespace': 'none'}})
