# SPDX-License-Identifier: Apache-2.0
"""Connections to the API server that are kept for further requests."""

from __future__ import annotations

import threading
import typing
from urllib import parse

import urllib3

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors


class _Pool(typing.NamedTuple):
    """Connections, and the URL before the path of a request.

    Without a proxy these are of one server, and only the path in its URL
    counts: a `urllib3.PoolManager` would look the server up for each request.
    """

    connections: urllib3.HTTPConnectionPool | urllib3.PoolManager
    base: str


class Pools:
    """The connections of a client and its copies. Thread-safe.

    :param connections: number of idle connections that are kept
    """

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._pool: _Pool | None = None
        self._transport: tuple[object, ...] | None = None

    def get(self, access: connection.Access) -> _Pool:
        """Return the connections for what a request is to use."""
        with self._lock:
            if self._pool is None or self._transport != access.transport:
                self._pool = _pool(access, self._connections)
                self._transport = access.transport
            return self._pool

    def clear(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._pool is not None:
                connections, _ = self._pool
                if isinstance(connections, urllib3.PoolManager):
                    connections.clear()
                else:
                    connections.close()
            self._pool = self._transport = None


def _pool(access: connection.Access, connections: int) -> _Pool:
    """Create a pool.

    :raises: `errors.ConfigError` if its proxy cannot be used;
        `urllib3.exceptions.LocationValueError` if the server has no address
    """
    common: dict[str, typing.Any] = {
        'maxsize': connections, 'socket_options': connection.SOCKET_OPTIONS}
    if access.server.startswith('https:'):
        common['ssl_context'] = access.ssl_context()
        if access.insecure:
            # urllib3 would warn at each request of an option that was set on
            # purpose.
            urllib3.disable_warnings(
                urllib3.exceptions.InsecureRequestWarning)
        if access.tls_server_name:
            common['server_hostname'] = access.tls_server_name
    if not access.proxy:
        return _Pool(urllib3.connection_from_url(access.server, **common),
                     urllib3.util.parse_url(access.server).path or '')
    common['num_pools'] = 2
    try:
        if access.proxy.startswith('socks'):
            # Needs PySocks, which is not a requirement of this project.
            from urllib3.contrib import socks
            return _Pool(socks.SOCKSProxyManager(access.proxy, **common),
                         access.server)
        auth = urllib3.util.parse_url(access.proxy).auth
        if auth:
            common['proxy_headers'] = urllib3.make_headers(
                proxy_basic_auth=parse.unquote(auth))
        return _Pool(urllib3.ProxyManager(access.proxy, **common),
                     access.server)
    except (ImportError, urllib3.exceptions.HTTPError) as e:
        raise errors.ConfigError(
            f'The proxy of {access.server} cannot be used: {e}') from None
