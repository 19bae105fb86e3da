# SPDX-License-Identifier: Apache-2.0
"""BareMetalHosts of the operator in baremetal-operator and Ironic."""

from kubevirt_sandbox.testing import given_cluster
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
