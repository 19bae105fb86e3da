# SPDX-License-Identifier: Apache-2.0

import datetime

import fixtures

from sushy_kubevirt.bmc import interfaces
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import inventory
from tests.unit.bmc import fake_state
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

    def test_limits_number_of_processors(self):
        # KubeVirt accepts this number for a VM that is off.
        self.machine._inventory = inventory.Inventory(
            cpus=inventory.Cpus(sockets=10 ** 18), memory_bytes=0)
        self.assertEqual(10 ** 18,
                         self.get()['ProcessorSummary']['Count'])
        self.assertEqual(1024, len(self.members('/Processors')))
        self.get('/Processors/CPU0')
        self.get('/Processors/CPU9999', code=404)

    def test_ethernet_interfaces(self):
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

    def test_cdrom_has_no_capacity(self):
        # Ironic installs on the smallest device with a capacity.
        self.machine._inventory = fakes.INVENTORY._replace(
            disks=(inventory.Disk(
                'cd', 'cdrom', 'sata', 5 * 2 ** 30, source='dataVolume'),))
        [cd] = self.get('/SimpleStorage/sata')['Devices']
        self.assertNotIn('CapacityBytes', cd)

    def test_unknown_inventory(self):
        self.machine._inventory = inventory.Inventory(
            cpus=inventory.Cpus(), memory_bytes=512 * 2 ** 20)
        body = self.get()
        self.assertEqual(0.5, body['MemorySummary']['TotalSystemMemoryGiB'])
        for name in 'SerialNumber', 'HostName', 'Model':
            self.assertNotIn(name, body)
        self.assertNotIn('SerialNumber', self.get(
            path='/redfish/v1/Chassis/' + fakes.A))
        self.assertEqual([], self.members('/SimpleStorage'))
        self.get('/Processors/CPU0')

    def test_processor_architectures(self):
        for name, expected in (('arm64', 'ARM'), ('s390x', 'OEM')):
            self.machine._inventory = fakes.INVENTORY._replace(
                cpus=inventory.Cpus(architecture=name))
            self.assertEqual(expected, self.get('/Processors/CPU0')[
                'ProcessorArchitecture'])

    def test_mac_address_of_the_guest(self):
        [nic] = self.machine._inventory.nics[:1]
        self.machine._inventory = fakes.INVENTORY._replace(
            nics=(nic._replace(
                guest_mac='02:00:00:00:00:99', plugged=False),))
        body = self.get('/EthernetInterfaces/default')
        self.assertEqual('02:00:00:00:00:99', body['MACAddress'])
        self.assertEqual('02:00:00:00:00:01', body['PermanentMACAddress'])
        self.assertFalse(body['InterfaceEnabled'])
        self.assertEqual('Disabled', body['Status']['State'])

    def test_storage(self):
        # The controller of the CD-ROM drive is not listed.
        self.assertEqual([self.path + '/Storage/virtio'],
                         self.members('/Storage'))
        here = self.path + '/Storage/virtio'
        drives = f'/redfish/v1/Chassis/{fakes.A}/Drives'
        body = self.get(path=here)
        self.assertEqual(
            [{'@odata.id': drives + '/root'}, {'@odata.id': drives + '/more'}],
            body['Drives'])
        self.assertEqual(body['Drives'], self.get(path=drives)['Members'])
        [controller] = self.members('/Storage/virtio/Controllers')
        self.assertEqual('virtio Controller',
                         self.get(path=controller)['Name'])
        root = self.get(path=drives + '/root')
        self.assertEqual((10 * 2 ** 30, 'OEM', None), (
            root['CapacityBytes'], root['Protocol'], root['MediaType']))
        more = self.get(path=drives + '/more')
        self.assertNotIn('CapacityBytes', more)
        self.assertEqual([], more['Links']['Volumes'])
        # Only disks of known size have a volume.
        [volume] = self.members('/Storage/virtio/Volumes')
        self.assertEqual(root['Links']['Volumes'], [{'@odata.id': volume}])
        body = self.get(path=volume)
        self.assertEqual(10 * 2 ** 30, body['CapacityBytes'])
        self.assertEqual([{'@odata.id': drives + '/root'}],
                         body['Links']['Drives'])
        for more in ('/none', '/sata', '/virtio/Drives/root',
                     '/virtio/Volumes/more', '/virtio/Controllers/2',
                     '/none/Volumes', '/none/Controllers/1'):
            self.get('/Storage' + more, code=404)
        self.get(path=drives + '/cd', code=404)

    def test_rejects_creation_of_volumes(self):
        body = self.send('POST', '/Storage/virtio/Volumes',
                         {'CapacityBytes': 1}, 400)
        self.assertEqual('CreateLimitReachedForResource',
                         self.entries(body)[0][0])

    def test_memory(self):
        [path] = self.members('/Memory')
        self.assertEqual(5 * 1024, self.get(path=path)['CapacityMiB'])
        self.get('/Memory/none', code=404)
        self.machine._inventory = inventory.Inventory(
            cpus=inventory.Cpus(), memory_bytes=0)
        self.assertEqual([], self.members('/Memory'))
        self.get('/Memory/RAM', code=404)


