# SPDX-License-Identifier: Apache-2.0
"""IPMI v1.5 client for tests, written from the specification.

Like `client`, it shares no code with the server, and tests can change every
step.
"""

import hashlib
import struct

from tests.unit.vbmc.ipmi import client

MD5 = 2


def plain(message, sequence=0, session_id=0):
    """Return a packet with authentication type NONE."""
    return (b'\x06\x00\xff\x07\x00' + struct.pack('<II', sequence, session_id)
            + bytes((len(message),)) + message)


class Client:
    """A client at one address; see `client.Client`."""

    def __init__(self, server, socket, address=client.ADDRESS,
                 username=b'admin', password=b'secret', level=4):
        self.server = server
        self.socket = socket
        self.address = address
        self.username = username
        self.password = password
        self.level = level
        self.rq = 0
        self.sequence = 0
        self.outbound = 0x12345678

    def send(self, data):
        """Send a datagram.

        :returns: list of datagrams that this client got in response
        """
        mark = len(self.socket.sent)
        self.server.receive(data, self.address)
        return [sent for sent, to in self.socket.sent[mark:]
                if to == self.address]

    def ask(self, command, data):
        """Send a command outside of a session.

        :returns: (completion code, data), or None without a response
        """
        message = client.message(6, command, data)
        responses = self.send(plain(message))
        if not responses:
            return None
        answer, = responses
        assert answer[:5] == b'\x06\x00\xff\x07\x00'
        assert answer[5:13] == bytes(8)
        assert len(answer) == 14 + answer[13]
        return answer[20], answer[21:-1]

    def greet(self, kind=MD5):
        """Send Get Session Challenge; return as `ask` does."""
        answer = self.ask(0x39, bytes((kind,))
                          + self.username.ljust(16, b'\0'))
        if answer is not None and answer[0] == 0:
            assert len(answer[1]) == 20
            self.session_id, = struct.unpack_from('<I', answer[1])
            self.challenge = answer[1][4:]
            assert self.session_id
        return answer

    def activation(self, kind=MD5, challenge=None, command=0x3A, cut=22,
                   sequence=0):
        """Return an Activate Session packet."""
        challenge = self.challenge if challenge is None else challenge
        return self.secure(client.message(6, command, (
            bytes((kind, self.level)) + challenge
            + struct.pack('<I', self.outbound))[:cut]), sequence)

    def activate(self, **changes):
        """Send Activate Session.

        :returns: as `reveal`, or None without a response
        """
        responses = self.send(self.activation(**changes))
        if not responses:
            return None
        answer, = responses
        answer = self.reveal(answer)
        if answer[0] == 0:
            kind, number, self.sequence, self.limit = struct.unpack(
                '<BIIB', answer[1])
            assert kind == MD5
            assert number == self.session_id and self.sequence
        return answer

    def login(self):
        """Open a session and return the client."""
        assert self.greet()[0] == 0
        assert self.activate()[0] == 0
        return self

    def code(self, session_id, message, sequence):
        key = self.password.ljust(16, b'\0')
        return hashlib.md5(
            key + struct.pack('<I', session_id) + message
            + struct.pack('<I', sequence) + key).digest()

    def secure(self, message, sequence=None, pad=b''):
        """Sign a message."""
        if sequence is None:
            sequence = self.sequence
            self.sequence += 1
        return (b'\x06\x00\xff\x07\x02'
                + struct.pack('<II', sequence, self.session_id)
                + self.code(self.session_id, message, sequence)
                + bytes((len(message),)) + message + pad)

    def reveal(self, packet):
        """Verify a response.

        :returns: (completion code, data, sequence number of the request)
        """
        assert packet[:5] == b'\x06\x00\xff\x07\x02'
        sequence, number = struct.unpack_from('<II', packet, 5)
        answer = packet[30:]
        assert number == self.session_id and packet[29] == len(answer)
        assert sequence == self.outbound, (sequence, self.outbound)
        self.outbound = sequence % 0xffffffff + 1
        assert packet[13:29] == self.code(number, answer, sequence)
        assert sum(answer[:3]) & 0xff == 0 and sum(answer[3:]) & 0xff == 0
        return answer[6], answer[7:-1], answer[4] >> 2

    def request(self, netfn, command, data=b'', rq=None):
        """Send a command.

        :returns: list of the (completion code, data) sent in response so far
        """
        if rq is None:
            self.rq = rq = (self.rq + 1) % 64
        return [self.reveal(answer)[:2] for answer in self.send(
            self.secure(client.message(netfn, command, data, rq)))]
