# SPDX-License-Identifier: Apache-2.0
"""Which names of the service a request may be sent to.

Without accounts, whoever can connect has all privileges. A web page could then
connect through the browser of a user who can: its site gives its own name an
address of the service (DNS rebinding), and to the browser both are the same
site. Host still has the site's name. So only names that the site cannot choose
are served: addresses, those of the loopback interface, those of this host, and
configured ones.
"""

import functools
import ipaddress
import socket

from sushy_kubevirt.redfish.protocol import http_framing

#: Value of the option for all names.
ALL = '*'


def is_local(name):
    """Tell whether a name is of the loopback interface (RFC 6761, 6.3)."""
    return name == 'localhost' or name.endswith('.localhost')


def serves(environ, names):
    """Tell whether a request is for this service.

    :param environ: of the request (WSGI), with a valid Host or none
    :param names: tuple of names; ``*.domain`` for all below a domain, `ALL`
    :returns: bool; True without Host, which browsers always send
    """
    host = environ.get('HTTP_HOST')
    return host is None or ALL in names or _serves(host, names)


@functools.lru_cache(maxsize=64)
def _serves(host, names):
    name = http_framing.host_name(host).removesuffix('.')
    try:
        ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        return True
    own = socket.gethostname().lower()
    return (is_local(name) or name in (own, own.partition('.')[0])
            or any(name == pattern.lower()
                   or pattern[:2] == '*.' and name.endswith(
                       pattern[1:].lower()) for pattern in names))
