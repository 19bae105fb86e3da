# SPDX-License-Identifier: Apache-2.0
"""Virtual media with the permissions of a BMC pod, limited to one VM."""

import itertools

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from tests.fixtures import concurrency
from tests.fixtures import machine_case
from tests.fixtures import media_case
from tests.fixtures import sandbox

S = media_case.S


class PodAccountMixin:
    """Mixin for BMCs of one machine each, with the account of its pod."""

    ALONE = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.accounts = {}

    def account_of(self, name):
        """Create the account that the operator gives the BMC of a VM."""
        if name not in self.accounts:
            vm = self.sandbox.get('virtualmachines', name)
            bmc = spec.read({
                'metadata': {'name': name, 'namespace': sandbox.NAMESPACE,
                             'uid': vm['metadata']['uid'], 'generation': 1},
                'spec': {'virtualMachine': {'name': name}}})
            for plural, made in (
                    ('serviceaccounts', rbac.account(bmc)),
                    ('secrets', rbac.state(vm)),
                    ('roles', rbac.role(bmc, True)),
                    ('rolebindings', rbac.binding(bmc))):
                # The owner, a VirtualMachineBMC, does not exist here. The
                # objects stay, so that no last call of a BMC is denied.
                made['metadata'].pop('ownerReferences', None)
                self.sandbox.create(plural, made)
            self.accounts[name] = self.sandbox.account(name + '-virtbmc')
        return self.accounts[name]

    def bmc_of(self, name, media_options=None, **settings):
        settings = {**dict(
            write_deadline=10, request_timeout=3, watch_backoff=0.5,
            gates_seconds=0), **settings}
        made = cluster.Cluster(
            sandbox.connect(self.account_of(name)),
            vm=f'{sandbox.NAMESPACE}/{name}', options=options.Options(
                media=options.MediaOptions(
                    **dict(self.MEDIA, **(media_options or {}))),
                **settings))
        self.addCleanup(made.close)
        made.wait_ready()
        return made

    def machine_alone(self, strategy='Halted', **settings):
        """Create a VM; return the handle of a BMC for it alone."""
        name = self.make(strategy, change=media_case.drop_medium)
        return self.handle(self.bmc_of(name, **settings), name)

    def private(self, name='n'):
        return self.source(self.url(f'private/{name}.iso'),
                           username=self.images.USER,
                           password=self.images.PASSWORD)


class PodAccountTestCase(PodAccountMixin, media_case.UploadingTestCase):

    def test_insert_replace_eject(self):
        machine = self.machine_alone()
        machine.insert_media('Cd', self.private())
        machine.insert_media('USBStick', self.source())
        for device in ('Cd', 'USBStick'):
            self.wait_state(machine, S.READY, device)
        made = self.sandbox.get('secrets', machine.name + '-bmc-cd-0')
        self.assertEqual(stored_names.IMAGE_SERVER, made['type'])
        # A replacement has its own Secret.
        machine.insert_media('Cd', self.private('o'))
        self.wait_state(machine, S.READY)
        self.until('one Secret', lambda: self.owned('secrets', machine) == [
            machine.name + '-bmc-cd-1', machine.name + '-bmc-state'])
        for device in ('Cd', 'USBStick'):
            machine.eject_media(device)
        self.until('nothing left', lambda: not self.data_volumes(machine)
                   and self.owned('secrets', machine) == [
                       machine.name + '-bmc-state'])

    def test_uploads(self):
        machine = self.machine_alone(
            media_options=dict(self.proxy, mode='upload'))
        machine.insert_media('Cd', self.private())
        self.wait_state(machine, S.READY)

    def test_certificates(self):
        machine = self.machine_alone()
        text = self.sandbox.upload_proxy()[1].read_text()
        number = machine.add_media_certificate('Cd', text).id
        self.assertEqual([text.strip()], [
            one.pem.strip() for one in machine.media_certificates('Cd')])
        machine.delete_media_certificate('Cd', number)
        self.assertIsNone(self.sandbox.get(
            'configmaps', machine.name + '-bmc-cd-ca'))

    def test_skips_names_of_existing_secrets(self):
        machine = self.machine_alone()
        slots = [f'{machine.name}-bmc-cd-{number}'
                 for number in range(2)]
        # Foreign Secrets stay, also one that looks like another insert's.
        for slot, type_ in zip(slots, ('Opaque', stored_names.IMAGE_SERVER)):
            self.sandbox.create('secrets', {
                'metadata': {'name': slot}, 'type': type_,
                'stringData': {'accessKeyId': 'a', 'secretKey': 'b'}})
            self.addCleanup(self.sandbox.delete, 'secrets', slot)
        before = [self.sandbox.get('secrets', slot) for slot in slots]
        machine.insert_media('Cd', self.private())
        self.assertEqual(machine.name + '-bmc-cd-2',
                         self.wait_state(machine, S.READY).data_volume)
        self.assertEqual(before, [self.sandbox.get('secrets', slot)
                                  for slot in slots])
        # An insert without a password does not read it.
        machine.eject_media('Cd')
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)

    def test_power_and_boot(self):
        machine = self.machine_alone()
        machine.set_boot(boot.Target.PXE, boot.Enabled.ONCE)
        machine.reset(power_state.ResetType.ON)
        self.becomes(machine, machine_case.ON)
        machine.reset(power_state.ResetType.FORCE_RESTART)
        machine.set_boot(boot.Target.HDD, boot.Enabled.CONTINUOUS)
        machine.reset(power_state.ResetType.FORCE_OFF)
        self.becomes(machine, machine_case.OFF)


