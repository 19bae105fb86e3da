# SPDX-License-Identifier: Apache-2.0
"""HTTP requests to image servers, with checked redirects.

Connects only to addresses that `url_policy` has checked, so that a name which
resolves differently later has no effect, and checks each redirect like a
client's URL. Credentials are sent only to the origin they were given for.
Proxies of the environment are not used: they would resolve the name again.

Uses `http.client` on a socket of its own: urllib3 and requests resolve the
name of a URL themselves and have no deadline for a whole response.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
import typing
from urllib import parse

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine.media import url_policy

if typing.TYPE_CHECKING:
    from collections import abc
    import email.message

    from sushy_kubevirt.machine.media import model
    from sushy_kubevirt.machine import options

#: Maximum number of redirects.
MAX_REDIRECTS = 5

#: Timeout in seconds for connecting to one address.
CONNECT_SECONDS = 4

#: Exceptions of a failed connection. A socket or file that another thread
#: closed raises ValueError.
CONNECTION_ERRORS = (http.client.HTTPException, OSError, ValueError)

_REDIRECTS = (301, 302, 303, 307, 308)

# HTTP status code: kind of `errors.MediaUnreachable`.
_KINDS = {401: 'unauthorized', 403: 'unauthorized', 407: 'unauthorized',
          404: 'missing', 410: 'missing'}


class Response:
    """Response of a server; a context manager that closes the connection.

    :param url: of the server, after all redirects
    :param response: its body has not been read
    :param timed_socket: of the request
    """

    def __init__(self, url: url_policy.ParsedUrl,
                 response: http.client.HTTPResponse,
                 timed_socket: _TimedSocket) -> None:
        self.url = url
        self.status = response.status
        self.reason = response.reason or ''
        self.headers: email.message.Message = response.headers
        self._response = response
        self._socket = timed_socket

    @property
    def plain(self) -> bool:
        """Whether the body is the image and not an encoding of it."""
        return self.headers.get('Content-Encoding', 'identity') == 'identity'

    def length(self) -> int | None:
        """Return the length of the image in bytes; None if unknown."""
        if not self.plain or 'Transfer-Encoding' in self.headers:
            return None
        return _number(self.headers.get('Content-Length'))

    def readinto(self, buffer: memoryview) -> int:
        """Read a piece of the body.

        :returns: number of bytes, 0 at the end
        :raises: `errors.MediaUnreachable` if the connection fails
        """
        try:
            size = self._response.readinto(buffer)
        except CONNECTION_ERRORS as e:
            raise self._socket.error(self.url, e) from None
        if self._socket.expired:
            raise _timeout(self.url)
        return size

    def read(self, amount: int) -> bytes:
        """Read the first bytes of the body, fewer at its end."""
        buffer = memoryview(bytearray(amount))
        filled = 0
        while filled < amount and (more := self.readinto(buffer[filled:])):
            filled += more
        return bytes(buffer[:filled])

    def shut_down(self) -> None:
        """Shut down the connection from another thread; blocked reads end."""
        self._socket.shut_down()

    def disconnect(self) -> None:
        """Close the connection; the deadline applies to the next one."""
        self._response.close()
        self._socket.disconnect()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.disconnect()
        self._socket.close()


class _TimedSocket:
    """The socket of a request and the deadline of all its redirects.

    Socket timeouts do not stop a server that sends one byte a second; at the
    deadline the socket is shut down.

    :param seconds: None for no deadline
    """

    def __init__(self, seconds: float | None) -> None:
        self.sock: socket.socket | None = None
        #: True once the deadline has passed.
        self.expired = False
        self._deadline: float | None = None
        self._timer: threading.Timer | None = None
        if seconds:
            self._deadline = time.monotonic() + seconds
            self._timer = threading.Timer(seconds, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def left(self, most: float) -> float:
        """Return the seconds until the deadline, at most `most`."""
        if self._deadline is None:
            return most
        return min(most, max(self._deadline - time.monotonic(), 0.001))

    def _expire(self) -> None:
        self.expired = True
        self.shut_down()

    def shut_down(self) -> None:
        shut_down(self.sock)

    def disconnect(self) -> None:
        if self.sock is not None:
            self.sock.close()

    def close(self) -> None:
        """Close the socket and cancel the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self.disconnect()

    def error(self, url: url_policy.ParsedUrl, error: Exception | None
              ) -> errors.MediaUnreachable:
        """Build the error for an exception of the socket."""
        return _timeout(url) if self.expired else connection_error(url, error)


