# SPDX-License-Identifier: Apache-2.0
"""Mutated requests to all commands of a BMC, by an authenticated client.

By hand, with figures; it fails if a request is answered with FFh or raises an
exception, if the witness notices anything, or if memory grows::

    python -m tests.unit.vbmc.fuzz 1000000
"""

import asyncio
from concurrent import futures
import pathlib
import random
import sys
import time
from unittest import mock

from sushy_kubevirt.bmc import clock
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from tests.unit.bmc import fake_state
from tests.unit.vbmc import bmc_case
from tests.unit.vbmc.ipmi import client
from tests.unit.vbmc.ipmi import client15
from tools import ipmi_reference
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table
from vbmc_kubevirt.commands import payload
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import users

#: Commands that end sessions, which the client needs.
ENDING = {(6, 0x02), (6, 0x3C)}

#: Commands of table G-1 and of DCMI; others are drawn at random.
CODES = sorted({(group.netfn, number) for group in ipmi_reference.GROUPS
                for number, _name, _level in group.commands} - ENDING)

#: Bytes at which commands branch: channels, group extension, selectors.
INTERESTING = (0, 1, 2, 3, 4, 0x0E, 0x0F, 0x10, 0x20, 0x40, 0x80, 0xC0, 0xDC,
               0xFE, 0xFF)


#: Parts of a step of a run by hand; the witness is asked after each.
PARTS = 50

#: Growth that the allocator causes without a leak.
GROWTH_KIB = 1024


class Inline(futures.Executor):
    """Runs handlers where they are submitted, so that nothing is queued."""

    def submit(self, function, /, *args, **kwargs):
        done = futures.Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as exc:
            done.set_exception(exc)
        return done


