# SPDX-License-Identifier: Apache-2.0
"""Resources, actions and errors of the emulator, requested by real clients.

The clients are the sushy library, and plain HTTP for requests that a
standard client does not send. The guest's record shows what was booted.
"""

import http.client
from urllib import parse

import sushy

from kubevirt_sandbox.testing import machines
from tests.fixtures import emulator
from tests.fixtures import redfish_case
from tests.fixtures import sandbox


class TestReads(redfish_case.RedfishTestCase):

    def test_sushy_reads_everything(self):
        vm = self.make('RerunOnFailure')
        self.sandbox.wait_running(self.name)
        self.wait_power('On')
        # Whether there is CDI is looked up in the background.
        self.until(lambda: 'UefiHttp' in self.emulator.system(self.uuid)[
            'Boot']['BootSourceOverrideTarget@Redfish.AllowableValues'])
        system = self.sushy()
        self.assertEqual(self.uuid, system.uuid)
        self.assertEqual(self.name, system.name)
        self.assertEqual(sushy.SystemType.VIRTUAL, system.system_type)
        self.assertEqual(sushy.PowerState.ON, system.power_state)
        self.assertEqual(sushy.Health.OK, system.status.health)
        self.assertEqual(sushy.State.ENABLED, system.status.state)
        self.assertEqual(1, system.memory_summary.size_gib)
        self.assertEqual(sushy.BOOT_SOURCE_ENABLED_DISABLED,
                         system.boot.enabled)
        self.assertEqual(sushy.BOOT_SOURCE_TARGET_NONE, system.boot.target)
        self.assertIsNotNone(system.boot.mode)
        self.assertEqual(
            {sushy.BOOT_SOURCE_TARGET_NONE, sushy.BOOT_SOURCE_TARGET_PXE,
             sushy.BOOT_SOURCE_TARGET_HDD, sushy.BOOT_SOURCE_TARGET_CD,
             sushy.BOOT_SOURCE_TARGET_USB, sushy.BOOT_SOURCE_TARGET_UEFI_HTTP},
            system.get_allowed_system_boot_source_values())
        resets = system.get_allowed_reset_system_values()
        self.assertNotIn(sushy.RESET_TYPE_NMI, resets)
        self.assertEqual(10, len(resets))

        self.assertEqual((2, sushy.ProcessorArchitecture.X86),
                         tuple(system.processors.summary))
        [nic] = system.ethernet_interfaces.get_members()
        vmi = self.sandbox.vmi(self.name)
        self.assertEqual(vmi['status']['interfaces'][0]['mac'],
                         nic.mac_address)
        self.assertEqual({nic.mac_address: sushy.State.ENABLED},
                         system.ethernet_interfaces.summary)
        self.assertEqual([10 * 2 ** 30],
                         system.simple_storage.disks_sizes_bytes)
        self.assertFalse(system.secure_boot.enabled)
        self.assertEqual(['Cd', 'USBStick'], [
            each.identity for each in system.virtual_media.get_members()])
        [manager] = system.managers
        self.assertEqual(self.uuid, manager.uuid)
        [chassis] = system.chassis
        self.assertEqual(self.uuid, chassis.uuid)
        self.assertEqual(
            vm['metadata']['namespace'] + '/' + self.name,
            system.description.rpartition(' ')[2])

    def test_get_makes_no_api_call(self):
        self.make()
        self.emulator.system(self.uuid)
        parts = [self.path + part for part in (
            '', '/Processors', '/EthernetInterfaces', '/SimpleStorage',
            '/BIOS', '/Bios/Settings', '/SecureBoot', '/BootOptions',
            '/Storage', '/Memory/RAM')] + [
                redfish_case.SYSTEMS, '/redfish/v1/Managers/' + self.uuid,
                '/redfish/v1/Chassis/' + self.uuid]
        # Background threads make a few calls per second; a call made by a
        # GET would occur with each of them.
        self.sandbox.reset_stats()
        times = 20
        for _ in range(times):
            for part in parts:
                self.emulator.request('GET', part, expect=200)
        calls = self.sandbox.calls()
        self.assertLess(sum(sum(what.values()) for what in calls.values()),
                        times, calls)

    def test_names_are_redirected(self):
        self.make()
        for name in (self.name, f'{sandbox.NAMESPACE}:{self.name}',
                     f'{sandbox.NAMESPACE}%2F{self.name}'):
            response = self.emulator.request(
                'GET', f'{redfish_case.SYSTEMS}/{name}/BIOS?x=1',
                allow_redirects=False, expect=307)
            self.assertEqual(
                self.path + '/BIOS?x=1',
                parse.urlsplit(response.headers['Location']).path + '?x=1')
            self.assertEqual(self.uuid, self.emulator.system(name)['Id'])
        # A POST is redirected with its body.
        self.emulator.reset(self.name, 'On')
        self.sandbox.wait_running(self.name)

    def test_unschedulable_vm_is_critical(self):
        # No node has this label.
        vm = machines.vm(redfish_case.new_name(), 'RerunOnFailure')
        vm['spec']['template']['spec']['nodeSelector'] = {'no': 'such'}
        vm = self.sandbox.create('virtualmachines', vm)
        self.uuid = machines.uuid_of(vm)
        self.emulator.wait_system(self.uuid)
        self.until(lambda: 'Conditions' in self.emulator.system(self.uuid)[
            'Status'])
        body = self.emulator.system(self.uuid)
        self.assertEqual('Off', body['PowerState'])
        self.assertEqual('Critical', body['Status']['Health'])
        self.assertIn('Unschedulable', body['Status']['Conditions'][0][
            'MessageArgs'][1])


