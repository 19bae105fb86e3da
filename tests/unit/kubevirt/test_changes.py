# SPDX-License-Identifier: Apache-2.0

import copy

import jsonpatch
from oslotest import base

from sushy_kubevirt.kubevirt import changes
from tests.unit.kubevirt import fakes


class BetweenTestCase(base.BaseTestCase):

    def check(self, old, new, count=None):
        operations = changes.between(old, new)
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
        changes.send(machine, machine.vm, fakes.vm())
        self.assertEqual([], machine.writes)

    def test_guarded(self):
        machine = fakes.Machine(fakes.vm())
        vm, edited = fakes.vm(), fakes.vm('Manual')
        edited['status'] = vm['status']
        self.assertEqual('Manual', changes.send(machine, vm, edited)[
            'spec']['runStrategy'])
