# SPDX-License-Identifier: Apache-2.0
"""Virtual media in clusters whose storage does not fit."""

import fixtures

from sushy_kubevirt.machine.media import claim_problem
from tests.fixtures import media_case

S = media_case.S

CLASSES = '/apis/storage.k8s.io/v1/storageclasses'
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
