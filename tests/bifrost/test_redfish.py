# SPDX-License-Identifier: Apache-2.0
"""Bifrost enrols and deploys a VM by Redfish, with a config drive."""

import json
import re

from kubevirt_sandbox.testing import qemu
from tests.bifrost import case

BIFROSTS = 'inventory/bifrost_inventory.py'
OURS = case.OURS / 'inventory' / 'sushy_kubevirt_inventory.py'


class RedfishTestCase(case.BifrostTestCase):

    def test_life_of_a_node(self):
        self.variables['test_vm_node_names'] = ['web', 'more']
        self.create()
        self.play('enroll-dynamic.yaml', BIFROSTS)
        self.assert_enrolled()

        # The same nodes, by our inventory.
        self.variables['instance_info'] = {
            'boot_iso': f'{self.web.url}/guest.iso'}
        console = self.console('web')
        self.play('deploy-dynamic.yaml', OURS)
        self.assertEqual('active', self.node.provision_state)
        self.assert_booted(console)

        # A VM with an instance is not deleted.
        self.play(case.CREATE, sushy_kubevirt_state='absent', expected=2)
        self.assertEqual('active', self.node.provision_state)
        self.assertEqual('vm/web', self.kubectl(
            'get', 'vm', '-o', 'name').strip().replace(
                'virtualmachine.kubevirt.io', 'vm'))

        mark = console.mark()
        self.play('redeploy-dynamic.yaml', OURS)
        self.assertEqual('active', self.node.provision_state)
        self.assert_booted(console, mark)
        console.send(b'\r~.')
        self.assertEqual(0, console.wait_end())

        self.play(case.UNPROVISION, BIFROSTS)
        self.assertEqual([], list(self.ironic.baremetal.nodes()))
        self.kubectl('wait', 'vm/web', '--timeout=60s',
                     '--for=jsonpath={.status.printableStatus}=Stopped')
        self.assertNotIn('web-bmc-cd', self.kubectl('get', 'datavolume',
                                                    '-o', 'name'))
        self.play(case.CREATE, sushy_kubevirt_state='absent')
        self.assert_nothing_remains()

    def create(self):
        self.assertEqual(4, self.play(case.CREATE)['localhost']['changed'])
        # Names are text in Bifrost's documentation.
        self.assertEqual(0, self.play(
            case.CREATE, test_vm_node_names='web more')[
                'localhost']['changed'])
        # It is not taken for 0, which would delete the VM.
        self.play(case.CREATE, test_vm_num_nodes='one', expected=2)
        for path in self.baremetal, self.home / 'nodes.json':
            self.assertEqual(0o600, path.stat().st_mode & 0o777)
        node, = json.loads(self.baremetal.read_text()).values()
        self.assertEqual(['baremetal'], node['host_groups'])
        self.assertEqual(
            {'cpu_arch': 'x86_64', 'cpus': '1', 'disk_size': '1',
             'ram': '256', 'capabilities': 'boot_mode:uefi'},
            node['properties'])
        self.mac = node['nics'][0]['mac']
        other, = json.loads(
            (self.home / 'nodes.json').read_text())['nodes']
        self.assertEqual(('web', self.mac),
                         (other['name'], other['ports'][0]['address']))

    @property
    def node(self):
        return self.ironic.baremetal.get_node('web')

    def assert_enrolled(self):
        node = self.node
        self.assertEqual(
            ('available', 'redfish', 'redfish-virtual-media'),
            (node.provision_state, node.driver, node.boot_interface))
        vm = self.kubectl.get('vm', 'web')
        self.assertEqual(vm['metadata']['uid'], node.id)
        self.assertEqual([self.mac], [one.address for one in
                                      self.ironic.baremetal.ports()])

    def assert_booted(self, console, mark=0):
        """Check that the ISO boots, and that it sees the config drive."""
        console.wait(re.escape(qemu.ISO.encode()) + b' by UEFI', mark, 300)
        # USB devices come up to seconds after their drivers.
        for _ in range(20):
            mark = console.mark()
            console.send(b'disks\r')
            console.wait(b'that was all', mark)
            if b' config-2 ' in console.output[mark:]:
                return
        self.fail('the guest does not see the config drive')
