# SPDX-License-Identifier: Apache-2.0
import asyncio
import random
import unittest

from vbmc_kubevirt.ipmi import sol


class Loop:
    """Event loop whose clock tests advance."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def call_later(self, seconds, function, *arguments):
        call = Call(self.now + seconds, function, arguments)
        self.calls.append(call)
        return call

    def advance(self, seconds):
        until = self.now + seconds
        while due := [call for call in self.calls
                      if call.at <= until and not call.cancelled]:
            call = min(due, key=lambda call: call.at)
            self.calls.remove(call)
            self.now = call.at
            call.function(*call.arguments)
        self.now = until


class Call:

    def __init__(self, at, function, arguments):
        self.at, self.function, self.arguments = at, function, arguments
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Port:
    """Serial port that accepts a number of bytes, None if off."""

    def __init__(self):
        self.room = 10000
        self.events = []

    def accept(self, data):
        self.events.append(bytes(data))
        return None if self.room is None else min(len(data), self.room)

    def discard_input(self):
        self.events.append('discard')

    def send_break(self):
        self.events.append('break')

    def closed(self):
        self.events.append('closed')


class SolTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.sent = []
        self.port = Port()
        self.timing = sol.Timing()
        self.sol = sol.Sol(self.sent.append, self.port, self.timing)
        self.loop = self.sol._loop = Loop()

    def take(self):
        """Return the payloads that were sent since the last call."""
        sent = list(self.sent)
        self.sent.clear()
        return sent

    def receive(self, *head, data=b''):
        self.sol.receive(bytes(head) + data)
        return self.take()


class OutputTest(SolTestCase):

    async def test_sends_next_packet_after_acknowledgement(self):
        self.sol.put(b'a' * 300)
        self.assertEqual([b'\1\0\0\0' + b'a' * 251], self.take())
        self.sol.put(b'b' * 3)
        self.assertEqual([], self.take())
        self.assertEqual([], self.receive(0, 7, 251, 0))
        self.assertEqual([b'\2\0\0\0' + b'a' * 49 + b'bbb'],
                         self.receive(0, 1, 251, 0))
        self.assertEqual([], self.receive(0, 2, 52, 0))
        self.assertEqual([], self.receive(0, 2, 52, 0))
        self.loop.advance(100)
        self.assertEqual([], self.take())

    async def test_sequence_numbers_are_1_to_15(self):
        numbers = []
        for _ in range(17):
            self.sol.put(b'x')
            packet, = self.take()
            numbers.append(packet[0])
            self.receive(0, packet[0], 1, 0)
        self.assertEqual([*range(1, 16), 1, 2], numbers)

    async def test_partially_accepted_packet(self):
        self.sol.put(b'abcdef')
        self.take()
        self.sol.put(b'gh')
        self.assertEqual([b'\2\0\0\0cdefgh'], self.receive(0, 1, 2, 0))

    async def test_nack_delays_the_rest(self):
        self.sol.put(b'abcdef')
        self.take()
        self.assertEqual([], self.receive(0, 1, 2, 0x40))
        self.loop.advance(0.4)
        # Neither more output nor input ends the pause.
        self.sol.put(b'g')
        self.assertEqual([], self.take())
        self.assertEqual([b'\0\1\1\0'], self.receive(1, 0, 0, 0, data=b'x'))
        self.loop.advance(0.2)
        self.assertEqual([b'\2\0\0\0cdefg'], self.take())

    async def test_repeats_packet_then_drops_it(self):
        self.sol.put(b'lost')
        self.sol.put(b'next')
        self.assertEqual([b'\1\0\0\0lost'], self.take())
        for _ in range(7):
            self.loop.advance(0.5)
            self.assertEqual([b'\1\0\0\0lost'], self.take())
        self.loop.advance(0.5)
        # "Transmit overrun" until the client responds.
        self.assertEqual([b'\2\0\0\x08next'], self.take())
        self.assertEqual([], self.receive(0, 2, 4, 0))
        self.sol.put(b'x')
        self.assertEqual([b'\3\0\0\0x'], self.take())

    async def test_retry_settings(self):
        self.timing.retry_count, self.timing.retry_seconds = 1, 2.0
        self.sol.put(b'x')
        self.loop.advance(1.9)
        self.assertEqual(1, len(self.take()))
        self.loop.advance(100)
        self.assertEqual(1, len(self.take()))

    async def test_retry_interval_0_leaves_time_to_acknowledge(self):
        for count in 7, 0:
            self.timing.retry_count, self.timing.retry_seconds = count, 0
            self.sol.put(b'x')
            self.loop.advance(0.04)
            packet, = self.take()
            self.sol.put(b'y')
            self.assertEqual([bytes((packet[0] + 1, 0, 0, 0)) + b'y'],
                             self.receive(0, packet[0], 1, 0))
            self.receive(0, packet[0] + 1, 1, 0)

    async def test_accumulates_until_threshold_or_interval(self):
        self.timing.send_threshold = 4
        self.timing.accumulate_seconds = 0.05
        self.sol.put(b'ab')
        self.assertEqual([], self.take())
        self.sol.put(b'cd')
        self.assertEqual([b'\1\0\0\0abcd'], self.take())
        self.assertEqual([], self.receive(0, 1, 4, 0))
        self.sol.put(b'e')
        self.loop.advance(0.04)
        self.assertEqual([], self.take())
        self.loop.advance(0.02)
        self.assertEqual([b'\2\0\0\0e'], self.take())

    async def test_write_waits_for_the_client(self):
        data = bytes(range(256)) * 400
        task = asyncio.create_task(self.sol.write(data))
        received, sequence = b'', 0
        while len(received) < len(data):
            await asyncio.sleep(0)
            self.assertLessEqual(len(self.sol._output), 2 * sol.OUTPUT_MAX)
            for packet in self.take():
                self.assertEqual(sequence % 15 + 1, packet[0])
                sequence = packet[0]
                received += packet[4:]
                self.sol.receive(bytes((0, sequence, len(packet) - 4, 0)))
        await task
        self.assertEqual(data, received)

    async def test_messages_do_not_displace_output(self):
        self.sol.put(b'first')
        task = asyncio.create_task(self.sol.write(b'x' * 20000))
        for _ in range(5000):
            await asyncio.sleep(0)
            self.sol.put(b'[message]')
            self.assertLess(len(self.sol._output), 2 * sol.OUTPUT_MAX)
        received, sequence = b'', 0
        while received.count(b'x') < 20000:
            await asyncio.sleep(0)
            for packet in self.take():
                sequence = packet[0]
                received += packet[4:]
                self.sol.receive(bytes((0, sequence, len(packet) - 4, 0)))
        await task
        self.assertEqual(20000, received.count(b'x'))

    async def test_close_ends_waiting(self):
        task = asyncio.create_task(self.sol.write(b'x' * 20000))
        await asyncio.sleep(0)
        self.assertFalse(task.done())
        self.sol.close()
        await asyncio.wait_for(task, 5)

    async def test_pause(self):
        self.assertEqual([b'\0\1\0\0'], self.receive(1, 0, 0, 0x08))
        self.sol.put(b'x')
        self.loop.advance(10)
        self.assertEqual([], self.take())
        self.assertEqual([b'\0\2\0\0', b'\1\0\0\0x'],
                         self.receive(2, 0, 0, 0))

    async def test_flush_outbound(self):
        self.sol.put(b'sent')
        self.sol.put(b'waits' * 1000)
        self.take()
        self.receive(1, 0, 0, 0x01)
        # The packet that was not acknowledged is not repeated either.
        self.loop.advance(10)
        self.assertEqual([], self.take())
        self.assertEqual([], self.receive(0, 1, 4, 0))
        await asyncio.wait_for(self.sol.write(b'new'), 1)
        self.assertEqual([b'\2\0\0\0new'], self.take())

    async def test_flush_outbound_ends_the_pause_after_nack(self):
        self.sol.put(b'first')
        self.receive(0, 1, 0, 0x40)
        self.receive(1, 0, 0, 0x01)
        self.sol.put(b'new')
        self.assertEqual([b'\2\0\0\0new'], self.take())


class InputTest(SolTestCase):

    async def test_input_is_acknowledged(self):
        self.assertEqual([b'\0\1\5\0'], self.receive(1, 0, 0, 0,
                                                     data=b'hello'))
        self.assertEqual([b'hello'], self.port.events)

    async def test_repetition_is_acknowledged_only(self):
        for _ in range(3):
            self.assertEqual([b'\0\1\5\0'], self.receive(
                1, 0, 0, 0, data=b'hello'))
        self.assertEqual([b'hello'], self.port.events)
        self.receive(2, 0, 0, 0, data=b'there')
        self.assertEqual([b'hello', b'there'], self.port.events)

    async def test_keepalive_is_acknowledged(self):
        self.assertEqual([b'\0\5\0\0'], self.receive(5, 0, 0, 0))
        self.assertEqual([], self.port.events)

    async def test_input_with_acknowledgement(self):
        self.sol.put(b'first')
        self.sol.put(b'second')
        self.take()
        self.assertEqual([b'\2\0\0\0second', b'\0\3\1\0'],
                         self.receive(3, 1, 5, 0, data=b'x'))

    async def test_rest_of_partial_accept_is_nacked_later(self):
        self.port.room = 2
        self.assertEqual([], self.receive(1, 0, 0, 0, data=b'hello'))
        # A repetition in the meantime changes nothing.
        self.assertEqual([], self.receive(1, 0, 0, 0, data=b'hello'))
        self.loop.advance(0.3)
        self.assertEqual([b'\0\1\2\x40'], self.take())
        self.assertEqual([b'\0\1\2\x40'],
                         self.receive(1, 0, 0, 0, data=b'hello'))
        self.assertEqual([b'hello'], self.port.events)

    async def test_packet_above_the_maximum_is_accepted_in_part(self):
        self.assertEqual([], self.receive(1, 0, 0, 0, data=b'x' * 1000))
        self.loop.advance(0.3)
        self.assertEqual([b'\0\1\xfb\x40'], self.take())
        self.assertEqual([b'x' * 251], self.port.events)

    async def test_unavailable(self):
        self.port.room = None
        self.assertEqual([], self.receive(1, 0, 0, 0, data=b'hello'))
        self.loop.advance(0.3)
        self.assertEqual([b'\0\1\0\x60'], self.take())
        # A new packet replaces one that was not answered.
        self.receive(2, 0, 0, 0, data=b'one')
        self.port.room = 9
        self.assertEqual([b'\0\3\3\0'], self.receive(3, 0, 0, 0, data=b'two'))
        self.loop.advance(1)
        self.assertEqual([], self.take())

    async def test_break_and_flush_inbound(self):
        self.assertEqual([b'\0\1\0\0'], self.receive(1, 0, 0, 0x10))
        self.assertEqual([b'\0\2\1\0'], self.receive(2, 0, 0, 0x02,
                                                     data=b'x'))
        self.assertEqual(['break', 'discard', b'x'], self.port.events)


class CloseTest(SolTestCase):

    async def test_close_tells_the_client_and_ends_everything(self):
        self.sol.put(b'x')
        self.take()
        self.sol.close()
        self.assertEqual([b'\0\0\0\x10'], self.take())
        self.sol.close()
        self.sol.put(b'more')
        await asyncio.wait_for(self.sol.write(b'more'), 1)
        self.assertEqual([], self.receive(1, 1, 1, 0, data=b'input'))
        self.loop.advance(100)
        self.assertEqual([], self.take())
        self.assertEqual(['closed'], self.port.events)


class HostileTest(SolTestCase):

    async def test_random_payloads(self):
        """No input raises, and nothing grows beyond the limits."""
        source = random.Random(4711)
        for number in range(30000):
            data = source.randbytes(source.choice(
                (0, 1, 3, 4, 5, 40, 251, 260, 1000)))
            self.sol.receive(data)
            if len(self.sol._output) < sol.OUTPUT_MAX:
                self.sol.put(b'output')
            self.loop.advance(source.choice((0, 0, 0, 0.01, 0.6)))
            self.port.room = source.choice((None, 0, 3, 10000))
            self.loop.calls = [call for call in self.loop.calls
                               if not call.cancelled]
            self.assertLessEqual(len(self.loop.calls), 2)
            self.port.events.clear()
            for packet in self.take():
                self.assertLessEqual(len(packet), sol.PAYLOAD_MAX)
