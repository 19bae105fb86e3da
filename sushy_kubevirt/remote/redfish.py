# SPDX-License-Identifier: Apache-2.0
"""Redfish client of a BMC, through the API server."""

from __future__ import annotations

from collections import abc
import ipaddress
import json
import logging
import socket
import ssl
import typing

import urllib3

from sushy_kubevirt.kube import portforward
from sushy_kubevirt.operator import naming
from sushy_kubevirt.remote import endpoint
from sushy_kubevirt.remote import forward

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects

SYSTEM = '/redfish/v1/Systems/1'

#: Seconds for a connection.
_CONNECT_SECONDS = 10

_TIMEOUT = urllib3.Timeout(connect=_CONNECT_SECONDS, read=60)

# It would warn of each of `_RETRIES`.
logging.getLogger('urllib3.connectionpool').setLevel(logging.ERROR)

#: A BMC's pod may be starting: then nothing listens, or it says so.
_RETRIES = urllib3.Retry(
    total=4, connect=3, read=0, redirect=0, other=0, status=3,
    status_forcelist={503}, allowed_methods=None, backoff_factor=1,
    raise_on_status=False)

#: What to do about a status, beside the BMC's own message.
_ADVICE = {
    401: 'it refuses the credentials of Secret {secret}. Those of a changed '
         'Secret are in use after a minute',
    403: 'the account {username} lacks the privilege'}


class Client:
    """Redfish of one BMC through the API server, by HTTPS with its authority's
    certificate verified, or by HTTP if it serves nothing else.

    :param bmc: with the name of its account
    :param kubernetes: client to connect through
    :ivar ssl_context: None without TLS
    :ivar server_name: the name that its certificate has to contain
    :ivar headers: of requests that are not made by `request`, such as
        WebSockets
    """

    def __init__(self, bmc: endpoint.Bmc, kubernetes: client.Client) -> None:
        self.bmc = bmc
        self._kubernetes = kubernetes
        self._forwarded: portforward.Connection | None = None
        if not bmc.url:
            raise self.error('does not serve Redfish: "redfish.enabled" is '
                             'false')
        self.server_name = _inner(bmc)
        self.headers = urllib3.make_headers(
            basic_auth=f'{bmc.username}:{bmc.password}')
        self.ssl_context: ssl.SSLContext | None = None
        kind: type[urllib3.HTTPConnectionPool] = urllib3.HTTPConnectionPool
        options: dict[str, typing.Any] = {}
        if bmc.redfish_port:
            self.ssl_context = ssl.create_default_context(cadata=bmc.ca)
            kind = urllib3.HTTPSConnectionPool
            options['ssl_context'] = self.ssl_context
        self._pool = kind(self.server_name, timeout=_TIMEOUT,
                          retries=_RETRIES, **options)
        connections: typing.Any = self._pool.ConnectionCls
        setattr(self._pool, 'ConnectionCls', lambda *arguments, **more:
                _through(connections(*arguments, **more), self.dial))

    def dial(self) -> socket.socket:
        """Open a connection to the port of Redfish through the API server.

        :raises: `errors.MachineError`
        """
        self._forwarded = forward.connect(
            self._kubernetes, self.bmc.namespace, self.bmc.name)
        self._forwarded.socket.settimeout(_CONNECT_SECONDS)
        return self._forwarded.socket

    def get(self, path: str = SYSTEM) -> objects.Json:
        """Read a resource.

        :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
        """
        return self.request('GET', path).json()

    def post(self, path: str, body: object = None) -> objects.Json:
        """Call an action or create a resource; return the response's body.

        :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
        """
        response = self.request('POST', path, json=body or {})
        return response.json() if response.data else {}

    def patch(self, body: object, path: str = SYSTEM) -> None:
        """Change a resource.

        :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
        """
        self.request('PATCH', path, json=body)

    def power_state(self) -> str:
        """Read Redfish's ``PowerState``, such as ``On`` or ``PoweringOff``.

        :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
        """
        return self.get()['PowerState']

    def reset(self, reset_type: str) -> None:
        """Change the power state.

        :param reset_type: Redfish's ``ResetType``, such as ``ForceRestart``
        :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
        """
        self.post(f'{SYSTEM}/Actions/ComputerSystem.Reset',
                  {'ResetType': reset_type})

    def error(self, reason: str) -> endpoint.BmcUnavailable:
        """Return an error of this BMC, to be raised."""
        return endpoint.BmcUnavailable(self.bmc.name, reason)

    def request(self, method: str, path: str,
                headers: abc.Mapping[str, str] | None = None,
                **options: typing.Any) -> urllib3.BaseHTTPResponse:
        """Send a request.

        :param options: of `urllib3.HTTPConnectionPool.request`
        :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
        """
        try:
            response = self._pool.request(
                method, path, headers={**self.headers, **(headers or {})},
                redirect=False, **options)
            if response.status >= 400:
                raise self._refusal(response.status, response.data)
            return response
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self.error(self._reason(error)) from error

    def _refusal(self, status: int, body: bytes) -> endpoint.BmcUnavailable:
        text = message(body) or f'HTTP status {status}'
        if status in _ADVICE:
            text = _ADVICE[status].format(
                secret=self.bmc.secret, username=self.bmc.username
            ) + f' ({text})'
        return endpoint.BmcUnavailable(self.bmc.name, text, status)

    def _reason(self, error: Exception) -> str:
        text = str(error)
        if 'CERTIFICATE_VERIFY_FAILED' in text:
            what = text.partition('verify failed: ')[2].partition(' (_ssl')[0]
            return (f'its certificate is not to be trusted: {what}. The '
                    'operator makes and renews it: see "kubectl describe '
                    'vmbmc"')
        if self._forwarded is not None and self._forwarded.error:
            return f'its pod does not accept it: {self._forwarded.error}'
        cause = text.rpartition(': ')[2].strip(')"\' ') or text
        return f'{self.server_name} does not answer: {cause}'


def message(body: bytes) -> str:
    """Return the text of an error response, '' without.

    Source: DSP0266 1.20, "Error responses"; messages are separated by spaces.
    """
    try:
        error = json.loads(body)['error']
        return ' '.join(
            info['Message'] for info in error.get('@Message.ExtendedInfo') or (
                {'Message': error['message']},))
    except (ValueError, LookupError, TypeError, AttributeError):
        return ''


def _inner(bmc: endpoint.Bmc) -> str:
    """Return the name in the certificate for a connection to the pod.

    A user's own certificate may have the address' name alone.
    """
    if not bmc.authority:
        try:
            ipaddress.ip_address(bmc.address)
        except ValueError:
            return bmc.address
    return f'{naming.base(bmc.name)}.{bmc.namespace}.svc'


def _through(connection: typing.Any,
             dial: abc.Callable[[], socket.socket]) -> typing.Any:
    # urllib3's hook for other transports.
    connection._new_conn = dial
    connect = connection.connect

    def connected() -> None:
        connect()
        # An upload waits for the storage longer than a handshake.
        connection.sock.settimeout(connection.timeout)
    connection.connect = connected
    return connection
