# SPDX-License-Identifier: Apache-2.0
"""Bifrost enrols a VM by IPMI and starts its deployment.

The VM boots from the network. Nothing answers: this would take a network with
the DHCP and TFTP servers of Bifrost.
"""

import shutil

from kubevirt_sandbox.testing import images
from tests.bifrost import case

INVENTORY = 'inventory/bifrost_inventory.py'


class IpmiTestCase(case.BifrostTestCase):

    DRIVER = 'ipmi'

    def test_as_far_as_the_network_boot(self):
        self.variables['default_boot_mode'] = 'bios'
        for name in 'kernel', 'ramdisk':
            shutil.copy(images.iso(), self.published / name)
            self.variables.setdefault('instance_info', {})[
                name] = f'{self.web.url}/{name}'
        self.play(case.CREATE)
        self.play('enroll-dynamic.yaml', INVENTORY)
        node = self.ironic.baremetal.get_node('testvm1')
        self.assertEqual(('available', 'ipmi', 'pxe'), (
            node.provision_state, node.driver, node.boot_interface))

        console = self.console('testvm1')
        self.play('deploy-dynamic.yaml', INVENTORY)
        node = self.ironic.baremetal.get_node(node.id)
        self.assertEqual(('active', 'power on'),
                         (node.provision_state, node.power_state))
        # What would be served by TFTP.
        self.assertTrue((self.ironic.home / 'tftp' / node.id
                         / 'config').exists())
        console.wait(b'iPXE', timeout=300)
        console.send(b'\r~.')
        self.assertEqual(0, console.wait_end())

        self.play(case.UNPROVISION, INVENTORY)
        self.assertEqual([], list(self.ironic.baremetal.nodes()))
        self.play(case.CREATE, sushy_kubevirt_state='absent')
        self.assert_nothing_remains()
