# SPDX-License-Identifier: Apache-2.0

import copy
import itertools

from oslotest import base

from sushy_kubevirt.machine import boot_order
from tests.unit.machine import fakes

NONE, PXE, HDD, CD, USB, _HTTP = boot_order.Target


def template(disks=(), interfaces=(), volumes=None, **devices):
    """Return a VM template.

    :param disks: 'name' or 'name:number'; cd… is a CD-ROM, lun… a LUN
    """
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
    if not interfaces:
        # KubeVirt would add one.
        devices.setdefault('autoattachPodInterface', False)
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

    def test_numbered_devices_precede_the_rest(self):
        made = template(['a', 'b:2', 'cd'], ['net:1', 'net2'])
        self.assertEqual(['net', 'b', 'a', 'cd', 'net2'], self.names(made))

    def test_classes(self):
        made = template(['lun0', 'cd'], ['net'])
        self.assertEqual(
            {'lun0': HDD, 'cd': CD, 'net': PXE},
            {d.name: d.class_ for d in boot_order.devices(made)})
        self.assertEqual((PXE, HDD, CD), boot_order.classes(made))
        self.assertEqual((HDD,), boot_order.classes(template(['a'])))
        self.assertEqual((PXE,), boot_order.classes({}))

    def test_empty_cdrom_is_bootable(self):
        self.assertEqual((CD,), boot_order.classes(
            template(['cd'], volumes=[])))

    def test_floppy_is_not_bootable(self):
        self.assertEqual((), boot_order.classes(template(['floppy'])))

    def test_data_disks_are_not_bootable(self):
        for source in ('cloudInitNoCloud', 'cloudInitConfigDrive',
                       'configMap', 'secret', 'serviceAccount',
                       'downwardAPI', 'downwardMetrics', 'sysprep',
                       'memoryDump'):
            made = template(['root', 'cd-data'], volumes=[
                {'name': 'root', 'dataVolume': {}},
                {'name': 'cd-data', source: {}}])
            self.assertEqual((HDD,), boot_order.classes(made), source)
            self.assertEqual(['root'], self.names(made))

    def test_numbered_data_disk_keeps_place_but_is_no_target(self):
        made = template(['root:2', 'cd-data:1'], volumes=[
            {'name': 'cd-data', 'sysprep': {}}])
        self.assertEqual(['cd-data', 'root'], self.names(made))
        self.assertEqual((HDD,), boot_order.classes(made))

    def test_volume_without_disk_counts_as_disk(self):
        made = template(volumes=[{'name': 'root', 'dataVolume': {}},
                                 {'name': 'init', 'cloudInitNoCloud': {}},
                                 {'name': 'share', 'configMap': {}}])
        self.assertEqual(['root'], self.names(made))

    def test_file_system_is_not_bootable(self):
        made = template(volumes=[{'name': 'share', 'dataVolume': {}}],
                        filesystems=[{'name': 'share', 'virtiofs': {}}])
        self.assertEqual([], self.names(made))

    def test_skips_interfaces_that_cannot_boot(self):
        made = template(interfaces=['a', 'b', 'c'])
        nics = made['spec']['domain']['devices']['interfaces']
        nics[0]['passtBinding'] = {}
        nics[1]['state'] = 'absent'
        nics[2]['sriov'] = {}
        self.assertEqual(['c'], self.names(made))

    def test_memory_dump_gets_no_disk(self):
        made = template(['root'], ['net'], volumes=[
            {'name': 'root', 'dataVolume': {}},
            {'name': 'dump', 'memoryDump': {}}])
        boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root'], order(made))

    def test_encrypted_guests_do_not_boot_from_network(self):
        for each in ('sev', 'snp', 'tdx'):
            made = template(['root'], ['net'])
            made['spec']['domain']['launchSecurity'] = {each: {}}
            self.assertEqual((HDD,), boot_order.classes(made))
            boot_order.prioritize(made, HDD)
            self.assertEqual(['root'], order(made))

    def test_class_of_first_device(self):
        self.assertIsNone(boot_order.first(template(['a'], ['net'])))
        self.assertIs(PXE, boot_order.first_class(
            template(['a:2'], ['net:1'])))

    def test_class_without_numbers(self):
        for disks, interfaces, class_ in (
                (['cd', 'a'], ['net'], HDD), (['cd'], ['net'], CD),
                ([], ['net'], PXE), ([], [], NONE)):
            self.assertIs(class_, boot_order.first_class(
                template(disks, interfaces)))


