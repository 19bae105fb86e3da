# SPDX-License-Identifier: Apache-2.0
"""Virtual media with killed processes, races, API faults and many users."""

import itertools
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.fixtures import concurrency
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import media_case

R = power_state.ResetType
S = media_case.S

KIND = {'apiVersion': 'cdi.kubevirt.io/v1beta1', 'kind': 'DataVolume'}


class KilledTestCase(media_case.MediaTestCase):
    """A BMC is killed after each of its writes; another one continues."""

    def run_killed(self, machine, *words):
        """Repeat an action, killed one write later each time.

        :yields: whether the action finished, after each time
        """
        for writes in itertools.count(1):
            finished = self.run_bmc(machine.name, *words, writes=writes)
            yield finished
            if finished:
                self.assertGreater(writes, 2)
                return

    def wait_only(self, machine, expected):
        """Wait until exactly these DataVolumes and their claims exist."""
        last = []

        def is_expected():
            last[:] = [self.data_volumes(machine), self.owned(
                'persistentvolumeclaims', machine)]
            return all(each == sorted(expected()) for each in last)

        self.until('expected DataVolumes and claims', is_expected)

    def test_insert_of_killed_bmc(self):
        bmc = self.bmc(reconcile=False)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        url = self.images.url + '/private/k.iso'
        for finished in self.run_killed(
                machine, 'insert', 'Cd', url, self.images.USER,
                self.images.PASSWORD):
            successor = self.bmc(self.SOON)
            other = successor.machine(machine.name)
            self.until('no unfinished insert', lambda: '"next"' not in (
                self.annotation(machine) or ''))
            medium = other.medium('Cd')
            if finished:
                self.assertIsNotNone(medium)
            if medium is None:
                self.wait_clean(machine)
            else:
                self.wait_state(other, S.READY)
                self.wait_only(machine, lambda: [medium.data_volume])
            # The next insert works in each case.
            other.insert_media('Cd', self.source())
            self.wait_state(other, S.READY)
            other.eject_media('Cd')
            self.wait_clean(machine)
            successor.close()

    def test_replacement_by_killed_bmc(self):
        bmc = self.bmc(reconcile=False)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        for number in itertools.count():
            url = self.url()
            finished = self.run_bmc(machine.name, 'insert', 'Cd', url,
                                    writes=number + 1)
            successor = self.bmc(self.SOON)
            other = successor.machine(machine.name)
            self.until('no unfinished insert', lambda: '"next"' not in (
                self.annotation(machine) or ''))
            self.wait_state(other, S.READY)
            medium = other.medium('Cd')
            self.wait_only(machine, lambda: [medium.data_volume])
            if finished:
                self.assertEqual(url, medium.url)
                break
            successor.close()
        self.assertGreater(number, 3)

    def test_eject_by_killed_bmc(self):
        machine = self.machine('Halted', self.bmc(reconcile=False),
                               change=media_case.drop_drive)
        for number in itertools.count(1):
            machine.insert_media('Cd', self.source())
            finished = self.run_bmc(machine.name, 'eject', 'Cd', writes=number)
            successor = self.bmc(self.SOON)
            self.assertIsNone(successor.machine(machine.name).medium('Cd'))
            self.wait_clean(machine)
            successor.close()
            if finished:
                break
        self.assertGreater(number, 2)

    def test_insert_does_not_wait_for_unfinished_one(self):
        bmc = self.bmc({'lapse_seconds': 20})
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        self.run_bmc(machine.name, 'insert', 'Cd', self.url(), writes=2)
        began = time.monotonic()
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        self.assertLess(time.monotonic() - began, 18)
        self.wait_only(machine, lambda: [machine.medium('Cd').data_volume])
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_insert_after_many_killed_bmcs(self):
        # Each leaves a reservation that does not lapse in this test.
        bmc = self.bmc({'lapse_seconds': 60}, reconcile=False)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        for number in range(5):
            self.run_bmc(machine.name, 'insert', 'Cd', self.url(),
                         writes=1 + number % 3)
        machine.insert_media('Cd', self.source())
        self.assertEqual([machine.medium('Cd').data_volume],
                         self.data_volumes(machine))
        machine.eject_media('Cd')
        self.assertEqual([], self.data_volumes(machine))

    def test_deleted_vm_leaves_no_objects(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('Cd', self.source(
            self.images.url + '/private/d.iso', username=self.images.USER,
            password=self.images.PASSWORD))
        machine.insert_media('USBStick', self.source())
        self.wait_state(machine, S.READY)
        self.assertEqual(2, len(self.data_volumes(machine)))
        self.sandbox.delete('virtualmachines', machine.name)
        for plural in ('datavolumes', 'persistentvolumeclaims', 'secrets'):
            self.until('no ' + plural,
                       lambda: not self.owned(plural, machine))


class RaceTestCase(media_case.MediaTestCase):

    def test_concurrent_insert_and_eject(self):
        one, two = self.bmc(), self.bmc()
        machine = self.machine('Halted', one, change=media_case.drop_medium)
        other = two.machine(machine.name)
        for number in range(6):
            def eject():
                time.sleep(number * 0.012)
                other.eject_media('Cd')

            inserted, ejected = concurrency.run_all(
                lambda: machine.insert_media('Cd', self.source()), eject)
            self.assertIsNone(ejected)
            if isinstance(inserted, Exception):
                self.assertIsInstance(inserted, errors.WrongState)
                self.assertIsNone(machine.medium('Cd'))
                self.wait_clean(machine)
            machine.eject_media('Cd')
            self.wait_clean(machine)

    def test_concurrent_inserts(self):
        bmcs = [self.bmc(), self.bmc()]
        machine = self.machine('Halted', bmcs[0],
                               change=media_case.drop_medium)
        for _ in range(4):
            found = concurrency.run_all(*[
                lambda bmc=bmc: bmc.machine(machine.name).insert_media(
                    'Cd', self.source()) for bmc in bmcs])
            for each in found:
                if isinstance(each, Exception):
                    self.assertIsInstance(each, errors.WrongState)
            medium = self.wait_state(machine, S.READY)
            self.until('one DataVolume', lambda: [
                medium.data_volume] == self.data_volumes(machine))
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_concurrent_inserts_of_two_devices(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        found = concurrency.run_all(*[
            lambda device=device: machine.insert_media(device, self.source())
            for device in ('Cd', 'USBStick')])
        self.assertEqual(
            [], [e for e in found if isinstance(e, Exception)])
        for device in ('Cd', 'USBStick'):
            self.wait_state(machine, S.READY, device)
        self.assertEqual([None, None], concurrency.run_all(*[
            lambda device=device: machine.eject_media(device)
            for device in ('Cd', 'USBStick')]))
        self.wait_clean(machine)

    def test_insert_and_boot_override_at_once(self):
        one, two = self.bmc(), self.bmc()
        for _ in range(3):
            machine = self.machine('Halted', one,
                                   change=media_case.drop_drive)
            other = self.handle(two, machine.name)
            found = concurrency.run_all(
                lambda: machine.insert_media('Cd', self.source()),
                lambda: other.set_boot(boot.Target.PXE, boot.Enabled.ONCE))
            self.assertIsNone(found[1])
            self.assertFalse(isinstance(found[0], Exception), found[0])
            machine.reset(R.ON)
            self.assertEqual('Pxe', self.sandbox.wait_boot(
                machine.name, 1)['class'])
            self.becomes(machine, machine_case.ON)
            concurrency.run_all(
                lambda: machine.eject_media('Cd'),
                lambda: self.until(
                    'over',
                    lambda: other.boot().enabled is boot.Enabled.DISABLED,
                ),
            )
            self.wait_clean(machine)
            devices = self.sandbox.vm(machine.name)['spec']['template'][
                'spec']['domain']['devices']
            self.assertFalse([each for each in devices['disks']
                              + devices['interfaces']
                              if 'bootOrder' in each])

    def test_hundred_inserts_leave_no_objects(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        for _ in range(100):
            machine.insert_media('Cd', self.source())
            machine.eject_media('Cd')
        self.wait_clean(machine)
        self.assertEqual([], self.data_volumes())

    def test_twenty_machines_at_once(self):
        bmc = self.bmc()
        names = [self.make('Halted', change=media_case.drop_medium)
                 for _ in range(20)]
        each = [self.handle(bmc, name) for name in names]
        found = concurrency.run_all(*[
            lambda machine=machine: machine.insert_media('Cd', self.source())
            for machine in each])
        self.assertEqual(
            [], [e for e in found if isinstance(e, Exception)])
        for machine in each:
            self.wait_state(machine, S.READY)
        self.assertEqual(20, len(self.data_volumes()))
        self.assertEqual([None] * 20, concurrency.run_all(*[
            lambda machine=machine: machine.eject_media('Cd')
            for machine in each]))
        for machine in each:
            self.wait_clean(machine)


class FaultTestCase(media_case.MediaTestCase):

    def test_each_write_survives_each_fault(self):
        bmc = self.bmc()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        for action, where in itertools.product(
                machine_case.WRITE_FAULTS,
                ('datavolumes', 'secrets', 'virtualmachines')):
            self.sandbox.clear_faults()
            for verb in ('POST', 'PATCH', 'DELETE'):
                self.sandbox.fault(action, verb=verb,
                                   where='/' + where)
            machine.insert_media('Cd', self.source(
                self.url('private/b.iso'), username=self.images.USER,
                password=self.images.PASSWORD))
            self.wait_state(machine, S.READY)
            machine.eject_media('Cd')
            self.assertTrue(any(self.fault_hits()), (action, where))
            self.wait_clean(machine)
        self.sandbox.clear_faults()

    def test_uses_next_free_name(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        name = machine.name + '-bmc-cd-%d'
        blank = {'source': {'blank': {}}, 'storage': {
            'resources': {'requests': {'storage': '1Mi'}}}}
        self.sandbox.create('datavolumes', {
            **KIND, 'metadata': {'name': name % 0}, 'spec': blank})
        self.addCleanup(self.sandbox.delete, 'datavolumes', name % 0)
        self.sandbox.wait('persistentvolumeclaims', name % 0, bool)
        self.sandbox.create('persistentvolumeclaims', {
            'metadata': {'name': name % 1}, 'spec': {
                'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '1Mi'}}}})
        self.addCleanup(self.sandbox.delete, 'persistentvolumeclaims',
                        name % 1)
        machine.insert_media('Cd', self.source(
            self.url('private/n.iso'), username=self.images.USER,
            password=self.images.PASSWORD))
        self.assertEqual(name % 2, self.wait_state(machine,
                                                   S.READY).data_volume)
        machine.eject_media('Cd')
        self.until('no DataVolume', lambda: not self.sandbox.get(
            'persistentvolumeclaims', name % 2))
        self.assertTrue(self.sandbox.get('datavolumes', name % 0))
        self.assertTrue(self.sandbox.get('persistentvolumeclaims', name % 1))
        # Now all names are taken.
        self.sandbox.create('datavolumes', {
            **KIND, 'metadata': {'name': name % 2}, 'spec': blank})
        self.addCleanup(self.sandbox.delete, 'datavolumes', name % 2)
        self.sandbox.wait('persistentvolumeclaims', name % 2, bool)
        e = self.assertRaises(
            errors.WrongState, machine.insert_media, 'Cd', self.source(
                self.url('private/n.iso'), username=self.images.USER,
                password=self.images.PASSWORD))
        self.assertIn(name % 2, str(e))
        self.until('no annotation',
                   lambda: not self.annotation(machine))
        self.assertTrue(self.sandbox.get('datavolumes', name % 2))

    def test_existing_claims_are_not_used(self):
        """An existing claim must not be used for a new image.

        CDI would use the claim of an earlier DataVolume of the same name.
        """
        bmc = self.bmc(write_deadline=6)
        machine = self.machine(bmc=bmc)
        names = [f'{machine.name}-bmc-cd-{number}'
                 for number in range(3)]
        for name in names:
            self.hold_claim(name)
        e = self.assertRaises(errors.Conflict, machine.insert_media, 'Cd',
                              self.source())
        self.assertIn('still exist', str(e))
        self.assertEqual([], self.data_volumes(machine))
        self.release_claim(names[1])
        machine.insert_media('Cd', self.source())
        self.assertEqual([names[1]], self.data_volumes(machine))
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        for name in names[0], names[2]:
            self.release_claim(name)
        self.wait_clean(machine)

    def hold_claim(self, name):
        """Create a claim that outlives its deleted DataVolume."""
        self.sandbox.create('datavolumes', {
            'apiVersion': 'cdi.kubevirt.io/v1beta1', 'kind': 'DataVolume',
            'metadata': {'name': name, 'annotations': {
                'cdi.kubevirt.io/storage.bind.immediate.requested': 'true'}},
            'spec': {'source': {'blank': {}}, 'storage': {
                'resources': {'requests': {'storage': '1Mi'}}}}})
        self.sandbox.wait('persistentvolumeclaims', name, bool)
        self.sandbox.patch('persistentvolumeclaims', name, {
            'metadata': {'finalizers': ['test.example/held']}})
        self.addCleanup(self.release_claim, name)
        self.sandbox.delete('datavolumes', name)
        self.sandbox.wait('persistentvolumeclaims', name, lambda it: it[
            'metadata'].get('deletionTimestamp'))

    def release_claim(self, name):
        if self.sandbox.get('persistentvolumeclaims', name):
            self.sandbox.patch('persistentvolumeclaims', name, {
                'metadata': {'finalizers': None}})
            self.sandbox.wait('persistentvolumeclaims', name,
                              lambda it: it is None)

    def test_annotation_cannot_delete_foreign_objects(self):
        machine = self.machine('Halted', self.bmc(self.SOON),
                               change=media_case.drop_medium)
        name = machine.name + '-bmc-cd-0'
        made = self.sandbox.create('datavolumes', {
            **KIND, 'metadata': {'name': name},
            'spec': {'source': {'blank': {}}, 'storage': {
                'resources': {'requests': {'storage': '1Mi'}}}}})
        self.addCleanup(self.sandbox.delete, 'datavolumes', name)
        self.sandbox.patch('virtualmachines', machine.name, {
            'metadata': {'annotations': {
                'sushy-kubevirt.openstack.org/media':
                    '{"gone":{"%s":""},"next":7,"media":{"Cd":[]}}' % name}}})
        self.until('no annotation', lambda: not self.annotation(machine))
        self.sandbox.patch('virtualmachines', machine.name, {
            'metadata': {'annotations': {
                'sushy-kubevirt.openstack.org/media': '{"gone":{"%s":"%s"}}'
                % (name, made['metadata']['uid'])}}})
        self.until('no annotation', lambda: not self.annotation(machine))
        self.assertEqual(made['metadata']['uid'], self.sandbox.get(
            'datavolumes', name)['metadata']['uid'])

    def test_volume_removed_by_another_client(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        volumes = self.sandbox.vm(machine.name)['spec']['template']['spec'][
            'volumes']
        index = [each['name'] for each in volumes].index('cd')
        self.sandbox.patch('virtualmachines', machine.name, [{
            'op': 'remove', 'path': f'/spec/template/spec/volumes/{index}'}])
        self.until('no medium', lambda: machine.medium('Cd') is None)
        self.wait_clean(machine)

    def test_data_volume_deleted_by_another_client(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        url = self.url()
        self.slow(url, delay=30)
        machine.insert_media('Cd', self.source(url))
        self.sandbox.delete('datavolumes',
                            machine.medium('Cd').data_volume)
        self.assertEqual('DataVolumeNotFound',
                         self.wait_state(machine, S.FAILED).reason)
        # So does a BMC that starts after the deletion.
        other = self.bmc().machine(machine.name)
        self.wait_state(other, S.FAILED)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)


LateRaceTestCase = lagging_controllers.lagging(
    RaceTestCase,
    'test_concurrent_insert_and_eject',
    'test_twenty_machines_at_once')
