# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from kubevirt_sandbox.kubevirt import conditions


class ConditionsTest(base.BaseTestCase):

    def test_sets_finds_and_removes_conditions(self):
        obj = {}
        self.assertIsNone(conditions.find(obj, 'Ready'))
        self.assertIsNone(conditions.find(None, 'Ready'))
        conditions.put(obj, 'Ready', False, 'Because', 'of this')
        conditions.put(obj, 'Paused', True)
        self.assertTrue(conditions.has(obj, 'Ready', 'False', 'Because'))
        self.assertFalse(conditions.is_true(obj, 'Ready'))
        self.assertTrue(conditions.is_true(obj, 'Paused'))
        conditions.drop(obj, 'Ready')
        conditions.drop(obj, 'Ready')
        conditions.drop(obj, 'Paused')
        self.assertEqual({'status': {}}, obj)

    def test_other_message_alone_changes_nothing(self):
        obj = {}
        conditions.put(obj, 'Failure', True, 'A', 'first')
        stamp = obj['status']['conditions'][0]['lastTransitionTime']
        obj['status']['conditions'][0]['lastTransitionTime'] = 'then'
        conditions.put(obj, 'Failure', True, 'A', 'second')
        found = conditions.find(obj, 'Failure')
        self.assertEqual(('first', 'then'), (
            found['message'], found['lastTransitionTime']))
        conditions.put(obj, 'Failure', True, 'B', 'second')
        found = conditions.find(obj, 'Failure')
        self.assertEqual('second', found['message'])
        self.assertGreaterEqual(found['lastTransitionTime'], stamp)
