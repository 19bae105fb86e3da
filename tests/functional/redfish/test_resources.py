# SPDX-License-Identifier: Apache-2.0
"""Properties of a system's resources, read and written.

The clients are the sushy library and plain HTTP; the effect of a write is
verified in the cluster and in the guest.
"""

from importlib import metadata
import pathlib

import sushy
from sushy.resources import settings

from kubevirt_sandbox.testing import machines
from tests.fixtures import redfish_case


def _add_devices(vm):
    """Add a TPM, a second disk and chassis numbers to a VM."""
    spec = vm['spec']['template']['spec']
    devices = spec['domain']['devices']
    devices['tpm'] = {'persistent': False}
    devices['disks'].append({'name': 'data', 'disk': {'bus': 'sata'},
                             'serial': 'disk-7'})
    spec['volumes'].append({'name': 'data', 'persistentVolumeClaim': {
        'claimName': 'data'}})
    spec['domain']['chassis'] = {'serial': 'chassis-7', 'asset': 'rack 4'}
    return vm


class TestReads(redfish_case.RedfishTestCase):

    def test_devices_and_chassis(self):
        name = redfish_case.new_name()
        vm = self.sandbox.create('virtualmachines', _add_devices(
            machines.vm(name, 'Halted')))
        self.uuid = machines.uuid_of(vm)
        self.path = f'{redfish_case.SYSTEMS}/{self.uuid}'
        self.emulator.wait_system(self.uuid)
        body = self.emulator.system(self.uuid)
        self.assertEqual('TPM2_0', body['TrustedModules'][0]['InterfaceType'])
        chassis = self.get(body['Links']['Chassis'][0]['@odata.id'])
        self.assertEqual(('chassis-7', 'rack 4'), (
            chassis['SerialNumber'], chassis['AssetTag']))
        system = self.sushy()
        sizes = system.storage.drives_sizes_bytes
        self.assertEqual([10 * 2 ** 30], sizes)
        self.assertEqual(sizes, system.storage.volumes_sizes_bytes)
        self.assertEqual(sizes, system.simple_storage.disks_sizes_bytes)
        self.assertEqual(['sata', 'virtio'], sorted(
            each.identity for each in system.storage.get_members()))
        [drive] = [drive for each in system.storage.get_members()
                   for drive in each.drives if drive.identity == 'data']
        self.assertEqual('disk-7', drive.serial_number)
        [memory] = self.get(self.path + '/Memory')['Members']
        self.assertEqual(1024, self.get(memory['@odata.id'])['CapacityMiB'])

    def get(self, where):
        return self.emulator.request('GET', where, expect=200).json()

    def test_last_reset_time(self):
        self.make('Always')
        self.wait_power('On')
        body = self.emulator.system(self.uuid)
        times = self.sandbox.vmi(self.name)['status'][
            'phaseTransitionTimestamps']
        self.assertEqual(
            [each['phaseTransitionTimestamp'] for each in times
             if each['phase'] == 'Running'], [body['LastResetTime']])
        self.emulator.reset(self.uuid, 'ForceOff')
        self.wait_power('Off')
        body = self.emulator.system(self.uuid)
        self.assertNotIn('LastResetTime', body)
        self.assertEqual({'LastState': 'None'}, body['BootProgress'])

    def test_firmware_inventory(self):
        self.make()
        service = sushy.Sushy(
            self.emulator.url + '/redfish/v1/').get_update_service()
        self.assertFalse(service.service_enabled)
        found = {one.identity: one for one in
                 service.firmware_inventory.get_members()}
        self.assertEqual(metadata.version('sushy-kubevirt'),
                         found['BMC'].version)
        self.assertEqual(
            self.sandbox.get('kubevirts', 'kubevirt', 'kubevirt')['status'][
                'observedKubeVirtVersion'], found['KubeVirt'].version)
        self.assertIn(self.get(self.path)['BiosVersion'],
                      {one.version for one in found.values()})
        self.assertEqual([False], list({
            one.updateable for one in found.values()}))

    def test_interface_of_the_bmc(self):
        self.make()
        manager = '/redfish/v1/Managers/' + self.uuid
        root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
        one, = root.get_manager(manager).ethernet_interfaces.get_members()
        found = one.json
        # The test reaches the emulator by the loopback interface.
        self.assertEqual(f'{manager}/EthernetInterfaces/lo',
                         found['@odata.id'])
        self.assertEqual(
            [('127.0.0.1', '255.0.0.0', None)],
            [(one['Address'], one['SubnetMask'], one['Gateway'])
             for one in found['IPv4Addresses']])
        self.assertEqual(int(pathlib.Path(
            '/sys/class/net/lo/mtu').read_text()), found['MTUSize'])
        self.refused('PATCH', found['@odata.id'], {'MTUSize': 9000}, 400)

    def test_manager_and_its_reset(self):
        self.make()
        where = '/redfish/v1/Managers/' + self.uuid
        manager = self.get(where)
        self.assertEqual(self.get('/redfish/v1/')['UUID'],
                         manager['ServiceEntryPointUUID'])
        port = int(self.emulator.url.rpartition(':')[2])
        self.assertEqual(
            {'ProtocolEnabled': True, 'Port': port},
            self.get(where + '/NetworkProtocol')['HTTP'])
        self.sandbox.reset_stats()
        root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
        [bmc] = [each for each in root.get_manager_collection().get_members()
                 if each.uuid == self.uuid]
        self.assertEqual('sushy-kubevirt', bmc.model)
        bmc.reset_manager(sushy.RESET_TYPE_GRACEFUL_RESTART)
        # The reset made it read the VM again.
        self.assertEqual(
            {'virtualmachines.kubevirt.io',
             'virtualmachineinstances.kubevirt.io'},
            self.sandbox.calls()['get'].keys())


