# SPDX-License-Identifier: Apache-2.0
"""The table of all IPMI commands is what the code does."""

from tests.unit.vbmc import bmc_case
from tests.unit.vbmc.ipmi import base
from tools import ipmi_reference
from vbmc_kubevirt import bmc
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: (network function, command): (name, level) of table G-1 and DCMI.
TABLE = {(group.netfn, number): (name, level)
         for group in ipmi_reference.GROUPS
         for number, name, level in group.commands}

LEVELS = {constants.NEVER: ipmi_reference.SYSTEM} | {
    level: level.name for level in constants.Privilege}


class TableTest(bmc_case.BmcTestCase):

    def test_page_is_up_to_date(self):
        self.assertEqual(
            ipmi_reference.page(), ipmi_reference.PAGE.read_text(),
            f'run: python -m tools.ipmi_reference > {ipmi_reference.PAGE}')

    def test_table_has_each_command_once(self):
        listed = [(group.netfn, number) for group in ipmi_reference.GROUPS
                  for number, _name, _level in group.commands]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertLess(170, len(listed))

    def test_groups_say_why_commands_are_refused(self):
        known = ipmi_reference.answers()
        for group in ipmi_reference.GROUPS:
            if not all(known.get((group.netfn, number))
                       == ipmi_reference.SERVED
                       for number, _name, _level in group.commands):
                self.assertTrue(group.remark, group.title)

    def test_commands_have_names_and_levels_of_the_table(self):
        for code, command in self.commands.items():
            name, level = TABLE[code]
            if level == ipmi_reference.NONE:
                level = ipmi_reference.CALLBACK
            self.assertEqual((name, level), (
                command.name, LEVELS[command.privilege]), code)
        for code, name in channel.NAMES.items():
            self.assertEqual(name, TABLE[code][0])


class AnswerTest(base.ServerTestCase):
    """The BMC's commands in a server, without a VM."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.commands = bmc.Bmc(
            command_table.commands, None, 'vm', 'lab/vm', None, None,
            None).commands
        self.server._commands = self.commands

    async def test_refused_commands_get_the_code_of_the_table(self):
        one = self.client().login()
        one.request(6, 0x3B, b'\4')
        known = ipmi_reference.answers()
        refused = [code for code in TABLE
                   if known.get(code) != ipmi_reference.SERVED]
        for netfn, command in refused:
            expected = known.get((netfn, command),
                                 ipmi_reference.UNSUPPORTED)
            self.assertEqual(
                [(int(expected[:2], 16), b'')],
                one.request(netfn, command, bytes(24)), TABLE[netfn, command])

    async def test_served_commands_need_their_level(self):
        one = self.client().login()
        one.request(6, 0x3B, b'\4')
        session, = self.server.active_sessions()
        for code, command in self.commands.items():
            for level in constants.Privilege:
                if level < command.privilege:
                    session.privilege = level
                    self.assertEqual([(0xD4, b'')],
                                     one.request(*code, bytes(24)),
                                     command.name)

    async def test_commands_of_level_none_need_no_session(self):
        served = [code for code, (_name, level) in TABLE.items()
                  if level == ipmi_reference.NONE
                  and ipmi_reference.answers().get(code)
                  == ipmi_reference.SERVED]
        self.assertEqual(
            {(6, 0x37), (6, 0x38), (6, 0x39), (6, 0x3A), (6, 0x54)},
            set(served))
        for code in (6, 0x37), (6, 0x38), (6, 0x54):
            answer = self.client().exchange_message(*code, b'\x0e\4\0')
            self.assertEqual(0, answer[0])
        self.assertEqual(base.GUID, self.client().exchange_message(
            6, 0x37, b'')[1])
        self.assertEqual((0xC1, b''), self.client().exchange_message(
            *channel.PET_ACKNOWLEDGE, bytes(12)))