class PodAccountFaultTestCase(PodAccountMixin, media_case.MediaTestCase):

    def test_insert_of_killed_bmc(self):
        name = self.make('Halted', change=media_case.drop_medium)
        for writes in itertools.count(1):
            finished = self.run_bmc(
                name, 'insert', 'Cd', self.images.url + '/private/k.iso',
                self.images.USER, self.images.PASSWORD, writes=writes)
            machine = self.handle(self.bmc_of(name, self.SOON), name)
            self.until('no unfinished insert', lambda: '"next"' not in (
                self.annotation(machine) or ''))
            if machine.medium('Cd') is not None:
                self.wait_state(machine, S.READY)
            else:
                self.until('nothing left',
                           lambda: not self.data_volumes(machine))
            machine.insert_media('Cd', self.private())
            self.wait_state(machine, S.READY)
            machine.eject_media('Cd')
            self.until('nothing left', lambda: self.owned(
                'secrets', machine) == [name + '-bmc-state'])
            machine.cluster.close()
            if finished:
                break
        self.assertGreater(writes, 3)

    def test_each_write_survives_each_fault(self):
        machine = self.machine_alone()
        for action, where in itertools.product(
                ('409', '503', 'drop-after'), ('datavolumes', 'secrets')):
            self.sandbox.clear_faults()
            self.sandbox.fault(action, verb='PATCH', where='/' + where)
            machine.insert_media('Cd', self.private())
            self.wait_state(machine, S.READY)
            machine.eject_media('Cd')
            self.assertEqual([1], self.fault_hits(), (action, where))
            self.until('nothing left',
                       lambda: not self.data_volumes(machine))

    def test_concurrent_inserts_of_two_bmcs(self):
        name = self.make('Halted', change=media_case.drop_medium)
        both = [self.handle(self.bmc_of(name), name) for _ in range(2)]
        for _ in range(4):
            found = concurrency.run_all(*[
                lambda one=one: one.insert_media('Cd', self.private())
                for one in both])
            for each in found:
                if isinstance(each, Exception):
                    self.assertIsInstance(each, errors.WrongState)
            medium = self.wait_state(both[0], S.READY)
            self.until('one DataVolume', lambda: [
                medium.data_volume] == self.data_volumes(both[0]))
            self.until('one Secret', lambda: self.owned(
                'secrets', both[0]) == [medium.data_volume,
                                        name + '-bmc-state'])
