# SPDX-License-Identifier: Apache-2.0
"""Sessions with the API server for what speaks aiohttp: ours and kopf's.

Both use the credentials of one `connection.Connection`, looked up for each
request, so that a token that rotates needs no new session; and both are
counted. Certificates that are replaced do need one: what there is is closed
then, and whoever finds its session closed (kopf does as well) asks for
another one.
"""

import asyncio
import socket
import ssl
import weakref

import aiohttp

from sushy_kubevirt.kube import connection as connection_
from sushy_kubevirt.kube import errors

#: Tells the server who asks.
USER_AGENT = 'sushy-kubevirt-operator'

#: Seconds to get a connection.
CONNECT_SECONDS = 10

#: Connections at a time.
CONNECTIONS = 64


class Transport:
    """Makes sessions.

    :param connection: a `connection.Connection`
    :param counted: function of (method, HTTP status; 0 when there was no
        answer), called once for each request
    :raises: `errors.ConfigError` if aiohttp cannot go that way
    """

    def __init__(self, connection, counted=lambda method, status: None):
        self._connection = connection
        self._counted = counted
        self._renewing = asyncio.Lock()
        self._sessions = weakref.WeakSet()
        self._take(connection.access())

    def _take(self, access):
        if access.proxy and not access.proxy.startswith('http:'):
            raise errors.ConfigError(
                'The operator can go through an HTTP proxy only, not '
                'through the one that the kubeconfig names for %s'
                % access.server)
        self._transport = access.transport
        self._server_name = access.tls_server_name
        self._proxy = access.proxy
        self._ssl = (access.ssl_context()
                     if access.server.startswith('https:') else True)
        #: URL of the API server.
        self.server = access.server

    def session(self, limited=True):
        """A new session, to be closed by the caller.

        :param limited: False for as many connections as somebody asks for,
            as watches do: each holds one for as long as it lasts
        :returns: `aiohttp.ClientSession`; URLs must be whole
        """
        made = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._ssl, limit=CONNECTIONS if limited else 0,
                socket_factory=_socket),
            headers={'User-Agent': USER_AGENT},
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS),
            middlewares=[self._send], proxy=self._proxy,
            cookie_jar=aiohttp.DummyCookieJar())
        self._sessions.add(made)
        return made

    async def _send(self, request, handler):
        """Send a request, and once again if the credentials had expired."""
        if self._server_name:
            request.server_hostname = self._server_name
        access = await self._access()
        response = await self._send_once(request, handler, access)
        if response.status == 401:
            fresh = await self._renewed(access)
            if fresh is not access:
                response.release()
                response = await self._send_once(request, handler, fresh)
        return response

    async def _send_once(self, request, handler, access):
        if access.authorization:
            request.headers['Authorization'] = access.authorization
        try:
            response = await handler(request)
        except (aiohttp.ClientError, OSError) as e:
            self._counted(request.method, 0)
            if isinstance(e, (aiohttp.ClientSSLError, ssl.SSLError)):
                # A certificate may have been replaced: the next try has it.
                await self._renewed(access)
            raise
        self._counted(request.method, response.status)
        return response

    async def _access(self):
        if not self._connection.slow:
            return self._connection.access()
        # A program that logs in, which takes its time; one is enough.
        async with self._renewing:
            if not self._connection.slow:
                return self._connection.access()
            return await self._follow(
                await asyncio.to_thread(self._connection.access))

    async def _renewed(self, access):
        async with self._renewing:
            return await self._follow(
                await asyncio.to_thread(self._connection.renew, access))

    async def _follow(self, access):
        """Have connections made with the certificates of now."""
        if access.transport != self._transport:
            self._take(access)
            old, self._sessions = list(self._sessions), weakref.WeakSet()
            for session in old:
                await session.close()
        return access


def _socket(address):
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    for level, option, value in connection_.SOCKET_OPTIONS:
        made.setsockopt(level, option, value)
    return made
