# SPDX-License-Identifier: Apache-2.0
"""Fixture that reserves port numbers against concurrent test runs.

A program that binds port 0 and reports its port does not need it. ``vbmcd``
and its BMCs need configured ports. These are taken from below the kernel's
range of ephemeral ports, so that no connection gets one by chance. Each is
reserved by a Unix socket in the abstract namespace, which belongs to the
network namespace as ports do and which the kernel frees when its process
dies.
"""

import errno
import random
import socket

import fixtures

EPHEMERAL = '/proc/sys/net/ipv4/ip_local_port_range'
LOWEST = 15000


def _bindable(address, port):
    """Tell whether a port is free for TCP and UDP."""
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                # As servers do, to ignore connections in TIME_WAIT.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as exc:
                if exc.errno in (errno.EADDRINUSE, errno.EACCES):
                    return False
                raise
    return True


class Port(fixtures.Fixture):
    """A port number reserved until the fixture's clean-up.

    ``number`` is free for TCP and UDP on ``address``.
    """

    def __init__(self, address='127.0.0.1'):
        super().__init__()
        self.address = address
        self.number = None

    def _setUp(self):
        with open(EPHEMERAL) as stream:
            highest = int(stream.read().split()[0])
        numbers = range(LOWEST, max(highest, LOWEST + 2000))
        for number in random.sample(numbers, len(numbers)):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f'\0sushy-kubevirt-port-{number}')
            except OSError:
                claim.close()
                continue
            if _bindable(self.address, number):
                self.addCleanup(claim.close)
                self.number = number
                return
            claim.close()
        raise RuntimeError(
            f'no free port between {numbers[0]} and {numbers[-1]}')
