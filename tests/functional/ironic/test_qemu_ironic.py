# SPDX-License-Identifier: Apache-2.0
"""Ironic deploys an ISO to a VM by virtual media and ejects it (QEMU).

The node's deploy interface is ``ramdisk``: Ironic inserts the ISO, boots the
machine from it and sets the node active. The machine's console shows what
booted. Ironic downloads the ISO and serves it from its own web server, which
is its default.
"""

import fixtures

from kubevirt_sandbox.testing import qemu
from kubevirt_sandbox.testing import webserver
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import ironic


class IronicDeployTestCase(qemu.QemuTestCase, base.SandboxTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), server='gunicorn', settings={
                # The web server with the images is on this host.
                'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True}))
        # The folder that Ironic's web server publishes.
        folder = cls.share(fixtures.TempDir()).path
        cls.ironic = cls.share(ironic.Ironic({'deploy': {
            'http_root': folder,
            'http_url': cls.share(webserver.files(folder)).url}}))

    def test_deploys_and_undeploys_iso(self):
        uuid = self.make('Halted')['spec']['template']['spec']['domain'][
            'firmware']['uuid']
        node = self.ironic.enrol(self.name, 'redfish', {
            'redfish_address': self.emulator.url,
            'redfish_system_id': '/redfish/v1/Systems/' + uuid})
        self.ironic.provision(node, 'provide', 'available')
        self.ironic.baremetal.update_node(node, instance_info={
            'boot_iso': self.web.url + 'iso'})

        self.ironic.provision(node, 'active', 'active', timeout=180)
        self.console.wait(qemu.ISO, timeout=120)
        media = self.media(uuid)
        self.assertTrue(media['Inserted'])
        self.assertEqual('On', self.emulator.system(uuid)['PowerState'])
        volume, = self.volumes() - {self.name}

        mark = self.console.mark()
        self.ironic.provision(node, 'deleted', 'available', timeout=180)
        media = self.media(uuid)
        self.assertFalse(media['Inserted'])
        self.assertIsNone(media['Image'])
        self.sandbox.wait('datavolumes', volume, lambda it: it is None)
        self.assertEqual({self.name}, self.volumes())
        self.assertEqual('Off', self.emulator.system(uuid)['PowerState'])

        # Without the ISO the machine boots from its disk.
        self.ironic.baremetal.set_node_boot_device(
            node, 'disk', persistent=True)
        self.ironic.power(node, 'power on', 'power on')
        self.console.wait(qemu.DISK, mark, timeout=120)

    def media(self, uuid):
        """Read the CD-ROM device of a system."""
        return self.emulator.request(
            'GET', f'/redfish/v1/Systems/{uuid}/VirtualMedia/Cd',
            expect=200).json()

    def volumes(self):
        """List the names of all DataVolumes."""
        return {each['metadata']['name']
                for each in self.sandbox.list('datavolumes')}
