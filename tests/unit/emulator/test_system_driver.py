# SPDX-License-Identifier: Apache-2.0

import inspect
import logging

from oslotest import base
from sushy_tools.emulator.resources.systems import base as upstream
from sushy_tools import error

from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from tests.unit.redfish import fakes


class TestDriver(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.machine = fakes.Machine(fakes.A, 'vm-a')
        self.cluster = fakes.Cluster(self.machine,
                                     fakes.Machine(fakes.B, 'vm-b'))
        self.driver = system_driver.KubeVirtDriver.initialize(
            {}, logging.getLogger('test'))(self.cluster)

    def test_upstream_methods_are_not_supported(self):
        """No view of ours calls them; a new upstream view would get 501."""
        for name, member in inspect.getmembers(
                upstream.AbstractSystemsDriver):
            if name.startswith('_') or name in ('driver', 'initialize'):
                continue
            if name == 'systems':
                self.assertRaises(error.NotSupportedError, getattr,
                                  self.driver, name)
                continue
            arguments = [fakes.A] * (
                len(inspect.signature(member).parameters) - 1)
            self.assertRaises(error.NotSupportedError,
                              getattr(self.driver, name), *arguments)
        self.assertEqual([], self.machine.calls)

    def test_service_uuid_depends_on_scope(self):
        def uuid_of(**config):
            return system_driver.KubeVirtDriver.initialize(
                {'SUSHY_EMULATOR_KUBEVIRT_' + name: value
                 for name, value in config.items()},
                logging.getLogger('test'))(self.cluster).uuid_of_service

        self.assertEqual(self.driver.uuid_of_service, uuid_of())
        uuids = {uuid_of(), uuid_of(VM='default/vm-a'),
                 uuid_of(VM='default/vm-b'),
                 uuid_of(NAMESPACES='default'), uuid_of(LABEL_SELECTOR='x=y')}
        self.assertEqual(5, len(uuids))

    def test_machine_by_uuid_name_or_qualified_name(self):
        self.assertEqual('<kubevirt>', self.driver.driver)
        self.assertEqual([fakes.A, fakes.B], [
            machine.uuid for machine in self.driver.machines()])
        for name in (fakes.A, fakes.A.upper(), 'vm-a', 'default/vm-a',
                     'default:vm-a'):
            self.assertIs(self.machine, self.driver.machine(name))
        self.assertRaises(errors.MachineNotFound, self.driver.machine,
                          'none')
