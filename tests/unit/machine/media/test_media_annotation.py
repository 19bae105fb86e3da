# SPDX-License-Identifier: Apache-2.0

import json

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from tests.unit.machine import fakes


def entry(**fields):
    return media_annotation.Entry(**{'id': 'a', 'url': 'http://h/x.iso',
                                     'volume': 'node-bmc-cd-0', **fields})


class RecordTestCase(base.BaseTestCase):

    def test_read_returns_written_record(self):
        vm = fakes.vm()
        made = media_annotation.Record()
        made.media['Cd'] = entry(
            uid='u', drive='cd', since='s', write_protected=False,
            upload=True, verify=False, credentials=True, method='Stream',
            protocol='HTTP', ready=True, reason='r', message='m')
        made.reservations['USBStick'] = entry(volume='node-bmc-usb-2')
        made.obsolete['node-bmc-cd-1'] = ''
        made.verify['Cd'] = False
        made.certificates['Cd'] = {'1': 'digest'}
        made.http_uri = 'http://h/y.efi'
        media_annotation.write(vm, made)
        self.assertEqual(vars(made), vars(media_annotation.read(vm)))
        self.assertEqual({'node-bmc-cd-0', 'node-bmc-usb-2',
                          'node-bmc-cd-1'}, media_annotation.read(vm).names())

    def test_long_names_are_names_of_objects(self):
        for length in range(30, 60):
            vm = 'v' * length + '.' + 'w' * 20
            for device in model.CD, model.USB_STICK, model.HTTP_BOOT:
                for name in (*media_annotation.slots(vm, device.id),
                             media_annotation.ca_config_map(vm, device.id)):
                    self.assertLessEqual(len(name), 63)
                    self.assertRegex(name, r'^[-a-z0-9]+([.][a-z0-9][-a-z0-9]*'
                                     '[a-z0-9])?$')

    def test_empty_record_removes_annotation(self):
        vm = fakes.vm()
        made = media_annotation.Record()
        made.media['Cd'] = entry()
        media_annotation.write(vm, made)
        del made.media['Cd']
        media_annotation.write(vm, made)
        self.assertEqual({'other': 'kept'}, vm['metadata']['annotations'])

    def test_invalid_entries_are_ignored(self):
        good = {'id': 'a', 'url': 'u', 'volume': 'node-bmc-cd-0'}
        for value in (
                {'media': 7}, {'media': {'Cd': 7}}, {'media': ['Cd']},
                {'media': {'Cd': dict(good, volume='foreign')}},
                {'media': {'Cd': dict(good, volume='node-bmc-usb-0')}},
                {'media': {'Cd': dict(good, ready='yes')}},
                {'media': {'Cd': dict(good, uid=7)}},
                {'media': {'Cd': dict(good, id='')}},
                {'media': {'Floppy': good}},
                {'next': {'Cd': {'id': 'a'}}},
                {'gone': {'foreign': 'uid'}},
                {'gone': {'node-bmc-cd-0': None}},
                {'verify': {'Cd': 'no'}}, {'verify': []},
                {'certificates': {'Cd': {'x': 'y'}}},
                {'certificates': {'Cd': {'1': 7}}}, {'httpUri': 7}):
            vm = fakes.vm(annotations={
                stored_names.MEDIA: json.dumps(value)})
            self.assertEqual(vars(media_annotation.Record()),
                             vars(media_annotation.read(vm)), value)

    def test_entry_has_no_credentials(self):
        self.assertFalse({'username', 'password'}.intersection(
            media_annotation.Entry._fields))

    def test_names_of_slots_and_config_map(self):
        self.assertEqual(
            ('node-bmc-cd-0', 'node-bmc-cd-1', 'node-bmc-cd-2'),
            media_annotation.slots('node', 'Cd'))
        self.assertEqual('node-bmc-usb-ca',
                         media_annotation.ca_config_map('node', 'USBStick'))
        found = set()
        for name in ('a' * 63, 'a' * 62 + 'b', 'a' * 50):
            for device in ('Cd', 'USBStick', 'HttpBoot'):
                for slot in media_annotation.slots(name, device):
                    self.assertLessEqual(len(slot), 63)
                    found.add(slot)
        self.assertEqual(27, len(found))
