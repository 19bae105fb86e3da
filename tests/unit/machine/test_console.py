# SPDX-License-Identifier: Apache-2.0
import asyncio
import unittest
from unittest import mock

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import console
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state

NAME = 'lab/vm'


class Socket:
    """Stands for `websocket.WebSocket`."""

    def __init__(self):
        self.incoming = asyncio.Queue()
        self.sent = b''
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.closed = False
        self.read = 0

    async def receive(self):
        data = await self.incoming.get()
        if isinstance(data, Exception):
            raise data
        self.read += 1
        return data

    async def send(self, data):
        await self.blocked.wait()
        self.sent += data

    async def close(self):
        self.closed = True

    def end(self, error=None):
        self.incoming.put_nowait(error)


class Cluster:
    """A cluster with one VM; ``connect`` decides what connections get."""

    def __init__(self):
        self.vmi = None
        self.callbacks = []
        self.connect = asyncio.Queue()
        self.client = self
        self.calls = []

    def subscribe(self, callback):
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    async def websocket(self, *call):
        self.calls.append(call)
        result = await self.connect.get()
        if isinstance(result, Exception):
            raise result
        return result

    def change(self, uid=None, node='one', phase='Running'):
        """Replace the VMI and report it as a watch does."""
        self.vmi = uid and {'metadata': {'uid': uid},
                            'status': {'phase': phase, 'nodeName': node}}
        for callback in self.callbacks:
            callback(None, {}, self.vmi)


