# SPDX-License-Identifier: Apache-2.0
"""IPMI v2.0 (RMCP+) client for tests, written from the specification.

It shares no code with the server, so that both cannot contain the same
mistake. Tests can change every step.
"""

import asyncio
import hashlib
import hmac
import os
import struct

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers import modes

ADDRESS = ('192.0.2.1', 40000)

SUITES = {3: (1, 1, 1, hashlib.sha1, 12), 17: (3, 4, 1, hashlib.sha256, 16)}


class Socket:
    """Fake socket that records what the server sends."""

    def __init__(self):
        self.sent = []
        self.closed = False

    def sendto(self, data, address):
        self.sent.append((bytes(data), address))

    def close(self):
        self.closed = True


def message(netfn, command, data=b'', sequence=1):
    """Return an IPMI request message."""
    head = bytes((0x20, netfn << 2))
    body = bytes((0x81, sequence << 2, command)) + data
    return (head + bytes((-sum(head) & 0xff,)) + body
            + bytes((-sum(body) & 0xff,)))


def payload(kind, data, session_id=0, sequence=0):
    """Return an RMCP+ packet that is neither encrypted nor signed."""
    return (b'\x06\x00\xff\x07\x06' + bytes((kind,))
            + struct.pack('<IIH', session_id, sequence, len(data)) + data)


class Client:
    """A client at one address.

    :param server: `server.Server` whose socket is `socket`
    :param socket: `Socket`
    :param role: requested maximum privilege level of RAKP message 1
    """

    def __init__(self, server, socket, address=ADDRESS, username=b'admin',
                 password=b'secret', suite=17, role=0x14):
        self.server = server
        self.socket = socket
        self.address = address
        self.username = username
        self.password = password
        self.suite = suite
        self.role = role
        self.console_id = os.urandom(4)
        self.session_id = None
        self.sequence = 0
        self.rq = 0
        self.random = os.urandom(16)

    def mac(self, key, data):
        return hmac.new(key, data, SUITES[self.suite][3]).digest()

    def send(self, data):
        """Send a datagram.

        :returns: list of datagrams that this client got in response
        """
        mark = len(self.socket.sent)
        self.server.receive(data, self.address)
        return [sent for sent, to in self.socket.sent[mark:]
                if to == self.address]

    def exchange(self, kind, data):
        """Send a payload outside of a session.

        :returns: the payload of the response, or None
        """
        responses = self.send(payload(kind, data))
        assert len(responses) <= 1, responses
        if not responses:
            return None
        assert responses[0][5] == kind + 1
        return responses[0][16:]

    def exchange_message(self, netfn, command, data):
        """Send an IPMI message outside of a session.

        :returns: (completion code, data)
        """
        answer, = self.send(payload(0, message(netfn, command, data)))
        return answer[22], answer[23:-1]

    def open(self, level=0):
        auth, integrity, privacy = SUITES[self.suite][:3]
        answer = self.exchange(0x10, bytes((7, level, 0, 0)) + self.console_id
                               + bytes((0, 0, 0, 8, auth, 0, 0, 0))
                               + bytes((1, 0, 0, 8, integrity, 0, 0, 0))
                               + bytes((2, 0, 0, 8, privacy, 0, 0, 0)))
        if answer is not None and answer[1] == 0:
            assert answer[4:8] == self.console_id
            self.session_id = answer[8:12]
        return answer

    @property
    def user(self):
        return bytes((self.role, len(self.username))) + self.username

    def rakp1(self):
        answer = self.exchange(
            0x12, bytes((8, 0, 0, 0)) + self.session_id + self.random
            + bytes((self.role, 0, 0, len(self.username))) + self.username)
        if answer is not None and answer[1] == 0:
            self.bmc_random, self.guid = answer[8:24], answer[24:40]
            self.trusted = hmac.compare_digest(
                answer[40:], self.mac(
                    self.password, self.console_id + self.session_id
                    + self.random + self.bmc_random + self.guid + self.user))
        return answer

    def rakp3_payload(self):
        return (bytes((9, 0, 0, 0)) + self.session_id
                + self.mac(self.password, self.bmc_random + self.console_id
                           + self.user))

    def rakp3(self):
        sik = self.mac(self.password, self.random + self.bmc_random
                       + self.user)
        self.k1 = self.mac(sik, b'\x01' * 20)
        self.aes = algorithms.AES(self.mac(sik, b'\x02' * 20)[:16])
        answer = self.exchange(0x14, self.rakp3_payload())
        if answer is not None and answer[1] == 0:
            assert answer[8:] == self.mac(
                sik, self.random + self.session_id + self.guid
            )[:SUITES[self.suite][4]]
        return answer

    def login(self, level=0):
        """Open a session and return the client."""
        assert self.open(level)[1] == 0
        assert self.rakp1()[1] == 0
        assert self.trusted
        assert self.rakp3()[1] == 0
        return self

    def secure(self, data, kind=0xC0, sequence=None, pad=None):
        """Encrypt and sign a payload."""
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        if pad is None:
            pad = (16 - (len(data) + 1) % 16) % 16
        vector = os.urandom(16)
        encryptor = Cipher(self.aes, modes.CBC(vector)).encryptor()
        packet = payload(
            kind, vector + encryptor.update(
                data + bytes(range(1, pad + 1)) + bytes((pad,)))
            + encryptor.finalize(),
            struct.unpack('<I', self.session_id)[0], sequence)
        pad = (4 - (len(packet) - 4 + 2) % 4) % 4
        packet += b'\xff' * pad + bytes((pad, 7))
        return packet + self.mac(self.k1, packet[4:])[:SUITES[self.suite][4]]

    def decrypt(self, packet):
        """Verify and decrypt a packet.

        :returns: (payload type with its flags, payload)
        """
        length = SUITES[self.suite][4]
        assert packet[6:10] == self.console_id
        assert packet[-length:] == self.mac(
            self.k1, packet[4:-length])[:length]
        size, = struct.unpack_from('<H', packet, 14)
        trailer = packet[16 + size:-length]
        assert trailer[-2:] == bytes((len(trailer) - 2, 7)), trailer
        assert (len(packet) - 4 - length) % 4 == 0
        decryptor = Cipher(self.aes, modes.CBC(packet[16:32])).decryptor()
        plain = decryptor.update(packet[32:16 + size]) + decryptor.finalize()
        return packet[5], plain[:-1 - plain[-1]]

    def reveal(self, packet):
        """Verify and decrypt a response.

        :returns: (completion code, data, sequence number of the request)
        """
        kind, answer = self.decrypt(packet)
        assert kind == 0xC0
        assert sum(answer[:3]) & 0xff == 0 and sum(answer[3:]) & 0xff == 0
        return answer[6], answer[7:-1], answer[4] >> 2

    def request(self, netfn, command, data=b'', rq=None):
        """Send a command.

        :returns: list of the (completion code, data) sent in response so far
        """
        if rq is None:
            self.rq = rq = (self.rq + 1) % 64
        return [self.reveal(answer)[:2] for answer in
                self.send(self.secure(message(netfn, command, data, rq)))]

    async def command(self, netfn, command, data=b'', rq=None):
        """Send a command and wait for its response.

        :returns: (completion code, data)
        """
        mark = len(self.socket.sent)
        self.request(netfn, command, data, rq)
        async with asyncio.timeout(30):
            while len(self.socket.sent) == mark:
                await asyncio.sleep(0.001)
        answer, = self.socket.sent[mark:]
        return self.reveal(answer[0])[:2]
