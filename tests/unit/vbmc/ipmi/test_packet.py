# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base

from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import packet

#: Get Channel Authentication Capabilities as ipmitool 1.8.19 sends it.
REAL = bytes.fromhex('0600ff0700000000000000000009'
                     '2018c88100388e04b5')


class PacketTest(base.BaseTestCase):

    def test_a_real_packet(self):
        parsed = packet.parse(REAL)
        self.assertFalse(parsed.rmcpp)
        request = packet.parse_request(parsed.payload)
        self.assertEqual((6, 0x38, b'\x8e\x04'),
                         (request.netfn, request.command, request.data))

    def test_rmcpp(self):
        parsed = packet.parse(client.payload(0xC0, b'abc', 0x01020304, 9)
                              + b'trailer')
        self.assertEqual(
            (True, 0, True, True, 0x01020304, 9, b'abc', b'trailer'),
            dataclasses.astuple(parsed)[:7] + (parsed.trailer,))
        self.assertTrue(parsed.signed.endswith(b'abctrailer'))

    def test_every_truncation_is_refused(self):
        whole = client.payload(0, client.message(6, 1, b'data'))
        for data in whole, REAL:
            for length in range(len(data)):
                self.assertRaises(packet.Malformed, packet.parse,
                                  data[:length])

    def test_what_is_not_ipmi_is_refused(self):
        for place, value in ((0, 5), (2, 0), (3, 6), (3, 0x87), (4, 2),
                             (4, 7)):
            data = bytearray(REAL)
            data[place] = value
            self.assertRaises(packet.Malformed, packet.parse, bytes(data))

    def test_oem_payloads_are_refused(self):
        self.assertRaises(packet.Malformed, packet.parse,
                          client.payload(2, bytes(20)))

    def test_a_legacy_pad_is_taken_and_more_is_not(self):
        packet.parse(REAL + b'\0')
        self.assertRaises(packet.Malformed, packet.parse, REAL + b'\0\0')

    def test_wrong_sums_are_refused(self):
        good = client.message(0, 1, b'data')
        packet.parse_request(good)
        for place in range(len(good)):
            bad = bytearray(good)
            bad[place] ^= 0x10
            self.assertRaises(packet.Malformed, packet.parse_request,
                              bytes(bad))

    def test_responses_are_no_requests(self):
        self.assertRaises(packet.Malformed, packet.parse_request,
                          client.message(7, 1))

    def test_a_response_goes_back_to_where_the_request_came_from(self):
        request = packet.parse_request(client.message(6, 1, b'', 5))
        response = packet.response(request, 0xC1, b'xy')
        self.assertEqual(bytes((0x81, 7 << 2)), response[:2])
        self.assertEqual(bytes((0x20, 5 << 2, 1, 0xC1)), response[3:7])
        self.assertEqual(0, sum(response[:3]) & 0xff)
        self.assertEqual(0, sum(response[3:]) & 0xff)


class PingTest(base.BaseTestCase):

    def test_as_the_specification_has_it(self):
        # Tables 13-6 and 13-7, byte for byte.
        ping = bytes.fromhex('0600ff06' '000011be' '80' '2a' '00' '00')
        self.assertEqual(ping, packet.ping(0x2a))
        self.assertEqual(0x2a, packet.parse_ping(ping))
        self.assertEqual(
            bytes.fromhex('0600ff06' '000011be' '40' '2a' '00' '10'
                          '000011be' '00000000' '81' '00' '000000000000'),
            packet.pong(0x2a))

    def test_whatever_sequence_number_it_has(self):
        ping = bytearray(packet.ping(7))
        ping[2] = 0x20
        self.assertEqual(7, packet.parse_ping(bytes(ping)))

    def test_anything_else_is_none(self):
        ping = packet.ping(7)
        for size in range(len(ping)):
            self.assertIsNone(packet.parse_ping(ping[:size]))
        for index in 0, 1, 3, 4, 5, 6, 7, 8:
            other = bytearray(ping)
            other[index] ^= 1
            self.assertIsNone(packet.parse_ping(bytes(other)), index)
        self.assertIsNone(packet.parse_ping(packet.pong(7)))
        self.assertIsNone(packet.parse_ping(REAL))
