# SPDX-License-Identifier: Apache-2.0
"""Which names of the service a request may be sent to.

Without accounts, each client that can connect has all privileges. DNS
rebinding uses the browser of a user for that: a web site resolves its own name
to the address of this service, and the browser then lets the scripts of the
site send requests to it. The Host header of these requests has the name of the
site. Therefore only names that no site can choose are served: IP addresses,
localhost, the name of this host, and configured names.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import typing

from sushy_kubevirt.redfish.protocol import http_framing

if typing.TYPE_CHECKING:
    from wsgiref import types

# A year, for browsers that use the service by a name (RFC 6797).
_HSTS = {'Strict-Transport-Security': 'max-age=31536000'}

#: Value of the option for all names.
ALL = '*'


def is_local(name: str) -> bool:
    """Tell whether a name is of the loopback interface (RFC 6761, 6.3)."""
    return name == 'localhost' or name.endswith('.localhost')


def transport_security(scheme: str, host: str | None) -> dict[str, str]:
    """Return the header Strict-Transport-Security of a response.

    :param scheme: of the request's URL
    :param host: value of the request's header Host; None if it is not known
    :returns: empty without TLS, and for the loopback interface, as
        browsers would remember it for all ports of their own host
    """
    if scheme != 'https' or is_local(http_framing.host_name(host or '') or ''):
        return {}
    return _HSTS


def serves(environ: types.WSGIEnvironment, names: tuple[str, ...]) -> bool:
    """Tell whether a request is for this service.

    :param environ: of the request, with a valid Host or none
    :param names: ``*.domain`` for all below a domain, `ALL`
    :returns: True without Host, which browsers always send
    """
    host = environ.get('HTTP_HOST')
    return host is None or ALL in names or _serves(host, names)


@functools.lru_cache(maxsize=64)
def _serves(host: str, names: tuple[str, ...]) -> bool:
    name = (http_framing.host_name(host) or '').removesuffix('.')
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
