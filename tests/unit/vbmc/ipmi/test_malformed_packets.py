# SPDX-License-Identifier: Apache-2.0
import logging
import os
import random
from unittest import mock

from tests.unit.vbmc.ipmi import base
from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import server


class MalformedPacketTest(base.ServerTestCase):
    """Invalid packets create no session, response or traceback."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        seed = int.from_bytes(os.urandom(4), 'big')
        self.random = random.Random(seed)
        self.seed = seed
        self.one = self.client()
        self.one.open()
        self.one.rakp1()
        self.valid = [
            client.payload(0, client.message(6, 0x38, b'\x8e\x04')),
            client.payload(0x10, bytes((7, 0, 0, 0)) + b'abcd' + b''.join(
                bytes((k, 0, 0, 8, v, 0, 0, 0))
                for k, v in enumerate((3, 4, 1)))),
            client.payload(0x12, bytes((8, 0, 0, 0)) + self.one.session_id
                           + bytes(16) + bytes((0x14, 0, 0, 5)) + b'admin'),
            client.payload(0x14, self.one.rakp3_payload()),
        ]
        self.session = self.client().login()
        self.session.request(6, 0x3b, b'\4')
        self.valid.append(self.session.secure(client.message(0, 2, b'\0')))

    def bombard(self, packets):
        sessions = dict(self.server._sessions.established)
        with self.assertNoLogs('vbmc_kubevirt', logging.WARNING):
            for packet in packets:
                self.server.receive(packet, client.ADDRESS)
        self.assertEqual(sessions, dict(self.server._sessions.established),
                         self.seed)
        self.assertEqual([], self.calls)

    async def test_random_packets(self):
        self.bombard(self.random.randbytes(self.random.randrange(80))
                     for _number in range(3000))
        self.bombard(b'\x06\x00\xff\x07'
                     + self.random.randbytes(self.random.randrange(80))
                     for _number in range(6000))
        self.bombard(b'\x06\x00\xff\x07\x06'
                     + bytes((self.random.choice((
                         0, 1, 2, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x40,
                         0x80, 0xC0, 0xC1)),))
                     + self.random.choice((bytes(4), self.one.session_id,
                                           self.session.session_id))
                     + self.random.randbytes(self.random.randrange(80))
                     for _number in range(6000))

    async def test_truncated_packets(self):
        for packet in self.valid:
            self.bombard(packet[:length] for length in range(len(packet)))

    async def test_payloads_of_every_length(self):
        for packet in self.valid[:4]:
            for length in range(len(packet) - 16):
                # The range ends before a complete RAKP message 3.
                self.bombard([client.payload(
                    packet[5], packet[16:16 + length])])

    async def test_packets_with_changed_bits(self):
        for packet in self.valid[-1], self.valid[3]:
            for _number in range(2000):
                bad = bytearray(packet)
                for _change in range(self.random.randrange(1, 4)):
                    bad[self.random.randrange(len(bad))] ^= (
                        1 << self.random.randrange(8))
                # A RAKP message 3 is valid with any message tag.
                if bad[20:] != packet[20:]:
                    self.bombard([bytes(bad)])

    async def test_random_requests_of_authenticated_client(self):
        with self.assertNoLogs('vbmc_kubevirt', logging.WARNING):
            for _number in range(2000):
                text = self.random.randbytes(self.random.randrange(40))
                for answer in self.session.send(self.session.secure(text)):
                    self.session.reveal(answer)
            for plain in b'', b'\xff' * 15, b'\xff' * 31:
                self.session.send(self.session.secure(plain))
        self.assertEqual([(0, b'quick')], self.session.request(6, 1))

    async def test_logs_unexpected_exception_once(self):
        with mock.patch.object(server.packet, 'parse', side_effect=KeyError):
            with self.assertLogs('vbmc_kubevirt', logging.ERROR) as logs:
                for _number in range(100):
                    self.server.receive(b'x', client.ADDRESS)
        self.assertEqual(1, len(logs.records))
