# SPDX-License-Identifier: Apache-2.0

import inspect
import logging

from oslotest import base
from sushy_tools.emulator.resources.systems import base as upstream
from sushy_tools import error

from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.unit.redfish import fakes

# What a VM has nothing for.
REFUSED = {
    'set_versions': ({},), 'reset_versions': (),
    'get_boot_image': ('Cd',), 'set_boot_image': ('Cd',),
    'find_or_create_storage_volume': None, 'get_http_boot_uri': (),
    'set_http_boot_uri': None,
}


class TestDriver(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.machine = fakes.Machine(fakes.A, 'vm-a')
        self.cluster = fakes.Cluster(self.machine,
                                     fakes.Machine(fakes.B, 'vm-b'))
        self.driver = system_driver.KubeVirtDriver.initialize(
            {}, logging.getLogger('test'))(self.cluster)

    def test_every_method_is_ours_or_refused(self):
        for name, member in inspect.getmembers(
                upstream.AbstractSystemsDriver):
            if name.startswith('_'):
                continue
            if name not in vars(system_driver.KubeVirtDriver):
                self.assertIn(name, REFUSED)
        for name, arguments in REFUSED.items():
            if arguments is None:
                arguments = ({},)
            else:
                arguments = (fakes.A, *arguments)
            self.assertRaises(error.NotSupportedError,
                              getattr(self.driver, name), *arguments)

    def test_uuid_of_the_service(self):
        def made(**config):
            return system_driver.KubeVirtDriver.initialize(
                {'SUSHY_EMULATOR_KUBEVIRT_' + name: value
                 for name, value in config.items()},
                logging.getLogger('test'))(self.cluster).uuid_of_service

        self.assertEqual(self.driver.uuid_of_service, made())
        uuids = {made(), made(VM='default/vm-a'), made(VM='default/vm-b'),
                 made(NAMESPACES='default'), made(LABEL_SELECTOR='x=y')}
        self.assertEqual(5, len(uuids))

    def test_identity(self):
        self.assertEqual([fakes.A, fakes.B], self.driver.systems)
        self.assertEqual(fakes.A, self.driver.uuid(fakes.A.upper()))
        self.assertEqual('vm-a', self.driver.name(fakes.A))
        for name in 'vm-a', 'default/vm-a', 'default:vm-a':
            exc = self.assertRaises(error.AliasAccessError, self.driver.uuid,
                                    name)
            self.assertEqual((fakes.A,), exc.args)
        self.assertRaises(error.NotFound, self.driver.uuid, 'none')

    def test_reads(self):
        self.machine._boot = fakes.BootState(
            boot.Target.CD, boot.Enabled.ONCE, boot.Mode.LEGACY)
        for name, expected in (
                ('get_power_state', 'Off'), ('get_boot_device', 'Cd'),
                ('get_boot_mode', 'Legacy'), ('get_secure_boot', False),
                ('get_total_memory', 5), ('get_total_cpus', 12),
                ('get_bios', {**fakes.KNOBS, 'QuietBoot': 'true'}),
                ('get_versions', {'BiosVersion': 'UEFI of KubeVirt v1.9.0'}),
                ('get_nics', [{'id': 'default', 'mac': '02:00:00:00:00:01'},
                              {'id': 'second', 'mac': ''}])):
            self.assertEqual(expected,
                             getattr(self.driver, name)(fakes.A), name)
        self.assertEqual(
            [('CPU0', 3, 6), ('CPU1', 3, 6)],
            [(one['id'], one['cores'], one['threads'])
             for one in self.driver.get_processors(fakes.A)])
        self.assertEqual({
            'virtio': {'Id': 'virtio', 'Name': 'virtio', 'DeviceList': [
                {'Name': 'root', 'CapacityBytes': 10 * 2 ** 30},
                {'Name': 'more', 'CapacityBytes': None}]},
            'sata': {'Id': 'sata', 'Name': 'sata', 'DeviceList': [
                {'Name': 'cd', 'CapacityBytes': None}]},
        }, self.driver.get_simple_storage_collection(fakes.A))

    def test_writes(self):
        self.driver.set_power_state(fakes.A, 'ForceOff')
        self.driver.set_boot_device(fakes.A, 'Pxe')
        self.driver.set_boot_mode(fakes.A, 'UEFI')
        self.driver.set_secure_boot(fakes.A, True)
        self.driver.set_bios(fakes.A, {'x': 'y'})
        self.driver.reset_bios(fakes.A)
        self.assertEqual([
            ('reset', power_state.ResetType.FORCE_OFF),
            ('set_boot', boot.Target.PXE, None, None),
            ('set_boot', None, None, boot.Mode.UEFI),
            ('set_secure_boot', True),
            ('set_attributes', {'x': 'y'}),
            ('reset_attributes',),
        ], self.machine.calls)

    def test_errors(self):
        for machine_error, upstream_error, code in (
                (errors.MachineNotFound('x'), error.NotFound, 404),
                (errors.WrongState('x'), error.Conflict, 409),
                (errors.Rejected('x'), error.Conflict, 409),
                (errors.Unsupported('x'), error.NotSupportedError, 501),
                (errors.InvalidValue('x', 1), error.BadRequest, 400),
                (errors.Unavailable('x'), error.FishyError, 503),
                (errors.AccessDenied('x'), error.FishyError, 500)):
            self.machine.fails = machine_error
            exc = self.assertRaises(upstream_error, self.driver.reset_bios,
                                    fakes.A)
            self.assertEqual(code, exc.code)
            self.assertIs(machine_error, exc.__cause__)
        self.assertRaises(error.BadRequest, self.driver.set_power_state,
                          fakes.A, 'Nonsense')
        self.assertRaises(error.BadRequest, self.driver.set_boot_device,
                          fakes.A, 'Floppy')