class TestWrites(redfish_case.RedfishTestCase):

    def test_power_and_reset(self):
        self.make()
        self.assertEqual('Off', self.emulator.system(self.uuid)['PowerState'])
        system = self.sushy()
        system.reset_system(sushy.RESET_TYPE_ON)
        # A read right after it does not report Off, even without a guest.
        self.assertIn(self.emulator.system(self.uuid)['PowerState'],
                      ('PoweringOn', 'On'))
        first = self.sandbox.wait_running(self.name)['metadata']['uid']
        self.wait_power('On')
        self.assertEqual('RerunOnFailure', self.sandbox.vm(self.name)[
            'spec']['runStrategy'])
        system.reset_system(sushy.RESET_TYPE_ON)
        system.reset_system(sushy.RESET_TYPE_FORCE_RESTART)
        self.sandbox.wait_running(self.name, other_than=first)
        system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
        self.sandbox.wait_stopped(self.name)
        self.wait_power('Off')
        system.reset_system(sushy.RESET_TYPE_FORCE_OFF)
        [entry] = self.refused(
            'POST', self.path + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'Pause'}, 409)
        self.assertEqual(('PropertyValueResourceConflict', 'ResetType',
                          'Pause', self.path), entry)
        self.assertEqual(2, len(self.sandbox.boots(self.name)))
        system.reset_system(sushy.RESET_TYPE_FORCE_RESTART)
        self.sandbox.wait_running(self.name)
        self.assertEqual(3, len(self.sandbox.boots(self.name)))

    def test_pause(self):
        self.make('RerunOnFailure')
        self.sandbox.wait_running(self.name)
        self.wait_power('On')
        self.emulator.reset(self.uuid, 'Pause')
        self.wait_power('Paused')
        self.emulator.reset(self.uuid, 'Resume')
        self.wait_power('On')

    def test_one_time_boot(self):
        self.make()
        system = self.sushy()
        system.set_system_boot_options(
            sushy.BOOT_SOURCE_TARGET_CD,
            enabled=sushy.BOOT_SOURCE_ENABLED_ONCE,
            mode=sushy.BOOT_SOURCE_MODE_UEFI)
        system.refresh(force=True)
        self.assertEqual(
            (sushy.BOOT_SOURCE_TARGET_CD, sushy.BOOT_SOURCE_ENABLED_ONCE,
             sushy.BOOT_SOURCE_MODE_UEFI),
            (system.boot.target, system.boot.enabled, system.boot.mode))
        self.assertEqual('Off', self.emulator.system(self.uuid)['PowerState'])
        self.emulator.reset(self.uuid, 'On')
        boot = self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(('Cd', 'efi'), (boot['class'], boot['firmware']))
        self.until(lambda: self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled'] == 'Disabled')
        self.emulator.reset(self.uuid, 'ForceRestart')
        boot = self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(('Hdd', 'bios'), (boot['class'], boot['firmware']))

    def test_continuous_boot(self):
        self.make()
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Continuous'}})
        boot = self.emulator.system(self.uuid)['Boot']
        self.assertEqual(('Pxe', 'Continuous'), (
            boot['BootSourceOverrideTarget'],
            boot['BootSourceOverrideEnabled']))
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('Pxe',
                         self.sandbox.wait_boot(self.name, 1)['class'])
        self.emulator.reset(self.uuid, 'PowerCycle')
        self.assertEqual('Pxe',
                         self.sandbox.wait_boot(self.name, 2)['class'])
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'None'}})
        self.assertEqual('Disabled', self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideEnabled'])

    def test_settings_survive_restart(self):
        self.make()
        system = self.sushy()
        system.set_indicator_led(sushy.IndicatorLED.BLINKING)
        self.assertEqual('Blinking', self.emulator.system(self.uuid)[
            'IndicatorLED'])
        self.emulator.patch_system(
            self.uuid, {'Boot': {'BootSourceOverrideMode': 'UEFI'}})
        system.secure_boot.set_enabled(True)
        system.secure_boot.refresh(force=True)
        self.assertTrue(system.secure_boot.enabled)
        # The emulator stores none of this itself.
        for path in ('/redfish/v1/Chassis',
                     self.path + '/VirtualMedia'):
            self.emulator.request('GET', path, expect=200)
        self.assertEqual([], list(self.emulator.home.rglob('*.sqlite')))
        self.emulator.process.restart()
        self.emulator.url = self.emulator.process.match[1].rstrip('/')
        body = self.emulator.system(self.uuid)
        self.assertEqual('Blinking', body['IndicatorLED'])
        self.assertEqual('UEFI', body['Boot']['BootSourceOverrideMode'])
        self.emulator.reset(self.uuid, 'On')
        self.assertEqual('efi-secure',
                         self.sandbox.wait_boot(self.name, 1)['firmware'])


class TestErrors(redfish_case.RedfishTestCase):

    def test_invalid_values(self):
        self.make()
        for method, where, body, entries in (
                ('POST', '/Actions/ComputerSystem.Reset',
                 {'ResetType': 'Nmi'},
                 [('ActionParameterValueNotInList', 'Nmi', 'ResetType',
                   'ComputerSystem.Reset')]),
                ('POST', '/Actions/ComputerSystem.Reset', {'ResetType': 5},
                 [('ActionParameterValueTypeError', '5', 'ResetType',
                   'ComputerSystem.Reset')]),
                ('PATCH', '', {'Boot': {
                    'BootSourceOverrideTarget': 'Floppy'}},
                 [('PropertyValueNotInList', 'Floppy',
                   'BootSourceOverrideTarget')]),
                ('PATCH', '', {'Boot': {'BootSourceOverrideTarget': 'Pxe'},
                               'Nonsense': 1},
                 [('PropertyUnknown', 'Nonsense')]),
                ('PATCH', '/SecureBoot', {'SecureBootEnable': 'yes'},
                 [('PropertyValueTypeError', 'yes', 'SecureBootEnable')])):
            self.assertEqual(
                entries, self.refused(method, self.path + where, body, 400))
        # A request is atomic: the Pxe of the fourth was not set.
        self.assertEqual('None', self.emulator.system(self.uuid)['Boot'][
            'BootSourceOverrideTarget'])

    def test_malformed_bodies(self):
        self.make()
        reset = self.path + '/Actions/ComputerSystem.Reset'
        headers = {'Content-Type': 'application/json'}
        for data in '', '{', '[1]', '[' * 10000:
            self.assertEqual([('MalformedJSON',)], self.refused(
                'POST', reset, None, 400, data=data, headers=headers))
        self.refused('POST', reset, None, 415, data='ResetType=On')
        self.refused('DELETE', self.path, None, 405)
        self.refused('GET', '/redfish/v1/Nonsense', None, 404)

    def test_chunked_request(self):
        """A request with chunked transfer encoding."""
        self.make()
        url = parse.urlsplit(self.emulator.url)
        connection = http.client.HTTPConnection(url.hostname, url.port,
                                                timeout=30)
        self.addCleanup(connection.close)
        connection.request(
            'PATCH', self.path, iter([b'{"IndicatorLED":', b' "Lit"}']),
            {'Content-Type': 'application/json'}, encode_chunked=True)
        self.assertIn(connection.getresponse().status, (204, 400))

    def test_deleted_vm_is_not_found(self):
        self.make()
        self.sandbox.delete('virtualmachines', self.name)
        [entry] = self.refused(
            'POST', self.path + '/Actions/ComputerSystem.Reset',
            {'ResetType': 'On'}, 404)
        self.assertEqual(('ResourceNotFound', 'ComputerSystem'), entry[:2])
        self.refused('GET', self.path, None, 404)

    def test_ambiguous_name_is_conflict(self):
        name = redfish_case.new_name()
        with emulator.Emulator(
                self.sandbox.bmc_account(everywhere=True),
                {'SUSHY_EMULATOR_KUBEVIRT_NAMESPACES': '*'}) as everywhere:
            self.sandbox.request('POST', '/api/v1/namespaces', {
                'apiVersion': 'v1', 'kind': 'Namespace',
                'metadata': {'name': 'other'}})
            for namespace in sandbox.NAMESPACE, 'other':
                self.sandbox.create(
                    'virtualmachines',
                    machines.vm(name, 'Halted', namespace), namespace)

            path = f'{redfish_case.SYSTEMS}/{name}'
            self.until(lambda: everywhere.request(
                'GET', path).status_code == 409)
            message = everywhere.request('GET', path).json()['error'][
                'message']
            self.assertIn(f'{sandbox.NAMESPACE}/{name}', message)
            self.assertIn('other/' + name, message)
            self.assertEqual(
                'KubeVirt VirtualMachine other/' + name,
                everywhere.system('other:' + name)['Description'])


class TestOutage(redfish_case.RedfishTestCase):
    """The Kubernetes API is unavailable for some seconds."""

    SETTINGS = {'SUSHY_EMULATOR_KUBEVIRT_STALE_SECONDS': 1,
                'SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE': 4}

    def test_unavailable_during_outage(self):
        self.make()
        self.sandbox.outage(10)
        # A write needs the API; a read does when the cache is too old.
        for answer in (
                self.emulator.reset(self.uuid, 'On', expect=503),
                self.wait_unavailable()):
            self.assertGreaterEqual(int(answer.headers['Retry-After']), 1)
            self.assertEqual(
                'ServiceTemporarilyUnavailable',
                answer.json()['error']['code'].rpartition('.')[2])
        self.emulator.request('GET', '/redfish/v1/', expect=200)
        self.until(lambda: self.emulator.request(
            'GET', self.path).status_code == 200)
        self.emulator.reset(self.uuid, 'On')
        self.sandbox.wait_running(self.name)

    def wait_unavailable(self):
        def unavailable():
            response = self.emulator.request('GET', self.path)
            # A Response of an error is falsy.
            return (response,) if response.status_code == 503 else ()
        return self.until(unavailable)[0]
