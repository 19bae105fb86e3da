# SPDX-License-Identifier: Apache-2.0
"""Payload and SOL configuration commands, with sessions of the server."""

import asyncio
import gc
import struct
from unittest import mock

from tests.unit.vbmc.ipmi import base
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table
from vbmc_kubevirt.commands import payload
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import session15

ACTIVATE = (6, 0x48, bytes((1, 1, 0xC0, 0, 0, 0)))
DEACTIVATE = (6, 0x49, bytes((1, 1, 0, 0, 0, 0)))
SOL = 0xC1


class Console:
    """Stands for `console.Console`; echoes."""

    def __init__(self, find, output, notice):
        self.output, self.notice = output, notice
        self.input = b''
        self.discarded = False
        self.ended = asyncio.Event()
        Console.latest = self

    async def run(self):
        try:
            await asyncio.Future()
        finally:
            self.ended.set()

    def write(self, data):
        self.input += data
        return len(data)

    def discard_input(self):
        self.discarded = True


class PayloadTestCase(base.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        patch = mock.patch.object(payload.console, 'Console', Console)
        patch.start()
        self.addCleanup(patch.stop)
        self.bmc = bmc.Bmc(command_table.commands, None, 'vm', 'lab/vm', None,
                           None, None)
        self.bmc.server = self.server
        self.commands = self.bmc.commands
        self.server._commands.update(self.commands)
        self.one = self.login()

    def login(self, number=1, level=4):
        """Open a session at a privilege level."""
        client = self.client(address=('192.0.2.1', 40000 + number)).login()
        self.assertEqual([(0, bytes((level,)))],
                         client.request(6, 0x3B, bytes((level,))))
        return client

    def ask(self, netfn, command, *data, client=None):
        answer, = (client or self.one).request(netfn, command, bytes(data))
        return answer

    def activate(self, client=None):
        answer, = (client or self.one).request(*ACTIVATE)
        return answer

    def sol(self, client, *head, data=b''):
        """Send a SOL payload; return those that came back."""
        return [client.decrypt(each) for each in client.send(
            client.secure(bytes(head) + data, kind=SOL))]


class ActivationTest(PayloadTestCase):

    async def test_activate_and_deactivate(self):
        self.assertEqual((0, bytes((1, 0, 0))), self.ask(6, 0x4A, 1))
        self.assertEqual(
            (0, struct.pack('<IHHHH', 0, 255, 255, 623, 0xffff)),
            self.activate())
        self.assertEqual((0, bytes((1, 1, 0))), self.ask(6, 0x4A, 1))
        self.assertEqual((0, self.one.session_id + b'\1' + bytes(7)),
                         self.ask(6, 0x4B, 1, 1))
        await asyncio.sleep(0)
        self.assertEqual([(0, b'')], self.one.request(*DEACTIVATE))
        await asyncio.wait_for(Console.latest.ended.wait(), 5)
        self.assertEqual((0, bytes((1, 0, 0))), self.ask(6, 0x4A, 1))
        self.assertEqual((0, bytes(4) + b'\1' + bytes(7)),
                         self.ask(6, 0x4B, 1, 1))
        self.assertEqual([(0x80, b'')], self.one.request(*DEACTIVATE))

    async def test_repeated_activation_by_the_same_session(self):
        first = self.activate()
        console = Console.latest
        self.assertEqual(first, self.activate())
        self.assertIs(console, Console.latest)

    async def test_second_session_deactivates_first(self):
        two = self.login(2)
        self.activate()
        await asyncio.sleep(0)
        console = Console.latest
        self.assertEqual((0x80, b''), self.activate(two))
        mark = len(self.socket.sent)
        self.assertEqual([(0, b'')], two.request(*DEACTIVATE))
        farewells = [self.one.decrypt(data) for data, address
                     in self.socket.sent[mark:] if address == self.one.address]
        self.assertIn(b'Deactivated by another session', farewells[0][1])
        self.assertEqual((SOL, b'\0\0\0\x10'),
                         (farewells[1][0], farewells[1][1][:3]
                          + bytes((farewells[1][1][3] & 0x10,))))
        await asyncio.wait_for(console.ended.wait(), 5)
        self.assertEqual(0, self.activate(two)[0])
        # The first session can still send commands, but no SOL packets.
        self.assertEqual(0, self.ask(6, 0x4A, 1)[0])
        self.assertEqual([], self.sol(self.one, 1, 0, 0, 0, data=b'x'))
        self.assertEqual(b'', Console.latest.input)

    async def test_end_of_session_ends_it(self):
        number, = struct.unpack('<I', self.one.session_id)
        for end in (lambda: self.one.request(6, 0x3C, self.one.session_id),
                    lambda: self.advance_clock(61),
                    self.server._sessions.end_all,
                    lambda: setattr(self, 'account', (b'admin', b'other'))):
            self.account = b'admin', b'secret'
            self.one = self.login()
            self.assertEqual(0, self.activate()[0])
            await asyncio.sleep(0)
            end()
            self.one.send(self.one.secure(b'\1\0\0\0x', kind=SOL))
            await asyncio.wait_for(Console.latest.ended.wait(), 5)
            self.assertEqual(b'', Console.latest.input)

    async def test_end_of_user_ends_it_without_a_packet(self):
        self.activate()
        await asyncio.sleep(0)
        self.advance_clock(1)
        self.assertEqual(1, self.server.sessions)
        self.account = None
        self.advance_clock(1)
        await asyncio.wait_for(Console.latest.ended.wait(), 5)
        mark = len(self.socket.sent)
        await Console.latest.output(b'secret')
        self.assertEqual(mark, len(self.socket.sent))
        self.assertEqual(0, self.server.sessions)

    async def test_end_of_server_ends_it(self):
        self.activate()
        await asyncio.sleep(0)
        mark = len(self.socket.sent)
        self.socket.recvfrom = mock.Mock(side_effect=BlockingIOError)
        await self.server.finish(1)
        self.assertEqual((SOL, b'\0\0\0\x10'),
                         self.one.decrypt(self.socket.sent[mark][0]))
        await asyncio.wait_for(Console.latest.ended.wait(), 5)

    async def test_failed_console_ends_it(self):
        with mock.patch.object(Console, 'run', side_effect=RuntimeError), \
                self.assertLogs('vbmc_kubevirt.commands.payload', 'ERROR'):
            self.activate()
            await asyncio.sleep(0.01)
        self.assertEqual((0, bytes((1, 0, 0))), self.ask(6, 0x4A, 1))

    async def test_refusals(self):
        for code, data in ((0xCC, (0, 1, 0xC0)), (0xCC, (2, 1, 0xC0)),
                           (0xCC, (1, 2, 0xC0)), (0x84, (1, 1, 0x40)),
                           (0x84, (1, 1, 0))):
            self.assertEqual((code, b''), self.ask(6, 0x48, *data, 0, 0, 0))
        self.assertEqual((0xC7, b''), self.ask(6, 0x48, 1, 1, 0xC0))
        self.assertEqual((0xC7, b''), self.ask(6, 0x49, 1))
        for command in 0x4A, 0x4B:
            self.assertEqual((0xCC, b''), self.ask(6, command, 2, 1))

    async def test_privilege(self):
        user = self.login(3, level=2)
        self.assertEqual((0xD4, b''), self.activate(user))
        self.activate()
        self.assertEqual([(0xD4, b'')], user.request(*DEACTIVATE))
        self.assertEqual((0, bytes((1, 1, 0))),
                         self.ask(6, 0x4A, 1, client=user))
        self.one.request(*DEACTIVATE)
        # Parameter 2 sets the level that is needed.
        self.assertEqual((0, b''), self.ask(0x0C, 0x21, 1, 2, 0xC2))
        self.assertEqual(0, self.activate(user)[0])

    async def test_v15_session_is_refused(self):
        session = session15.Session(
            ('192.0.2.1', 1), 5, self.server._users.by_name(b'admin'))
        session.privilege = constants.Privilege.ADMINISTRATOR
        command = self.commands[6, 0x48]
        self.assertEqual((0xD5, b''), command.handler(session, ACTIVATE[2]))

    async def test_channel_commands(self):
        self.assertEqual((0, bytes((3, 0, 0x3f, 0, 0, 0, 0, 0))),
                         self.ask(6, 0x4E, 0x0E))
        self.assertEqual((0, b'\x10'), self.ask(6, 0x4F, 1, 1))
        self.assertEqual((0x80, b''), self.ask(6, 0x4F, 1, 2))
        self.assertEqual((0x80, b''),
                         self.ask(6, 0x50, 1, 2, 1, 2, 3, 4, 5))
        for command, data in ((0x4E, (2,)), (0x4F, (2, 1)),
                              (0x50, (2, 2, 0, 0, 0, 0, 0))):
            self.assertEqual((0xCC, b''), self.ask(6, command, *data))

    async def test_user_access_follows_privilege_level(self):
        self.bmc.users = bmc_users.BmcUsers(self.users, managed=True)
        enabled, disabled = (0, b'\2\0\0\0'), (0, bytes(4))
        for number, expected in ((1, disabled), (2, enabled), (4, disabled)):
            self.assertEqual(expected, self.ask(6, 0x4D, 1, number))
        self.assertEqual((0xCC, b''), self.ask(6, 0x4D, 1, 0))
        self.assertEqual((0xCC, b''), self.ask(6, 0x4D, 1, 16))
        for code, operation, bits in ((0, 0, 2), (0xD5, 0x40, 2), (0, 0x40, 0),
                                      (0xCC, 0, 4), (0xCC, 0x80, 2)):
            self.assertEqual((code, b''), self.ask(
                6, 0x4C, 1, operation | 2, bits, 0, 0, 0))
        self.assertEqual((0xD5, b''), self.ask(6, 0x4C, 1, 4, 2, 0, 0, 0))
        self.assertEqual((0, b''), self.ask(6, 0x4C, 1, 0x44, 2, 0, 0, 0))
        self.ask(0x0C, 0x21, 1, 2, 0xC2)
        self.assertEqual(enabled, self.ask(6, 0x4D, 1, 2))

    async def test_encryption_cannot_be_suspended(self):
        self.assertEqual((0x83, b''), self.ask(6, 0x55, 1, 1, 1))
        self.activate()
        self.assertEqual((0x81, b''), self.ask(6, 0x55, 1, 1, 0))
        self.assertEqual((0, b''), self.ask(6, 0x55, 1, 1, 1))
        self.assertEqual((0xCC, b''), self.ask(6, 0x55, 0, 1, 1))


class PacketTest(PayloadTestCase):

    async def test_characters_in_both_directions(self):
        self.activate()
        self.assertEqual([(SOL, b'\0\1\2\0')],
                         self.sol(self.one, 1, 0, 0, 0, data=b'hi'))
        self.assertEqual(b'hi', Console.latest.input)
        mark = len(self.socket.sent)
        await Console.latest.output(b'there')
        sent, = self.socket.sent[mark:]
        self.assertEqual((SOL, b'\1\0\0\0there'), self.one.decrypt(sent[0]))
        self.assertEqual([], self.sol(self.one, 0, 1, 5, 0))

    async def test_replayed_and_foreign_packets_are_dropped(self):
        self.activate()
        data = self.one.secure(b'\1\0\0\0x', kind=SOL)
        self.assertEqual(1, len(self.one.send(data)))
        self.assertEqual([], self.one.send(data))
        two = self.login(2)
        self.assertEqual([], self.sol(two, 1, 0, 0, 0, data=b'y'))
        # Neither encrypted nor signed
        for kind in 0x01, 0x41, 0x81:
            self.assertEqual([], self.one.send(base.client.payload(
                kind, b'\2\0\0\0z',
                struct.unpack('<I', self.one.session_id)[0], 99)))
        self.assertEqual(b'x', Console.latest.input)

    async def test_packets_keep_the_session(self):
        self.activate()
        for number in range(1, 5):
            self.advance_clock(40)
            self.assertEqual(1, len(self.sol(self.one, number, 0, 0, 0)))

    async def test_break_is_reported(self):
        self.activate()
        answers = self.sol(self.one, 1, 0, 0, 0x12)
        self.assertIn(b'does not transmit a break', answers[0][1])
        self.assertEqual((SOL, b'\0\1\0\0'), answers[1])
        self.assertTrue(Console.latest.discarded)


class ParametersTest(PayloadTestCase):

    def get(self, parameter):
        code, data = self.ask(0x0C, 0x22, 0x0E, parameter, 0, 0)
        if code == 0:
            self.assertEqual(0x11, data[0])
        return code, data[1:]

    def set(self, *data, client=None):
        return self.ask(0x0C, 0x21, 1, *data, client=client)[0]

    async def test_defaults(self):
        for number, value in enumerate((
                b'\0', b'\1', b'\xC3', b'\1\1', b'\7\x32', b'\0', b'\0',
                b'\1', b'\x6f\2')):
            self.assertEqual((0, value), self.get(number), number)
        for number in 9, 192:
            self.assertEqual((0x80, b''), self.get(number))
        self.assertEqual((0, b'\x11'), self.ask(0x0C, 0x22, 0x8E, 99, 0, 0))
        self.assertEqual((0xCC, b''), self.ask(0x0C, 0x22, 2, 1, 0, 0))

    async def test_set(self):
        for values in ((1, 0), (2, 0xC4), (3, 20, 96), (4, 3, 10), (5, 10),
                       (6, 6)):
            self.assertEqual(0, self.set(*values))
            self.assertEqual((0, bytes(values[1:])), self.get(values[0]))
        timing = self.bmc.sol.timing
        self.assertEqual((0.1, 96, 3, 0.1), (
            timing.accumulate_seconds, timing.send_threshold,
            timing.retry_count, timing.retry_seconds))
        self.assertEqual((0x81, b''), self.activate())

    async def test_invalid_values(self):
        for code, values in (
                (0xCC, (2, 0x43)), (0xCC, (2, 0x83)), (0xCC, (2, 0xC1)),
                (0xCC, (2, 0xC5)), (0xCC, (3, 0, 1)), (0xCC, (3, 1, 0)),
                (0xCC, (5, 5)), (0xC7, (3, 1)), (0xC7, (1,)),
                (0x82, (7, 1)), (0x82, (8, 1, 1)), (0x80, (9, 1)),
                (0xCC, (0, 3))):
            self.assertEqual(code, self.set(*values), values)

    async def test_set_in_progress(self):
        two = self.login(2)
        self.assertEqual(0, self.set(0, 1))
        self.assertEqual((0, b'\1'), self.get(0))
        self.assertEqual(0x81, self.set(0, 1, client=two))
        self.assertEqual(0, self.set(0, 0))
        self.assertEqual(0, self.set(0, 1, client=two))
        self.bmc.warm_reset()
        self.assertEqual((0, b'\0'), self.get(0))

    async def test_set_in_progress_ends_with_a_session_that_used_sol(self):
        # The session ends at once, not when reference cycles are collected.
        gc.disable()
        self.addCleanup(gc.enable)
        two = self.login(2)
        self.activate()
        await asyncio.sleep(0)
        self.sol(self.one, 1, 0, 0, 0, data=b'x')
        await Console.latest.output(b'y')
        self.assertEqual(0, self.set(0, 1))
        self.assertEqual(0x81, self.set(0, 1, client=two))
        self.one.request(6, 0x3C, self.one.session_id)
        self.assertEqual(0, self.set(0, 1, client=two))

    async def test_only_administrators_set(self):
        user = self.login(3, level=3)
        self.assertEqual(0xD4, self.set(1, 0, client=user))
