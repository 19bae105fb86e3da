# SPDX-License-Identifier: Apache-2.0
"""Media in the rows of ``kubectl bmc list``."""

from oslotest import base

from sushy_kubevirt.kubectl.commands import list as list_command
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from tests.unit.machine import api


class RowTestCase(base.BaseTestCase):

    def row(self, **entry):
        vm = api.vm('a')
        vm['metadata']['namespace'] = 'space'
        volume = media_annotation.slots('a', model.CD.id)[0]
        template = vm['spec']['template']['spec']
        template['domain']['devices']['disks'] = [
            {'name': 'cd', 'cdrom': {'bus': 'sata'}}]
        template['volumes'] = [{'name': 'cd', 'dataVolume': {'name': volume}}]
        record = media_annotation.Record()
        record.media[model.CD.id] = media_annotation.Entry(
            id='1', url='http://images.example/x.iso?token=secret', uid='u',
            volume=volume, drive='cd', **entry)
        media_annotation.write(vm, record)
        bmc = {'metadata': {'name': 'b', 'namespace': 'space', 'uid': 'u'},
               'spec': {'virtualMachineRef': {'name': 'a'}}, 'status': {
                   'conditions': [{'type': 'Ready', 'status': 'True'}],
                   'endpoints': {'ipmi': {'host': '10.0.0.1'}}}}
        return list_command.row(bmc, {('space', 'a'): vm}, {})

    def test_medium(self):
        row = self.row(ready=True)
        self.assertEqual(('x.iso', '10.0.0.1', 'OK'), (
            row['medium'], row['address'], row['health']))
        self.assertEqual('x.iso (Waiting)', self.row()['medium'])
        self.assertEqual('x.iso (Failed)',
                         self.row(reason='Error')['medium'])

    def test_missing_vm(self):
        row = list_command.row(
            {'metadata': {'name': 'b', 'namespace': 'space', 'uid': 'u'},
             'spec': {'virtualMachine': {'name': 'a', 'namespace': 'vms'}}},
            {}, {})
        self.assertEqual(('vms/a', '', ''), (
            row['vm'], row['power'], row['address']))
        self.assertEqual('NotReady', row['health'])
        self.assertIn('has not processed it yet', row['reason'])