class TestBootOrder(redfish_case.RedfishTestCase):

    def order(self):
        return self.emulator.system(self.uuid)['Boot']['BootOrder']

    def boot_class(self, number, action='ForceRestart'):
        self.emulator.reset(self.uuid, action)
        return self.sandbox.wait_boot(self.name, number)['class']

    def test_order_lasts_until_default_is_set(self):
        self.make()
        options = {}
        for member in self.emulator.request(
                'GET', self.path + '/BootOptions', expect=200).json()[
                    'Members']:
            body = self.emulator.request(
                'GET', member['@odata.id'], expect=200).json()
            options[body['Alias']] = body['BootOptionReference']
        self.assertEqual({'Hdd', 'Cd', 'Pxe'}, set(options))
        self.assertEqual([options['Hdd']], self.order())
        wanted = [options['Pxe'], options['Hdd']]
        # Set order and override in one request.
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootOrder': wanted, 'BootSourceOverrideTarget': 'Cd',
            'BootSourceOverrideEnabled': 'Once'}})
        self.assertEqual(wanted, self.order())
        self.assertEqual('Cd', self.boot_class(1, 'On'))
        self.assertEqual('Pxe', self.boot_class(2))
        self.emulator.request(
            'POST', self.path + '/Actions/ComputerSystem.SetDefaultBootOrder',
            expect=204)
        self.assertEqual([options['Hdd']], self.order())
        self.assertEqual('Hdd', self.boot_class(3))

    def test_invalid_orders(self):
        self.make()
        for order in ([], ['Boot9999'], ['Boot0001', 'Boot0001']):
            [entry] = self.refused('PATCH', self.path, {
                'Boot': {'BootOrder': order}}, 400)
            self.assertEqual('PropertyValueIncorrect', entry[0])
        self.assertEqual(['Boot0001'], self.order())


