# SPDX-License-Identifier: Apache-2.0
"""Claims: their storage class, and why one is not bound."""

import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import volumes
from tests.unit.api import base


class ClaimTestCase(unittest.TestCase):

    def setUp(self):
        self.server = base.cluster()
        self.store = self.server.store
        self.events = []
        self.server.provisioner.report = (
            lambda claim, *event: self.events.append(event))

    def claim(self, name, modes=('ReadWriteOnce',), **spec):
        self.store.create(core.CLAIM, {
            'metadata': {'name': name, 'namespace': 'default'},
            'spec': {'accessModes': list(modes),
                     'resources': {'requests': {'storage': '1Gi'}}, **spec}})
        self.server.settle()

    def found(self, name):
        """:returns: (phase, storage class)"""
        claim = self.store.get(core.CLAIM, 'default', name)
        return claim['status']['phase'], claim['spec'].get('storageClassName')

    def mark_default(self, value):
        self.store.change(
            volumes.STORAGE_CLASS, '', 'standard', lambda new: new['metadata'][
                'annotations'].update({volumes.DEFAULT_CLASS: value}))
        self.server.settle()

    def test_default_class(self):
        self.claim('a')
        self.assertEqual(('Bound', 'standard'), self.found('a'))
        self.mark_default('false')
        self.claim('b')
        self.assertEqual(('Pending', None), self.found('b'))
        self.assertEqual([(
            'Normal', 'FailedBinding', 'no persistent volumes available for '
            'this claim and no storage class is set',
            'persistentvolume-controller')], self.events)
        # One that is marked later is assigned to it.
        self.mark_default('true')
        self.assertEqual(('Bound', 'standard'), self.found('b'))

    def test_class_is_immutable(self):
        self.claim('a')
        with self.assertRaises(errors.ApiError):
            self.store.change(core.CLAIM, 'default', 'a', lambda new: new[
                'spec'].update(storageClassName='late'))

    def test_unknown_class(self):
        self.claim('a', storageClassName='fast')
        self.assertEqual(('Pending', 'fast'), self.found('a'))
        self.assertEqual([('Warning', 'ProvisioningFailed')],
                         [event[:2] for event in self.events])
        self.store.create(volumes.STORAGE_CLASS, {
            'metadata': {'name': 'fast'}, 'provisioner': 'example.test/x'})
        self.server.settle()
        self.assertEqual(('Bound', 'fast'), self.found('a'))

    def test_access_modes(self):
        self.store.create(volumes.STORAGE_CLASS, {
            'metadata': {'name': 'shared'}, 'provisioner': 'example.test/x',
            'parameters': {'accessModes': 'ReadWriteMany,ReadOnlyMany'}})
        self.claim('a', storageClassName='shared')
        self.assertEqual(('Pending', 'shared'), self.found('a'))
        self.assertEqual('ProvisioningFailed', self.events[0][1])
        self.assertIn('ReadWriteOnce', self.events[0][2])
        self.claim('b', ['ReadWriteMany'], storageClassName='shared')
        self.assertEqual(('Bound', 'shared'), self.found('b'))

    def test_late_binding(self):
        self.claim('a', storageClassName='late')
        self.assertEqual(('Pending', 'late'), self.found('a'))
        self.assertEqual([], self.events)
        self.assertTrue(self.server.provisioner.consume(
            'default', 'a', 'node-0'))
        self.assertEqual(('Bound', 'late'), self.found('a'))
