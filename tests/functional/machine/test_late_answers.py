# SPDX-License-Identifier: Apache-2.0
"""Changes whose response from the API server never comes, nor do reads.

The power actions are in ``test_faults``.
"""

from tests.fixtures import base
from tests.fixtures import bmc_pod

#: Paths of what a BMC reads and writes.
OBJECTS = '/(secrets|events|virtualmachines|virtualmachineinstances)'


class LateAnswersTestCase(base.SandboxTestCase):

    def test_commands_of_ipmi(self):
        """IPMI beside Redfish, whose accounts and log it shares."""
        pod = self.useFixture(bmc_pod.BmcPod(self.sandbox, plain=True))
        self.until(lambda: pod.ipmitool('power', 'status').returncode == 0)
        for line in ('chassis bootdev pxe', 'chassis identify force',
                     'user set name 3 bob',
                     'user set password 3 a-long-password', 'event 1'):
            self.sandbox.fault('silence', verb='WRITE', where=OBJECTS)
            # A command reads the objects once before its write.
            self.sandbox.fault('hang', verb='GET', where=OBJECTS, count=99,
                               after=2)
            pod.ipmi(*line.split())
            self.sandbox.clear_faults()
        self.assertIn('bob', pod.ipmi('user', 'list'))
        self.assertIn('Force PXE', pod.ipmi('chassis', 'bootparam', 'get',
                                            '5'))
        self.assertIn('Temperature', pod.ipmi('sel', 'elist'))
        self.assertIn('Success', pod.ipmi('user', 'test', '3', '20',
                                          'a-long-password'))
