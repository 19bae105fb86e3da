# SPDX-License-Identifier: Apache-2.0
"""UDP sockets of a BMC: the port it serves, and the ping that checks it.

Separate from `server` because the daemon checks that a port is free without
importing the server.
"""

from __future__ import annotations

import contextlib
import os
import socket

from vbmc_kubevirt.ipmi import packet

#: Loopback addresses to ping for servers that listen on all addresses.
_LOOPBACK = {'': '127.0.0.1', '0.0.0.0': '127.0.0.1', '::': '::1'}

#: Presence pings sent before giving up: a loaded host drops some packets.
PING_TRIES = 4


def open_socket(address: str, port: int) -> socket.socket:
    """Bind a non-blocking UDP socket.

    :param address: IPv4 or IPv6 address, or a name; '::' also accepts IPv4
    :param port: UDP port; 0 for a free one
    :raises: OSError whose text contains the address and the port
    """
    try:
        # Text would load the codec for international names.
        family, kind, protocol, _, sockaddr = socket.getaddrinfo(
            address.encode(), port, type=socket.SOCK_DGRAM,
            flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, kind, protocol)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            sock.bind(sockaddr)
        except BaseException:
            sock.close()
            raise
    except OSError as exc:
        raise OSError(
            exc.errno,
            f'UDP port {port} on {address}: {exc.strerror}') from None
    return sock


def answers_ping(address: str, port: int, seconds: float) -> bool:
    """Send RMCP presence pings (section 13.2.3) and wait for the pong.

    :param address: IPv4 or IPv6 address that the server listens on
    :param port: UDP port
    :param seconds: timeout for all tries together
    :returns: True if the pong arrived
    """
    address = _LOOPBACK.get(address, address)
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    tag = os.urandom(1)[0] % 255
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(seconds / PING_TRIES)
            # A connected socket reports a closed port after the first ICMP
            # error and receives from this peer only.
            sock.connect((address, port))
            for _attempt in range(PING_TRIES):
                sock.send(packet.ping(tag))
                with contextlib.suppress(TimeoutError):
                    return sock.recv(64) == packet.pong(tag)
    except OSError:
        pass
    return False
