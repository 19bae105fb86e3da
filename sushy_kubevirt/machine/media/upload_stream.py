# SPDX-License-Identifier: Apache-2.0
"""Streams an image through the BMC to CDI's upload proxy.

It comes from its server (`stream`) or from a client (`send`). Memory use does
not depend on the image's size: each piece is read and sent. An interrupted
stream cannot be resumed; CDI's upload server starts over.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import typing
from urllib import parse

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import fetch
from sushy_kubevirt.machine.media import tls

if typing.TYPE_CHECKING:
    from collections import abc
    import socket

    from sushy_kubevirt.machine.media import model
    from sushy_kubevirt.machine import options

#: Function of the bytes sent, and of those in all if that is known.
Progress: typing.TypeAlias = 'abc.Callable[[int, int | None], None]'

#: Path at CDI's upload proxy (CDI, pkg/common). The proxy responds when the
#: image is complete in the claim.
PATH = '/v1beta1/upload'

#: Size in bytes of the pieces that are read and sent.
PIECE = 256 * 1024

#: Timeouts in seconds: for data from the image server; for sending to the
#: proxy (storage that flushes blocks it); for the proxy's response after the
#: last byte, while CDI processes the image.
SOURCE_SECONDS = 60
SEND_SECONDS = 300
ANSWER_SECONDS = 3600


class Stopped(errors.MachineError):
    """The upload was stopped by `Stop.set`."""


class Stop(threading.Event):
    """Stops an upload from another thread; breaks its connections at once."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._callbacks: list[abc.Callable[[], None]] = []

    def set(self) -> None:
        """Stop the upload, also one that starts later."""
        with self._lock:
            super().set()
            for callback in self._callbacks:
                callback()

    def add_callback(self, callback: abc.Callable[[], None]) -> None:
        """Register a function that `set` calls.

        :raises: `Stopped` if it is set already
        """
        with self._lock:
            if self.is_set():
                raise Stopped('The upload was stopped')
            self._callbacks.append(callback)

    def remove_callback(self, callback: abc.Callable[[], None]) -> None:
        """Remove a function that `add_callback` registered."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


def stream(source: model.Source, proxy_url: str, token: str,
           options: options.MediaOptions, verify: bool = True,
           certificates: str = '', proxy_ca: str = '',
           length: int | None = None, progress: Progress | None = None,
           stop: Stop | None = None) -> None:
    """Send an image to CDI; return when CDI has it.

    :param source: from `url_policy.separate_credentials`
    :param proxy_url: of CDI's upload proxy; without a scheme (as CDI's own
        configuration may have it) https is meant
    :param token: of an UploadTokenRequest
    :param verify: whether the image server's certificate is verified
    :param certificates: PEM of the certificates installed for the device
    :param proxy_ca: PEM that the proxy's certificate is verified against;
        '' for the system's
    :param length: of the image in bytes, if known
    :param progress: called after each piece
    :raises: `errors.MediaUnreachable` about the image server,
        `errors.Unavailable` about the proxy, when another attempt may help,
        `errors.Rejected` when CDI cannot use the image, `Stopped`
    """
    stop = stop or Stop()
    fetcher = fetch.Fetcher(source, options, verify, certificates)
    if stop.is_set():
        raise Stopped('The upload was stopped')
    with fetcher.request('GET', read_seconds=SOURCE_SECONDS) as response:
        if response.status != 200:
            raise fetch.status_error(response)
        total = response.length()
        if total is None and response.plain:
            total = length

        sent = 0

        def readinto(buffer: memoryview) -> int:
            nonlocal sent
            size = response.readinto(buffer)
            sent += size
            if not size and total is not None and sent != total and (
                    not stop.is_set()):
                raise errors.MediaUnreachable(
                    f'{response.url.shown}: the server sent {sent} of '
                    f'{total} bytes', response.url.shown)
            return size

        send(readinto, proxy_url, token, proxy_ca, total, progress, stop,
             response.shut_down)


def send(readinto: abc.Callable[[memoryview], int], proxy_url: str,
         token: str, proxy_ca: str, total: int | None,
         progress: Progress | None, stop: Stop,
         interrupt: abc.Callable[[], None] = lambda: None) -> None:
    """Send an image to CDI; return when CDI has it.

    Parameters and exceptions not described here are those of `stream`.

    :param readinto: fills a buffer and returns the number of bytes, 0 at the
        end of the image; its exceptions end the upload
    :param total: number of bytes; None if unknown
    :param interrupt: ends a blocked call of ``readinto``
    """
    sender = _Sender(proxy_url, token, proxy_ca)
    try:
        # Break the proxy's connection first, so that an image that ends
        # early does not look complete to it.
        stop.add_callback(sender.shut_down)
        stop.add_callback(interrupt)
        sender.begin(total)
        sent = 0
        buffer = memoryview(bytearray(PIECE))
        while (size := readinto(buffer)) and sender.send(buffer[:size]):
            sent += size
            if progress is not None:
                progress(sent, total)
        if not size and stop.is_set():
            raise Stopped('The upload was stopped')
        sender.finish()
    except errors.MachineError:
        if stop.is_set():
            raise Stopped('The upload was stopped') from None
        raise
    finally:
        stop.remove_callback(interrupt)
        stop.remove_callback(sender.shut_down)
        sender.close()


class _Sender:
    """The request to the proxy, written while the image is read."""

    def __init__(self, url: str, token: str, ca: str) -> None:
        parts = parse.urlsplit(url if '://' in url else 'https://' + url)
        self._name = f'{parts.scheme}://{parts.netloc}'
        if parts.scheme not in ('http', 'https') or not parts.hostname:
            raise errors.ConfigError(
                f'The URL of the upload proxy, {url}, is not an http or https '
                'URL')
        self._path = parts.path.rstrip('/') + PATH
        self._token = token
        self._chunked = False
        self._sock: socket.socket | None = None
        if parts.scheme == 'http':
            self._link = http.client.HTTPConnection(
                parts.hostname, parts.port, fetch.CONNECT_SECONDS)
        else:
            self._link = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=fetch.CONNECT_SECONDS,
                context=tls.context(True, ca, system=not ca))

    def begin(self, length: int | None) -> None:
        """Connect and send the request's headers.

        :param length: bytes that will be sent; None if unknown
        """
        link = self._link
        self._chunked = length is None
        try:
            link.connect()
            self._sock = link.sock
            for option in connection.SOCKET_OPTIONS:
                link.sock.setsockopt(*option)
            link.sock.settimeout(SEND_SECONDS)
            link.putrequest('POST', self._path, skip_accept_encoding=True)
            link.putheader('Authorization', 'Bearer ' + self._token)
            link.putheader('Content-Type', 'application/octet-stream')
            link.putheader('User-Agent', 'sushy-kubevirt')
            if self._chunked:
                link.putheader('Transfer-Encoding', 'chunked')
            else:
                link.putheader('Content-Length', str(length))
            link.endheaders()
        except fetch.CONNECTION_ERRORS as e:
            raise self._error(e) from None

    def send(self, piece: memoryview) -> bool:
        """Send a piece.

        :returns: False if the proxy closed the connection; it may have sent
            a response
        """
        try:
            if self._chunked:
                self._link.send(b'%x\r\n' % len(piece))
            self._link.send(piece)
            if self._chunked:
                self._link.send(b'\r\n')
        except TimeoutError as e:
            raise self._error(e) from None
        except fetch.CONNECTION_ERRORS:
            # The proxy sends a refusal and then closes the connection.
            return False
        return True

    def finish(self) -> None:
        """Wait for the proxy's response.

        :raises: `errors.Unavailable`, `errors.Rejected`
        """
        link = self._link
        if self._chunked:
            with contextlib.suppress(OSError):
                link.send(b'0\r\n\r\n')
        try:
            link.sock.settimeout(ANSWER_SECONDS)
            response = link.getresponse()
            text = response.read(500).decode(errors='replace').strip()
        except fetch.CONNECTION_ERRORS as e:
            raise self._error(e) from None
        if response.status < 300:
            return
        message = (f'The upload proxy {self._name} responded with '
                   f'{response.status} {text or response.reason}')
        if response.status in (401, 403, 408, 429) or response.status >= 500:
            # 401: a token expires after some minutes.
            raise errors.Unavailable(message)
        raise errors.Rejected(message)

    def _error(self, error: Exception) -> errors.Unavailable:
        return errors.Unavailable(
            f'The upload proxy {self._name}: {fetch.describe(error)}')

    def shut_down(self) -> None:
        """Shut down the connection; blocked writes and reads end."""
        fetch.shut_down(self._sock)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