def shut_down(sock: socket.socket | None) -> None:
    """Shut down a socket so that blocked reads and writes end."""
    if sock is not None:
        with contextlib.suppress(OSError, ValueError):
            sock.shutdown(socket.SHUT_RDWR)


def _number(text: str | None) -> int | None:
    """Parse a number in a header; None if it is not one."""
    if text and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return None


class Fetcher:
    """Requests one image.

    :param source: from `url_policy.separate_credentials`
    :param verify: whether certificates are verified
    :param certificates: PEM of the certificates installed for the device
    """

    def __init__(self, source: model.Source, options: options.MediaOptions,
                 verify: bool, certificates: str = '') -> None:
        self._url = url_policy.parse(source.url)
        self._options = options
        self._verify = verify
        self._pem = tls.bundle(options, certificates) if verify else ''
        self._context: ssl.SSLContext | None = None
        self._authorization: str | None = None
        if source.username:
            pair = f'{source.username}:{source.password}'.encode()
            self._authorization = f'Basic {base64.b64encode(pair).decode()}'

    def request(self, method: str, headers: dict[str, str] | None = None,
                seconds: float | None = None, read_seconds: float = 60
                ) -> Response:
        """Send a request and follow redirects.

        :param method: ``GET`` or ``HEAD``
        :param headers: further ones
        :param seconds: deadline for the whole request and its body; None for
            none
        :param read_seconds: timeout for each read
        :returns: the response, of any status
        :raises: `errors.InvalidValue`, `errors.MediaUnreachable`
        """
        timed_socket = _TimedSocket(seconds)
        try:
            url = self._url
            for _redirect in range(MAX_REDIRECTS + 1):
                response = self._request_once(
                    url, method, headers or {}, timed_socket, read_seconds)
                location = response.headers.get('Location')
                if response.status not in _REDIRECTS or not location:
                    return response
                response.disconnect()
                url = self._redirect_target(url, location)
            raise errors.MediaUnreachable(
                f'{self._url.shown} redirects more than {MAX_REDIRECTS} times',
                self._url.shown)
        except BaseException:
            timed_socket.close()
            raise

    def _redirect_target(self, url: url_policy.ParsedUrl, location: str
                         ) -> url_policy.ParsedUrl:
        try:
            text = parse.urljoin(url.text, location)
        except ValueError:
            text = ''
        try:
            target = url_policy.parse(text)
        except errors.InvalidValue as e:
            raise _redirect_error(self._url, e) from None
        if url.scheme == 'https' and target.scheme == 'http':
            raise errors.MediaUnreachable(
                f'{self._url.shown} redirects from https to http',
                self._url.shown, 'tls')
        return target

    def _request_once(self, url: url_policy.ParsedUrl, method: str,
                      headers: dict[str, str], timed_socket: _TimedSocket,
                      read_seconds: float) -> Response:
        try:
            addresses = url_policy.check(url, self._options)
        except errors.InvalidValue as e:
            if url is self._url:
                raise
            raise _redirect_error(self._url, e) from None
        headers = {'User-Agent': 'sushy-kubevirt',
                   'Accept-Encoding': 'identity', **headers}
        if self._authorization and url.origin == self._url.origin:
            headers['Authorization'] = self._authorization
        link = http.client.HTTPConnection(url.host, url.port)
        if url.scheme == 'https':
            link.default_port = http.client.HTTPS_PORT
        link.sock = sock = self._connect(url, addresses, timed_socket)
        try:
            sock.settimeout(timed_socket.left(read_seconds))
            link.request(method, url.path, headers=headers)
            response = Response(url, link.getresponse(), timed_socket)
        except CONNECTION_ERRORS as e:
            raise timed_socket.error(url, e) from None
        if timed_socket.expired:
            # A response that was cut off looks complete.
            response.disconnect()
            raise _timeout(url)
        return response

    def _connect(self, url: url_policy.ParsedUrl,
                 addresses: abc.Iterable[str], timed_socket: _TimedSocket
                 ) -> socket.socket:
        """Connect to the first address that accepts, with TLS for https."""
        error = None
        timed_socket.sock = None    # the previous one is closed
        for address in addresses:
            if timed_socket.expired:
                break
            try:
                timed_socket.sock = socket.create_connection(
                    (address, url.port), timed_socket.left(CONNECT_SECONDS))
                break
            except OSError as e:
                error = e
        sock = timed_socket.sock
        if sock is None:
            raise timed_socket.error(url, error)
        try:
            for option in connection.SOCKET_OPTIONS:
                sock.setsockopt(*option)
            if url.scheme == 'https':
                if self._context is None:
                    self._context = tls.context(self._verify, self._pem)
                timed_socket.sock = sock = self._context.wrap_socket(
                    sock, server_hostname=url.host)
        except (OSError, ValueError) as e:
            raise timed_socket.error(url, e) from None
        return sock