class TestFirmware(base.RedfishTestCase):

    def test_bios_attributes(self):
        body = self.get('/Bios')
        self.assertEqual({**fakes.ATTRIBUTES, 'QuietBoot': 'false'},
                         body['Attributes'])
        settings = body['@Redfish.Settings']
        self.assertEqual(['OnReset'], settings['SupportedApplyTimes'])
        self.assertNotIn('Time', settings)
        pending = self.get(path=settings['SettingsObject']['@odata.id'])
        self.assertEqual({**fakes.ATTRIBUTES, 'QuietBoot': 'true'},
                         pending['Attributes'])

    def test_applied_settings(self):
        started = '2026-01-01T00:00:00Z'
        self.machine._inventory = fakes.INVENTORY._replace(
            started=started)
        settings = self.get('/Bios')['@Redfish.Settings']
        self.assertEqual(started, settings['Time'])
        [message] = settings['Messages']
        self.assertEqual('OK', message['MessageSeverity'])

    def test_attribute_registry(self):
        name = self.get('/Bios')['AttributeRegistry']
        where = self.get(path='/redfish/v1/Registries/' + name)
        self.assertEqual(name, where['Registry'])
        registry = self.get(path=where['Location'][0]['Uri'])
        self.assertEqual(name, registry['Id'])
        found = {entry['AttributeName']: entry for entry in
                 registry['RegistryEntries']['Attributes']}
        self.assertEqual(set(fakes.ATTRIBUTES), set(found))
        self.assertEqual(
            ['UEFI', 'Legacy'],
            [value['ValueName'] for value in found['BootMode']['Value']])
        self.assertTrue(found['Tpm']['ReadOnly'])
        self.assertFalse(found['BootMode']['ReadOnly'])

    def test_apply_time(self):
        for time, code in ((None, 204), ({'ApplyTime': 'OnReset'}, 204),
                           ({}, 204), ({'ApplyTime': 'Immediate'}, 400),
                           ({'ApplyTime': 7}, 400), ('OnReset', 400)):
            self.send('PATCH', '/Bios/Settings', {
                'Attributes': {'A': 1}, '@Redfish.SettingsApplyTime': time},
                code)
        self.assertEqual([('set_attributes', {'A': 1})] * 3,
                         self.machine.calls)

    def test_path_of_upstream(self):
        for more in '', '/Settings':
            self.assertEqual(self.get('/Bios' + more),
                             self.get('/BIOS' + more))
        self.send('PATCH', '/BIOS/Settings', {'Attributes': {'A': 1}}, 204)
        self.send('POST', '/BIOS/Actions/Bios.ResetBios', {}, 204)
        self.assertEqual(2, len(self.machine.calls))

    def test_patch_attributes(self):
        self.send('PATCH', '/Bios/Settings',
                  {'Attributes': {'A': 'x', 'B': 2, 'C': True}}, 204)
        self.assertEqual([('set_attributes', {'A': 'x', 'B': 2, 'C': True})],
                         self.machine.calls)

    def test_rejects_invalid_attributes(self):
        for body, key in (
                ({}, 'PropertyMissing'),
                ({'Attributes': None}, 'PropertyValueTypeError'),
                ({'Attributes': ['x']}, 'PropertyValueTypeError'),
                ({'Attributes': {}}, 'NoOperation'),
                ({'Attributes': {'A': {}}}, 'PropertyValueTypeError'),
                ({'Attributes': {'A': float('nan')}}, 'MalformedJSON'),
                ({'Attributes': {'BootMode': 'x'}}, 'PropertyValueNotInList'),
                ({'Attributes': {'BootMode': 1}}, 'PropertyValueTypeError'),
                ({'Attributes': {'BootMode': None}},
                 'PropertyValueTypeError'),
                ({'Attributes': {'Tpm': 'Volatile'}}, 'PropertyNotWritable'),
                ({'Attributes': {'A': 'x'}, 'Other': 1}, 'PropertyUnknown')):
            found = self.send('PATCH', '/Bios/Settings', body, 400)
            self.assertEqual(key, self.entries(found)[0][0])
        self.assertEqual([], self.machine.calls)

    def test_refused_change_does_not_repeat_other_values(self):
        values = {'AdminPassword': 's3cret', 'SecureBoot': 'Enabled'}
        self.machine.fails = errors.WrongState('it boots in Legacy mode')
        body = self.send('PATCH', '/Bios/Settings', {'Attributes': values},
                         409)
        self.assertNotIn('Password', str(body))
        self.assertNotIn('s3cret', str(body))
        self.assertIn('Legacy mode', body['error']['message'])
        self.machine.fails = errors.InvalidValue('SecureBoot', 'Enabled')
        body = self.send('PATCH', '/Bios/Settings', {'Attributes': values},
                         400)
        self.assertEqual(['#/Attributes/SecureBoot'], body['error'][
            '@Message.ExtendedInfo'][0]['RelatedProperties'])

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
        self.assertEqual('Disabled', body['SecureBootCurrentBoot'])
        self.assertEqual('SetupMode', body['SecureBootMode'])
        self.machine._secure_now = True
        body = self.get('/SecureBoot')
        self.assertEqual('Enabled', body['SecureBootCurrentBoot'])
        self.assertEqual('UserMode', body['SecureBootMode'])
        for name, value in (('BootMode', 'Legacy'),
                            ('PersistentNvram', 'Enabled')):
            self.machine._current = {**fakes.ATTRIBUTES, name: value}
            self.assertNotIn('SecureBootMode', self.get('/SecureBoot'))
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


