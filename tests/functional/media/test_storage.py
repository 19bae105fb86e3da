# SPDX-License-Identifier: Apache-2.0
"""Virtual media in clusters whose storage does not fit."""

import fixtures

from kubevirt_sandbox.testing import given_cluster
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine import power_state
from tests.fixtures import media_case

S = media_case.S

CLASSES = '/apis/storage.k8s.io/v1/storageclasses'
CDI = '/apis/cdi.kubevirt.io/v1beta1'
DEFAULT = 'storageclass.kubernetes.io/is-default-class'


class StorageTestCase(media_case.MediaTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            claim_problem, 'SECONDS', 0.5))

    def insert(self, **chosen):
        machine = self.machine('Halted', self.bmc(chosen),
                               change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        return machine

    def failed(self, machine, reason, *texts):
        medium = self.wait_state(machine, S.FAILED)
        self.assertEqual(reason, medium.reason)
        for text in texts:
            self.assertIn(text, medium.message)

    def storage_class(self, name, **fields):
        self.sandbox.request('POST', CLASSES, {
            'metadata': {'name': name},
            'provisioner': 'sandbox.sushy-kubevirt.openstack.org/file',
            **fields}, expect=201)
        self.addCleanup(self.sandbox.request, 'DELETE', f'{CLASSES}/{name}')

    def configure_cdi(self, overhead):
        """Set the overhead that CDI assumes for the class ``other``."""
        self.sandbox.request('PATCH', CDI + '/cdis/cdi', {'spec': {'config': {
            'filesystemOverhead': overhead and {
                'storageClass': {'other': overhead}}}}}, expect=200,
            content_type='application/merge-patch+json')

    def set_default(self, value):
        self.sandbox.request('PATCH', CLASSES + '/standard', {
            'metadata': {'annotations': {DEFAULT: value}}}, expect=200,
            content_type='application/merge-patch+json')

    def test_no_default_storage_class(self):
        self.addCleanup(self.set_default, 'true')
        self.set_default('false')
        machine = self.insert()
        self.failed(machine, 'StorageClassMissing',
                    'no default storage class', 'storage_class')
        # The image is fetched as soon as there is one.
        self.set_default('true')
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_named_class_needs_no_default(self):
        self.addCleanup(self.set_default, 'true')
        self.set_default('false')
        machine = self.insert(storage_class='standard')
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_unknown_storage_class(self):
        machine = self.insert(storage_class='fast')
        self.failed(machine, 'ProvisioningFailed', '"fast" not found',
                    'storage_class')
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_block_device(self):
        machine = self.insert(volume_mode='Block', minimum_size=1)
        self.wait_state(machine, S.READY)
        claim = self.sandbox.get(
            'persistentvolumeclaims', machine.medium('Cd').data_volume)
        # Without the overhead of a file system.
        self.assertEqual(('Block', 1 << 20), (
            claim['spec']['volumeMode'], quantity.to_int(
                claim['spec']['resources']['requests']['storage'])))
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        machine.reset(power_state.ResetType.ON)
        self.assertEqual('Cd', self.sandbox.wait_boot(machine.name, 1)[
            'class'])
        machine.reset(power_state.ResetType.FORCE_OFF)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_read_write_many_only(self):
        self.storage_class('shared', parameters={
            'accessModes': 'ReadWriteMany'})
        machine = self.insert(storage_class='shared')
        self.failed(machine, 'ProvisioningFailed', '"shared"',
                    'access_mode', 'which is ReadWriteOnce')
        machine.eject_media('Cd')
        self.wait_clean(machine)
        for mode in 'ReadWriteMany', 'auto':
            machine = self.insert(storage_class='shared', access_mode=mode)
            self.wait_state(machine, S.READY)
            claim = self.sandbox.get(
                'persistentvolumeclaims', machine.medium('Cd').data_volume)
            self.assertEqual(['ReadWriteMany'], claim['spec']['accessModes'])
            machine.eject_media('Cd')
            self.wait_clean(machine)

    def test_profile_without_access_modes(self):
        self.storage_class('other', provisioner='example.test/unknown')
        machine = self.insert(storage_class='other', access_mode='auto')
        self.failed(
            machine, 'ErrClaimNotValid',
            'no accessMode specified in StorageProfile other',
            'Set access_mode, which is auto,',
            'claimPropertySets to the spec of StorageProfile other')
        # As the message says, either helps.
        self.sandbox.request(
            'PATCH', CDI + '/storageprofiles/other', {'spec': {
                'claimPropertySets': [{'accessModes': ['ReadWriteMany'],
                                       'volumeMode': 'Filesystem'}]}},
            expect=200, content_type='application/merge-patch+json')
        name = machine.medium('Cd').data_volume
        self.until('a claim', lambda: name in self.owned(
            'persistentvolumeclaims', machine))
        machine.eject_media('Cd')
        self.wait_clean(machine)

    @given_cluster.needs_sandbox('a storage class whose overhead is known')
    def test_overhead_larger_than_cdi_assumes(self):
        self.storage_class('other', parameters={'filesystemOverhead': '0.15'})
        chosen = {'storage_class': 'other', 'minimum_size': 1 << 20}
        machine = self.machine('Halted', self.bmc(chosen),
                               change=media_case.drop_medium)
        source = self.source(self.url(f'size-{20 << 20}.iso'))
        machine.insert_media('Cd', source)
        self.failed(machine, 'Error', 'DataVolume too small to contain image',
                    'more space than the overhead that CDI assumes',
                    'Raise filesystemOverhead of the class',
                    'or set size_margin, or set volume_mode to Block')
        # As the message says, each of these helps.
        for changed in {'size_margin': 12}, {'volume_mode': 'Block'}:
            other = self.machine(
                'Halted', self.bmc({**chosen, **changed}),
                change=media_case.drop_medium)
            other.insert_media('Cd', source)
            self.wait_state(other, S.READY)
            other.eject_media('Cd')
            self.wait_clean(other)
        self.addCleanup(self.configure_cdi, None)
        self.configure_cdi('0.15')
        self.until('overhead', lambda: self.sandbox.request(
            'GET', CDI + '/cdiconfigs/config').json()['status'][
                'filesystemOverhead']['storageClass']['other'] == '0.15')
        machine.insert_media('Cd', source)
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)
