# SPDX-License-Identifier: Apache-2.0
"""Changes by the media reconciler, and the state of a device."""

import json
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import import_watcher
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import reconciler
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

S = model.State
CD, HTTP = model.CD, model.HTTP_BOOT
NAME = 'node-bmc-cd-0'


def entry(**fields):
    return media_annotation.Entry(**{
        'id': 'a', 'url': 'http://h/d/x.iso?sig=1', 'volume': NAME,
        'uid': 'dv-uid', 'drive': 'cd', **fields})


def seen(state, progress=None, reason='', message='', **notes):
    return import_watcher.ObservedVolume(
        'dv-uid',
        1,
        'vm-uid',
        datavolumes.Status(state, progress, reason, message),
        notes,
    )


def inserted(device=CD, made=None, hot=True, drop=False):
    """A VM with a medium."""
    made = made or entry()
    vm = fakes.vm()
    if not drop:
        drives.fill(vm_state.VmState(vm), device, made.drive, made.volume,
                    hot)
    found = media_annotation.Record()
    found.media[device.id] = made
    media_annotation.write(vm, found)
    return vm


class DesiredVmTestCase(base.BaseTestCase):

    def context(self, ages=0, seen=None, **more):
        return reconciler.Context(lambda entry: seen, lambda what: ages, 60,
                                  **more)

    def desired(self, vm, vmi=None, **context):
        self.last_context = self.context(**context)
        return reconciler.desired_vm(
            vm_state.VmState(vm, vmi), self.last_context)

    def test_nothing_to_do(self):
        self.assertIsNone(self.desired(fakes.vm()))
        self.assertIsNone(self.desired(inserted(made=entry(ready=True))))
        self.assertIsNone(self.desired(inserted(), seen=seen(S.IMPORTING)))
        self.assertIsNone(self.desired(inserted(), seen=seen(S.FAILED)))

    def test_completed_import_is_recorded(self):
        edited = self.desired(inserted(), seen=seen(S.READY))
        self.assertTrue(media_annotation.read(edited).media['Cd'].ready)

    def test_deleting_vm_is_unchanged(self):
        vm = inserted()
        vm['metadata']['deletionTimestamp'] = 'now'
        self.assertIsNone(self.desired(vm, seen=seen(S.READY)))

    def test_abandoned_insert_is_cleaned_up(self):
        vm = fakes.vm()
        found = media_annotation.Record()
        found.reservations['Cd'] = entry(uid='', drive='')
        media_annotation.write(vm, found)
        self.assertIsNone(self.desired(vm, ages=59))
        self.assertEqual(1, self.last_context.revisit_seconds)
        self.assertIsNone(self.desired(vm, ages=61, inserting={'a'}))
        edited = self.desired(vm, ages=61)
        self.assertEqual(
            ({}, {NAME: ''}),
            (
                media_annotation.read(edited).reservations,
                media_annotation.read(edited).obsolete,
            ),
        )
        # The DataVolume may exist or may still be created: it is searched for
        # at once, and again later.
        state = vm_state.VmState(edited)
        self.assertTrue(datavolume_cleanup.due(state, self.context()))
        self.assertFalse(datavolume_cleanup.due(
            state, self.context(searched={NAME})))
        self.assertTrue(datavolume_cleanup.due(
            state, self.context(61, searched={NAME})))

    def test_medium_removed_by_owner_is_deleted(self):
        vm = inserted(drop=True)
        self.assertEqual({NAME: 'dv-uid'}, media_annotation.read(
            self.desired(vm)).obsolete)
        # A running guest that has it keeps it.
        self.assertIsNone(self.desired(vm, fakes.vmi(of=inserted())))

    def test_disables_hotplug_if_guest_lacks_drive(self):
        vm = inserted()
        vmi = fakes.vmi(of=fakes.vm(disks=[]))
        edited = self.desired(vm, vmi, seen=seen(S.IMPORTING))
        self.assertEqual({'name': NAME}, drives.source_of(
            edited['spec']['template']['spec'], 'cd'))

    def test_http_medium_without_override_is_removed(self):
        made = entry(volume='node-bmc-http-0', drive='bmc-http')
        vm = inserted(HTTP, made)
        self.assertIsNone(self.desired(vm, ages=1))
        edited = self.desired(vm, ages=61)
        self.assertEqual(fakes.vm()['spec'], edited['spec'])
        boot_overrides.apply_once(vm, 'id', boot_order.Target.UEFI_HTTP)
        self.assertIsNone(self.desired(vm, ages=61, seen=seen(S.IMPORTING)))

    def test_unobserved_volume_is_read_after_delay(self):
        self.desired(inserted(), ages=1)
        self.assertEqual([], self.last_context.unobserved)
        self.desired(inserted(), ages=4)
        self.assertEqual(
            ['a'], [
                each.id for each in self.last_context.unobserved])

    def test_claim_without_storage_is_examined_after_delay(self):
        pending = seen(S.WAITING, reason='Pending')
        for ages, state, examined in ((4, pending, []), (5, pending, ['a']),
                                      (5, seen(S.WAITING), []),
                                      (5, seen(S.IMPORTING, 1.0,
                                               'Pending'), [])):
            self.assertIsNone(self.desired(inserted(), ages=ages, seen=state))
            self.assertEqual(examined, [
                each.id for each in self.last_context.pending])

    def test_upload_without_progress_is_interrupted(self):
        vm = inserted(made=entry(upload=True))
        at = seen(S.IMPORTING)
        self.assertIsNone(self.desired(vm, ages=29, seen=at))
        self.assertIsNone(self.desired(vm, ages=99, seen=at,
                                       uploading={'a': 1}))
        edited = self.desired(vm, ages=31, seen=at)
        made = media_annotation.read(edited).media['Cd']
        self.assertEqual('UploadInterrupted', made.reason)
        self.assertIn('insert it again', made.message)
        # The client has the image.
        edited = self.desired(inserted(made=entry(
            upload=True, url='upload:a.iso')), ages=31, seen=at)
        self.assertIn('upload it again', media_annotation.read(
            edited).media['Cd'].message)


