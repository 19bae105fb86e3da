# SPDX-License-Identifier: Apache-2.0

import copy
import itertools

from oslotest import base

from sushy_kubevirt.machine import boot_order
from tests.unit.machine import fakes

PXE, HDD, CD = boot_order.Class.PXE, boot_order.Class.HDD, boot_order.Class.CD


def template(disks=(), interfaces=(), volumes=None, **devices):
    """:param disks: 'name' or 'name:number', cd… is a CD-ROM, lun… a LUN"""
    def item(text):
        name, _, number = text.partition(':')
        return dict({'name': name},
                    **({'bootOrder': int(number)} if number else {}))

    made = []
    for text in disks:
        disk = item(text)
        kind = next((kind for kind in ('cd', 'lun', 'floppy')
                     if disk['name'].startswith(kind)), 'disk')
        disk[{'cd': 'cdrom'}.get(kind, kind)] = {}
        made.append(disk)
    if volumes is None:
        volumes = [{'name': disk['name'], 'persistentVolumeClaim': {}}
                   for disk in made]
    return {'spec': {'volumes': volumes, 'domain': {'devices': dict(
        devices, disks=made, interfaces=[item(text) for text in interfaces]
    )}}}


def order(made):
    devices = made['spec']['domain']['devices']
    found = {item['name']: item['bootOrder']
             for list_ in ('disks', 'interfaces')
             for item in devices.get(list_, ()) if 'bootOrder' in item}
    return sorted(found, key=found.get)


class DevicesTestCase(base.BaseTestCase):

    def names(self, made):
        return [device.name for device in boot_order.devices(made)]

    def test_numbered_go_first_then_as_they_stand(self):
        made = template(['a', 'b:2', 'cd'], ['net:1', 'net2'])
        self.assertEqual(['net', 'b', 'a', 'cd', 'net2'], self.names(made))

    def test_classes(self):
        made = template(['lun0', 'cd'], ['net'])
        self.assertEqual(
            {'lun0': HDD, 'cd': CD, 'net': PXE},
            {d.name: d.class_ for d in boot_order.devices(made)})
        self.assertEqual((PXE, HDD, CD), boot_order.classes(made))
        self.assertEqual((HDD,), boot_order.classes(template(['a'])))
        self.assertEqual((), boot_order.classes({}))

    def test_empty_cdrom_is_one(self):
        self.assertEqual((CD,), boot_order.classes(
            template(['cd'], volumes=[])))

    def test_floppy_is_none(self):
        self.assertEqual((), boot_order.classes(template(['floppy'])))

    def test_data_disks_boot_nothing(self):
        for source in ('cloudInitNoCloud', 'cloudInitConfigDrive',
                       'configMap', 'secret', 'serviceAccount',
                       'downwardAPI', 'downwardMetrics', 'sysprep',
                       'memoryDump'):
            made = template(['root', 'cd-data'], volumes=[
                {'name': 'root', 'dataVolume': {}},
                {'name': 'cd-data', source: {}}])
            self.assertEqual((HDD,), boot_order.classes(made), source)
            self.assertEqual(['root'], self.names(made))

    def test_data_disk_with_a_number_keeps_its_place_and_is_no_target(self):
        made = template(['root:2', 'cd-data:1'], volumes=[
            {'name': 'cd-data', 'sysprep': {}}])
        self.assertEqual(['cd-data', 'root'], self.names(made))
        self.assertEqual((HDD,), boot_order.classes(made))

    def test_volume_without_a_disk_is_a_disk(self):
        made = template(volumes=[{'name': 'root', 'dataVolume': {}},
                                 {'name': 'init', 'cloudInitNoCloud': {}},
                                 {'name': 'share', 'configMap': {}}])
        self.assertEqual(['root'], self.names(made))

    def test_file_system_is_none(self):
        made = template(volumes=[{'name': 'share', 'dataVolume': {}}],
                        filesystems=[{'name': 'share', 'virtiofs': {}}])
        self.assertEqual([], self.names(made))

    def test_interfaces_that_cannot_boot(self):
        made = template(interfaces=['a', 'b', 'c'])
        nics = made['spec']['domain']['devices']['interfaces']
        nics[0]['passtBinding'] = {}
        nics[1]['state'] = 'absent'
        nics[2]['sriov'] = {}
        self.assertEqual(['c'], self.names(made))

    def test_memory_dump_is_given_no_disk(self):
        made = template(['root'], ['net'], volumes=[
            {'name': 'root', 'dataVolume': {}},
            {'name': 'dump', 'memoryDump': {}}])
        boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root'], order(made))

    def test_encrypted_guests_boot_from_no_network(self):
        for each in ('sev', 'snp', 'tdx'):
            made = template(['root'], ['net'])
            made['spec']['domain']['launchSecurity'] = {each: {}}
            self.assertEqual((HDD,), boot_order.classes(made))
            boot_order.prioritize(made, HDD)
            self.assertEqual(['root'], order(made))

    def test_first(self):
        self.assertIsNone(boot_order.first(template(['a'], ['net'])))
        self.assertIs(PXE, boot_order.first(template(['a:2'], ['net:1'])))