class PrioritizeTestCase(base.BaseTestCase):

    def test_chosen_class_first_then_previous_order(self):
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

    def test_numbered_data_disk_keeps_its_place(self):
        made = template(['root:1', 'cd-data:2', 'b:3'], ['net'], volumes=[
            {'name': 'cd-data', 'cloudInitNoCloud': {}}])
        boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root', 'cd-data', 'b'], order(made))

    def test_adds_disk_for_volume_without_one(self):
        made = template([], ['net'], volumes=[
            {'name': 'root', 'dataVolume': {}}])
        before = copy.deepcopy(made)
        record = boot_order.prioritize(made, PXE)
        self.assertEqual(['net', 'root'], order(made))
        # KubeVirt fills in the kind of disk.
        made['spec']['domain']['devices']['disks'][0]['disk'] = {}
        boot_order.restore(made, record)
        self.assertEqual(before, made)

    def test_drives_with_media_come_first_in_their_class(self):
        for class_, expected in (
                (CD, ['cd2', 'cd1', 'root', 'net']),
                (HDD, ['root', 'cd1', 'cd2', 'net'])):
            made = template(['root', 'cd1', 'cd2'], ['net'])
            boot_order.prioritize(made, class_, {'cd2'})
            self.assertEqual(expected, order(made))

    def test_usb(self):
        made = template(['root', 'mine', 'bmc-usb', 'cd'], ['net'])
        for disk in made['spec']['domain']['devices']['disks'][1:3]:
            disk['disk']['bus'] = 'usb'
        self.assertEqual((PXE, HDD, CD, USB), boot_order.classes(made))
        for class_, expected in (
                (USB, ['bmc-usb', 'mine', 'root', 'cd', 'net']),
                (HDD, ['root', 'mine', 'bmc-usb', 'cd', 'net'])):
            changed = copy.deepcopy(made)
            boot_order.prioritize(changed, class_, {'bmc-usb'})
            self.assertEqual(expected, order(changed))

    def test_same_order_changes_nothing(self):
        made = template(['a:2'], ['net:1'])
        self.assertEqual({}, boot_order.prioritize(made, PXE))


class RestoreTestCase(base.BaseTestCase):

    def test_restores_any_order(self):
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

    def test_does_not_restore_removed_device(self):
        made = template(['a:1', 'cd'], ['net'])
        record = boot_order.prioritize(made, PXE)
        made['spec']['domain']['devices']['disks'].pop()
        made['spec']['domain']['devices']['interfaces'].clear()
        boot_order.restore(made, record)
        expected = template(['a:1'], volumes=made['spec']['volumes'])
        del expected['spec']['domain']['devices']['autoattachPodInterface']
        self.assertEqual(expected, made)

    def test_keeps_edit_made_meanwhile(self):
        made = template(['a:1', 'b:2'], ['net'])
        record = boot_order.prioritize(made, PXE)     # net 1, a 2, b 3
        disks = made['spec']['domain']['devices']['disks']
        disks[1]['bootOrder'] = 9
        boot_order.restore(made, record)
        self.assertEqual(template(['a:1', 'b:9'], ['net']), made)

    def test_restored_number_avoids_one_taken_meanwhile(self):
        made = template(['a:4', 'b:6'], ['net'])
        record = boot_order.prioritize(made, PXE)     # net 1, a 2, b 3
        made['spec']['domain']['devices']['disks'].append(
            {'name': 'new', 'disk': {}, 'bootOrder': 4})
        boot_order.restore(made, record)
        self.assertEqual({'a': 5, 'b': 6, 'new': 4}, {
            disk['name']: disk['bootOrder']
            for disk in made['spec']['domain']['devices']['disks']})

    def test_keeps_added_disk_that_owner_edited(self):
        for edit in {'serial': 'mine'}, {'disk': {'bus': 'sata'}}:
            made = template([], ['net'], volumes=[
                {'name': 'root', 'dataVolume': {}}])
            record = boot_order.prioritize(made, PXE)
            disk = made['spec']['domain']['devices']['disks'][0]
            disk.update(edit)
            boot_order.restore(made, record)
            self.assertEqual([disk],
                             made['spec']['domain']['devices']['disks'])


class FakesTestCase(base.BaseTestCase):

    def test_fake_vm_has_all_classes(self):
        self.assertEqual((PXE, HDD, CD), boot_order.classes(
            fakes.vm()['spec']['template']))
