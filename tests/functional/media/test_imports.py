# SPDX-License-Identifier: Apache-2.0
"""Imports of virtual media: progress, failures and clusters without CDI."""

import json

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import media_case
from tests.fixtures import sandbox

R = power_state.ResetType
S = media_case.S
ON, OFF = machine_case.ON, machine_case.OFF


class ImportTestCase(media_case.MediaTestCase):

    def test_every_bmc_shows_progress(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        url = self.url('size-8000000.iso')
        with self.images.hold('size-8000000'):
            machine.insert_media('Cd', self.source(url))
            medium = self.wait_state(machine, S.IMPORTING)
            self.assertEqual(url, medium.url)
            self.assertTrue(machine.cluster.media.wait(
                lambda: machine.medium('Cd').progress, 30))
            # Another process sees the same.
            other = self.bmc().machine(machine.name)
            self.wait_state(other, S.IMPORTING)
        self.wait_state(machine, S.READY)
        self.wait_state(other, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_bmc_for_one_vm_watches_by_name(self):
        names = [self.make('Halted', change=media_case.drop_medium)
                 for _ in range(2)]
        bmcs = []
        for name in names:
            bmcs.append(cluster.Cluster(
                self.connection, vm=f'{sandbox.NAMESPACE}/{name}',
                options=options.Options(media=options.MediaOptions(
                    **self.MEDIA))))
            self.addCleanup(bmcs[-1].close)
        one, two = [self.handle(bmc, name)
                    for bmc, name in zip(bmcs, names)]
        with self.images.hold('.'):
            for machine in (one, two):
                machine.insert_media('Cd', self.source())
            self.assertEqual(
                [(sandbox.NAMESPACE, one.medium('Cd').data_volume)],
                list(bmcs[0].media.volumes._watchers))
        for machine in (one, two):
            self.wait_state(machine, S.READY)
            machine.eject_media('Cd')
            self.wait_clean(machine)

    def test_start_waits_for_import(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        with self.images.hold('.'):
            machine.insert_media('Cd', self.source())
            machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
            machine.reset(R.ON)
            self.stays(lambda: not self.sandbox.boots(machine.name), 0.4)
        booted = self.sandbox.wait_boot(machine.name, 1)
        self.assertEqual('cdrom:cd', booted['device'])
        self.assertIsNone(machine.problem())

    def test_option_wait_returns_after_import(self):
        bmc = self.bmc({'wait': True})
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        source = self.source()
        self.slow(source.url, delay=0.5)
        self.assertEqual(S.READY, machine.insert_media('Cd', source).state)
        source = self.failing()
        e = self.assertRaises(errors.MediaUnreachable, machine.insert_media,
                              'Cd', source)
        self.assertIn('404', str(e))
        # An error means that there is no medium.
        self.assertIsNone(machine.medium('Cd'))
        self.wait_clean(machine)

    def failing(self):
        """Return a source that disappears after its HEAD request."""
        source = self.source()
        self.images.missing = source.url.rpartition('/')[2]
        self.addCleanup(setattr, self.images, 'missing', None)
        return source

    def test_failed_import_is_explained_and_repeatable(self):
        bmc = self.bmc()
        changes = self.changes(bmc)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        source = self.failing()
        machine.insert_media('Cd', source)
        medium = self.wait_state(machine, S.FAILED)
        self.assertEqual('Error', medium.reason)
        self.assertIn('404', medium.message)
        self.assertEqual(source.url, medium.url)
        # Repeated failures are not reported again.
        before = len(changes)
        self.stays(lambda: machine.medium('Cd').state is S.FAILED, 1.5)
        self.assertEqual(
            [], [each for each in changes[before:]
                 if each[3] is None or each[3].state is not S.FAILED])
        machine.reset(R.ON)
        self.until('problem', machine.problem)
        self.assertEqual('MediaFailed', machine.problem().reason)
        self.assertIn('404', machine.problem().message)
        # An insert of the same image starts another import.
        machine.insert_media('Cd', source)
        self.assertNotEqual(medium.task, machine.medium('Cd').task)
        self.images.missing = None
        self.wait_state(machine, S.READY)
        machine.reset(R.FORCE_OFF)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_failed_import_recovers(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('Cd', self.failing())
        self.wait_state(machine, S.FAILED)
        self.images.missing = None
        self.wait_state(machine, S.READY)

    def test_eject_of_failed_import_lets_vm_start(self):
        machine = self.machine('Manual', change=media_case.drop_medium)
        machine.insert_media('Cd', self.failing())
        self.wait_state(machine, S.FAILED)
        machine.reset(R.ON)
        self.until('problem', machine.problem)
        machine.eject_media('Cd')
        machine.reset(R.FORCE_OFF)
        self.until('off', lambda: self.uid(machine.name) is None)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.wait_clean(machine)

    def test_insert_of_same_image_changes_nothing(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        source = self.source()
        machine.insert_media('Cd', source)
        first = self.wait_state(machine, S.READY)
        self.wait_recorded(machine)
        vm = self.sandbox.vm(machine.name)
        self.sandbox.reset_stats()
        self.assertEqual(first, machine.insert_media('Cd', source))
        # One read, because another process may have ejected it.
        self.assertEqual(['get'], list(self.sandbox.calls()))
        self.assertEqual(vm, self.sandbox.vm(machine.name))

    def test_inserts_again_after_eject_by_another_bmc(self):
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
        self.wait_clean(machine)

    def test_exceeded_quota_is_explained(self):
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
            medium = self.wait_state(machine, S.FAILED)
            self.assertIn('quota', medium.message)
            self.assertEqual('ErrExceededQuota', medium.reason)
            machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_refused_insert_creates_nothing(self):
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
        self.assertIsNone(self.annotation(machine))
        self.assertEqual([], self.data_volumes(machine))

    def test_only_secret_contains_credentials(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        source = self.source(
            self.images.url + '/private/p.iso',
            username=self.images.USER, password=self.images.PASSWORD)
        machine.insert_media('Cd', source)
        medium = self.wait_state(machine, S.READY)
        [name] = self.owned('secrets', machine)
        self.assertEqual(f'{medium.data_volume}-{medium.task}', name)
        # Only the Secret contains them.
        for plural in ('virtualmachines', 'datavolumes',
                       'persistentvolumeclaims', 'events'):
            self.assertNotIn(self.images.PASSWORD,
                             json.dumps(self.sandbox.list(plural)))
        machine.eject_media('Cd')
        self.wait_clean(machine)
        # Credentials in the URL have the same effect.
        machine.insert_media('Cd', self.source(source.url.replace(
            '://', f'://{self.images.USER}:{self.images.PASSWORD}@')))
        self.assertEqual(source.url, self.wait_state(machine, S.READY).url)

    def wait_recorded(self, machine):
        """Wait until the VM's annotation records a complete medium."""
        self.until('complete medium', lambda: '"ready":true' in (
            self.annotation(machine) or ''))

    def test_reads_of_complete_medium_make_no_api_call(self):
        bmc = self.bmc()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        self.wait_recorded(machine)
        self.until('no watch', lambda: not bmc.media.volumes._watchers)
        self.sandbox.reset_stats()
        for _ in range(5):
            self.assertEqual(S.READY, machine.medium('Cd').state)
            machine.boot()
            machine.problem()
            machine.media_certificates('Cd')
        self.assertEqual({}, self.sandbox.calls())
        # A process started now reads the same from the annotation.
        self.assertEqual(S.READY, self.bmc().machine(
            machine.name).medium('Cd').state)

    def test_every_bmc_reports_changes(self):
        one, two = self.bmc(), self.bmc()
        changes = [self.changes(one), self.changes(two)]
        machine = self.machine('Halted', one, change=media_case.drop_medium)

        def own(each):
            # VMs of other tests may still be in deletion.
            return [one[2:] for one in each if one[0] == machine.name]

        def states(each):
            return [new and new.state for _, new in own(each)]

        machine.insert_media('Cd', self.source())
        for each in changes:
            self.until('import', lambda: S.READY in states(each))
        machine.eject_media('Cd')
        for each in changes:
            self.until('eject', lambda: states(each)[-1] is None)
            self.assertIsNone(own(each)[0][0])
            self.assertNotIn(S.FAILED, states(each))

    def test_new_bmc_reports_existing_medium_as_unchanged(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        self.wait_recorded(machine)
        changes = self.changes(self.bmc())
        self.until('change', lambda: [
            each for each in changes if each[0] == machine.name])
        [(_, _, old, new)] = [each for each in changes
                              if each[0] == machine.name]
        self.assertEqual(old, new)
        self.assertEqual(machine.medium('Cd'), new)


class NoCdiTestCase(media_case.MediaTestCase):

    SANDBOX_ARGUMENTS = ('--no-cdi',)

    def data_volumes(self, machine=None):
        return []

    def test_insert_without_cdi_is_unsupported(self):
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


LateImportTestCase = lagging_controllers.lagging(
    ImportTestCase,
    'test_start_waits_for_import',
    'test_failed_import_is_explained_and_repeatable',
    'test_inserts_again_after_eject_by_another_bmc')