class TestBootOptions(base.RedfishTestCase):

    def test_boot_options(self):
        members = [member['@odata.id'] for member in
                   self.get('/BootOptions')['Members']]
        root, cd, nic = [self.get(path=member) for member in members]
        self.assertEqual(
            [('Boot0001', 'Hdd', True), ('Boot0003', 'Cd', False),
             ('Boot1001', 'Pxe', True)],
            [(body['BootOptionReference'], body['Alias'],
              body['BootOptionEnabled']) for body in (root, cd, nic)])
        self.assertEqual(f'/redfish/v1/Chassis/{fakes.A}/Drives/root',
                         root['RelatedItem'][0]['@odata.id'])
        self.assertNotIn('RelatedItem', cd)
        self.assertEqual(self.path + '/EthernetInterfaces/default',
                         nic['RelatedItem'][0]['@odata.id'])
        self.get('/BootOptions/Boot0002', code=404)

    def test_set_boot_order(self):
        self.send('PATCH', '', {'Boot': {'BootOrder': ['Boot0001']}}, 204)
        self.send('PATCH', '', {'Boot': {
            'BootOrder': ['Boot0003'], 'BootSourceOverrideTarget': 'Pxe'}},
            204)
        self.assertEqual([
            ('set_boot', None, None, None, {'order': ('Boot0001',)}),
            ('set_boot', boot.Target.PXE, None, None,
             {'order': ('Boot0003',)})], self.machine.calls)

    def test_rejects_invalid_boot_order(self):
        for order in (None, 'Boot0001', [1], [None], {}):
            self.send('PATCH', '', {'Boot': {'BootOrder': order}}, 400)
        self.machine.fails = errors.InvalidValue('BootOrder', 'Boot9', ['x'])
        body = self.send('PATCH', '', {'Boot': {'BootOrder': ['Boot9']}}, 400)
        self.assertIn('Boot9', body['error']['message'])
        self.assertEqual([], self.machine.calls)

    def test_set_default_boot_order(self):
        path = '/Actions/ComputerSystem.SetDefaultBootOrder'
        self.send('POST', path, {}, 204)
        self.send('POST', path, {'x': 1}, 400)
        self.assertEqual([('set_default_boot_order',)], self.machine.calls)


