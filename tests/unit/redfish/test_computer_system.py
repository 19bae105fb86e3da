# SPDX-License-Identifier: Apache-2.0

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.unit.redfish import base
from tests.unit.redfish import fakes

RESET = '/Actions/ComputerSystem.Reset'
DEFAULT_ORDER = '/Actions/ComputerSystem.SetDefaultBootOrder'


class TestGet(base.RedfishTestCase):

    def test_full_body(self):
        self.assertEqual({
            '@odata.id': self.path,
            '@odata.type': '#ComputerSystem.v1_26_0.ComputerSystem',
            'Id': fakes.A,
            'Name': 'vm-a',
            'Description': 'KubeVirt VirtualMachine default/vm-a',
            'UUID': fakes.A,
            'SystemType': 'Virtual',
            'Manufacturer': 'KubeVirt',
            'Model': 'q35',
            'SerialNumber': 'serial-7',
            'HostName': 'guest-a',
            'PowerState': 'Off',
            'Status': {'State': 'StandbyOffline', 'Health': 'OK',
                       'HealthRollup': 'OK'},
            'Boot': {
                'BootSourceOverrideEnabled': 'Disabled',
                'BootSourceOverrideEnabled@Redfish.AllowableValues':
                    ['Disabled', 'Once', 'Continuous'],
                'BootSourceOverrideTarget': 'None',
                'BootSourceOverrideTarget@Redfish.AllowableValues':
                    ['None', 'Pxe', 'Hdd', 'Cd'],
                'BootSourceOverrideMode': 'UEFI',
                'BootSourceOverrideMode@Redfish.AllowableValues':
                    ['UEFI', 'Legacy'],
                'BootOptions': {'@odata.id': self.path + '/BootOptions'},
                'BootOrder': ['Boot1001', 'Boot0001'],
            },
            'ProcessorSummary': {
                'Count': 2, 'CoreCount': 6, 'LogicalProcessorCount': 12,
                'ThreadingEnabled': True, 'Model': 'Haswell'},
            'MemorySummary': {'TotalSystemMemoryGiB': 5},
            'BiosVersion': 'UEFI of KubeVirt v1.9.0',
            'BootProgress': {'LastState': 'None'},
            'PowerRestorePolicy': 'LastState',
            'PowerRestorePolicy@Redfish.AllowableValues': [
                'AlwaysOn', 'AlwaysOff', 'LastState'],
            'AssetTag': '',
            'GraphicalConsole': {
                'ServiceEnabled': True, 'MaxConcurrentSessions': 1,
                'ConnectTypesSupported': ['OEM']},
            'SerialConsole': {'MaxConcurrentSessions': 1, 'WebSocket': {
                'ServiceEnabled': True, 'Interactive': True,
                'ConsoleURI': self.path + '/SerialConsole'}},
            'Oem': {'SushyKubevirt': {
                'Namespace': 'default',
                'GraphicalConsole': {
                    'Interactive': True,
                    'ConsoleURI': self.path + '/GraphicalConsole'}}},
            'IndicatorLED': 'Off',
            'LocationIndicatorActive': False,
            'Bios': {'@odata.id': self.path + '/Bios'},
            'Processors': {'@odata.id': self.path + '/Processors'},
            'SecureBoot': {'@odata.id': self.path + '/SecureBoot'},
            'SimpleStorage': {'@odata.id': self.path + '/SimpleStorage'},
            'Storage': {'@odata.id': self.path + '/Storage'},
            'LogServices': {'@odata.id': self.path + '/LogServices'},
            'Memory': {'@odata.id': self.path + '/Memory'},
            'EthernetInterfaces': {
                '@odata.id': self.path + '/EthernetInterfaces'},
            'VirtualMedia': {'@odata.id': self.path + '/VirtualMedia'},
            'Links': {
                'Chassis': [{'@odata.id': '/redfish/v1/Chassis/' + fakes.A}],
                'ManagedBy': [
                    {'@odata.id': '/redfish/v1/Managers/' + fakes.A}]},
            'Actions': {
                '#ComputerSystem.Reset': {
                    'target': self.path + RESET,
                    '@Redfish.ActionInfo': self.path + '/ResetActionInfo',
                    'ResetType@Redfish.AllowableValues': sorted([
                        'On', 'ForceOn', 'ForceOff', 'GracefulShutdown',
                        'ForceRestart', 'GracefulRestart', 'PowerCycle',
                        'PushPowerButton', 'Pause', 'Resume'])},
                '#ComputerSystem.SetDefaultBootOrder': {
                    'target': self.path + DEFAULT_ORDER}},
        }, self.sorted(self.get()))

    def sorted(self, body):
        body['Actions']['#ComputerSystem.Reset'][
            'ResetType@Redfish.AllowableValues'].sort()
        return body

    def test_patch_knows_every_property_of_the_body(self):
        for name, value in self.get().items():
            if '@' not in name:
                answer = self.client.patch(self.path, json={name: value})
                self.assertNotIn(f'property {name} is not in the list',
                                 answer.get_data(True))

    def test_all_links_resolve(self):
        def links(value):
            if isinstance(value, dict):
                for name, inner in value.items():
                    if name == '@odata.id':
                        yield inner
                    else:
                        yield from links(inner)
            elif isinstance(value, list):
                for inner in value:
                    yield from links(inner)

        waiting, seen = [self.path, '/redfish/v1/Managers/' + fakes.A], set()
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            answer = self.client.get(path)
            self.assertEqual(200, answer.status_code, path)
            if path.startswith((self.path, '/redfish/v1/Managers')):
                waiting += links(answer.json)
        self.assertIn(self.path + '/EthernetInterfaces/default', seen)
        self.assertIn(self.path + '/SimpleStorage/virtio', seen)

    def test_power_states(self):
        for state, shown in (
                (power_state.PowerState.ON, 'Enabled'),
                (power_state.PowerState.POWERING_ON, 'Starting'),
                (power_state.PowerState.POWERING_OFF, 'Enabled'),
                (power_state.PowerState.PAUSED, 'Quiesced'),
                (power_state.PowerState.OFF, 'StandbyOffline')):
            self.machine._power = state
            body = self.get()
            self.assertEqual(state.value, body['PowerState'])
            self.assertEqual(shown, body['Status']['State'])

    def test_boot_override(self):
        self.machine._boot = fakes.BootState(
            boot.Target.CD, boot.Enabled.ONCE, boot.Mode.LEGACY)
        body = self.get()['Boot']
        self.assertEqual('Cd', body['BootSourceOverrideTarget'])
        self.assertEqual('Once', body['BootSourceOverrideEnabled'])
        self.assertEqual('Legacy', body['BootSourceOverrideMode'])

    def test_start_failure_is_critical(self):
        self.machine._problem = power_state.Problem(
            'ErrorUnschedulable', '0/1 nodes are available')
        status = self.get()['Status']
        self.assertEqual('Critical', status['Health'])
        self.assertEqual('UnavailableOffline', status['State'])
        [condition] = status['Conditions']
        self.assertEqual(['PowerState', 'ErrorUnschedulable'],
                         condition['MessageArgs'])
        self.assertIn('0/1 nodes are available', condition['Message'])

    def test_guest_that_does_not_work_is_critical(self):
        self.machine._power = power_state.PowerState.PAUSED
        self.machine._impairment = power_state.Problem(
            'PausedIOError', 'low-level IO error detected')
        status = self.get()['Status']
        self.assertEqual(('Critical', 'Quiesced'),
                         (status['Health'], status['State']))
        [condition] = status['Conditions']
        self.assertEqual(['PowerState', 'PausedIOError'],
                         condition['MessageArgs'])
        self.assertIn('low-level IO error', condition['Message'])

    def test_reconcile_error_is_a_warning(self):
        self.machine._reconcile_error = power_state.Problem(
            'FailedCreate', 'no such instance type')
        status = self.get()['Status']
        self.assertEqual(('Warning', 'Warning', 'StandbyOffline'), (
            status['Health'], status['HealthRollup'], status['State']))
        [condition] = status['Conditions']
        self.assertEqual('Warning', condition['Severity'])
        self.assertIn('no such instance type', condition['Message'])

    def test_feature_sets(self):
        self.app.config['SUSHY_EMULATOR_FEATURE_SET'] = 'vmedia'
        body = self.get()
        self.assertNotIn('ProcessorSummary', body)
        self.assertIn('VirtualMedia', body)
        self.get('/Processors', code=404)
        self.get('/EthernetInterfaces')
        self.send('PATCH', '', {'IndicatorLED': 'Lit'}, 400)
        self.app.config['SUSHY_EMULATOR_FEATURE_SET'] = 'minimum'
        body = self.get()
        self.assertNotIn('VirtualMedia', body)
        self.assertEqual({}, body['Links'])
        self.get('/EthernetInterfaces', code=404)
        self.get(path='/redfish/v1/Managers/' + fakes.A, code=404)


