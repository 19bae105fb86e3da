# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from tests.unit.api import base


class GarbageTestCase(unittest.TestCase):

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

    def test_dependents_go_after_their_owner(self):
        a = self.create('a')
        b = self.create('b', a)
        self.create('c', b)
        self.delete('a')
        self.assertEqual([], self.names())

    def test_one_owner_left_is_enough(self):
        a, b = self.create('a'), self.create('b')
        self.create('c', a, b)
        self.delete('a')
        self.assertEqual(['b', 'c'], self.names())
        references = self.store.get(self.kind, 'default', 'c')['metadata'][
            'ownerReferences']
        self.assertEqual(['b'], [r['name'] for r in references])
        self.delete('b')
        self.assertEqual([], self.names())

    def test_one_that_comes_too_late_goes_as_well(self):
        a = self.create('a')
        self.delete('a')
        self.create('b', a)
        self.assertEqual([], self.names())

    def test_in_the_foreground_the_owner_waits(self):
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

    def test_orphans_stay(self):
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

    def refused(self, code, call, *args):
        with self.assertRaises(errors.ApiError) as caught:
            call(*args)
        self.assertEqual(code, caught.exception.code)
        return caught.exception.message

    def test_it_is_furnished(self):
        made = self.store.get(core.NAMESPACE, '', 'mine')
        self.assertEqual({'phase': 'Active'}, made['status'])
        self.assertTrue(self.store.find(core.SERVICE_ACCOUNT, 'mine',
                                        'default'))

    def test_it_takes_its_contents_with_it(self):
        self.store.create(self.kind, self.thing())
        self.store.create(self.kind, base.make())
        self.store.delete(core.NAMESPACE, '', 'mine')
        self.server.settle()
        self.assertIsNone(self.store.find(core.NAMESPACE, '', 'mine'))
        self.assertEqual(['default'], [o['metadata']['namespace'] for o in
                                       self.store.list(self.kind)])

    def test_it_waits_for_finalizers_and_takes_nothing_new(self):
        self.store.create(self.kind, self.thing(
            finalizers=['example.test/f']))
        self.store.delete(core.NAMESPACE, '', 'mine')
        self.server.settle()
        self.assertEqual('Terminating', self.store.get(
            core.NAMESPACE, '', 'mine')['status']['phase'])
        message = self.refused(403, self.store.create, self.kind,
                               self.thing(name='b'))
        self.assertIn('because it is being terminated', message)
        self.store.change(self.kind, 'mine', 'a',
                          lambda o: o['metadata'].pop('finalizers'))
        self.server.settle()
        self.assertIsNone(self.store.find(core.NAMESPACE, '', 'mine'))

    def test_some_stay(self):
        self.assertEqual(
            'namespaces "default" is forbidden: this namespace may not be '
            'deleted', self.refused(403, self.store.delete, core.NAMESPACE,
                                    '', 'default'))
        self.refused(404, self.store.create, self.kind, {
            **base.make(), 'metadata': {'name': 'a', 'namespace': 'none'}})
