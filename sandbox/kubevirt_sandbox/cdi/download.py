# SPDX-License-Identifier: Apache-2.0
"""Downloads an image over HTTP, as CDI's importer does.

The download blocks, so it runs in a thread of its own; :meth:`Download.stop`
ends it from another one. Error messages are those of Go's HTTP client and of
CDI, since clients look for these texts. :mod:`images` handles image formats.

Source: pkg/importer/http-datasource.go, cmd/cdi-importer/importer.go
(CDI 1.65).
"""
import base64
import dataclasses
import datetime
import errno
import hashlib
import http.client
import ipaddress
import math
import socket
import ssl
import threading
import urllib.parse

from kubevirt_sandbox.cdi import download_errors
from kubevirt_sandbox.cdi import images

AGENT = 'cdi-golang-importer'

_CONNECT, _IDLE = 30, 600
_PIECE = 256 * 1024
_REDIRECTS = 10

#: Verification errors of OpenSSL (x509_vfy.h).
_UNKNOWN_CA = (2, 18, 19, 20, 21, 27)
_EXPIRED, _NOT_YET = 10, 9
_WRONG_NAME, _WRONG_ADDRESS = 62, 64


@dataclasses.dataclass(frozen=True)
class Source:
    """Location of an image, with credentials and options.

    :param url: ``http`` or ``https`` URL.
    :param ca: PEM certificates to trust in addition to the system's.
    :param headers: additional headers, each ``Name: value``.
    :param checksum: ``algorithm:hexadecimal digest``, or ''.
    """

    url: str
    username: str = dataclasses.field(default='', repr=False)
    password: str = dataclasses.field(default='', repr=False)
    ca: str | None = None
    insecure: bool = False
    headers: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    checksum: str = ''