class TestPatch(base.RedfishTestCase):

    def patch(self, body, code=204):
        return self.send('PATCH', '', body, code)

    def test_boot_change_is_one_call(self):
        self.patch({'Boot': {'BootSourceOverrideTarget': 'Pxe',
                             'BootSourceOverrideEnabled': 'Once',
                             'BootSourceOverrideMode': 'UEFI'}})
        self.assertEqual([('set_boot', boot.Target.PXE, boot.Enabled.ONCE,
                           boot.Mode.UEFI)], self.machine.calls)

    def test_partial_boot_changes(self):
        self.patch({'Boot': {'BootSourceOverrideMode': 'Legacy'}})
        self.patch({'Boot': {'BootSourceOverrideEnabled': 'Disabled'}})
        self.patch({'Boot': {'BootSourceOverrideTarget': 'None'}})
        self.assertEqual([
            ('set_boot', None, None, boot.Mode.LEGACY),
            ('set_boot', None, boot.Enabled.DISABLED, None),
            ('set_boot', boot.Target.NONE, None, None),
        ], self.machine.calls)

    def test_enabled_without_target(self):
        for enabled in 'Once', 'Continuous':
            body = self.patch(
                {'Boot': {'BootSourceOverrideEnabled': enabled}}, 400)
            self.assertEqual(
                [('PropertyMissing', ['BootSourceOverrideTarget'])],
                self.entries(body))
        self.machine._boot = fakes.BootState(
            boot.Target.PXE, boot.Enabled.CONTINUOUS)
        self.patch({'Boot': {'BootSourceOverrideEnabled': 'Once'}})
        self.assertEqual([('set_boot', None, boot.Enabled.ONCE, None)],
                         self.machine.calls)

    def test_sets_indicator(self):
        self.patch({'IndicatorLED': 'Blinking'})
        self.patch({'LocationIndicatorActive': True})
        self.patch({'LocationIndicatorActive': False})   # it is off
        self.patch({'IndicatorLED': 'Lit', 'LocationIndicatorActive': True})
        self.assertEqual(['Blinking', 'Blinking', 'Lit'],
                         [call[1] for call in self.machine.calls])

    def test_indicator_conflict(self):
        body = self.patch({'IndicatorLED': 'Off',
                           'LocationIndicatorActive': True}, 400)
        self.assertEqual(
            [('PropertyValueConflict',
              ['LocationIndicatorActive', 'IndicatorLED'])],
            self.entries(body))

    def test_invalid_property_prevents_all_changes(self):
        body = self.patch({
            'IndicatorLED': 'Purple',
            'PowerState': 'On',
            'Nonsense': 1,
            'Boot': {'BootSourceOverrideTarget': 'Floppy',
                     'BootSourceOverrideEnabled': True,
                     'HttpBootUri': 'http://x/',
                     'BootSourceOverrideMode': 'UEFI'}}, 400)
        self.assertEqual([], self.machine.calls)
        self.assertCountEqual([
            ('PropertyValueNotInList', ['Purple', 'IndicatorLED']),
            ('PropertyNotWritable', ['PowerState']),
            ('PropertyUnknown', ['Nonsense']),
            ('PropertyValueNotInList',
             ['Floppy', 'BootSourceOverrideTarget']),
            ('PropertyValueTypeError', ['true', 'BootSourceOverrideEnabled']),
            ('PropertyNotWritable', ['HttpBootUri']),
        ], self.entries(body))
        [entry] = [entry for entry in
                   body['error']['@Message.ExtendedInfo']
                   if 'Floppy' in entry['MessageArgs']]
        self.assertEqual(['#/Boot/BootSourceOverrideTarget'],
                         entry['RelatedProperties'])
        self.assertIn('None, Pxe, Hdd, Cd', entry['Message'])

    def test_rejects_target_without_device(self):
        self.machine.boot_targets = lambda: (boot.Target.HDD,)
        body = self.patch(
            {'Boot': {'BootSourceOverrideTarget': 'Cd'}}, 400)
        self.assertEqual(
            [('PropertyValueNotInList', ['Cd', 'BootSourceOverrideTarget'])],
            self.entries(body))

    def test_rejects_http_boot(self):
        body = self.patch({'Boot': {
            'BootSourceOverrideTarget': 'UefiHttp',
            'HttpBootUri': 'http://x/'}}, 400)
        self.assertCountEqual([
            ('PropertyValueNotInList',
             ['UefiHttp', 'BootSourceOverrideTarget']),
            ('PropertyNotWritable', ['HttpBootUri'])], self.entries(body))
        self.assertIn('HTTP', body['error']['message'])

    def test_rejects_empty_patch(self):
        for body in {}, {'Boot': {}}, {'@odata.etag': 'x'}:
            self.assertEqual(
                'NoOperation', self.entries(self.patch(body, 400))[0][0])

    def test_annotations_are_ignored(self):
        self.patch({'@odata.id': 'x', 'IndicatorLED': 'Lit'})

    def test_rejects_wrong_types(self):
        for body, name in (({'Boot': 'Pxe'}, 'Boot'),
                           ({'Boot': None}, 'Boot'),
                           ({'Boot': ['Pxe']}, 'Boot'),
                           ({'IndicatorLED': 1}, 'IndicatorLED'),
                           ({'LocationIndicatorActive': 'true'},
                            'LocationIndicatorActive'),
                           ({'LocationIndicatorActive': 1},
                            'LocationIndicatorActive')):
            [(key, args)] = self.entries(self.patch(body, 400))
            self.assertEqual('PropertyValueTypeError', key)
            self.assertEqual(name, args[1])

    def test_maps_errors_of_the_machine(self):
        change = {'Boot': {'BootSourceOverrideMode': 'Legacy'}}
        self.machine.fails = errors.Rejected('admission webhook: no')
        body = self.patch(change, 409)
        self.assertEqual(
            [('PropertyValueResourceConflict',
              ['BootSourceOverrideMode', 'Legacy', self.path])],
            self.entries(body))
        self.assertIn('admission webhook: no', body['error']['message'])
        self.machine.fails = errors.InvalidValue(
            'BootSourceOverrideMode', boot.Mode.LEGACY, (boot.Mode.UEFI,))
        body = self.patch(change, 400)
        self.assertEqual(
            [('PropertyValueIncorrect',
              ['BootSourceOverrideMode', 'Legacy'])], self.entries(body))