class TestChassis(base.RedfishTestCase):

    def setUp(self):
        super().setUp()
        self.chassis = '/redfish/v1/Chassis/' + fakes.A

    def test_each_system_has_a_chassis(self):
        self.assertEqual(
            [self.chassis, '/redfish/v1/Chassis/' + fakes.B],
            [member['@odata.id'] for member in
             self.get(path='/redfish/v1/Chassis')['Members']])
        body = self.get(path=self.chassis)
        self.assertEqual('vm-a-Chassis', body['Name'])
        self.assertEqual([{'@odata.id': self.path}],
                         body['Links']['ComputerSystems'])
        self.assertEqual('serial-7', body['SerialNumber'])
        self.get(path=self.chassis + '/Thermal', code=404)

    def test_chassis_of_smbios(self):
        self.machine._inventory = fakes.INVENTORY._replace(
            chassis=inventory.Chassis(
                manufacturer='m', version='v', serial='s', asset='a'))
        body = self.get(path=self.chassis)
        self.assertEqual(('m', 'v', 's', 'a'), (
            body['Manufacturer'], body['Model'], body['SerialNumber'],
            body['AssetTag']))
        self.assertNotIn('SKU', body)

    def test_indicator_of_chassis_is_that_of_the_system(self):
        for body, state in (({'IndicatorLED': 'Lit'}, 'Lit'),
                            ({'LocationIndicatorActive': True}, 'Blinking')):
            answer = self.client.patch(self.chassis, json=body)
            self.assertEqual(204, answer.status_code, answer.text)
            self.assertEqual(('set_indicator', state),
                             self.machine.calls[-1][:2])
        found = self.get(path=self.chassis)
        self.assertEqual(('Off', False), (
            found['IndicatorLED'], found['LocationIndicatorActive']))
        answer = self.client.patch(self.chassis, json={'IndicatorLED': 'x'})
        self.assertEqual(400, answer.status_code)

    def test_chassis_is_read_only(self):
        for body, key in (({'AssetTag': 'x'}, 'PropertyNotWritable'),
                          ({'Nonsense': 1}, 'PropertyUnknown'),
                          ({}, 'NoOperation')):
            answer = self.client.patch(self.chassis, json=body)
            self.assertEqual(400, answer.status_code)
            self.assertIn(key, answer.json['error']['code'])