class Download:
    """One attempt to download an image.

    :param source: a :class:`Source`.
    :param delay: seconds to wait before the first request.
    :param rate: maximum bytes per second, or 0 for no limit.
    """

    def __init__(self, source, delay=0, rate=0):
        self._source = source
        self._delay = delay
        self._rate = rate
        self._stopped = threading.Event()
        self._socket = None
        self.total = 0
        self.read = 0

    @property
    def progress(self):
        """Return the progress from 0 to 100; None when the size is unknown."""
        if not self.total:
            return None
        return min(100.0, 100.0 * self.read / self.total)

    def stop(self):
        """Request the end of the download; callable from any thread."""
        self._stopped.set()
        sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The socket is already closed.

    def run(self, path, available, archive=False):
        """Download the image and write the disk.

        :param path: path of the disk to write.
        :param available: maximum size of the disk in bytes.
        :param archive: see :class:`images.Image`.
        :raises download_errors.ImportFailedError: the import failed.
        :raises download_errors.StoppedError: :meth:`stop` was called.
        """
        self._pause(self._delay)
        try:
            answer = self._open()
        except (OSError, ValueError, http.client.HTTPException,
                _AnswerError) as exc:
            self._check()
            raise download_errors.ImportFailedError(
                'Unable to connect to http data source: '
                f'{exc}') from None
        image = images.Image(path, available, self.total, archive)
        try:
            self._receive(answer, image)
            self._check()
            image.finish()
        except download_errors.StoppedError:
            image.discard()
            raise
        except images.ImageError as exc:
            image.discard()
            raise download_errors.ImportFailedError(
                f'Unable to process data: {exc}') from None
        except download_errors.ImportFailedError:
            image.discard()
            raise
        except OSError as exc:
            image.discard()
            raise download_errors.ImportFailedError(
                'Unable to process data: Unable to transfer source data to '
                'scratch space: unable to write to file: '
                f'{exc.strerror or exc}'.lower().replace(
                    'unable', 'Unable', 2)) from None
        finally:
            answer.close()

    def _check(self):
        if self._stopped.is_set():
            raise download_errors.StoppedError

    def _pause(self, seconds):
        if seconds and self._stopped.wait(seconds):
            raise download_errors.StoppedError

    # -- requests ---------------------------------------------------------

    def _open(self):
        """Send HEAD and then GET, and return the response of GET."""
        try:
            head = self._request('HEAD')
            self.total = _length(head)
            head.close()
        except (OSError, http.client.HTTPException, _AnswerError):
            pass  # CDI continues after an error of HEAD.
        answer = self._request('GET')
        self.total = self.total or _length(answer)
        return answer

    def _request(self, method):
        url = self._source.url
        for _ in range(_REDIRECTS + 1):
            self._check()
            answer = self._ask(method, url)
            if answer.status in (301, 302, 303, 307, 308) and (
                    answer.headers.get('Location')):
                url = urllib.parse.urljoin(url, answer.headers['Location'])
                answer.close()
                continue
            if answer.status != 200:
                answer.close()
                status = f'{answer.status} {answer.reason}'.strip()
                raise _AnswerError(
                    f'expected status code 200, got {answer.status}. '
                    f'Status: {status}')
            return answer
        raise _AnswerError(f'HTTP request errored: {_verb(method)} '
                           f'"{_shown(url)}": stopped after {_REDIRECTS} '
                           'redirects')

    def _ask(self, method, url):
        """Send one request."""
        parts = urllib.parse.urlsplit(url)
        prefix = f'HTTP request errored: {_verb(method)} "{_shown(url)}": '
        if parts.scheme not in ('http', 'https'):
            raise _AnswerError(f'{prefix}unsupported protocol scheme '
                               f'"{parts.scheme}"')
        if not parts.hostname:
            raise _AnswerError(f'{prefix}http: no Host in request URL')
        secure = parts.scheme == 'https'
        port = parts.port or (443 if secure else 80)
        connection = http.client.HTTPConnection(parts.hostname, port,
                                                timeout=_IDLE)
        answer = None
        try:
            connection.sock = self._connect(parts.hostname, port, secure)
            connection.putrequest(
                method, urllib.parse.urlunsplit(
                    ('', '', parts.path or '/', parts.query, '')),
                skip_accept_encoding=True)
            for name, value in self._headers(parts):
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
        except ssl.SSLCertVerificationError as exc:
            raise _AnswerError(prefix + _certificate_error(
                exc, parts.hostname)) from None
        except ssl.SSLError as exc:
            raise _AnswerError(prefix + _tls_error(exc)) from None
        except (OSError, http.client.HTTPException) as exc:
            raise _AnswerError(prefix + _network_error(
                exc, parts.hostname, port)) from None
        finally:
            if answer is None:
                connection.close()
        return answer

    def _connect(self, host, port, secure):
        sock = socket.create_connection((host, port), _CONNECT)
        self._socket = sock
        self._check()
        sock.settimeout(_IDLE)
        if not secure:
            return sock
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._source.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self._source.ca:
            try:
                context.load_verify_locations(cadata=self._source.ca)
            except (ssl.SSLError, ValueError):
                pass  # CDI only logs a warning in the importer.
        try:
            self._socket = context.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return self._socket

    def _headers(self, parts):
        source = self._source
        username, password = source.username, source.password
        if not (username and password) and parts.username:
            username = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or '')
        if username and password:
            yield 'Authorization', 'Basic ' + base64.b64encode(
                f'{username}:{password}'.encode()).decode()
        for header in source.headers:
            name, colon, value = header.partition(':')
            if colon:
                yield name.strip(), value.strip()
        yield 'User-Agent', AGENT
        yield 'Accept-Encoding', 'identity'

    # -- responses --------------------------------------------------------

    def _receive(self, answer, image):
        prefix = ('Unable to process data: Unable to transfer source data '
                  'to scratch space: failed to pull image: ')
        algorithm, _, wanted = self._source.checksum.partition(':')
        digest = hashlib.new(algorithm.strip().lower(),
                             usedforsecurity=False) if wanted else None
        # Several pieces a second, also of an image that arrives at once.
        limit = min(_PIECE, math.ceil(self._rate / 4)) or _PIECE
        while True:
            try:
                piece = answer.read1(limit)
            except (OSError, http.client.HTTPException) as exc:
                self._check()
                raise download_errors.ImportFailedError(
                    prefix + _network_error(exc, '', 0)) from None
            self._check()
            if not piece:
                break
            self.read += len(piece)
            if digest is not None:
                digest.update(piece)
            image.feed(piece)
            if self._rate:
                self._pause(len(piece) / self._rate)
        if answer.length:
            raise download_errors.ImportFailedError(prefix + 'unexpected EOF')
        image.received()
        if digest is not None:
            wanted = wanted.strip().lower()
            if digest.hexdigest() != wanted:
                raise download_errors.ImportFailedError(
                    'Unable to process data: Unable to transfer source data '
                    'to scratch space: checksum validation failed: checksum '
                    f'mismatch: expected {algorithm}:{wanted}, calculated '
                    f'{algorithm}:{digest.hexdigest()}', fatal=True)


