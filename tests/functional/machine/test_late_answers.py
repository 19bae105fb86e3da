# SPDX-License-Identifier: Apache-2.0
"""Changes whose response from the API server never comes, nor do reads.

The power actions are in ``test_faults``.
"""

from kubevirt_sandbox.testing import machines
from tests.fixtures import base
from tests.fixtures import bmc_pod
from tests.fixtures import emulator
from tests.fixtures import vbmcd

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
            pod.ipmi(*line.split(), options=vbmcd.OWN_WAIT)
            self.sandbox.clear_faults()
        self.assertIn('bob', pod.ipmi('user', 'list'))
        self.assertIn('Force PXE', pod.ipmi('chassis', 'bootparam', 'get',
                                            '5'))
        self.assertIn('Temperature', pod.ipmi('sel', 'elist'))
        self.assertIn('Success', pod.ipmi('user', 'test', '3', '20',
                                          'a-long-password'))

    def test_settings_of_redfish(self):
        bmc = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE': 4}))
        vm = self.sandbox.create('virtualmachines', machines.vm(
            'late', 'Halted'))
        identity = machines.uuid_of(vm)
        bmc.wait_system(identity)
        values = {'AssetTag': 'rack 7', 'IndicatorLED': 'Lit',
                  'PowerRestorePolicy': 'AlwaysOff'}
        for name, value in values.items():
            self.sandbox.fault('silence', verb='WRITE', where=OBJECTS)
            self.sandbox.fault('hang', verb='GET', where=OBJECTS, count=99,
                               after=2)
            bmc.patch_system(identity, {name: value})
            self.sandbox.clear_faults()
        body = bmc.system(identity)
        self.assertEqual(values, {name: body[name] for name in values})

    def test_chassis_control_that_has_begun(self):
        """It is answered in time, whatever it still waits for."""
        bmc = self.useFixture(vbmcd.Vbmcd(
            self.sandbox.bmc_account(), {'kubevirt': {'write_deadline': 30}}))
        self.sandbox.create('virtualmachines', machines.vm(
            'begun', 'RerunOnFailure'))
        self.sandbox.wait_running('begun')
        bmc.add('begun')
        self.until(lambda: bmc.ipmi('begun', 'power', 'status').endswith(
            'on'))
        self.sandbox.fault('silence', verb='PUT', where='/begun/stop')
        self.assertEqual('Chassis Power Control: Down/Off',
                         bmc.ipmi('begun', 'power', 'off',
                                  options=vbmcd.OWN_WAIT))
        self.sandbox.clear_faults()
        self.sandbox.wait_stopped('begun')
