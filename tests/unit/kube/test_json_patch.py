# SPDX-License-Identifier: Apache-2.0

import copy

from oslotest import base

from kubevirt_sandbox.testing import json_patches
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from tests.unit.machine import fakes


class DiffTestCase(base.BaseTestCase):

    def assert_diff(self, old, new, count=None):
        operations = json_patch.diff(old, new)
        self.assertEqual(new, json_patches.apply(old, operations))
        if count is not None:
            self.assertEqual(count, len(operations), operations)
        return operations

    def test_equal_objects_need_no_operation(self):
        self.assert_diff(fakes.vm(), fakes.vm(), 0)

    def test_changed_added_and_removed_values(self):
        self.assert_diff({'a': 1, 'b': 2, 'c': {'d': 1}},
                         {'a': 1, 'b': 3, 'c': {'e': None}}, 3)
        self.assert_diff({'a': 1}, {'a': True}, 1)
        self.assert_diff({'a': {}}, {'a': []}, 1)

    def test_escapes_names_with_slashes(self):
        self.assert_diff({'a/b': 1, '~': 1}, {'a/b': 2}, 2)

    def test_lists_are_changed_by_item(self):
        old = {'disks': [{'name': 'a', 'x': 1}, {'name': 'b'}]}
        new = copy.deepcopy(old)
        new['disks'][1]['bootOrder'] = 1
        new['disks'].append({'name': 'c'})
        operations = self.assert_diff(old, new, 2)
        self.assertEqual(['/disks/1/bootOrder', '/disks/-'],
                         [each['path'] for each in operations])

    def test_removed_items(self):
        old = [{'name': name, 'bootOrder': 1} for name in 'abcd']
        new = copy.deepcopy([old[0], old[3]])
        new[1]['bootOrder'] = 5
        self.assert_diff(old, new, 3)
        self.assert_diff(old, [], 4)


class SendTestCase(base.BaseTestCase):

    def test_nothing_to_send(self):
        machine = fakes.Machine(fakes.vm())
        json_patch.send(machine, machine.vm, fakes.vm())
        self.assertEqual([], machine.writes)

    def send(self, machine, vm, **kwargs):
        edited = copy.deepcopy(vm)
        edited['spec']['runStrategy'] = 'Manual'
        edited['metadata']['annotations']['other'] = 'changed'
        return json_patch.send(machine, vm, edited, **kwargs)

    def test_returns_patched_object(self):
        machine = fakes.Machine(fakes.vm())
        self.assertEqual('Manual', self.send(machine, fakes.vm())[
            'spec']['runStrategy'])

    def test_other_resource_version_conflicts_only_if_strict(self):
        for strict in (False, True):
            machine = fakes.Machine(fakes.vm())
            machine.vm['metadata']['resourceVersion'] = '11'
            if strict:
                self.assertRaises(errors.Conflict, self.send, machine,
                                  fakes.vm(), strict=True)
            else:
                self.send(machine, fakes.vm())

    def test_conflict_after_change_by_another_client(self):
        machine = fakes.Machine(fakes.vm(generation=6))
        self.assertRaises(errors.Conflict, self.send, machine, fakes.vm())
        machine = fakes.Machine(fakes.vm(annotations={'other': 'x'}))
        self.assertRaises(errors.Conflict, self.send, machine, fakes.vm())

    def test_other_annotations_that_were_added_meanwhile(self):
        """An addition neither overwrites nor loses to the status."""
        for present in ({'other': 'x'}, None):
            vm = fakes.vm(annotations=present)
            if present is None:
                del vm['metadata']['annotations']
            edited = copy.deepcopy(vm)
            edited['metadata'].setdefault('annotations', {})['a/b'] = 'mine'
            for added, wins in (({}, True), ({'a/b': 'theirs'}, False)):
                machine = fakes.Machine(copy.deepcopy(vm))
                metadata = machine.vm['metadata']
                metadata['resourceVersion'] = '11'
                if added:
                    metadata.setdefault('annotations', {}).update(added)
                if wins:
                    json_patch.send(machine, vm, edited)
                else:
                    self.assertRaises(errors.Conflict, json_patch.send,
                                      machine, vm, edited)
                self.assertEqual(
                    'mine' if wins else 'theirs',
                    machine.vm['metadata']['annotations']['a/b'])

    def test_vm_without_annotations(self):
        vm = fakes.vm()
        del vm['metadata']['annotations']
        machine = fakes.Machine(copy.deepcopy(vm))
        edited = copy.deepcopy(vm)
        edited['metadata']['annotations'] = {'a': 'b'}
        json_patch.send(machine, vm, edited)
        self.assertRaises(
            errors.Conflict,
            json_patch.send,
            machine,
            vm,
            edited)