class TestSettings(redfish_case.RedfishTestCase):

    def test_bios_settings_apply_on_reset(self):
        """The requests of Ironic's BIOS interface."""
        self.make('Always')
        self.wait_power('On')
        bios = self.sushy().bios
        before = bios.attributes
        self.assertEqual('Legacy', before['BootMode'])
        registry = bios.get_attribute_registry()
        known = {each.name: each for each in
                 registry.registry_entries.attributes}
        self.assertEqual(before.keys(), known.keys())
        self.assertEqual(
            ['UEFI', 'Legacy'],
            [each['ValueName'] for each in known['BootMode'].
             allowable_values])
        self.assertIn(sushy.APPLY_TIME_ON_RESET, bios.supported_apply_times)
        wanted = {'BootMode': 'UEFI', 'SecureBoot': 'Enabled',
                  'QuietBoot': 'true', 'NumCores': 4}
        bios.set_attributes(wanted, apply_time=sushy.APPLY_TIME_ON_RESET)
        bios.refresh(force=True)
        self.assertEqual(before, bios.attributes)
        self.assertEqual({**before, **wanted}, bios.pending_attributes)
        self.emulator.reset(self.uuid, 'ForceRestart')
        self.assertEqual('efi-secure', self.sandbox.wait_boot(
            self.name, 2)['firmware'])
        self.wait_power('On')
        bios.refresh(force=True)
        self.assertEqual({**before, **wanted}, bios.attributes)
        self.assertEqual(settings.UPDATE_SUCCESS, bios.update_status.status)
        bios.reset_bios()
        bios.refresh(force=True)
        self.assertNotIn('NumCores', bios.pending_attributes)
        self.assertEqual('UEFI', bios.pending_attributes['BootMode'])

    def test_invalid_bios_settings(self):
        self.make()
        where = self.path + '/Bios/Settings'
        for values, key in (
                ({'BootMode': 'Other'}, 'PropertyValueNotInList'),
                ({'Tpm': 'Volatile'}, 'PropertyNotWritable'),
                ({'SecureBoot': 'Enabled'}, 'PropertyValueIncorrect')):
            [entry] = self.refused('PATCH', where, {
                'Attributes': {**values, 'Mine': 1}}, 400)
            self.assertEqual(key, entry[0])
        self.assertNotIn('Mine', self.emulator.request(
            'GET', where, expect=200).json()['Attributes'])

    def test_secure_boot_of_current_boot(self):
        self.make('Always')
        self.wait_power('On')
        self.emulator.patch_system(
            self.uuid, {'Boot': {'BootSourceOverrideMode': 'UEFI'}})
        where = self.path + '/SecureBoot'
        self.emulator.request('PATCH', where, {'SecureBootEnable': True},
                              expect=204)
        body = self.emulator.request('GET', where, expect=200).json()
        self.assertEqual((True, 'Disabled'), (
            body['SecureBootEnable'], body['SecureBootCurrentBoot']))
        self.assertNotIn('SecureBootMode', body)
        self.emulator.reset(self.uuid, 'ForceRestart')
        self.sandbox.wait_boot(self.name, 2)
        self.wait_power('On')
        body = self.emulator.request('GET', where, expect=200).json()
        self.assertEqual(('Enabled', 'UserMode'), (
            body['SecureBootCurrentBoot'], body['SecureBootMode']))

    def test_power_restore_policy_and_asset_tag(self):
        self.make()
        self.assertEqual('LastState', self.emulator.system(self.uuid)[
            'PowerRestorePolicy'])
        self.emulator.patch_system(self.uuid, {
            'PowerRestorePolicy': 'AlwaysOn', 'AssetTag': 'rack 4'})
        body = self.emulator.system(self.uuid)
        self.assertEqual(('AlwaysOn', 'rack 4', 'Off'), (
            body['PowerRestorePolicy'], body['AssetTag'],
            body['PowerState']))
        self.emulator.reset(self.uuid, 'On')
        self.sandbox.wait_running(self.name)
        self.assertEqual('Always', self.sandbox.vm(self.name)['spec'][
            'runStrategy'])
        [entry] = self.refused('PATCH', self.path, {
            'PowerRestorePolicy': 'Never'}, 400)
        self.assertEqual('PropertyValueNotInList', entry[0])
        [entry] = self.refused('PATCH', self.path, {
            'AssetTag': 'x' * 300}, 400)
        self.assertEqual('PropertyValueIncorrect', entry[0])
