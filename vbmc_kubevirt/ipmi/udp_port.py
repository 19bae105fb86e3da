# SPDX-License-Identifier: Apache-2.0
"""The UDP port of a BMC.

Apart from the `server`, because the daemon, which serves none itself, wants
to know whether there is one.
"""

import socket


def open_socket(address, port):
    """Bind a UDP port.

    :param address: IPv4 or IPv6 address, or a name; '::' takes both kinds
    :raises: OSError, with the address and the port in its text
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_DGRAM,
            flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, kind, protocol)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            sock.bind(where)
        except BaseException:
            sock.close()
            raise
    except OSError as exc:
        raise OSError(exc.errno, 'UDP port %s on %s: %s'
                      % (port, address, exc.strerror)) from None
    return sock
