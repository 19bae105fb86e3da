# SPDX-License-Identifier: Apache-2.0


from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from tests.unit.redfish import base
from tests.unit.redfish import fakes


class TestSensors(base.RedfishTestCase):

    def setUp(self):
        super().setUp()
        self.here = f'/redfish/v1/Chassis/{fakes.A}/Sensors'

    def states(self):
        members = self.get(path=self.here + '?$expand=.')['Members']
        self.assertEqual({None}, {member['Reading'] for member in members})
        return {member['Id']: (member['Status']['State'],
                               member['Status'].get('Health'))
                for member in members}

    def message(self, sensor):
        body = self.get(path=f'{self.here}/{sensor}')
        [condition] = body['Status']['Conditions']
        self.assertEqual(body['Status']['Health'], condition['Severity'])
        return condition['Message']

    def test_vm_that_is_off(self):
        chassis = self.get(path=f'/redfish/v1/Chassis/{fakes.A}')
        self.assertEqual({'@odata.id': self.here}, chassis['Sensors'])
        self.assertEqual(
            {'Power': ('StandbyOffline', 'OK'), 'Node': ('Enabled', 'OK'),
             'Disks': ('Enabled', 'OK'), 'Cd': ('Absent', None),
             'USBStick': ('Absent', None)}, self.states())
        self.get(path=self.here + '/none', code=404)

    def test_vm_that_cannot_start(self):
        self.machine._problem = power_state.Problem(
            'ErrorUnschedulable', '0/1 nodes are available')
        self.assertEqual(('UnavailableOffline', 'Critical'),
                         self.states()['Power'])
        self.assertIn('0/1 nodes are available', self.message('Power'))

    def test_only_the_sensor_of_a_fault_is_critical(self):
        self.machine._power = power_state.PowerState.PAUSED
        for sensor, reason in (('Disks', power_state.IO_ERROR),
                               ('Node', power_state.NODE_LOST)):
            self.machine._impairment = power_state.Problem(reason, 'it broke')
            # The system's status shows every fault.
            self.assertEqual(
                {'Power', sensor},
                {name for name, (_, health) in self.states().items()
                 if health == 'Critical'})
            self.assertIn('it broke', self.message(sensor))

    def test_media(self):
        self.machine.media['Cd'] = fakes.MEDIUM
        self.assertEqual(('Updating', 'OK'), self.states()['Cd'])
        self.machine.media['Cd'] = fakes.MEDIUM._replace(
            state=media.State.FAILED, message='404 Not Found')
        self.assertEqual(('Enabled', 'Critical'), self.states()['Cd'])
