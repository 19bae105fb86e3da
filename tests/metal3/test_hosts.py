# SPDX-License-Identifier: Apache-2.0
"""BareMetalHosts of the operator in baremetal-operator and Ironic."""

import hashlib

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures import file_servers
from tests.fixtures import ironic_agent
from tests.fixtures.metal3 import programs
from tests.fixtures import operator
from tests.metal3 import case


@operator.other_platforms
@given_cluster.needs_sandbox('addresses of Services that Ironic reaches')
@programs.needs_ironic
class HostsTestCase(case.Metal3TestCase):

    def test_redfish(self):
        self.make()
        self.wait_state('available')
        self.merge('bmh', 'n0', {'spec': {'online': True, 'image': self.iso}})
        self.wait_state('provisioned')
        self.sandbox.wait_boot('n0', 1, self.namespace)
        self.wait_power(True)
        self.kubectl('annotate', 'bmh', 'n0',
                     'reboot.metal3.io={"mode":"hard"}')
        self.sandbox.wait_boot('n0', 2, self.namespace, timeout=120)
        self.step('rebooted', lambda: (
            'reboot.metal3.io' in self.host()['metadata'].get(
                'annotations', {}), self.host()['status']['poweredOn']),
            (False, True))
        for online in False, True:
            self.merge('bmh', 'n0', {'spec': {'online': online}})
            self.wait_power(online)
        self.merge('bmh', 'n0', {'spec': {'image': None, 'online': False}})
        self.wait_state('available')
        self.delete()

    def test_qcow2(self):
        """The deploy ramdisk is a medium; its agent is a stand-in.

        Without RebootPolicy the disk is booted once, although the ramdisk
        shuts the guest down in its one-time boot.
        """
        self.sandbox.set_gates(off=('RebootPolicy',))
        self.addCleanup(self.sandbox.set_gates)
        content = b'QFI\xfb' + bytes(200000)
        server = self.useFixture(file_servers.Server(
            lambda handler: file_servers.send(handler, 200, content)))
        self.make()
        self.wait_state('available')
        self.merge('bmh', 'n0', {'spec': {'online': True, 'image': {
            'url': server.url + '/disk.qcow2', 'format': 'qcow2',
            'checksum': hashlib.sha256(content).hexdigest(),
            'checksumType': 'sha256'}}})
        self.assertEqual('Cd', self.sandbox.wait_boot(
            'n0', 1, self.namespace, timeout=120)['class'])
        [node] = self.ironic.baremetal.nodes()
        agent = self.useFixture(ironic_agent.Agent(
            self.ironic.url, node.id, 'write_image',
            lambda: self.sandbox.guest_does('n0', 'shutdown',
                                            self.namespace)))
        self.wait_state('provisioned')
        self.assertEqual(content, agent.image)
        self.assertEqual(['Cd', 'Hdd'], [
            boot['class']
            for boot in self.sandbox.boots('n0', self.namespace)])
        self.assertEqual([], self.sandbox.list('datavolumes',
                                               self.namespace))
        self.wait_power(True)
        self.merge('bmh', 'n0', {'spec': {'image': None, 'online': False}})
        self.wait_state('available')
        self.delete()

    def test_ipmi(self):
        """Metal3 does not inspect by IPMI without its ramdisk."""
        self.make(bareMetalHost={'protocol': 'IPMI'})
        self.wait_state('available')
        self.assertRegex(self.host()['spec']['bmc']['address'], '^ipmi://')
        for online in True, False, True:
            self.merge('bmh', 'n0', {'spec': {'online': online}})
            self.wait_power(online)
            (self.sandbox.wait_running if online
             else self.sandbox.wait_stopped)('n0', self.namespace)
        self.delete()
