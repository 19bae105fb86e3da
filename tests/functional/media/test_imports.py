# SPDX-License-Identifier: Apache-2.0
"""Imports of virtual media: progress, failures and clusters without CDI."""

import json
import os
import threading

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import media_case

R = power_state.ResetType
S = media_case.S
ON, OFF = machine_case.ON, machine_case.OFF


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


LateImportTestCase = lagging_controllers.lagging(
    ImportTestCase,
    'test_start_during_the_import_waits_for_it',
    'test_failed_import_says_why_and_blocks_nothing',
    'test_what_another_process_ejected_is_inserted_again')