class _AnswerError(Exception):
    """The server returned no image; the message is CDI's."""


def _verb(method):
    return method.capitalize()


def _length(answer):
    text = answer.headers.get('Content-Length', '')
    return int(text) if text.isascii() and text.isdigit() else 0


def _shown(url):
    """Return a URL without its password, in Go's notation."""
    parts = urllib.parse.urlsplit(url)
    if parts.password is None:
        return url
    where = parts.netloc.rpartition('@')[2]
    return urllib.parse.urlunsplit(parts._replace(
        netloc=f'{parts.username}:***@{where}'))


def _network_error(exc, host, port):
    """Return Go's error message for a network error."""
    where = f'[{host}]:{port}' if ':' in host else f'{host}:{port}'
    if isinstance(exc, socket.gaierror):
        return f'dial tcp: lookup {host}: no such host'
    if isinstance(exc, TimeoutError):
        return f'dial tcp {where}: i/o timeout' if host else 'i/o timeout'
    if isinstance(exc, http.client.RemoteDisconnected):
        return 'EOF'
    if isinstance(exc, http.client.IncompleteRead):
        return 'unexpected EOF'
    if isinstance(exc, http.client.HTTPException):
        return f'net/http: HTTP/1.x transport connection broken: {exc}'
    words = {errno.ECONNREFUSED: 'connect: connection refused',
             errno.EHOSTUNREACH: 'connect: no route to host',
             errno.ENETUNREACH: 'connect: network is unreachable'}
    if exc.errno in words:
        return f'dial tcp {where}: {words[exc.errno]}'
    if exc.errno == errno.ECONNRESET:
        return 'read tcp: read: connection reset by peer'
    return (exc.strerror or str(exc)).lower()


def _tls_error(exc):
    if isinstance(exc, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return 'EOF'  # the latter in Python 3.11.2
    if exc.reason in ('WRONG_VERSION_NUMBER', 'HTTP_REQUEST',
                      'RECORD_LAYER_FAILURE'):
        return 'http: server gave HTTP response to HTTPS client'
    return 'remote error: tls: ' + (exc.reason or str(exc)).lower().replace(
        '_', ' ')


def _certificate_error(exc, host):
    prefix = 'tls: failed to verify certificate: x509: '
    if exc.verify_code in _UNKNOWN_CA:
        return prefix + 'certificate signed by unknown authority'
    if exc.verify_code in (_EXPIRED, _NOT_YET):
        now = datetime.datetime.now(datetime.UTC).strftime(
            '%Y-%m-%dT%H:%M:%SZ')
        return (f'{prefix}certificate has expired or is not yet valid: '
                f'current time {now}')
    if exc.verify_code in (_WRONG_NAME, _WRONG_ADDRESS):
        try:
            ipaddress.ip_address(host)
            return (f'{prefix}cannot validate certificate for {host} '
                    'because it doesn\'t contain any IP SANs')
        except ValueError:
            return f'{prefix}certificate is not valid for {host}'
    return prefix + exc.verify_message