class MediumTestCase(base.BaseTestCase):

    def medium(self, vm, vmi=None, at=None, gates=''):
        return device_status.medium(
            model.CD, media_annotation.read(vm).media.get('Cd'),
            vm_state.VmState(vm, vmi), at, mock.Mock(**{
                'why_no_cdrom_hotplug.return_value': gates}))

    def test_state_of_medium(self):
        for made, at, state, progress in (
                (entry(), None, S.WAITING, None),
                (entry(), seen(S.IMPORTING, 40.0), S.IMPORTING, 40.0),
                (entry(), seen(S.READY, 100.0), S.READY, 100.0),
                (entry(ready=True), None, S.READY, 100.0),
                (entry(reason='UploadFailed'), None, S.FAILED, None),
                (entry(upload=True), seen(S.WAITING, **{
                    stored_names.UPLOAD: json.dumps({'progress': 7})}),
                 S.IMPORTING, 7.0),
                (entry(upload=True), seen(S.WAITING, **{
                    stored_names.UPLOAD: 'x'}), S.WAITING, None)):
            found = self.medium(inserted(made=made), at=at)
            self.assertEqual((state, progress),
                             (found.state, found.progress))
        self.assertEqual('x.iso', found.image_name)

    def test_no_medium(self):
        self.assertIsNone(self.medium(fakes.vm()))
        self.assertIsNone(self.medium(inserted(drop=True)))

    def test_ready_when_guest_has_it(self):
        vm = inserted(made=entry(ready=True))
        vmi = fakes.vmi(of=fakes.vm())
        self.assertIs(S.IMPORTING, self.medium(vm, vmi).state)
        self.assertEqual('', self.medium(vm, vmi).message)
        # The gate was disabled after the insert.
        self.assertEqual('The gate is off.', self.medium(
            vm, vmi, gates='the gate is off').message)
        vmi = fakes.vmi(of=vm)
        vmi['status']['volumeStatus'] = [{
            'name': 'cd', 'phase': 'MountedToPod', 'reason': 'r'}]
        self.assertEqual('r', self.medium(vm, vmi).reason)
        vmi['status']['volumeStatus'][0]['phase'] = 'Ready'
        self.assertIs(S.READY, self.medium(vm, vmi, gates='off').state)

    def test_failed_medium_blocks_start(self):
        made = entry(reason='Error', message='404')
        vm = inserted(made=made)
        found = {'Cd': self.medium(vm)}
        self.assertIsNone(device_status.problem(found, vm_state.VmState(vm)))
        for vmi in (None, fakes.vmi('Pending', of=vm)):
            vm['spec']['runStrategy'] = 'Always'
            problem = device_status.problem(found, vm_state.VmState(vm, vmi))
            self.assertEqual('MediaFailed', problem.reason)
            self.assertIn('404', problem.message)
            self.assertNotIn('sig', problem.message)
        self.assertIsNone(device_status.problem(
            found, vm_state.VmState(vm, fakes.vmi(of=vm))))
        # A VMI created before the medium does not wait for it.
        self.assertIsNone(device_status.problem(
            found, vm_state.VmState(
                vm, fakes.vmi('Scheduling', of=fakes.vm()))))

    def test_missing_claim_beside_a_failed_medium(self):
        """KubeVirt prints ErrorPvcNotFound; other reasons come later."""
        vm = inserted(made=entry(reason='Error', message='404'))
        found = {'Cd': self.medium(vm)}
        for claim, reason, expected in (
                ('data', 'FailedPvcNotFound', 'ErrorPvcNotFound'),
                (NAME, 'FailedPvcNotFound', 'MediaFailed'),
                ('data', 'FailedCreate', 'MediaFailed')):
            vmi = fakes.vmi('Pending', of=vm, conditions=[fakes.condition(
                'Synchronized', 'False', reason,
                f'PVC lab/{claim} does not exist')])
            problem = (device_status.problem(found, vm_state.VmState(vm, vmi))
                       or power_state.problem(vm_state.VmState(vm, vmi)))
            self.assertEqual(expected, problem.reason)

    def test_ejected_medium_blocks_vmi(self):
        """A VMI created with a medium does not start without it."""
        vm = inserted()
        vm['spec']['runStrategy'] = 'Always'
        pending = fakes.vmi('Pending', of=vm)
        running = fakes.vmi(of=vm)
        self.assertIsNone(device_status.problem(
            {}, vm_state.VmState(vm, pending)))
        ejected = fakes.vm()
        ejected['spec']['runStrategy'] = 'Always'
        problem = device_status.problem({}, vm_state.VmState(ejected, pending))
        self.assertEqual('MediaEjected', problem.reason)
        self.assertIn('Cd', problem.message)
        self.assertIsNone(device_status.problem(
            {}, vm_state.VmState(ejected, running)))
        self.assertIsNone(device_status.problem({}, vm_state.VmState(ejected)))
        # While it is not deleted yet, the guest can still start.
        found = media_annotation.Record()
        found.obsolete[NAME] = 'dv-uid'
        media_annotation.write(ejected, found)
        self.assertIsNone(device_status.problem(
            {}, vm_state.VmState(ejected, pending)))
