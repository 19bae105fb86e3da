# SPDX-License-Identifier: Apache-2.0

import copy

import jsonpatch
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from tests.unit.machine import fakes


class BetweenTestCase(base.BaseTestCase):

    def check(self, old, new, count=None):
        operations = json_patch.diff(old, new)
        self.assertEqual(new, jsonpatch.apply_patch(old, operations))
        if count is not None:
            self.assertEqual(count, len(operations), operations)
        return operations

    def test_nothing(self):
        self.check(fakes.vm(), fakes.vm(), 0)

    def test_values(self):
        self.check({'a': 1, 'b': 2, 'c': {'d': 1}},
                   {'a': 1, 'b': 3, 'c': {'e': None}}, 3)
        self.check({'a': 1}, {'a': True}, 1)
        self.check({'a': {}}, {'a': []}, 1)

    def test_names_with_slashes(self):
        self.check({'a/b': 1, '~': 1}, {'a/b': 2}, 2)

    def test_lists_are_never_sent_whole(self):
        old = {'disks': [{'name': 'a', 'x': 1}, {'name': 'b'}]}
        new = copy.deepcopy(old)
        new['disks'][1]['bootOrder'] = 1
        new['disks'].append({'name': 'c'})
        operations = self.check(old, new, 2)
        self.assertEqual(['/disks/1/bootOrder', '/disks/-'],
                         [each['path'] for each in operations])

    def test_items_taken_out(self):
        old = [{'name': name, 'bootOrder': 1} for name in 'abcd']
        new = copy.deepcopy([old[0], old[3]])
        new[1]['bootOrder'] = 5
        self.check(old, new, 3)
        self.check(old, [], 4)


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

    def test_sent(self):
        machine = fakes.Machine(fakes.vm())
        self.assertEqual('Manual', self.send(machine, fakes.vm())[
            'spec']['runStrategy'])

    def test_status_does_not_get_in_the_way_unless_it_is_to(self):
        for strict in (False, True):
            machine = fakes.Machine(fakes.vm())
            machine.vm['metadata']['resourceVersion'] = '11'
            if strict:
                self.assertRaises(errors.Conflict, self.send, machine,
                                  fakes.vm(), strict=True)
            else:
                self.send(machine, fakes.vm())

    def test_refused_after_changes_of_others(self):
        machine = fakes.Machine(fakes.vm(generation=6))
        self.assertRaises(errors.Conflict, self.send, machine, fakes.vm())
        machine = fakes.Machine(fakes.vm(annotations={'other': 'x'}))
        self.assertRaises(errors.Conflict, self.send, machine, fakes.vm())

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
