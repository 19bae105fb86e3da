# SPDX-License-Identifier: Apache-2.0
"""CDI: what it knows of storage classes, and what it does not."""

from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import sandbox
from tests.functional import cdi

CLASSES = '/apis/storage.k8s.io/v1/storageclasses'
CDI = '/apis/cdi.kubevirt.io/v1beta1'
MIB = 1 << 20
SETS = [{'accessModes': ['ReadWriteMany'], 'volumeMode': 'Block'},
        {'accessModes': ['ReadWriteOnce'], 'volumeMode': 'Filesystem'}]


class StorageTest(cdi.CdiTestCase):

    def make_class(self, provisioner='example.test/unknown', **parameters):
        self.cluster.request('POST', CLASSES, {
            'metadata': {'name': 'other'}, 'provisioner': provisioner,
            'parameters': parameters}, expect=201)
        self.addCleanup(self.cluster.request, 'DELETE', CLASSES + '/other')

    def patch(self, path, spec):
        self.cluster.request(
            'PATCH', CDI + path, {'spec': spec},
            content_type=sandbox.MERGE_PATCH, expect=200)

    def of_class(self, size=64 * MIB, image=b'x' * 4096, **more):
        return self.create_volume(self.web.put('/a.iso', image), storage={
            'storageClassName': 'other', **more,
            'resources': {'requests': {'storage': str(size)}}})

    def wait_bound(self, name, message):
        def refused(volume):
            found = self.condition(volume, 'Bound')
            return found and found.get('reason') == 'ErrClaimNotValid'

        self.assertEqual(message, self.condition(
            self.wait_volume(name, refused), 'Bound')['message'])

    def test_profile_without_access_modes(self):
        self.make_class()
        name = self.of_class()
        self.wait_bound(name, 'no accessMode specified in StorageProfile '
                              'other')
        block = self.of_class(volumeMode='Block')
        self.wait_bound(block, 'no matching accessMode specified in '
                               'StorageProfile other')
        # CDI tries again.
        self.patch('/storageprofiles/other', {'claimPropertySets': SETS})
        for name, mode in ((name, 'Block'), (block, 'Block'), (
                self.of_class(accessModes=['ReadWriteOnce']), 'Filesystem')):
            self.wait_volume(name, lambda volume: 'claimName' in volume.get(
                'status', {}))
            self.assertEqual(mode, self.claim(name)['spec']['volumeMode'])

    def test_overhead(self):
        self.need_sandbox()
        self.make_class('sandbox.sushy-kubevirt.openstack.org/file',
                        filesystemOverhead='0.15')
        image = bytes(20 * MIB)
        self.assertEqual(
            'DataVolume too small to contain image',
            self.wait_error(self.of_class(20 * MIB, image)))
        self.patch('/cdis/cdi', {'config': {'filesystemOverhead': {
            'storageClass': {'other': '0.15'}}}})
        self.addCleanup(self.patch, '/cdis/cdi', {'config': {
            'filesystemOverhead': None}})
        for _ in polling.attempts(20):
            if self.cluster.request('GET', CDI + '/cdiconfigs/config').json()[
                    'status']['filesystemOverhead']['storageClass'][
                        'other'] == '0.15':
                break
        self.wait_phase(self.of_class(20 * MIB, image), 'Succeeded')

    def wait_error(self, name):
        """Wait until an import fails; return the message."""
        def failed(volume):
            found = self.condition(volume, 'Running')
            return found and found.get('reason') == 'Error'

        return self.condition(
            self.wait_volume(name, failed), 'Running')['message']