class TestReset(base.RedfishTestCase):

    def reset(self, body, code=204):
        return self.send('POST', RESET, body, code)

    def test_every_reset_type(self):
        kinds = [kind for kind in power_state.ResetType
                 if kind is not power_state.ResetType.NMI]
        for kind in kinds:
            self.reset({'ResetType': kind.value})
        self.assertEqual([('reset', kind) for kind in kinds],
                         self.machine.calls)

    def test_rejects_unknown_reset_types(self):
        for kind in 'Nmi', 'Suspend', 'off', '':
            body = self.reset({'ResetType': kind}, 400)
            self.assertEqual(
                [('ActionParameterValueNotInList',
                  [kind, 'ResetType', 'ComputerSystem.Reset'])],
                self.entries(body))
            self.assertIn('PushPowerButton', body['error']['message'])
        self.assertEqual([], self.machine.calls)

    def test_rejects_nmi(self):
        body = self.reset({'ResetType': 'Nmi'}, 400)
        self.assertIn('diagnostic interrupt', body['error']['message'])

    def test_rejects_invalid_parameters(self):
        for given, key in (({}, 'ActionParameterMissing'),
                           ({'ResetType': 1},
                            'ActionParameterValueTypeError'),
                           ({'ResetType': None},
                            'ActionParameterValueTypeError'),
                           ({'ResetType': 'On', 'Delay': 5},
                            'ActionParameterUnknown')):
            body = self.reset(given, 400)
            self.assertEqual(key, self.entries(body)[0][0])
        self.assertEqual([], self.machine.calls)

    def test_wrong_state_gets_409(self):
        self.machine.fails = errors.WrongState('default/vm-a is off')
        body = self.reset({'ResetType': 'ForceRestart'}, 409)
        self.assertEqual([('PropertyValueResourceConflict',
                           ['ResetType', 'ForceRestart', self.path])],
                         self.entries(body))
        self.assertIn('default/vm-a is off', body['error']['message'])

    def test_power_off_disabled(self):
        fakes.use(
            self.app.sushy_kubevirt, type(self.app.systems).initialize(
                {'SUSHY_EMULATOR_DISABLE_POWER_OFF': True},
                self.app.logger)(self.cluster))
        values = self.get()['Actions']['#ComputerSystem.Reset'][
            'ResetType@Redfish.AllowableValues']
        for kind in 'ForceOff', 'GracefulShutdown', 'PushPowerButton':
            self.assertNotIn(kind, values)
            body = self.reset({'ResetType': kind}, 400)
            self.assertIn('SUSHY_EMULATOR_DISABLE_POWER_OFF',
                          body['error']['message'])
        self.reset({'ResetType': 'ForceRestart'})
