# SPDX-License-Identifier: Apache-2.0
"""Harvester's webhooks, on their own."""

import copy
import re
import unittest

from kubevirt_sandbox.api import errors
from kubevirt_sandbox import harvester
from kubevirt_sandbox.testing import machines


class WebhookTestCase(unittest.TestCase):

    def mutate(self, vm, old=None):
        harvester.mutate(vm, old)
        return vm

    def strategy(self, before, after, annotation=None):
        old, new = (machines.vm('one', one) for one in (before, after))
        if annotation:
            new['metadata']['annotations'] = {
                harvester.RUN_STRATEGY: annotation}
        return self.mutate(new, old)['spec']['runStrategy']

    def test_replaces_requested_strategy(self):
        self.assertEqual('RerunOnFailure', self.strategy('Halted', 'Manual'))
        self.assertEqual('Once', self.strategy('Halted', 'Always', 'Once'))

    def test_keeps_other_strategies(self):
        for before, after in (('Halted', 'Halted'), ('Always', 'Halted'),
                              ('Always', 'Manual')):
            self.assertEqual(after, self.strategy(before, after, 'Once'))

    def test_completes_vm(self):
        vm = machines.vm('one')
        spec = vm['spec']['template']['spec']
        spec['domain']['cpu'] = {'cores': 4}
        del spec['terminationGracePeriodSeconds']
        spec = self.mutate(vm)['spec']['template']['spec']
        self.assertEqual({'cores': 4, 'sockets': 1, 'threads': 1},
                         spec['domain']['cpu'])
        self.assertEqual(({}, 120), (
            spec['affinity'], spec['terminationGracePeriodSeconds']))
        [interface] = spec['domain']['devices']['interfaces']
        self.assertTrue(re.fullmatch('[0-9a-f][26ae](:[0-9a-f]{2}){5}',
                                     interface['macAddress']))
        self.assertEqual(vm, self.mutate(copy.deepcopy(vm), vm))

    def test_known_address_is_not_replaced(self):
        vm = machines.vm('one')
        vm['metadata']['annotations'] = {
            harvester.MACS: '{"default": "02:00:00:00:00:01"}'}
        spec = self.mutate(vm)['spec']['template']['spec']
        self.assertNotIn('macAddress',
                         spec['domain']['devices']['interfaces'][0])

    def test_empty_drive_needs_sata(self):
        vm = machines.vm('one')
        spec = vm['spec']['template']['spec']
        harvester._check_drives(vm)
        spec['volumes'].pop()
        harvester._check_drives(vm)
        spec['domain']['devices']['disks'][1]['cdrom'] = {}
        self.assertRaisesRegex(errors.ApiError, 'via SATA bus',
                               harvester._check_drives, vm)
