# SPDX-License-Identifier: Apache-2.0
"""Test case that asks a BMC's commands without a session or a network."""

import math
from unittest import mock

from oslotest import base

from sushy_kubevirt.bmc import clock
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine import vm_state
from tests.unit.bmc import fake_state
from vbmc_kubevirt import bmc
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import users

UUID = '6fb0c2e9-6dd2-4c0a-b1d2-1234567890ab'
SERIAL = 'c0ffee00-0001-4002-8003-deadbeef0004'


def backend(find, log):
    """Make what a BMC works on."""
    backend = mock.Mock(log=log)
    backend.cluster.machine = lambda _vm: find()
    backend.cluster.options.write_deadline = math.inf
    return backend


class Session:
    """Stands for an IPMI session that tests can delete."""

    def __init__(self, handle=1, session_id=0x01020304, user_id=2,
                 privilege=constants.Privilege.ADMINISTRATOR,
                 address=('127.0.0.1', 0x1234), rmcpp=True,
                 name=b'name'):
        self.handle = handle
        self.session_id = session_id
        self.user = users.User(user_id, name, b'password')
        self.privilege = privilege
        self.address = address
        self.network = address[0]
        self.rmcpp = rmcpp
        self.requester = 0x81


class BmcTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.machine = mock.create_autospec(machine.Machine, instance=True)
        self.machine.uuid = UUID
        self.machine.serial.return_value = SERIAL
        self.machine.version.return_value = None
        self.machine.problem.return_value = None
        self.machine.impairment.return_value = None
        self.machine.indicator.return_value = 'Off'
        self.machine.state.return_value = vm_state.VmState({})
        self.find = mock.Mock(return_value=self.machine)
        self.log = mock.create_autospec(event_log.Log, instance=True)
        self.machine.uid = UUID
        self.log.clocks = clock.Clocks(fake_state.State())
        self.bmc = bmc.Bmc(
            command_table.commands, lambda: backend(self.find, self.log), 'vm',
            'lab/vm', None, None, None)
        self.bmc.version = '3.14.2.dev859'
        self.commands = self.bmc.commands
        self.session = Session()
        self.bmc.server = mock.create_autospec(server.Server, instance=True)
        self.bmc.server.active_sessions.side_effect = (
            lambda: [self.session])

    def ask(self, netfn, command, *data, session=None):
        return self.commands[netfn, command].handler(
            session or self.session, bytes(data))