class ConsoleTestCase(unittest.IsolatedAsyncioTestCase):

    PORT = console.SERIAL

    async def asyncSetUp(self):
        self.cluster = Cluster()
        self.machine = mock.Mock(
            cluster=self.cluster, namespace='lab', qualified_name=NAME)
        self.machine.name = 'vm'
        for read in self.machine.state, self.machine.cached_state:
            read.side_effect = lambda: vm_state.VmState({}, self.cluster.vmi)
        self.machine.problem.return_value = None
        self.machine.power_state.return_value = power_state.PowerState.OFF
        self.find = mock.Mock(return_value=self.machine)
        self.output = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()
        self.notices = asyncio.Queue()
        for name, value in (('FIRST_PAUSE', 0.01), ('LONGEST_PAUSE', 0.02),
                            ('REASON_SECONDS', 60),
                            ('WORKING_SECONDS', 60)):
            self.set(name, value)
        self.console = console.Console(
            self.find, self.take, self.notices.put_nowait, self.PORT)
        self.task = asyncio.create_task(self.console.run())

    def set(self, name, value):
        patch = mock.patch.object(console, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    async def asyncTearDown(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.assertEqual([], self.cluster.callbacks)

    async def take(self, data):
        await self.room.wait()
        self.output.put_nowait(data)

    @staticmethod
    async def get(queue):
        async with asyncio.timeout(20):
            return await queue.get()

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def connected(self, uid='a', **options):
        """Let a VMI run, and the console connect to it."""
        if self.cluster.vmi is None:
            await self.notice(f'is off. The {self.PORT.name} connects')
        socket = Socket()
        self.cluster.connect.put_nowait(socket)
        self.cluster.change(uid, **options)
        await self.check(socket)
        return socket

    async def check(self, socket):
        """Check that a connection is the one in use."""
        socket.incoming.put_nowait(b'hello')
        self.assertEqual(b'hello', await self.get(self.output))

    async def notice(self, text):
        """Return the next notice, which contains a text."""
        found = await self.get(self.notices)
        self.assertIn(text, found)
        return found


class LifeTest(ConsoleTestCase):

    async def test_waits_for_vm_and_connects(self):
        socket = await self.connected()
        await self.notice(f'The console of {NAME} is connected.')
        self.assertEqual('console', self.cluster.calls[0][3])
        self.assertEqual('plain.kubevirt.io', self.cluster.calls[0][4])
        self.assertEqual(4, self.console.write(b'keys'))
        await self.until(lambda: socket.sent == b'keys')
        self.assertTrue(self.notices.empty())

    async def test_follows_restart(self):
        first = await self.connected()
        await self.notice('is connected')
        first.end()
        await self.until(lambda: first.closed)
        self.machine.power_state.return_value = (
            power_state.PowerState.POWERING_ON)
        self.cluster.change()
        await self.notice(f'{NAME} is starting or stopping.')
        self.cluster.change('b', phase='Scheduled')
        await self.connected('b')
        await self.notice('is connected')

    async def test_follows_migration_silently(self):
        first = await self.connected()
        await self.notice('is connected')
        first.end()
        await self.until(lambda: first.closed)
        await self.connected('a', node='two')
        self.assertTrue(self.notices.empty())

    async def test_reports_why_vm_cannot_run(self):
        await self.notice('is off')
        self.machine.problem.return_value = power_state.Problem(
            'ErrorUnschedulable', 'No node')
        self.cluster.change()
        await self.notice('cannot run: No node')

    async def test_other_changes_are_ignored(self):
        await self.connected()
        await self.notice('is connected')
        for _ in range(3):
            self.cluster.change('a')
        await asyncio.sleep(0.05)
        self.assertEqual(1, len(self.cluster.calls))


class OtherClientTest(ConsoleTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.set('REASON_SECONDS', 0.2)

    async def test_key_connects_again(self):
        first = await self.connected()
        await self.notice('is connected')
        first.end()
        await self.notice('another client has connected to it. Press a key')
        self.cluster.change('a')
        await asyncio.sleep(0.3)
        self.assertEqual(1, len(self.cluster.calls))
        self.assertIsNone(self.console.write(b'x'))
        second = Socket()
        self.cluster.connect.put_nowait(second)
        await self.check(second)
        await self.notice('is connected')
        # The key was not passed on.
        self.assertEqual(b'', second.sent)

    async def test_other_changes_do_not_delay_the_message(self):
        first = await self.connected()
        await self.notice('is connected')
        first.end()
        async with asyncio.timeout(20):
            while self.notices.empty():
                self.cluster.change('a')
                await asyncio.sleep(0.05)
        await self.notice('Press a key')

    async def test_restart_connects_again(self):
        first = await self.connected()
        await self.notice('is connected')
        first.end()
        await self.notice('Press a key')
        await self.connected('b')


class FaultTest(ConsoleTestCase):

    async def test_lost_connection_is_opened_again(self):
        first = await self.connected()
        await self.notice('is connected')
        second = Socket()
        self.cluster.connect.put_nowait(second)
        first.end(errors.ConnectionLost('reset by peer'))
        await self.notice('reset by peer')
        await self.check(second)
        await self.notice('is connected')
        self.assertTrue(first.closed)

    async def test_connections_that_end_at_once(self):
        """Pauses grow, and there is one message."""
        with mock.patch.object(retry, 'pause', wraps=retry.pause) as pause:
            for _ in range(4):
                socket = Socket()
                socket.end(errors.ConnectionLost('reset by peer'))
                self.cluster.connect.put_nowait(socket)
            await self.connected()
        self.assertEqual([0, 1, 2, 3],
                         [call.args[0] for call in pause.call_args_list])
        await self.notice('reset by peer')
        await self.notice('is connected')
        self.assertTrue(self.notices.empty())

    async def test_stale_cache_causes_no_flood_of_connections(self):
        await self.notice('is off')
        self.machine.cached_state = lambda: vm_state.VmState({})
        for _ in range(500):
            socket = Socket()
            socket.end()
            self.cluster.connect.put_nowait(socket)
        self.cluster.change('a')
        begin = asyncio.get_running_loop().time()
        await asyncio.sleep(0.2)
        passed = asyncio.get_running_loop().time() - begin
        self.assertLessEqual(len(self.cluster.calls), passed / 0.01 + 1)

    async def test_silent_connection_is_reported_as_connected(self):
        self.set('WORKING_SECONDS', 0.1)
        await self.notice('is off')
        self.cluster.connect.put_nowait(Socket())
        self.cluster.change('a')
        await self.notice('is connected')

    async def test_errors_are_shown_once_and_retried(self):
        await self.notice('is off')
        for _ in range(3):
            self.cluster.connect.put_nowait(errors.AccessDenied('no right'))
        socket = Socket()
        self.cluster.connect.put_nowait(socket)
        self.cluster.change('a')
        await self.notice('no right')
        await self.check(socket)
        await self.notice('is connected')
        self.assertEqual(4, len(self.cluster.calls))

    async def test_missing_vm(self):
        await self.notice('is off')
        self.find.side_effect = errors.MachineNotFound(NAME)
        self.cluster.change()
        await self.notice(f'There is no VirtualMachine {NAME}')
        self.find.side_effect = None
        await self.notice('is off')


class InputTest(ConsoleTestCase):

    async def test_is_kept_while_connecting(self):
        await self.notice('is off')
        self.assertIsNone(self.console.write(b'lost'))
        self.cluster.change('a')
        await self.until(lambda: self.cluster.calls)
        self.assertEqual(4, self.console.write(b'kept'))
        socket = Socket()
        self.cluster.connect.put_nowait(socket)
        await self.until(lambda: socket.sent == b'kept')

    async def test_is_bounded_and_can_be_discarded(self):
        socket = await self.connected()
        socket.blocked.clear()
        self.assertEqual(1, self.console.write(b'1'))
        await asyncio.sleep(0.02)
        self.assertEqual(console.INPUT_MAX,
                         self.console.write(b'x' * console.INPUT_MAX * 2))
        self.assertEqual(0, self.console.write(b'y'))
        self.console.discard_input()
        self.assertEqual(1, self.console.write(b'2'))
        socket.blocked.set()
        await self.until(lambda: socket.sent == b'12')

    async def test_sender_waits_until_guest_reads(self):
        socket = await self.connected()
        socket.blocked.clear()
        data = bytes(range(256)) * 64
        sending = asyncio.create_task(self.console.send(data))
        await asyncio.sleep(0.02)
        self.assertFalse(sending.done())
        socket.blocked.set()
        await sending
        await self.until(lambda: socket.sent == data)

    async def test_sender_does_not_wait_without_connection(self):
        socket = await self.connected()
        socket.blocked.clear()
        sending = asyncio.create_task(
            self.console.send(b'x' * console.INPUT_MAX * 3))
        await asyncio.sleep(0.02)
        socket.end()
        await sending


class DisplayTest(ConsoleTestCase):

    PORT = console.DISPLAY

    async def test_is_connected_once_until_restart(self):
        socket = await self.connected()
        await self.notice(f'The display of {NAME} is connected.')
        self.assertEqual('vnc', self.cluster.calls[0][3])
        socket.end()
        self.cluster.change('b')
        self.assertIs(False, await self.task)

    async def test_ends_with_lost_connection(self):
        socket = await self.connected()
        await self.notice('is connected')
        self.cluster.change('b')
        socket.end(errors.ConnectionLost('reset by peer'))
        self.assertIs(False, await self.task)

    async def test_tells_of_other_client(self):
        self.set('REASON_SECONDS', 0.2)
        socket = await self.connected()
        await self.notice('is connected')
        socket.end()
        self.assertIs(True, await self.task)
        text = await self.notice('another client has connected to it.')
        self.assertNotIn('key', text)


class OutputTest(ConsoleTestCase):

    async def test_slow_consumer_stops_reading(self):
        socket = await self.connected()
        self.room.clear()
        for number in range(20):
            socket.incoming.put_nowait(b'%d' % number)
        await asyncio.sleep(0.05)
        self.assertEqual(2, socket.read)
        self.room.set()
        self.assertEqual([b'%d' % number for number in range(20)],
                         [await self.get(self.output) for _ in range(20)])