class Console:
    """Stands for `console.Console`; accepts input and echoes some of it.

    :param random_: a `random.Random`
    :ivar largest: largest number of bytes of input at once
    """

    def __init__(self, random_):
        self._random = random_
        self._echo = None
        self.largest = 0

    def __call__(self, _find, output, notice):
        self._output, self._notice = output, notice
        self._echo = asyncio.Queue(1)
        return self

    async def run(self):
        while True:
            await self._output(await self._echo.get())

    def write(self, data):
        self.largest = max(self.largest, len(data))
        if self._random.random() < 0.1:
            self._notice('a message')
            return self._random.choice((None, 0, len(data) // 2))
        if not self._echo.full():
            self._echo.put_nowait(data)
        return len(data)

    def discard_input(self):
        pass


def virtual_machine():
    """:returns: a `machine.Machine` whose answers have the right types"""
    found = mock.create_autospec(machine.Machine, instance=True)
    found.uuid = '6fb0c2e9-6dd2-4c0a-b1d2-1234567890ab'
    found.qualified_name, found.name = 'lab/vm', 'vm'
    found.problem.return_value = found.impairment.return_value = None
    found.power_state.return_value = power_state.PowerState.ON
    found.power_restore_policy.return_value = (
        power_restore_policy.Policy.LAST_STATE)
    found.boot.return_value = boot.BootState(
        boot.Target.NONE, boot.Enabled.DISABLED, boot.Mode.LEGACY)
    found.indicator.return_value = 'Off'
    found.asset_tag.return_value = 'rack 7'
    found.controller_name.return_value = ''
    found.system_info.return_value = ''
    found.serial.return_value = 'serial-7'
    found.state.return_value = vm_state.VmState({'metadata': {}})
    found.inventory.return_value.started = ''
    found.gates.version = 'v1.6.0'
    found.booted_from.return_value = None
    found.node_lost.return_value = False
    found.medium.return_value = None
    return found


def log():
    """:returns: an `event_log.Log` with some entries"""
    found = mock.create_autospec(event_log.Log, instance=True)
    found.clocks = clock.Clocks(fake_state.State())
    found.erased_at.return_value = 0
    found.add.return_value = 'entry'
    found.entries.return_value = tuple(event_log.Entry(
        id=f'entry{number}', created='', seconds=number + 0.5,
        severity='OK', text='', by='', reason='',
        message_id=event_registry.POWERED_ON.id, args=('lab/vm',))
        for number in range(20))
    return found


class Fuzzer:
    """A BMC with three clients, of which one is a witness.

    The others send what is random, one of them with IPMI v1.5. Call it in an
    event loop.

    :param seed: int
    :ivar console: the `Console`
    :ivar v15_answers: number of answers to the client with IPMI v1.5
    :ivar codes: set of the completion codes of all answers
    :ivar unspecified: list of requests that were answered with FFh
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.codes = set()
        self.unspecified = []
        self.v15_answers = 0
        self.machine, self.log = virtual_machine(), log()
        self.console = Console(self.random)
        self._patch = mock.patch.object(payload.console, 'Console',
                                        self.console)
        self._patch.start()
        self.users = bmc_users.BmcUsers(
            lambda: (users.User(2, b'admin', b'secret'),))
        self.bmc = bmc.Bmc(
            command_table.commands,
            lambda: bmc_case.backend(lambda: self.machine, self.log), 'vm',
            'lab/vm', self.users, Inline(), Inline())
        self.bmc.machine()
        self.socket = client.Socket()
        self.server = self.bmc.server
        with mock.patch.object(asyncio.get_running_loop(), 'add_reader'):
            self.server.start(self.socket)
        self.one = self.client(1).login()
        self.witness = self.client(2).login()
        self.witness.request(6, 0x3B, b'\4')
        self.old = client15.Client(self.server, self.socket,
                                   address=('192.0.2.1', 3)).login()

    def client(self, port):
        return client.Client(self.server, self.socket,
                             address=('192.0.2.1', port))

    def data(self, longest=248):
        """Return request data, random or of interesting bytes.

        :param longest: in bytes; by default as long as IPMI v1.5 allows
        """
        length = self.random.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 22, 40,
                                     self.random.randrange(longest + 1)))
        if self.random.random() < 0.5:
            return self.random.randbytes(length)
        return bytes(self.random.choices(INTERESTING, k=length))

    async def send(self, number):
        """Send requests.

        :param number: how many
        """
        for count in range(number):
            if count % 50 == 0:
                # A request may have lowered it.
                self.one.request(6, 0x3B, b'\4')
                self.old.request(6, 0x3B, b'\4')
            code = self.random.choice(CODES) if self.random.random() < 0.9 \
                else (self.random.randrange(64) & ~1,
                      self.random.randrange(256))
            if code in ENDING:
                continue
            if self.random.random() < 0.1:
                self.send_sol(self.data(server.DATAGRAM_MAX - 100))
                await asyncio.sleep(0)
                self.socket.sent.clear()
                continue
            data = self.data()
            one = self.old if self.random.random() < 0.2 else self.one
            mark = len(self.socket.sent)
            if self.random.random() < 0.1:
                # Other LUNs, addresses and checksums.
                message = bytearray(client.message(*code, data))
                message[self.random.randrange(len(message))] ^= (
                    1 << self.random.randrange(8))
                if message[1] >> 2 == 6 and message[5] in (0x02, 0x3C):
                    continue
            else:
                message = client.message(*code, data, count % 64)
            packet = one.secure(bytes(message))
            if self.random.random() < 0.1:
                self.send_damaged(packet)
                while self.server._tasks:
                    await asyncio.sleep(0)
                self.socket.sent.clear()
                continue
            one.send(packet)
            while self.server._tasks:
                await asyncio.sleep(0)
            for answer, _to in self.socket.sent[mark:]:
                self.record(one, code, data, answer)
            self.socket.sent.clear()

    def send_damaged(self, packet):
        """Send a packet with other bytes, mostly in its headers, or cut off.

        Without the session's id it may be a valid packet outside of a session,
        so that answers are not evaluated.
        """
        packet = bytearray(packet)
        for _number in range(self.random.randrange(1, 4)):
            packet[min(int(self.random.expovariate(1 / 12)),
                       len(packet) - 1)] = self.random.choice(
                           (*INTERESTING, self.random.randrange(256)))
        if self.random.random() < 0.2:
            del packet[self.random.randrange(len(packet)):]
        self.server.receive(bytes(packet), self.one.address)

    def send_sol(self, data):
        """Send a SOL payload; activate SOL before if it is not active."""
        session, = (one for one in self.server.active_sessions()
                    if one.address == self.one.address)
        if session.sol is None:
            self.one.request(6, 0x48, bytes((1, 1, 0xC0, 0, 0, 0)))
        self.one.send(self.one.secure(data, kind=0xC1))

    def record(self, one, code, data, answer):
        if answer[4:6] == b'\6\xc1':
            # Output of SOL.
            return
        found = one.reveal(answer)[0]
        self.v15_answers += one is self.old
        self.codes.add(found)
        if found == 0xFF:
            self.unspecified.append((*code, data.hex()))

    async def unaffected(self):
        """:returns: whether the other session works as before"""
        mark = len(self.socket.sent)
        self.witness.request(0, 1)
        while self.server._tasks:
            await asyncio.sleep(0)
        answers = [answer for answer, to in self.socket.sent[mark:]
                   if to == self.witness.address]
        return (len(self.server.active_sessions()) == 3
                and len(answers) == 1
                and self.witness.reveal(answers[0])[0] == 0)

    def stop(self):
        self._patch.stop()
        with mock.patch.object(asyncio.get_running_loop(), 'remove_reader'):
            self.server.stop()


def _memory():
    """:returns: anonymous memory of this process in KiB"""
    for line in pathlib.Path('/proc/self/status').read_text().splitlines():
        if line.startswith('RssAnon'):
            return int(line.split()[1])
    return 0


async def _by_hand(number):
    """:returns: whether nothing was found"""
    seed = random.randrange(2 ** 32)
    fuzzer = Fuzzer(seed)
    begin = time.monotonic()
    step = number // 10
    affected, memory = 0, []
    with mock.patch.object(server.LOG, 'exception') as exception:
        for done in range(step, number + 1, step):
            for _part in range(PARTS):
                await fuzzer.send(step // PARTS)
                # Often enough to keep its session from being idle.
                affected += not await fuzzer.unaffected()
            fuzzer.machine.reset_mock()
            fuzzer.log.reset_mock()
            memory.append(_memory())
            print(f'{done} packets, {time.monotonic() - begin:.0f} s, '
                  f'{memory[-1]} KiB', flush=True)
    # The first parts fill caches.
    growth = memory[-1] - memory[len(memory) // 2]
    print(f'seed {seed}; completion codes '
          f"{' '.join(f'{code:02X}' for code in sorted(fuzzer.codes))}\n"
          f'witness affected: {affected}; growth in the second half: '
          f'{growth} KiB; exceptions: {exception.call_args_list[:5]}; '
          f'answered with FFh: {fuzzer.unspecified[:20]}')
    fuzzer.stop()
    return not (affected or exception.called or fuzzer.unspecified
                or growth > GROWTH_KIB)


if __name__ == '__main__':
    sys.exit(not asyncio.run(_by_hand(int(sys.argv[1]))))