class PutFirstTestCase(base.BaseTestCase):

    def test_chosen_class_first_then_the_rest_in_their_order(self):
        for class_, expected in (
                (PXE, ['net2', 'net1', 'cd1', 'b', 'a', 'cd2']),
                (HDD, ['b', 'a', 'cd1', 'net2', 'net1', 'cd2']),
                (CD, ['cd1', 'cd2', 'b', 'net2', 'net1', 'a'])):
            made = template(['a', 'b:2', 'cd1:1', 'cd2'],
                            ['net1:9', 'net2:3'])
            # before: cd1 b net2 net1 a cd2
            if class_ is PXE:
                expected = ['net2', 'net1', 'cd1', 'b', 'a', 'cd2']
            boot_order.prioritize(made, class_)
            self.assertEqual(expected, order(made), class_)

    def test_every_bootable_device_gets_a_number(self):
        made = template(['root', 'cd', 'data'], ['net'], volumes=[
            {'name': 'root', 'dataVolume': {}},
            {'name': 'data', 'secret': {}}])
        boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root', 'cd'], order(made))

    def test_owner_numbered_data_disk_stays_where_it_was(self):
        made = template(['root:1', 'cd-data:2', 'b:3'], ['net'], volumes=[
            {'name': 'cd-data', 'cloudInitNoCloud': {}}])
        boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root', 'cd-data', 'b'], order(made))

    def test_disk_is_written_out_for_a_volume_without_one(self):
        made = template([], ['net'], volumes=[
            {'name': 'root', 'dataVolume': {}}])
        before = copy.deepcopy(made)
        record = boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root'], order(made))
        # KubeVirt says on its own what kind of disk it is.
        made['spec']['domain']['devices']['disks'][0]['disk'] = {
            'bus': 'virtio'}
        boot_order.restore(made, record)
        self.assertEqual(before, made)

    def test_order_that_is_already_so_changes_nothing(self):
        made = template(['a:2'], ['net:1'])
        self.assertEqual({}, boot_order.prioritize(made, PXE))


class TakeBackTestCase(base.BaseTestCase):

    def test_comes_back_from_any_order(self):
        names = ['a', 'b', 'cd', 'net']
        for numbers in itertools.product((None, 1, 2, 3, 7), repeat=4):
            used = [number for number in numbers if number]
            if len(used) != len(set(used)):
                continue
            made = template(names[:3], names[3:])
            devices = made['spec']['domain']['devices']
            for item, number in zip(devices['disks'] + devices['interfaces'],
                                    numbers):
                if number:
                    item['bootOrder'] = number
            for class_ in boot_order.classes(made):
                changed = copy.deepcopy(made)
                record = boot_order.prioritize(changed, class_)
                found = boot_order.devices(changed)
                self.assertIs(class_, found[0].class_)
                self.assertEqual([1, 2, 3, 4], [d.order for d in found])
                boot_order.restore(changed, record)
                self.assertEqual(made, changed)

    def test_removed_device_does_not_come_back(self):
        made = template(['a:1', 'cd'], ['net'])
        record = boot_order.prioritize(made, PXE)
        made['spec']['domain']['devices']['disks'].pop()
        made['spec']['domain']['devices']['interfaces'].clear()
        boot_order.restore(made, record)
        self.assertEqual(template(['a:1'], volumes=made['spec']['volumes']),
                         made)

    def test_edit_in_the_meantime_stands(self):
        made = template(['a:1', 'b:2'], ['net'])
        record = boot_order.prioritize(made, PXE)     # net 1, a 2, b 3
        disks = made['spec']['domain']['devices']['disks']
        disks[1]['bootOrder'] = 9
        boot_order.restore(made, record)
        self.assertEqual(template(['a:1', 'b:9'], ['net']), made)

    def test_number_that_somebody_took_is_theirs(self):
        made = template(['a:4', 'b:6'], ['net'])
        record = boot_order.prioritize(made, PXE)     # net 1, a 2, b 3
        made['spec']['domain']['devices']['disks'].append(
            {'name': 'new', 'disk': {}, 'bootOrder': 4})
        boot_order.restore(made, record)
        self.assertEqual({'a': 5, 'b': 6, 'new': 4}, {
            disk['name']: disk['bootOrder']
            for disk in made['spec']['domain']['devices']['disks']})

    def test_disk_written_out_stays_when_its_owner_made_it_theirs(self):
        made = template([], ['net'], volumes=[
            {'name': 'root', 'dataVolume': {}}])
        record = boot_order.prioritize(made, PXE)
        disk = made['spec']['domain']['devices']['disks'][0]
        disk['serial'] = 'mine'
        boot_order.restore(made, record)
        self.assertEqual([disk], made['spec']['domain']['devices']['disks'])


class FakesTestCase(base.BaseTestCase):

    def test_fake_has_all_classes(self):
        self.assertEqual((PXE, HDD, CD), boot_order.classes(
            fakes.vm()['spec']['template']))
