# SPDX-License-Identifier: Apache-2.0
"""Serial over LAN: the SOL payload of a session (section 15).

Only the protocol: `Sol` converts between a stream of characters and payloads
(table 15-2). `commands.payload` activates it and connects it to the console
of the VM.

Each direction has at most one packet that is not acknowledged. A packet has a
sequence number from 1 to 15, or 0 if it only acknowledges. The sender of a
packet repeats it until it is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import abc
import typing

from vbmc_kubevirt.ipmi import constants

#: Maximum size of a payload in bytes, with its header. Clients accept no more
#: than 255 characters in a packet.
PAYLOAD_MAX = 255
_HEADER = 4

#: Output in bytes that waits for the client.
OUTPUT_MAX = 4096

#: Seconds until input is refused that the VM does not take. Some clients
#: repeat refused input at once.
NACK_SECONDS = 0.25

#: Shortest time in seconds until a packet is repeated or dropped: with the
#: interval 0 an acknowledgement would come too late.
RETRY_SECONDS_MIN = 0.05

#: Operation of the remote console (table 15-2, fourth byte).
_NACK = 0x40
_BREAK = 0x10
_PAUSE = 0x08
_FLUSH_INBOUND = 0x02
_FLUSH_OUTBOUND = 0x01

#: Status of the BMC (table 15-2, fourth byte).
UNAVAILABLE = 0x20
DEACTIVATING = 0x10
OVERRUN = 0x08


class Timing:
    """When packets are sent (table 26-5, parameters 3 and 4).

    :ivar accumulate_seconds: how long a packet with fewer characters than the
        threshold waits for more
    :ivar send_threshold: number of characters that are sent at once
    :ivar retry_count: number of repetitions of a packet; the characters of a
        packet that is not acknowledged after them are lost
    :ivar retry_seconds: seconds before each repetition, at least
        `RETRY_SECONDS_MIN` in effect
    """

    accumulate_seconds = 0.005
    send_threshold = 1
    retry_count = 7
    retry_seconds = 0.5


class Settings:
    """SOL configuration (section 26).

    :ivar enabled: whether SOL may be activated
    :ivar privilege: needed to activate it
    """

    enabled = True
    privilege = constants.Privilege.OPERATOR

    def __init__(self) -> None:
        self.timing = Timing()


def _discard(payload: bytes) -> None:
    # Sends nothing: of a payload that has ended.
    pass


class SerialPort(typing.Protocol):
    """What `Sol` connects with a client."""

    def accept(self, data: bytes) -> int | None:
        """Return how many bytes of input the VM takes; None if it cannot
        take input."""

    def discard_input(self) -> None:
        """Drop the input that the VM has not taken."""

    def send_break(self) -> None:
        """Send a break to the VM."""

    def closed(self) -> None:
        """Called once at the end."""


class Sol:
    """An active SOL payload. Used in the event loop only.

    :param send: sends a payload to the client
    :param timing: changes apply to the next packet
    """

    def __init__(self, send: abc.Callable[[bytes], object], port: SerialPort,
                 timing: Timing) -> None:
        self._send = send
        self._port = port
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._output = bytearray()
        self._room = asyncio.Event()
        self._room.set()
        # Sequence number of the last packet, and its characters while it is
        # not acknowledged.
        self._sequence = 0
        self._unacknowledged: bytes | None = None
        self._retries = 0
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        # After a NACK nothing is sent until the timer ends.
        self._held = False
        self._status = 0
        # The last packet of the client: sequence number and the response to
        # it, None while there is none yet.
        self._received = 0
        self._response: bytes | None = None
        self._nack_timer: asyncio.TimerHandle | None = None
        self.closed = False

    # Output, from the VM to the client

    async def write(self, data: bytes) -> None:
        """Send output; wait while too much is waiting already."""
        for start in range(0, len(data), OUTPUT_MAX):
            while not self._room.is_set():
                await self._room.wait()
            self._append(data[start:start + OUTPUT_MAX])

    def put(self, data: bytes) -> None:
        """Send a short message of the BMC, unless too much is waiting."""
        if self._room.is_set():
            self._append(data)

    def _append(self, data: bytes) -> None:
        if self.closed:
            return
        self._output += data
        if len(self._output) >= OUTPUT_MAX:
            self._room.clear()
        self._send_output()

    def _send_output(self) -> None:
        """Send a packet, unless one is not acknowledged or it is early."""
        if len(self._output) >= self._timing.send_threshold:
            self._send_packet()
        elif self._timer is None:
            self._set_timer(self._timing.accumulate_seconds,
                            self._send_late)

    def _send_late(self) -> None:
        self._timer = None
        self._send_packet()

    def _end_hold(self) -> None:
        self._held = False
        self._send_late()

    def _send_packet(self) -> None:
        if (self._unacknowledged is not None or self._paused or self._held
                or self.closed or not self._output):
            return
        length = PAYLOAD_MAX - _HEADER
        self._unacknowledged = bytes(self._output[:length])
        del self._output[:length]
        if len(self._output) < OUTPUT_MAX:
            self._room.set()
        self._sequence = self._sequence % 15 + 1
        self._retries = 0
        self._transmit()

    def _transmit(self) -> None:
        self._send(bytes((self._sequence, 0, 0, self._status))
                   + (self._unacknowledged or b''))
        self._set_timer(self._retry_seconds, self._retry)

    @property
    def _retry_seconds(self) -> float:
        return max(self._timing.retry_seconds, RETRY_SECONDS_MIN)

    def _retry(self) -> None:
        if self._retries < self._timing.retry_count:
            self._retries += 1
            self._transmit()
            return
        # The characters are lost (table 26-5, parameter 4).
        self._unacknowledged = None
        self._status |= OVERRUN
        self._stop_timer()
        self._send_output()

    def _set_timer(self, seconds: float,
                   function: abc.Callable[[], object]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, function)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _acknowledged(self, sequence: int, count: int, nack: int) -> None:
        if self._unacknowledged is None or sequence != self._sequence:
            return
        # Characters that were not accepted are sent again in a new packet.
        self._output[:0] = self._unacknowledged[count:]
        self._unacknowledged = None
        self._status &= ~OVERRUN
        self._stop_timer()
        if nack:
            self._held = True
            self._set_timer(self._retry_seconds, self._end_hold)
        elif self._output:
            self._send_output()

    # Input, from the client to the VM

    def receive(self, data: bytes) -> None:
        """Process a payload of the client; ignore one that is too short."""
        if len(data) < _HEADER or self.closed:
            return
        sequence, acknowledged = data[0] & 0x0f, data[1] & 0x0f
        operation, characters = data[3], data[_HEADER:]
        if acknowledged:
            self._acknowledged(acknowledged, data[2], operation & _NACK)
        if not sequence:
            return
        if sequence == self._received:
            # A repetition; the response was lost or is still to be sent.
            if self._response is not None:
                self._send(self._response)
            return
        self._received, self._response = sequence, None
        if self._nack_timer is not None:
            self._nack_timer.cancel()
        if operation & _FLUSH_INBOUND:
            self._port.discard_input()
        if operation & _FLUSH_OUTBOUND:
            self._output.clear()
            self._unacknowledged = None
            self._held = False
            self._stop_timer()
            self._room.set()
        if operation & _BREAK:
            self._port.send_break()
        self._paused = bool(operation & _PAUSE)
        self._accept_input(sequence, characters)
        self._send_output()

    def _accept_input(self, sequence: int, characters: bytes) -> None:
        # The response has one byte for the count.
        accepted = (self._port.accept(characters[:PAYLOAD_MAX - _HEADER])
                    if characters else 0)
        status = self._status
        if accepted is None:
            accepted, status = 0, status | UNAVAILABLE
        nack = accepted < len(characters)
        response = bytes((0, sequence, accepted, status | _NACK * nack))
        if nack:
            self._nack_timer = self._loop.call_later(
                NACK_SECONDS, self._respond, response)
        else:
            self._respond(response)

    def _respond(self, response: bytes) -> None:
        self._response = response
        self._send(response)

    def close(self, notify: bool = True) -> None:
        """End the payload.

        :param notify: whether to tell the client
        """
        if self.closed:
            return
        self.closed = True
        if notify:
            self._send(bytes((0, 0, 0, self._status | DEACTIVATING)))
        self._stop_timer()
        if self._nack_timer is not None:
            self._nack_timer.cancel()
        self._room.set()
        self._port.closed()
        # Do not keep the session; nothing is sent any more.
        self._send = _discard
