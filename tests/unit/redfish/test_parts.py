# SPDX-License-Identifier: Apache-2.0

import dataclasses

from sushy_kubevirt.kubevirt import errors
from sushy_kubevirt.kubevirt import inventory
from tests.unit.redfish import base
from tests.unit.redfish import fakes


class TestDevices(base.RedfishTestCase):

    def members(self, more):
        body = self.get(more)
        self.assertEqual(len(body['Members']), body['Members@odata.count'])
        return [member['@odata.id'] for member in body['Members']]

    def test_processors(self):
        paths = self.members('/Processors')
        self.assertEqual([self.path + '/Processors/CPU0',
                          self.path + '/Processors/CPU1'], paths)
        body = self.get(path=paths[1])
        self.assertEqual(paths[1], body['@odata.id'])
        self.assertEqual((3, 6), (body['TotalCores'], body['TotalThreads']))
        self.assertEqual(('x86', 'x86-64'), (body['ProcessorArchitecture'],
                                             body['InstructionSet']))
        self.assertEqual('Haswell', body['Model'])
        self.get('/Processors/CPU2', code=404)

    def test_processors_without_end(self):
        # KubeVirt takes that of a VM that is off.
        self.machine._inventory = inventory.Inventory(
            cpus=inventory.Cpus(sockets=10 ** 18), memory_bytes=0)
        self.assertEqual(10 ** 18,
                         self.get()['ProcessorSummary']['Count'])
        self.assertEqual(1024, len(self.members('/Processors')))
        self.get('/Processors/CPU0')
        self.get('/Processors/CPU9999', code=404)

    def test_interfaces(self):
        paths = self.members('/EthernetInterfaces')
        body = self.get(path=paths[0])
        self.assertEqual('02:00:00:00:00:01', body['MACAddress'])
        self.assertEqual([{'Address': '10.0.0.5'}], body['IPv4Addresses'])
        self.assertEqual([{'Address': 'fe80::1'}], body['IPv6Addresses'])
        self.assertEqual('LinkUp', body['LinkStatus'])
        body = self.get(path=paths[1])
        self.assertIsNone(body['MACAddress'])
        self.assertNotIn('IPv4Addresses', body)
        self.get('/EthernetInterfaces/none', code=404)

    def test_simple_storage(self):
        paths = self.members('/SimpleStorage')
        self.assertEqual([self.path + '/SimpleStorage/virtio',
                          self.path + '/SimpleStorage/sata'], paths)
        root, more = self.get(path=paths[0])['Devices']
        self.assertEqual(10 * 2 ** 30, root['CapacityBytes'])
        self.assertNotIn('CapacityBytes', more)
        [cd] = self.get(path=paths[1])['Devices']
        self.assertEqual('Absent', cd['Status']['State'])
        self.get('/SimpleStorage/none', code=404)

    def test_nothing_known(self):
        self.machine._inventory = inventory.Inventory(
            cpus=inventory.Cpus(), memory_bytes=512 * 2 ** 20)
        body = self.get()
        self.assertEqual(0.5, body['MemorySummary']['TotalSystemMemoryGiB'])
        for name in 'SerialNumber', 'HostName', 'Model':
            self.assertNotIn(name, body)
        self.assertEqual([], self.members('/SimpleStorage'))
        self.get('/Processors/CPU0')

    def test_architectures(self):
        for name, expected in (('arm64', 'ARM'), ('s390x', 'OEM')):
            self.machine._inventory = dataclasses.replace(
                fakes.INVENTORY, cpus=inventory.Cpus(architecture=name))
            self.assertEqual(expected, self.get('/Processors/CPU0')[
                'ProcessorArchitecture'])

    def test_storage_is_absent(self):
        for more in ('/Storage', '/Storage/1', '/Storage/1/Drives/1',
                     '/Storage/1/Volumes', '/Storage/1/Volumes/1'):
            self.get(more, code=404)
        self.send('POST', '/Storage/1/Volumes', {'Name': 'x'}, 404)

    def test_virtual_media_is_absent(self):
        self.assertEqual([], self.members('/VirtualMedia'))
        self.get('/VirtualMedia/Cd', code=404)
        self.send('POST', '/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia',
                  {'Image': 'http://127.0.0.1:1/x'}, 404)


