# SPDX-License-Identifier: Apache-2.0
"""IPMI commands in one session: their rate, and the server's processor time.

The client encrypts its requests before the clock starts and decrypts the last
response only, as it uses the same processors as the server. It sends a request
when the response to the previous one has arrived.
"""

import contextlib
import os
import socket
import time

import psutil

from tests.bench import processor
from tests.unit.vbmc.ipmi import client

#: Time limit of a response, in seconds.
TIMEOUT = 10

#: Cipher suite that both servers have.
SUITE = 3

#: Get Chassis Status, which reads the power state.
COMMAND = 0, 1


class _Wire:
    """A UDP socket, in place of the server and the socket of the unit tests.
    """

    def __init__(self, bmc):
        self.sent = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect((bmc.address, bmc.port))

    def receive(self, data, address):
        self.socket.send(data)
        self.sent.append((self.socket.recv(1024), address))


def turn(bmc, pid, count):
    """Send ``count`` commands in a new session.

    :param bmc: has ``address``, ``port``, ``username`` and ``password``
    :param pid: of the server, whose descendants belong to it
    :returns: (commands a second, milliseconds of processor time of each)
    :raises: `TimeoutError` if there is no response, `RuntimeError` if a
        command is refused
    """
    with session(bmc, count) as send, _one_processor(pid):
        before = processor.seconds(pid)
        begin = time.perf_counter()
        for _ in range(count):
            send()
        seconds = time.perf_counter() - begin
        used = processor.seconds(pid) - before
    return count / seconds, 1000 * used / count


@contextlib.contextmanager
def _one_processor(pid):
    """Keep this thread and a server on one processor.

    They never work at the same time. Whether the scheduler lets them share one
    decides about the rate otherwise: to wake another one takes 30 µs, of
    100 µs of a command.

    :param pid: of the server, whose descendants belong to it
    """
    allowed = os.sched_getaffinity(0)
    try:
        _keep(pid, {max(allowed)})
        yield
    finally:
        _keep(pid, allowed)


def _keep(pid, processors):
    os.sched_setaffinity(0, processors)
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        server = psutil.Process(pid)
        for member in server, *server.children(recursive=True):
            # A thread that is started meanwhile has that of its creator.
            for thread in member.threads():
                os.sched_setaffinity(thread.id, processors)


@contextlib.contextmanager
def session(bmc, count):
    """Open a session; provide a function that sends the next of its commands.

    Parameters and errors are those of `turn`.
    """
    wire = _Wire(bmc)
    with wire.socket:
        one = client.Client(
            wire, wire, username=bmc.username.encode(),
            password=bmc.password.encode(), suite=SUITE).login()
        packets = iter([
            one.secure(client.message(*COMMAND, b'', number % 64))
            for number in range(count)])
        yield lambda: wire.receive(next(packets), None)
        code = one.reveal(wire.sent[-1][0])[0]
        if code != 0:
            raise RuntimeError(f'completion code {code:02X}h')
        one.request(6, 0x3C, one.session_id)
