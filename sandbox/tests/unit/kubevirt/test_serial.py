# SPDX-License-Identifier: Apache-2.0
import asyncio
import socket
import unittest

from kubevirt_sandbox.kubevirt import serial


class SerialTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        ours, self.theirs = socket.socketpair()
        self.addCleanup(self.theirs.close)
        for one in ours, self.theirs:
            one.setblocking(False)
        self.loop = asyncio.get_running_loop()
        self.serial = serial.Serial()
        self.task = self.loop.create_task(self.serial.attach(ours))
        self.addCleanup(self.task.cancel)
        await asyncio.sleep(0)

    async def test_transfers_both_directions_until_end(self):
        one = self.serial.listen()
        await self.loop.sock_sendall(self.theirs, b'hello')
        self.assertEqual(b'hello', await one.next())
        await self.serial.send(b'there')
        self.assertEqual(b'there', await self.loop.sock_recv(self.theirs, 9))
        self.theirs.close()
        self.assertEqual(b'', await one.next())
        await self.task
        self.assertEqual(b'hello', self.serial.output)
        self.assertEqual(b'', await self.serial.listen().next())
        await self.serial.send(b'ignored')

    async def test_new_listener_replaces_the_old_one(self):
        one, two = self.serial.listen(), self.serial.listen()
        self.assertEqual(b'', await one.next())
        self.serial.leave(one)
        await self.loop.sock_sendall(self.theirs, b'hello')
        self.assertEqual(b'hello', await two.next())

    async def test_machine_waits_for_slow_listener(self):
        one = self.serial.listen()
        data = bytes(range(256)) * 4096 * 8
        sent = self.loop.create_task(
            self.loop.sock_sendall(self.theirs, data))
        done, _pending = await asyncio.wait({sent}, timeout=0.2)
        self.assertFalse(done)
        received = b''
        while len(received) < len(data):
            received += await one.next()
        self.assertEqual(data, received)
        await sent

    async def test_machine_does_not_wait_for_listener_that_left(self):
        one = self.serial.listen()
        sent = self.loop.create_task(
            self.loop.sock_sendall(self.theirs, bytes(2 ** 23)))
        await one.next()
        self.serial.leave(one)
        async with asyncio.timeout(30):
            await sent

    async def test_limits_recorded_output(self):
        one = self.serial.listen()
        for number in range(5):
            await self.loop.sock_sendall(self.theirs, bytes(serial._CHUNK))
            await one.next()
        self.assertLessEqual(len(self.serial.output), serial._OUTPUT_LIMIT)