def status_error(response: Response) -> errors.MediaUnreachable:
    """Build the error for an unsuccessful response."""
    url, code = response.url, response.status
    kind = _KINDS.get(code, 'server' if code >= 500 else 'unreachable')
    reason = f'{code} {response.reason[:100]}'.rstrip()
    text = f'{url.shown}: the server responded with {reason}'
    if kind == 'unauthorized':
        text += '; check UserName and Password'
    return errors.MediaUnreachable(text, url.shown, kind)


def connection_error(url: url_policy.ParsedUrl, error: Exception | None
                     ) -> errors.MediaUnreachable:
    """Build the error for a failed connection.

    :param error: None if there was no address to connect to before the
        deadline
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or error.reason
        return errors.MediaUnreachable(
            f'{url.shown}: the certificate of the server cannot be verified: '
            f'{why}. Install that of its CA in Certificates of the device, or '
            'set VerifyCertificate to false', url.shown, 'tls')
    if (isinstance(error, ssl.SSLError)
            and not isinstance(error, connection.CLOSED)):
        return errors.MediaUnreachable(
            f'{url.shown}: TLS with the server failed: {describe(error)}',
            url.shown, 'tls')
    if error is None or isinstance(error, TimeoutError):
        return _timeout(url)
    return errors.MediaUnreachable(
        f'{url.shown}: the server cannot be reached: {describe(error)}',
        url.shown)


def describe(error: Exception) -> str:
    """Describe an exception in a few words, without any data that was sent."""
    if isinstance(error, TimeoutError):
        return 'no response in time'
    if isinstance(error, (http.client.RemoteDisconnected, *connection.CLOSED)):
        return 'it closed the connection without a response'
    if isinstance(error, ssl.SSLError):
        return getattr(error, 'verify_message', '') or error.reason or 'TLS'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, http.client.HTTPException):
        return f'its response is not valid HTTP ({type(error).__name__})'
    return type(error).__name__


def _timeout(url: url_policy.ParsedUrl) -> errors.MediaUnreachable:
    return errors.MediaUnreachable(
        f'{url.shown}: the server did not respond in time; '
        f'{errors.FILTERED}', url.shown)


def _redirect_error(url: url_policy.ParsedUrl, error: errors.InvalidValue
                    ) -> errors.InvalidValue:
    return errors.InvalidValue(
        error.property, url.shown,
        message=f'{url.shown} redirects: {error}')