class TestManager(base.RedfishTestCase):

    def setUp(self):
        super().setUp()
        self.manager = '/redfish/v1/Managers/' + fakes.A

    def test_body(self):
        body = self.get(path=self.manager)
        self.assertEqual('vm-a-Manager', body['Name'])
        self.assertEqual([{'@odata.id': self.path}],
                         body['Links']['ManagerForServers'])
        self.assertEqual(
            {'@odata.id': '/redfish/v1/Chassis/' + fakes.A},
            body['Links']['ManagerInChassis'])
        self.assertEqual(self.get(path='/redfish/v1/')['UUID'],
                         body['ServiceEntryPointUUID'])
        self.assertTrue(body['SerialConsole']['ServiceEnabled'])

    def test_clock(self):
        clocks = self.app.sushy_kubevirt.services.events.log.clocks
        self.useFixture(fixtures.MockPatchObject(
            clocks, '_state', fake_state.State()))

        def read():
            body = self.get(path=self.manager)
            self.assertTrue(body['DateTime'].endswith(
                body['DateTimeLocalOffset']))
            return datetime.datetime.fromisoformat(body['DateTime'])

        now = datetime.datetime.now(datetime.timezone.utc)
        self.assertLess(abs((read() - now).total_seconds()), 30)
        wanted = datetime.datetime.fromisoformat('2001-02-03T04:05:06+00:00')
        for body, offset in (
                ({'DateTime': '2001-02-03T06:05:06+02:00'}, 0),
                ({'DateTimeLocalOffset': '-01:30'}, -90),
                ({'DateTime': '2001-02-03T04:05:06Z'}, -90),
                ({'DateTime': '2001-02-03T04:05:06.123456+00:00',
                  'DateTimeLocalOffset': '+14:00'}, 840),
                ({'DateTimeLocalOffset': '+00:00'}, 0)):
            tag = self.client.get(self.manager).headers['ETag']
            answer = self.client.patch(self.manager, json=body,
                                       headers={'If-Match': tag})
            self.assertEqual(204, answer.status_code, answer.text)
            self.assertLess(abs((read() - wanted).total_seconds()), 30)
            self.assertEqual(datetime.timedelta(minutes=offset),
                             read().utcoffset())
        self.assertEqual({self.machine.uid},
                         {*clocks._state.sections['clock']})

    def test_refused_clock_changes_nothing(self):
        before = self.get(path=self.manager)
        for body in (
                {'DateTime': '2001-02-03T04:05:06'}, {'DateTime': ''},
                {'DateTime': 'now'}, {'DateTime': '2001-02-30T04:05:06Z'},
                {'DateTime': '1969-12-31T23:59:59Z'},
                {'DateTime': '2106-02-07T06:28:15Z'},
                {'DateTime': '2001-02-03T04:05:06+24:00'},
                {'DateTime': 5}, {'DateTime': None},
                {'DateTimeLocalOffset': '02:00'},
                {'DateTimeLocalOffset': '+20:00'},
                {'DateTimeLocalOffset': 'Z'}, {'DateTimeLocalOffset': 60},
                {'DateTime': '2001-02-03T04:05:06Z',
                 'DateTimeLocalOffset': 'x'},
                {'DateTime': '2001-02-03T04:05:06Z', 'Id': '2'}):
            answer = self.client.patch(self.manager, json=body)
            self.assertEqual(400, answer.status_code, body)
        after = self.get(path=self.manager)
        self.assertEqual(before['DateTime'][:13], after['DateTime'][:13])
        self.assertEqual('+00:00', after['DateTimeLocalOffset'])

    def test_serial_over_lan(self):
        driver = self.app.systems
        driver.settings = driver.settings._replace(
            web_page=False,
            service_ports=(('HTTPS', 443), ('IPMI', 30623)))
        self.assertEqual({'MaxConcurrentSessions': 1, 'IPMI': {
            'ServiceEnabled': True, 'Port': 30623,
            'SharedWithManagerCLI': False}}, self.get()['SerialConsole'])
        self.assertEqual(
            {'ServiceEnabled': True, 'MaxConcurrentSessions': 1,
             'ConnectTypesSupported': ['IPMI', 'Oem']},
            self.get(path=self.manager)['SerialConsole'])

    def interface(self, **fields):
        """Let the client be reached by an interface; return its path."""
        self.useFixture(fixtures.MockPatchObject(
            interfaces, 'towards', lambda client: interfaces.Interface(
                **fields)))
        link = self.get(path=self.manager)['EthernetInterfaces']['@odata.id']
        self.assertEqual(self.manager + '/EthernetInterfaces', link)
        return [one['@odata.id'] for one in self.get(path=link)['Members']]

    def test_interface(self):
        [path] = self.interface(
            name='eth0', address=bytes((10, 1, 2, 3)), mtu=1450,
            mask=bytes((255, 255, 255, 0)), mac=bytes.fromhex('0a580a010203'),
            gateway=bytes((10, 1, 2, 1)), ipv6=(
                interfaces.Ipv6Address('fe80::1', 64, True),
                interfaces.Ipv6Address('2001:db8::3', 128)))
        self.assertEqual(self.manager + '/EthernetInterfaces/eth0', path)
        body = self.get(path=path)
        self.assertEqual('0A:58:0A:01:02:03', body['MACAddress'])
        self.assertEqual(1450, body['MTUSize'])
        self.assertEqual([{
            'Address': '10.1.2.3', 'SubnetMask': '255.255.255.0',
            'AddressOrigin': None, 'Gateway': '10.1.2.1'}],
            body['IPv4Addresses'])
        self.assertEqual(
            [('fe80::1', 64, 'LinkLocal'), ('2001:db8::3', 128, None)],
            [(one['Address'], one['PrefixLength'], one['AddressOrigin'])
             for one in body['IPv6Addresses']])
        self.get(path=path.replace('eth0', 'eth1'), code=404)
        answer = self.client.patch(path, json={'MTUSize': 9000})
        self.assertEqual(400, answer.status_code)
        self.assertIn('PropertyNotWritable', answer.json['error']['code'])

    def test_interface_without_addresses(self):
        [path] = self.interface(name='tun0')
        body = self.get(path=path)
        self.assertEqual([], body['IPv4Addresses'] + body['IPv6Addresses'])
        for name in 'MACAddress', 'MTUSize':
            self.assertNotIn(name, body)

    def test_unknown_interface(self):
        self.assertEqual([], self.interface())
        # A client of a Unix socket.
        answer = self.client.get(
            self.manager + '/EthernetInterfaces',
            environ_overrides={'REMOTE_ADDR': '', 'REMOTE_PORT': ''})
        self.assertEqual([], answer.json['Members'])

    def test_without_consoles(self):
        self.machine._inventory = fakes.INVENTORY._replace(
            graphics=False, serial_console=False)
        body = self.get(path=self.manager)
        for name in 'GraphicalConsole', 'SerialConsole':
            self.assertEqual({'ServiceEnabled': False,
                              'ConnectTypesSupported': []}, body[name])
            self.assertNotIn(name, self.get())

    def test_reset(self):
        action = self.manager + '/Actions/Manager.Reset'
        for body, code in (({'ResetType': 'GracefulRestart'}, 204),
                           ({'ResetType': 'ForceRestart'}, 204), ({}, 204),
                           ({'ResetType': 'Off'}, 400),
                           ({'ResetType': 1}, 400)):
            self.assertEqual(code, self.client.post(
                action, json=body).status_code)
        self.assertEqual([('refresh',)] * 3, self.machine.calls)
        [parameter] = self.get(path=self.manager + '/ResetActionInfo')[
            'Parameters']
        self.assertEqual(['ForceRestart', 'GracefulRestart'],
                         parameter['AllowableValues'])

    def test_network_protocol(self):
        body = self.get(path=self.manager + '/NetworkProtocol')
        self.assertEqual({'ProtocolEnabled': True, 'Port': 80}, body['HTTP'])
        self.assertEqual({'ProtocolEnabled': False}, body['HTTPS'])
        self.assertNotIn('IPMI', body)

    def test_ports_of_the_request(self):
        path = self.manager + '/NetworkProtocol'
        for url, host, name, port in (
                ('http://127.0.0.1:8000', None, 'HTTP', 8000),
                ('https://127.0.0.1', None, 'HTTPS', 443),
                ('http://127.0.0.1:8000', '192.0.2.8:81', 'HTTP', 81),
                ('http://127.0.0.1:8000', '[2001:db8::8]', 'HTTP', 80),
                ('http://127.0.0.1:8000', '[2001:db8::8]:8080', 'HTTP', 8080),
                ('https://127.0.0.1:8443', '192.0.2.8', 'HTTPS', 443)):
            body = self.client.get(
                path, base_url=url,
                headers={'Host': host} if host else {}).json
            self.assertEqual({'ProtocolEnabled': True, 'Port': port},
                             body[name], (url, host))
        for host in '', 'a b', 'bmc:99999':
            answer = self.client.get(path, base_url='http://127.0.0.1:8000',
                                     environ_overrides={'HTTP_HOST': host})
            self.assertEqual(400, answer.status_code)

    def test_ports_of_a_service(self):
        app = fakes.application(
            self, self.cluster, SUSHY_EMULATOR_KUBEVIRT_SERVICE_PORTS={
                'HTTPS': 443, 'IPMI': 623})
        body = app.test_client().get(
            self.manager + '/NetworkProtocol',
            base_url='https://10.0.0.1:8000').json
        self.assertEqual({'ProtocolEnabled': False}, body['HTTP'])
        for name, port in ('HTTPS', 443), ('IPMI', 623):
            self.assertEqual({'ProtocolEnabled': True, 'Port': port},
                             body[name])
