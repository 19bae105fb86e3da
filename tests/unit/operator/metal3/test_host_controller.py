# SPDX-License-Identifier: Apache-2.0
import asyncio
from unittest import mock

from oslotest import base

from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.metal3 import host_controller
from sushy_kubevirt.operator import spec


class VmTestCase(base.BaseTestCase):

    def test_preferred_firmware(self):
        """A preference has the firmware of a VM that names it."""
        vm = {'metadata': {'name': 'n0'}, 'spec': {'template': 1}}
        expanded = {'spec': {'template': 2}}
        api = mock.Mock(
            get=mock.AsyncMock(return_value=vm),
            expand_spec=mock.AsyncMock(return_value=expanded))
        one = host_controller.HostController(command_line.parse([]), api)
        ref = spec.Reference('lab', 'n0')
        self.assertEqual(vm, asyncio.run(one._whole_vm(ref)))
        api.expand_spec.assert_not_called()
        vm['spec']['preference'] = {'name': 'uefi'}
        self.assertEqual({**vm, **expanded}, asyncio.run(one._whole_vm(ref)))
        api.expand_spec.assert_called_once_with('lab', 'n0')