class TestFirmware(base.RedfishTestCase):

    def test_bios(self):
        self.assertEqual({'QuietBoot': 'true'},
                         self.get('/Bios')['Attributes'])
        self.assertEqual({'QuietBoot': 'true'},
                         self.get('/Bios/Settings')['Attributes'])

    def test_upstreams_path(self):
        for more in '', '/Settings':
            self.assertEqual(self.get('/Bios' + more),
                             self.get('/BIOS' + more))
        self.send('PATCH', '/BIOS/Settings', {'Attributes': {'A': 1}}, 204)
        self.send('POST', '/BIOS/Actions/Bios.ResetBios', {}, 204)
        self.assertEqual(2, len(self.machine.calls))

    def test_change(self):
        self.send('PATCH', '/Bios/Settings',
                  {'Attributes': {'A': 'x', 'B': 2, 'C': True}}, 204)
        self.assertEqual([('set_attributes', {'A': 'x', 'B': 2, 'C': True})],
                         self.machine.calls)

    def test_bad_changes(self):
        for body, key in (
                ({}, 'PropertyMissing'),
                ({'Attributes': None}, 'PropertyValueTypeError'),
                ({'Attributes': ['x']}, 'PropertyValueTypeError'),
                ({'Attributes': {}}, 'NoOperation'),
                ({'Attributes': {'A': {}}}, 'PropertyValueTypeError'),
                ({'Attributes': {'A': float('nan')}},
                 'PropertyValueTypeError'),
                ({'Attributes': {'A': 'x'}, 'Other': 1}, 'PropertyUnknown')):
            found = self.send('PATCH', '/Bios/Settings', body, 400)
            self.assertEqual(key, self.entries(found)[0][0])
        self.assertEqual([], self.machine.calls)

    def test_reset(self):
        reset = '/Bios/Actions/Bios.ResetBios'
        self.assertEqual(204, self.client.post(
            self.path + reset).status_code)
        self.send('POST', reset, {}, 204)
        self.send('POST', reset, {'Now': True}, 400)
        self.assertEqual([('reset_attributes',)] * 2, self.machine.calls)

    def test_secure_boot(self):
        self.machine._secure = True
        body = self.get('/SecureBoot')
        self.assertIs(True, body['SecureBootEnable'])
        self.assertEqual('Enabled', body['SecureBootCurrentBoot'])
        self.send('PATCH', '/SecureBoot', {'SecureBootEnable': False}, 204)
        self.assertEqual([('set_secure_boot', False)], self.machine.calls)
        for value in 'false', 0, None:
            self.send('PATCH', '/SecureBoot', {'SecureBootEnable': value},
                      400)
        self.send('PATCH', '/SecureBoot', {'SecureBootMode': 'x'}, 400)
        self.machine.fails = errors.WrongState('it boots in Legacy mode')
        body = self.send('PATCH', '/SecureBoot', {'SecureBootEnable': True},
                         409)
        self.assertIn('Legacy', body['error']['message'])


class TestChassis(base.RedfishTestCase):

    CONFIG = {'SUSHY_EMULATOR_CHASSIS': [
        {'Id': '1', 'Name': 'First', 'UUID': fakes.OTHER[:-2] + '01'},
        {'Id': '2', 'Name': 'Second', 'UUID': fakes.OTHER[:-2] + '02'}]}

    def test_bodies(self):
        first, second = [
            member['@odata.id'] for member in
            self.get(path='/redfish/v1/Chassis')['Members']]
        body = self.get(path=first)
        self.assertEqual('First', body['Name'])
        self.assertEqual(
            [self.path, '/redfish/v1/Systems/' + fakes.B],
            [link['@odata.id'] for link in body['Links']['ComputerSystems']])
        self.assertEqual([], self.get(path=second)['Links'][
            'ComputerSystems'])
        self.get(path=first + '/Thermal', code=404)

    def test_nothing_to_set(self):
        path = self.get(path='/redfish/v1/Chassis')['Members'][0][
            '@odata.id']
        for body, key in (({'IndicatorLED': 'Lit'}, 'PropertyNotWritable'),
                          ({'Nonsense': 1}, 'PropertyUnknown'),
                          ({}, 'NoOperation')):
            answer = self.client.patch(path, json=body)
            self.assertEqual(400, answer.status_code)
            self.assertIn(key, answer.json['error']['code'])


class TestManager(base.RedfishTestCase):

    def test_body(self):
        path = '/redfish/v1/Managers/' + fakes.A
        body = self.get(path=path)
        self.assertEqual('vm-a-Manager', body['Name'])
        self.assertEqual([{'@odata.id': self.path}],
                         body['Links']['ManagerForServers'])
        answer = self.client.patch(path, json={
            'DateTime': '2020-01-01T00:00:00+00:00'})
        self.assertEqual(400, answer.status_code)
        self.assertIn('PropertyNotWritable', answer.json['error']['code'])
