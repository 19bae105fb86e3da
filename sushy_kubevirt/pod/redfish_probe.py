# SPDX-License-Identifier: Apache-2.0
"""Checks by a request whether the Redfish server answers.

The request uses the port, the TLS and the application that clients use. The
port of `health`, where the result is read, would answer even if this one did
not.
"""

from __future__ import annotations

from collections import abc
import contextlib
import math
import socket
import ssl
import time

from sushy_kubevirt.pod import http_connection

#: Seconds until the response must be complete.
TIMEOUT_SECONDS = 3

#: Seconds for which a successful request is reused by the readiness and the
#: liveness probe. A request costs some milliseconds, in each VM's pod.
_READY_SECONDS = 25
_LIVE_SECONDS = 60

_REQUEST = (
    'GET /redfish/v1/ HTTP/1.1\r\n'
    'Host: localhost\r\n'
    f'User-Agent: {http_connection.PROBE_USER_AGENT}\r\n'
    'Connection: close\r\n'
    '\r\n').encode()


class Probe:
    """Requests the service root of a server. Not thread-safe.

    :param address: IP address that the server listens on
    :param port: its TCP port
    :param tls: whether it serves HTTPS
    :param announce: function of the TCP port from which the probe is about
        to connect
    """

    def __init__(self, address: str, port: int, tls: bool,
                 announce: abc.Callable[[int], object] = lambda port: None
                 ) -> None:
        self._where = (address, port)
        self._announce = announce
        self._context: ssl.SSLContext | None = None
        self._session: ssl.SSLSession | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # The server is this process; its certificate may have any name.
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
            # Resuming a session is cheapest with TLS 1.2.
            self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._succeeded_at = -math.inf

    def live(self) -> str:
        """Check the server unless it answered in the last minute.

        :returns: why it does not answer, a sentence; '' if it does
        """
        return self._check(_LIVE_SECONDS)

    def ready(self) -> str:
        """The same unless it answered in the last 25 seconds."""
        return self._check(_READY_SECONDS)

    def _check(self, seconds: float) -> str:
        if time.monotonic() - self._succeeded_at < seconds:
            return ''
        try:
            line = self._request()
        except OSError as exc:
            return (
                f'Redfish does not answer on port {self._where[1]}: '
                f'{exc.strerror or exc}')
        if line.split(b' ')[1:2] != [b'200']:
            answer = line.decode('latin-1') or 'nothing'
            return f'Redfish answers with {answer}'
        self._succeeded_at = time.monotonic()
        return ''

    def _request(self) -> bytes:
        """Return the status line of the response."""
        end = time.monotonic() + TIMEOUT_SECONDS
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(socket.socket(
                socket.AF_INET6 if ':' in self._where[0]
                else socket.AF_INET))
            sock.settimeout(TIMEOUT_SECONDS)
            sock.bind((self._where[0], 0))
            self._announce(sock.getsockname()[1])
            sock.connect(self._where)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = stack.enter_context(self._context.wrap_socket(
                    sock, session=self._session))
            sock.sendall(_REQUEST)
            response = b''
            while True:
                sock.settimeout(max(0.001, end - time.monotonic()))
                read = sock.recv(65536)
                if not read:
                    break
                response += read
            if isinstance(sock, ssl.SSLSocket):
                # The next handshake resumes it, at half of the cost.
                self._session = sock.session
            return response.partition(b'\r\n')[0]
