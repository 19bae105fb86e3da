# SPDX-License-Identifier: Apache-2.0
"""Virtual media: what inserting and ejecting do to a VM and its guests."""

import json
import os
import threading

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from tests.fixtures import machine_case
from tests.fixtures import media_case

R = power_state.ResetType
S = media_case.S
ON, OFF = machine_case.ON, machine_case.OFF


class DriveTestCase(media_case.MediaTestCase):

    def check_untouched(self, machine, before):
        """The VM was not started, stopped or given another boot order."""
        vm = self.sandbox.vm(machine.name)
        self.assertEqual(before['spec'].get('runStrategy'),
                         vm['spec'].get('runStrategy'))
        for kind in ('disks', 'interfaces'):
            self.assertFalse([
                device for device in vm['spec']['template']['spec']['domain'][
                    'devices'][kind] if 'bootOrder' in device])

    def test_empty_drive_of_a_vm_that_is_off(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        before = self.sandbox.vm(machine.name)
        source = self.source()
        self.assertIsNone(machine.medium('Cd'))
        machine.insert_media('Cd', source)
        medium = self.comes(machine, S.READY)
        self.assertEqual(
            (source.url, source.url.rpartition('/')[2], 100.0, False, True),
            (medium.url, medium.image_name, medium.progress,
             medium.pending_restart, medium.write_protected))
        self.check_untouched(machine, before)
        self.assertEqual(
            ({'name': 'cd', 'cdrom': {'bus': 'sata'}},
             {'name': 'cd', 'dataVolume': {
                 'name': medium.data_volume, 'hotpluggable': True}}),
            self.drive_of(machine))
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(S.READY, self.comes(machine, S.READY).state)
        vmi = self.uid(machine.name)
        machine.eject_media('Cd')
        self.assertIsNone(machine.medium('Cd'))
        self.nothing_left(machine)
        self.assertEqual(({'name': 'cd', 'cdrom': {'bus': 'sata'}}, None),
                         self.drive_of(machine))
        self.until('an empty drive', lambda: not media_case.find(
            self.sandbox.vmi(machine.name)['spec']['volumes'], 'cd'))
        self.assertEqual(vmi, self.uid(machine.name))
        machine.eject_media('Cd')

    def test_empty_drive_of_a_running_vm_is_filled_at_once(self):
        machine = self.machine('Always', change=media_case.drop_medium,
                               off=False)
        before = self.sandbox.vm(machine.name)
        vmi = self.uid(machine.name)
        for _ in range(2):      # and replaced
            machine.insert_media('Cd', self.source())
            medium = self.comes(machine, S.READY)
            self.assertFalse(medium.pending_restart)
            # The import may be done before KubeVirt has seen the change.
            self.sandbox.wait(
                'virtualmachineinstances', machine.name,
                lambda vmi: (media_case.find(vmi['spec']['volumes'], 'cd')
                             or {}).get('dataVolume', {}).get('name')
                == medium.data_volume)
        self.assertEqual(vmi, self.uid(machine.name))
        self.assertEqual([medium.data_volume], self.data_volumes(machine))
        self.check_untouched(machine, before)
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_drive_is_added_to_a_vm_without(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        before = self.sandbox.vm(machine.name)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        self.check_untouched(machine, before)
        disk, volume = self.drive_of(machine, 'bmc-cd')
        self.assertIn('cdrom', disk)
        self.assertTrue(volume)
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        machine.reset(R.ON)
        self.assertEqual('cdrom:bmc-cd', self.sandbox.wait_boot(
            machine.name, 1)['device'])
        self.becomes(machine, ON)
        # After the one-time boot the medium stays until it is ejected.
        self.until('over', lambda: machine.boot().enabled
                   is boot.Enabled.DISABLED)
        self.assertEqual(S.READY, machine.medium('Cd').state)
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_boot_once_set_before_the_medium_is_there(self):
        bmc = self.bmc()
        self.until('CDI', lambda: bmc.media.cdi_available)
        for change in (media_case.drop_drive, media_case.drop_medium):
            machine = self.machine('Halted', bmc, change=change)
            machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
            self.assertEqual(boot.Target.CD, machine.boot().target)
            machine.insert_media('Cd', self.source())
            self.assertEqual(
                (boot.Target.CD, boot.Enabled.ONCE),
                (machine.boot().target, machine.boot().enabled))
            machine.reset(R.ON)
            self.assertEqual('Cd', self.sandbox.wait_boot(
                machine.name, 1)['class'])
            self.becomes(machine, ON)
            self.until('over', lambda: machine.boot().enabled
                       is boot.Enabled.DISABLED)
            self.put_back(machine.name)
            self.sandbox.guest_does(machine.name, 'reboot')
            self.assertEqual('Hdd', self.sandbox.wait_boot(
                machine.name, 2)['class'])
            machine.eject_media('Cd')
            self.nothing_left(machine)

    def test_lasting_override_outlives_media(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        machine.insert_media('Cd', self.source())
        machine.set_boot(boot.Target.CD, boot.Enabled.CONTINUOUS)
        spec = None
        for _ in range(2):
            machine.eject_media('Cd')
            self.assertEqual(boot.Target.CD, machine.boot().target)
            machine.insert_media('Cd', self.source())
            self.assertEqual(
                (boot.Target.CD, boot.Enabled.CONTINUOUS),
                (machine.boot().target, machine.boot().enabled))
            spec = self.drive_of(machine, 'bmc-cd')[0]
            self.assertEqual(1, spec['bootOrder'])
        machine.set_boot(enabled=boot.Enabled.DISABLED)
        self.assertNotIn('bootOrder', self.drive_of(machine, 'bmc-cd')[0])

    def test_foreign_medium_is_left_alone(self):
        machine = self.machine('Halted')
        foreign = self.drive_of(machine)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        self.assertEqual(foreign, self.drive_of(machine))
        self.assertTrue(self.drive_of(machine, 'bmc-cd')[1])
        machine.eject_media('Cd')
        self.assertEqual(foreign, self.drive_of(machine))
        self.nothing_left(machine)

    def test_drive_that_the_guest_lacks_waits_for_the_next_start(self):
        machine = self.machine('Always', change=media_case.drop_drive,
                               off=False)
        vmi = self.uid(machine.name)
        medium = machine.insert_media('Cd', self.source())
        self.assertTrue(medium.pending_restart)
        self.sandbox.wait('virtualmachines', machine.name, lambda vm: any(
            c['type'] == 'RestartRequired' and c['status'] == 'True'
            for c in vm['status']['conditions']))
        self.comes(machine, S.READY)
        self.stays(lambda: self.uid(machine.name) == vmi, 0.2)
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=vmi)
        self.until('it is there',
                   lambda: not machine.medium('Cd').pending_restart)
        machine.eject_media('Cd')
        # The guest has it until it ends.
        self.stays(lambda: medium.data_volume in self.data_volumes(machine),
                   1)
        machine.reset(R.FORCE_OFF)
        self.nothing_left(machine)

    def test_guest_that_keeps_a_medium_gets_others(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('USBStick', self.source())
        self.comes(machine, S.READY, 'USBStick')
        machine.reset(R.ON)
        self.becomes(machine, ON)
        machine.eject_media('USBStick')
        for _ in range(2):
            machine.insert_media('Cd', self.source())
            self.comes(machine, S.READY)
        machine.eject_media('Cd')
        self.until('the drive is empty', lambda: not media_case.find(
            self.sandbox.vmi(machine.name)['spec']['volumes'], 'cd'))
        self.assertEqual([], [
            condition for condition in self.sandbox.vmi(machine.name)[
                'status']['conditions']
            if condition['type'] == 'Synchronized'])
        for _ in range(4):
            machine.insert_media('USBStick', self.source())
            self.comes(machine, S.READY, 'USBStick')
        machine.eject_media('USBStick')
        machine.reset(R.FORCE_OFF)
        self.nothing_left(machine)

    def test_vm_without_hotplug(self):
        def change(spec):
            media_case.drop_medium(spec)
            spec['domain']['devices']['disableHotplug'] = True

        machine = self.machine('Halted', change=change)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertFalse(machine.medium('Cd').pending_restart)
        self.assertTrue(machine.insert_media(
            'Cd', self.source()).pending_restart)
        machine.eject_media('Cd')
        machine.reset(R.FORCE_OFF)
        self.nothing_left(machine)

    def test_vm_whose_volumes_migrate(self):
        machine = self.machine('Halted')
        for device in 'Cd', 'USBStick':
            machine.insert_media(device, self.source())
            self.comes(machine, S.READY, device)
        self.sandbox.patch('virtualmachines', machine.name, {
            'spec': {'updateVolumesStrategy': 'Migration'}})
        machine.reset(R.ON)
        self.becomes(machine, ON)
        for device in 'Cd', 'USBStick':
            for _ in range(2):
                self.assertTrue(machine.insert_media(
                    device, self.source()).pending_restart)
                self.comes(machine, S.READY, device)
                # What KubeVirt would take for a volume to be migrated.
                there = {each['name']: each.get('dataVolume') for each in
                         self.sandbox.vmi(machine.name)['spec']['volumes']}
                for each in self.sandbox.vm(machine.name)['spec'][
                        'template']['spec']['volumes']:
                    if each['name'] in there:
                        self.assertEqual(there[each['name']],
                                         each.get('dataVolume'))
            machine.eject_media(device)
        machine.reset(R.FORCE_OFF)
        self.nothing_left(machine)

    def test_usb_stick(self):
        machine = self.machine('Halted')
        machine.insert_media('USBStick', self.source(write_protected=False))
        medium = self.comes(machine, S.READY, 'USBStick')
        self.assertFalse(medium.write_protected)
        disk, volume = self.drive_of(machine, 'bmc-usb')
        self.assertEqual('usb', disk['disk']['bus'])
        self.assertFalse(disk['disk'].get('readonly'))
        machine.insert_media('USBStick', self.source())
        self.comes(machine, S.READY, 'USBStick')
        self.assertTrue(
            self.drive_of(machine, 'bmc-usb')[0]['disk']['readonly'])
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertFalse(machine.medium('USBStick').pending_restart)
        machine.insert_media('USBStick', self.source())
        self.assertTrue(machine.medium('USBStick').pending_restart)
        machine.eject_media('USBStick')
        self.assertEqual((None, None), self.drive_of(machine, 'bmc-usb'))
        machine.reset(R.FORCE_OFF)
        self.nothing_left(machine)


class WithoutGateTestCase(media_case.MediaTestCase):

    GATE = False

    def test_drive_comes_and_goes_with_its_medium(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        spec = self.sandbox.vm(machine.name)['spec']
        for _ in range(2):
            machine.insert_media('Cd', self.source())
            self.comes(machine, S.READY)
            self.assertNotIn('hotpluggable', self.drive_of(
                machine, 'bmc-cd')[1]['dataVolume'])
        machine.eject_media('Cd')
        self.assertEqual(spec, self.sandbox.vm(machine.name)['spec'])
        self.nothing_left(machine)

    def test_running_vm_gets_it_with_its_next_start(self):
        machine = self.machine('Always', off=False)
        vmi = self.uid(machine.name)
        spec = self.sandbox.vm(machine.name)['spec']
        self.assertTrue(machine.insert_media(
            'Cd', self.source()).pending_restart)
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=vmi)
        self.until('it is there',
                   lambda: not machine.medium('Cd').pending_restart)
        machine.eject_media('Cd')
        self.assertIsNone(machine.medium('Cd'))
        self.assertEqual(spec, self.sandbox.vm(machine.name)['spec'])
        machine.reset(R.FORCE_OFF)
        self.nothing_left(machine)

    def test_gate_that_is_switched_off_meanwhile(self):
        self.sandbox.set_gates(on=['DeclarativeHotplugVolumes'])
        machine = self.machine('Halted', self.bmc(gates_seconds=600),
                               change=media_case.drop_drive)
        machine.insert_media('Cd', self.source())
        self.sandbox.set_gates(off=['DeclarativeHotplugVolumes'])
        machine.eject_media('Cd')
        self.assertEqual((None, None), self.drive_of(machine, 'bmc-cd'))
        self.nothing_left(machine)


class ImportTestCase(media_case.MediaTestCase):

    def test_import_under_way(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        url = self.url('size-8000000.iso')
        self.slow('size-8000000', rate=4000000)
        machine.insert_media('Cd', self.source(url))
        medium = self.comes(machine, S.IMPORTING)
        self.assertEqual(url, medium.url)
        self.assertTrue(machine.cluster.media.wait(
            lambda: machine.medium('Cd').progress, 5))
        # Another process sees the same.
        other = self.bmc().machine(machine.name)
        self.comes(other, S.IMPORTING)
        self.comes(machine, S.READY)
        self.comes(other, S.READY)
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_bmc_for_one_vm_watches_by_name(self):
        names = [self.make('Halted', change=media_case.drop_medium)
                 for _ in range(2)]
        bmcs = []
        for name in names:
            bmcs.append(cluster.Cluster(
                self.connection, vm='default/' + name,
                options=options.Options(media=options.MediaOptions(
                    **self.MEDIA))))
            self.addCleanup(bmcs[-1].close)
        one, two = [self.handle(bmc, name)
                    for bmc, name in zip(bmcs, names)]
        for machine in (one, two):
            source = self.source()
            self.slow(source.url, delay=0.5)
            machine.insert_media('Cd', source)
        self.assertEqual(
            [('default', one.medium('Cd').data_volume)],
            list(bmcs[0].media.volumes._watchers))
        for machine in (one, two):
            self.comes(machine, S.READY)
            machine.eject_media('Cd')
            self.nothing_left(machine)

    def test_child_process(self):
        """What a fork leaves is of no use; the child begins anew."""
        bmc = self.bmc()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        child = os.fork()
        if not child:
            try:
                mine = bmc.machine(machine.name)
                mine.eject_media('Cd')
                mine.insert_media('Cd', self.source(self.url('child.iso')))
                ready = bmc.media.wait(lambda: mine.medium(
                    'Cd').state is S.READY, 10)
                os._exit(0 if ready else 1)
            finally:
                os._exit(2)
        self.assertEqual(0, os.waitstatus_to_exitcode(
            os.waitpid(child, 0)[1]))
        self.until('the other', lambda: machine.medium('Cd') and (
            machine.medium('Cd').image_name) == 'child.iso')
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_start_during_the_import_waits_for_it(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        source = self.source()
        self.slow(source.url, delay=1)
        machine.insert_media('Cd', source)
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        machine.reset(R.ON)
        self.stays(lambda: not self.sandbox.boots(machine.name), 0.4)
        booted = self.sandbox.wait_boot(machine.name, 1)
        self.assertEqual('cdrom:cd', booted['device'])
        self.assertIsNone(machine.problem())

    def test_wait(self):
        bmc = self.bmc({'wait': True})
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        source = self.source()
        self.slow(source.url, delay=0.5)
        self.assertEqual(S.READY, machine.insert_media('Cd', source).state)
        source = self.failing()
        e = self.assertRaises(errors.MediaUnreachable, machine.insert_media,
                              'Cd', source)
        self.assertIn('404', str(e))

    def failing(self):
        """A source that is there when it is asked for and then no more."""
        source = self.source()
        self.slow(source.url, delay=0.2)
        name = source.url.rpartition('/')[2]

        def gone():
            self.images.missing = name

        self.addCleanup(setattr, self.images, 'missing', None)
        self.after_head(name, gone)
        return source

    def after_head(self, name, call):
        """Call something as soon as the size of an image was asked for."""
        images = self.images

        class Requests(list):
            def append(self, item):
                super().append(item)
                if item == ('HEAD', '/' + name):
                    # The answer is decided upon first.
                    images.requests = self.former
                    threading.Timer(0.05, call).start()

        requests = Requests()
        requests.former = images.requests
        images.requests = requests

    def test_failed_import_says_why_and_blocks_nothing(self):
        bmc = self.bmc()
        told = self.told(bmc)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        source = self.failing()
        machine.insert_media('Cd', source)
        medium = self.comes(machine, S.FAILED)
        self.assertEqual('Error', medium.reason)
        self.assertIn('404', medium.message)
        self.assertEqual(source.url, medium.url)
        # It is tried again and goes on failing; that is no news.
        before = len(told)
        self.stays(lambda: machine.medium('Cd').state is S.FAILED, 1.5)
        self.assertEqual(
            [], [each for each in told[before:]
                 if each[3] is None or each[3].state is not S.FAILED])
        machine.reset(R.ON)
        self.until('a problem', machine.problem)
        self.assertEqual('MediaFailed', machine.problem().reason)
        self.assertIn('404', machine.problem().message)
        # The same again is another try.
        self.images.missing = None
        self.fast()
        machine.insert_media('Cd', source)
        self.assertNotEqual(medium.task, machine.medium('Cd').task)
        self.comes(machine, S.READY)
        machine.reset(R.FORCE_OFF)
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_failed_import_that_comes_right_by_itself(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('Cd', self.failing())
        self.comes(machine, S.FAILED)
        self.images.missing = None
        self.comes(machine, S.READY)

    def test_vm_that_waits_for_a_failed_import_starts_without(self):
        machine = self.machine('Manual', change=media_case.drop_medium)
        machine.insert_media('Cd', self.failing())
        self.comes(machine, S.FAILED)
        machine.reset(R.ON)
        self.until('a problem', machine.problem)
        machine.eject_media('Cd')
        machine.reset(R.FORCE_OFF)
        self.until('off', lambda: self.uid(machine.name) is None)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.nothing_left(machine)

    def test_same_image_again_changes_nothing(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        source = self.source()
        machine.insert_media('Cd', source)
        first = self.comes(machine, S.READY)
        self.noted(machine)
        vm = self.sandbox.vm(machine.name)
        self.sandbox.reset_stats()
        self.assertEqual(first, machine.insert_media('Cd', source))
        # It is looked at once, as another process may have ejected it.
        self.assertEqual(['get'], list(self.sandbox.calls()))
        self.assertEqual(vm, self.sandbox.vm(machine.name))

    def test_what_another_process_ejected_is_inserted_again(self):
        one, two = self.bmc(), self.bmc()
        machine = self.machine('Halted', one, change=media_case.drop_medium)
        other = self.handle(two, machine.name)
        source = self.source()
        for _ in range(5):
            first = machine.insert_media('Cd', source)
            other.eject_media('Cd')
            self.assertNotEqual(first.task, machine.insert_media(
                'Cd', source).task)
            other.eject_media('Cd')
        self.nothing_left(machine)

    def test_quota(self):
        self.sandbox.create('resourcequotas', {
            'metadata': {'name': 'small'},
            'spec': {'hard': {'requests.storage': '1Mi'}}})
        self.addCleanup(self.sandbox.delete, 'resourcequotas', 'small')
        machine = self.machine('Halted', change=media_case.drop_medium)
        try:
            machine.insert_media('Cd', self.source())
        except errors.Rejected as e:
            self.assertIn('quota', str(e))
        else:
            medium = self.comes(machine, S.FAILED)
            self.assertIn('quota', medium.message)
            self.assertEqual('ErrExceededQuota', medium.reason)
            machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_what_is_refused_leaves_nothing(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        for url, error in (
                ('ftp://127.0.0.1/a.iso', errors.InvalidValue),
                ('http://169.254.169.254/a.iso', errors.InvalidValue),
                (self.images.url + '/missing', errors.MediaUnreachable),
                (self.images.url + '/private/x.iso',
                 errors.MediaUnreachable)):
            self.assertRaises(error, machine.insert_media, 'Cd',
                              self.source(url))
        self.assertRaises(errors.InvalidValue, machine.insert_media,
                          'Floppy', self.source())
        self.assertIsNone(self.remembered(machine))
        self.assertEqual([], self.data_volumes(machine))

    def test_credentials(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        source = self.source(
            self.images.url + '/private/p.iso',
            username=self.images.USER, password=self.images.PASSWORD)
        machine.insert_media('Cd', source)
        medium = self.comes(machine, S.READY)
        [name] = self.owned('secrets', machine)
        self.assertEqual(f'{medium.data_volume}-{medium.task}', name)
        # They stand in the Secret and nowhere else.
        for plural in ('virtualmachines', 'datavolumes',
                       'persistentvolumeclaims', 'events'):
            self.assertNotIn(self.images.PASSWORD,
                             json.dumps(self.sandbox.list(plural)))
        machine.eject_media('Cd')
        self.nothing_left(machine)
        # In the URL they do the same.
        machine.insert_media('Cd', self.source(source.url.replace(
            '://', f'://{self.images.USER}:{self.images.PASSWORD}@')))
        self.assertEqual(source.url, self.comes(machine, S.READY).url)

    def noted(self, machine):
        """Wait until the VM says that its medium is complete."""
        self.until('at rest', lambda: '"ready":true' in (
            self.remembered(machine) or ''))

    def test_no_call_at_rest(self):
        bmc = self.bmc()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        self.noted(machine)
        self.until('no watch', lambda: not bmc.media.volumes._watchers)
        self.sandbox.reset_stats()
        for _ in range(5):
            self.assertEqual(S.READY, machine.medium('Cd').state)
            machine.boot()
            machine.problem()
            machine.media_certificates('Cd')
        self.assertEqual({}, self.sandbox.calls())
        # Nor does a process that is started now need to know more.
        self.assertEqual(S.READY, self.bmc().machine(
            machine.name).medium('Cd').state)

    def test_told_in_every_process(self):
        one, two = self.bmc(), self.bmc()
        told = [self.told(one), self.told(two)]
        machine = self.machine('Halted', one, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        machine.eject_media('Cd')
        for each in told:
            # VMs of other tests may still be on their way out.
            def mine():
                return [one[2:] for one in each if one[0] == machine.name]

            self.until('the end', lambda: mine() and mine()[-1][1] is None)
            states = [new and new.state for _, new in mine()]
            self.assertIn(S.READY, states)
            self.assertIsNone(mine()[0][0])
            self.assertNotIn(S.FAILED, states)

    def test_what_was_there_before_is_told_as_such(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        self.noted(machine)
        told = self.told(self.bmc())
        self.until('told', lambda: [
            each for each in told if each[0] == machine.name])
        [(_, _, old, new)] = [each for each in told
                              if each[0] == machine.name]
        self.assertEqual(old, new)
        self.assertEqual(machine.medium('Cd'), new)


class NoCdiTestCase(media_case.MediaTestCase):

    SANDBOX_ARGUMENTS = ('--no-cdi',)

    def data_volumes(self, machine=None):
        return []

    def test_says_what_to_install(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        e = self.assertRaises(errors.Unsupported, machine.insert_media, 'Cd',
                              self.source())
        self.assertIn('CDI', str(e))
        machine.eject_media('Cd')
        self.assertIsNone(machine.medium('Cd'))
        self.assertNotIn(boot.Target.CD, machine.boot_targets())
        self.assertRaises(errors.InvalidValue, machine.set_boot,
                          boot.Target.CD, boot.Enabled.ONCE)
        self.assertEqual(('Cd', 'USBStick'), tuple(
            device.id for device in machine.media_devices()))
        self.assertIs(media.CD, machine.media_devices()[0])
