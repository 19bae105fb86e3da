# SPDX-License-Identifier: Apache-2.0
"""Test case that asks a BMC's commands without a session or a network."""

from unittest import mock

from oslotest import base

from sushy_kubevirt.machine import machine
from vbmc_kubevirt import bmc

UUID = '6fb0c2e9-6dd2-4c0a-b1d2-1234567890ab'


class Session:
    """Stands for an IPMI session that tests can delete."""


class BmcTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.machine = mock.create_autospec(machine.Machine, instance=True)
        self.machine.uuid = UUID
        self.machine.problem.return_value = None
        self.find = mock.Mock(return_value=self.machine)
        self.reset = mock.Mock()
        self.bmc = bmc.Bmc('vm', self.find, (3, 14), self.reset)
        self.session = Session()

    def ask(self, netfn, command, *data, session=None):
        return self.bmc.commands[netfn, command].handler(
            session or self.session, bytes(data))
