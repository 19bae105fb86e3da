# SPDX-License-Identifier: Apache-2.0
"""What the BMC says of a medium that does not get to the guest, and why.

With the operator's BMCs, whose options have other names than the emulators';
``media/test_storage`` and ``media/test_drives`` have more causes.
"""

import json

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import webserver
from tests.fixtures import image_server
from tests.fixtures import media_case
from tests.fixtures import operator

DEVICE = '/redfish/v1/Systems/1/VirtualMedia/Cd'
JSON = '-H', 'Content-Type: application/json'


class MediaStatusTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        address = webserver.own_address()
        if address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        self.images = self.useFixture(image_server.ImageServer(address))

    def running(self, change=None):
        """Create a VM that runs, and its BMC."""
        vm = machines.vm('box', 'Always', self.namespace)
        if change is not None:
            change(vm['spec']['template']['spec'])
        self.sandbox.create('virtualmachines', vm, self.namespace)
        self.sandbox.wait_running('box', self.namespace)
        return self.bmc().ready()

    def insert(self, box, code, name='a.iso'):
        response = box.curl(
            DEVICE + '/Actions/VirtualMedia.InsertMedia', '-X', 'POST', *JSON,
            '-d', json.dumps({'Image': f'{self.images.url}/{name}'}))
        self.assertEqual(code, response.code, response.text)
        return response

    def device(self, box):
        return box.curl(DEVICE).json()

    def assert_pending(self, box, *texts):
        """Insert a medium that waits for the next start; check the message.

        In the response, the status, and the task.
        """
        response = self.insert(box, 200).json()
        device = self.device(box)
        task = box.curl(device['Oem']['SushyKubevirt']['Task'][
            '@odata.id']).json()
        for messages in (response['error']['@Message.ExtendedInfo'],
                         device['Status']['Conditions'], task['Messages']):
            [message] = [one['Message'] for one in messages
                         if one['MessageId'].endswith('ResetRequired')]
            for text in texts:
                self.assertIn(text, message)

    def wait_failed(self, box, *texts):
        """Wait until a medium failed; check the message of status and task."""
        self.until('failure', lambda: self.device(box)['Status']['Health'],
                   'Critical')
        device = self.device(box)
        task = box.curl(device['Oem']['SushyKubevirt']['Task'][
            '@odata.id']).json()
        self.assertEqual('Exception', task['TaskState'])
        for [message] in device['Status']['Conditions'], task['Messages']:
            for text in texts:
                self.assertIn(text, message['Message'])

    def storage_class(self, provisioner, **parameters):
        """Create a class; return its name, which is the namespace's."""
        self.admin.apply({
            'apiVersion': 'storage.k8s.io/v1', 'kind': 'StorageClass',
            'metadata': {'name': self.namespace}, 'provisioner': provisioner,
            'parameters': parameters})
        self.addCleanup(self.admin, 'delete', 'storageclass', self.namespace)
        return self.namespace

    def test_guest_without_cdrom(self):
        box = self.running(media_case.drop_drive)
        self.assert_pending(
            box, 'The running guest has no empty CD-ROM drive, so the drive '
            'bmc-cd was added to the VM.')

    def test_gate_is_off(self):
        self.sandbox.set_gates(off=['DeclarativeHotplugVolumes'])
        self.addCleanup(self.sandbox.set_gates)
        self.assert_pending(
            self.running(), "KubeVirt's feature gate "
            'DeclarativeHotplugVolumes is off; switch it on')

    def test_profile_without_access_modes(self):
        name = self.storage_class('example.test/unknown')
        box = self.bmc(virtualMedia={'storageClassName': name,
                                     'accessMode': 'auto'}).ready()
        self.insert(box, 204)
        self.wait_failed(
            box, f'no accessMode specified in StorageProfile {name}',
            'Set spec.virtualMedia.accessMode of VirtualMachineBMC '
            f'{self.namespace}/box, which is auto, to a mode',
            f'claimPropertySets to the spec of StorageProfile {name}')
        box.patch(virtualMedia={'accessMode': 'ReadWriteOnce'})
        box.current()
        self.insert(box, 204)
        self.until('claim', lambda: bool(self.kubectl.names('pvc')))

    @given_cluster.needs_sandbox('a storage class whose overhead is known')
    def test_overhead_larger_than_cdi_assumes(self):
        box = self.bmc(virtualMedia={'storageClassName': self.storage_class(
            'sandbox.sushy-kubevirt.openstack.org/file',
            filesystemOverhead='0.15')}).ready()
        name = f'size-{80 << 20}.iso'
        self.insert(box, 204, name)
        self.wait_failed(
            box, 'DataVolume too small to contain image',
            'Raise filesystemOverhead of the class in spec.config of the CDI '
            'object, or set annotation bmc.kubevirt.io/datavolume-size-margin',
            'insert the image again')
        old = self.kubectl.names('pods')
        self.kubectl('annotate', 'vmbmc', 'box',
                     'bmc.kubevirt.io/datavolume-size-margin=10')
        self.until('the old pod is gone', lambda: set(old).isdisjoint(
            self.kubectl.names('pods')))
        self.until('response', lambda: self.insert(box, 204, name).code, 204)
        self.until('image', lambda: self.device(box)['Status'], {
            'State': 'Enabled', 'Health': 'OK'})
