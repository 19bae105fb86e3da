# SPDX-License-Identifier: Apache-2.0
import inspect

from oslotest import base
from sushy_tools.emulator.resources import vmedia
from sushy_tools import error

from sushy_kubevirt.emulator import media_driver


class TestDriver(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.driver = media_driver.KubeVirtDriver({}, None, None)

    def test_devices(self):
        self.assertEqual(['Cd', 'USBStick'], self.driver.devices)
        self.assertEqual('<kubevirt-vmedia>', self.driver.driver)

    def test_upstream_methods_are_not_supported(self):
        """No view of ours calls them; a new upstream view would get 501."""
        for name, member in inspect.getmembers(vmedia.BaseDriver):
            if name.startswith('_') or name in ('driver', 'devices'):
                continue
            arguments = ['x'] * sum(
                parameter.default is parameter.empty for parameter in
                inspect.signature(member).parameters.values())
            self.assertRaises(error.NotSupportedError,
                              getattr(self.driver, name), *arguments[1:])
