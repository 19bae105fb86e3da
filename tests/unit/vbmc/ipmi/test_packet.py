# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base

from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import packet

#: Get Channel Authentication Capabilities as ipmitool 1.8.19 sends it.
REAL = bytes.fromhex('0600ff0700000000000000000009'
                     '2018c88100388e04b5')


class PacketTest(base.BaseTestCase):

    def test_parses_packet_of_ipmitool(self):
        parsed = packet.parse(REAL)
        self.assertFalse(parsed.rmcpp)
        request = packet.parse_request(parsed.payload)
        self.assertEqual((6, 0x38, b'\x8e\x04'),
                         (request.netfn, request.command, request.data))

    def test_parses_rmcpp_packet(self):
        parsed = packet.parse(client.payload(0xC0, b'abc', 0x01020304, 9)
                              + b'trailer')
        self.assertEqual(
            (True, 0, True, True, 0x01020304, 9, b'abc', b'trailer'),
            dataclasses.astuple(parsed)[:7] + (parsed.trailer,))
        self.assertTrue(parsed.signed.endswith(b'abctrailer'))

    def test_rejects_truncated_packets(self):
        whole = client.payload(0, client.message(6, 1, b'data'))
        for data in whole, REAL:
            for length in range(len(data)):
                self.assertRaises(packet.Malformed, packet.parse,
                                  data[:length])

    def test_rejects_other_versions_and_message_classes(self):
        for place, value in ((0, 5), (2, 0), (3, 6), (3, 0x87), (4, 2),
                             (4, 7)):
            data = bytearray(REAL)
            data[place] = value
            self.assertRaises(packet.Malformed, packet.parse, bytes(data))

    def test_rejects_oem_payloads(self):
        self.assertRaises(packet.Malformed, packet.parse,
                          client.payload(2, bytes(20)))

    def test_accepts_one_byte_of_legacy_pad(self):
        packet.parse(REAL + b'\0')
        self.assertRaises(packet.Malformed, packet.parse, REAL + b'\0\0')

    def test_rejects_wrong_checksums(self):
        good = client.message(0, 1, b'data')
        packet.parse_request(good)
        for place in range(len(good)):
            bad = bytearray(good)
            bad[place] ^= 0x10
            self.assertRaises(packet.Malformed, packet.parse_request,
                              bytes(bad))

    def test_rejects_response_as_request(self):
        self.assertRaises(packet.Malformed, packet.parse_request,
                          client.message(7, 1))

    def test_response_swaps_addresses_of_request(self):
        message = bytearray(client.message(6, 1, b'', 5))
        # LUN 1 of the responder, 2 of the requester.
        for place, checksum, lun in ((1, 2, 1), (4, -1, 2)):
            message[place] += lun
            message[checksum] -= lun
        request = packet.parse_request(bytes(message))
        response = packet.response(request, 0xC1, b'xy')
        self.assertEqual(bytes((0x81, 7 << 2 | 2)), response[:2])
        self.assertEqual(bytes((0x20, 5 << 2 | 1, 1, 0xC1)), response[3:7])
        self.assertEqual(0, sum(response[:3]) & 0xff)
        self.assertEqual(0, sum(response[3:]) & 0xff)


class PingTest(base.BaseTestCase):

    def test_ping_and_pong_match_specification(self):
        # Tables 13-6 and 13-7, byte for byte.
        ping = bytes.fromhex('0600ff06' '000011be' '80' '2a' '00' '00')
        self.assertEqual(ping, packet.ping(0x2a))
        self.assertEqual(0x2a, packet.parse_ping(ping))
        self.assertEqual(
            bytes.fromhex('0600ff06' '000011be' '40' '2a' '00' '10'
                          '000011be' '00000000' '81' '00' '000000000000'),
            packet.pong(0x2a))

    def test_accepts_ping_with_any_rmcp_sequence_number(self):
        ping = bytearray(packet.ping(7))
        ping[2] = 0x20
        self.assertEqual(7, packet.parse_ping(bytes(ping)))

    def test_rejects_other_packets(self):
        ping = packet.ping(7)
        for size in range(len(ping)):
            self.assertIsNone(packet.parse_ping(ping[:size]))
        for index in 0, 1, 3, 4, 5, 6, 7, 8:
            other = bytearray(ping)
            other[index] ^= 1
            self.assertIsNone(packet.parse_ping(bytes(other)), index)
        self.assertIsNone(packet.parse_ping(packet.pong(7)))
        self.assertIsNone(packet.parse_ping(REAL))
