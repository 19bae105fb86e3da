# SPDX-License-Identifier: Apache-2.0
"""Whether Redfish is served, found out as a client would.

By the very port that clients use, with TLS if they have it, and through the
whole application: `health` has a port of its own, which would answer though
this one did not any more.
"""

import contextlib
import socket
import ssl
import time

from sushy_kubevirt.pod import http_server

#: Seconds for an answer.
TIMEOUT_SECONDS = 3

#: Seconds for which an answer tells that Redfish is served, and that the
#: process lives. There is a pod for each VM, and to ask costs some
#: milliseconds.
_READY_FOR = 25
_LIVE_FOR = 60

_REQUEST = (
    'GET /redfish/v1/ HTTP/1.1\r\nHost: localhost\r\nUser-Agent: %s\r\n'
    'Connection: close\r\n\r\n' % http_server.PROBE_USER_AGENT).encode()


class Probe:
    """Asks a server for its service root. For one thread.

    :param address: where it listens
    :param port: TCP
    :param tls: whether it speaks HTTPS
    """

    def __init__(self, address, port, tls):
        self._where = (address, port)
        self._context = self._session = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # It is this process that answers, under any of its names.
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
            # To come back with a known session is cheapest with this one.
            self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._answered = None

    def live(self):
        """What is wrong with the server, a sentence; '' if nothing is."""
        return '' if self._answered_in(_LIVE_FOR) else self._try()

    def ready(self):
        """The same, of a moment ago."""
        return '' if self._answered_in(_READY_FOR) else self._try()

    def _answered_in(self, seconds):
        return (self._answered is not None
                and time.monotonic() - self._answered < seconds)

    def _try(self):
        try:
            line = self._ask()
        except OSError as exc:
            return 'Redfish does not answer on port %d: %s' % (
                self._where[1], exc.strerror or exc)
        if line.split(b' ')[1:2] != [b'200']:
            return 'Redfish answers with %s' % (
                line.decode('latin-1') or 'nothing')
        self._answered = time.monotonic()
        return ''

    def _ask(self):
        """:returns: the first line of the answer"""
        end = time.monotonic() + TIMEOUT_SECONDS
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(
                socket.create_connection(self._where, TIMEOUT_SECONDS))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = stack.enter_context(self._context.wrap_socket(
                    sock, session=self._session))
            sock.sendall(_REQUEST)
            answer = b''
            while True:
                sock.settimeout(max(0.001, end - time.monotonic()))
                read = sock.recv(65536)
                if not read:
                    break
                answer += read
            if self._context is not None:
                # To spare both sides half of the next handshake.
                self._session = sock.session
            return answer.partition(b'\r\n')[0]
