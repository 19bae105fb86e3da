# SPDX-License-Identifier: Apache-2.0
"""Asks a BMC whether it is there, as a client does before all else."""

import contextlib
import os
import socket

from vbmc_kubevirt.ipmi import packet

#: Where a server listens that listens everywhere.
_EVERYWHERE = {'': '127.0.0.1', '0.0.0.0': '127.0.0.1', '::': '::1'}


#: How often it is asked: under a flood some packets are lost.
TRIES = 4


def answered(address, port, seconds):
    """Send a presence ping (section 13.2.3) and wait for the pong.

    :param address: IPv4 or IPv6 address that somebody listens on
    :param seconds: to wait, for all tries together
    :returns: True if it came
    """
    address = _EVERYWHERE.get(address, address)
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    tag = os.urandom(1)[0] % 255
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(seconds / TRIES)
            # Nobody there is told of at once, and nobody else is heard.
            sock.connect((address, port))
            for _number in range(TRIES):
                sock.send(packet.ping(tag))
                with contextlib.suppress(TimeoutError):
                    return sock.recv(64) == packet.pong(tag)
    except OSError:
        pass
    return False
