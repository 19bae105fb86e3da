# SPDX-License-Identifier: Apache-2.0
"""HTTP requests to image servers, with checked redirects.

Connects only to addresses that `url_policy` has checked, so that a name which
resolves differently later has no effect, and checks each redirect like a
client's URL. Credentials are sent only to the origin they were given for.
Proxies of the environment are not used: they would resolve the name again.
"""

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
from urllib import parse

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine.media import url_policy

#: Maximum number of redirects.
HOPS = 5

#: Timeout in seconds for connecting to one address.
CONNECT_SECONDS = 4

#: Exceptions of a failed connection. A socket or file that another thread
#: closed raises ValueError.
BROKEN = (http.client.HTTPException, OSError, ValueError)

_REDIRECTS = (301, 302, 303, 307, 308)

# HTTP status code: kind of `errors.MediaUnreachable`.
_KINDS = {401: 'unauthorized', 403: 'unauthorized', 407: 'unauthorized',
          404: 'missing', 410: 'missing'}


class Answer:
    """Response of a server; a context manager that closes the connection.

    :param place: `url_policy.ParsedUrl` of the server, after all redirects
    :param response: an `http.client.HTTPResponse`, its body not read
    :param limit: the `_Limit` of the request
    """

    def __init__(self, place, response, limit):
        self.place = place
        self.status = response.status
        self.reason = response.reason or ''
        self.headers = response.headers
        self._response = response
        self._limit = limit

    @property
    def plain(self):
        """Whether the body is the image and not an encoding of it."""
        return self.headers.get('Content-Encoding', 'identity') == 'identity'

    def length(self):
        """Return the length of the image in bytes; None if unknown."""
        if not self.plain or 'Transfer-Encoding' in self.headers:
            return None
        return _number(self.headers.get('Content-Length'))

    def readinto(self, buffer):
        """Read a piece of the body.

        :param buffer: memoryview to fill
        :returns: number of bytes, 0 at the end
        :raises: `errors.MediaUnreachable` if the connection fails
        """
        try:
            got = self._response.readinto(buffer)
        except BROKEN as e:
            raise self._limit.error(self.place, e) from None
        if self._limit.over:
            raise _slow(self.place)
        return got

    def read(self, amount):
        """Read the first bytes of the body.

        :param amount: number of bytes
        :returns: bytes; fewer at the end of the body
        """
        buffer = memoryview(bytearray(amount))
        filled = 0
        while filled < amount and (more := self.readinto(buffer[filled:])):
            filled += more
        return bytes(buffer[:filled])

    def cut(self):
        """Break the connection from another thread; a blocked read then ends.
        """
        self._limit.cut()

    def hang_up(self):
        """Close the connection; the deadline stays for the next one."""
        self._response.close()
        self._limit.hang_up()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.hang_up()
        self._limit.close()


class _Limit:
    """The connection of a request and its deadline.

    Socket timeouts do not stop a server that sends one byte a second; at the
    deadline the connection is broken.

    :param seconds: None for no deadline
    """

    def __init__(self, seconds):
        self.sock = None
        self.over = False
        self._deadline = self._timer = None
        if seconds:
            self._deadline = time.monotonic() + seconds
            self._timer = threading.Timer(seconds, self._end)
            self._timer.daemon = True
            self._timer.start()

    def left(self, most):
        """Return the seconds until the deadline, at most `most`."""
        if self._deadline is None:
            return most
        return min(most, max(self._deadline - time.monotonic(), 0.001))

    def _end(self):
        self.over = True
        self.cut()

    def cut(self):
        cut(self.sock)

    def hang_up(self):
        if self.sock is not None:
            self.sock.close()

    def close(self):
        if self._timer is not None:
            self._timer.cancel()
        self.hang_up()

    def error(self, place, error):
        return _slow(place) if self.over else broken(place, error)


def cut(sock):
    """Shut down a socket so that blocked reads and writes end."""
    if sock is not None:
        with contextlib.suppress(OSError, ValueError):
            sock.shutdown(socket.SHUT_RDWR)


def _number(text):
    """Parse a number in a header; None if it is not one."""
    if text and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return None


class Fetcher:
    """Requests one image.

    :param source: a `model.Source`, from `url_policy.separate_credentials`
    :param options: an `options.MediaOptions`
    :param verify: whether certificates are verified
    :param certificates: PEM of the certificates installed for the device
    """

    def __init__(self, source, options, verify, certificates=''):
        self._place = url_policy.parse(source.url)
        self._options = options
        self._verify = verify
        self._pem = tls.bundle(options, certificates) if verify else ''
        self._context = None
        self._authorization = None
        if source.username:
            pair = f'{source.username}:{source.password}'
            self._authorization = 'Basic %s' % base64.b64encode(
                pair.encode()).decode()

    def ask(self, method, headers=None, seconds=None, read_seconds=60):
        """Send a request and follow redirects.

        :param method: ``GET`` or ``HEAD``
        :param headers: dict of further headers
        :param seconds: deadline for the whole request and its body; None for
            none
        :param read_seconds: timeout for each read
        :returns: `Answer`, of any status
        :raises: `errors.InvalidValue`, `errors.MediaUnreachable`
        """
        limit = _Limit(seconds)
        try:
            place = self._place
            for _hop in range(HOPS + 1):
                answer = self._one(place, method, headers or {}, limit,
                                   read_seconds)
                location = answer.headers.get('Location')
                if answer.status not in _REDIRECTS or not location:
                    return answer
                answer.hang_up()
                place = self._follow(place, location)
            raise errors.MediaUnreachable(
                '%s redirects more than %d times'
                % (self._place.shown, HOPS), self._place.shown)
        except BaseException:
            limit.close()
            raise

    def _follow(self, place, location):
        try:
            target = parse.urljoin(place.text, location)
        except ValueError:
            target = ''
        try:
            found = url_policy.parse(target)
        except errors.InvalidValue as e:
            raise _redirected(self._place, e) from None
        if place.scheme == 'https' and found.scheme == 'http':
            raise errors.MediaUnreachable(
                f'{self._place.shown} redirects from https to http',
                self._place.shown, 'tls')
        return found

    def _one(self, place, method, headers, limit, read_seconds):
        try:
            targets = url_policy.check(place, self._options)
        except errors.InvalidValue as e:
            if place is self._place:
                raise
            raise _redirected(self._place, e) from None
        sent = {'User-Agent': 'sushy-kubevirt', 'Accept-Encoding': 'identity',
                **headers}
        if self._authorization and place.origin == self._place.origin:
            sent['Authorization'] = self._authorization
        link = http.client.HTTPConnection(place.host, place.port)
        if place.scheme == 'https':
            link.default_port = http.client.HTTPS_PORT
        link.sock = self._connect(place, targets, limit)
        try:
            link.sock.settimeout(limit.left(read_seconds))
            link.request(method, place.path, headers=sent)
            response = link.getresponse()
        except BROKEN as e:
            raise limit.error(place, e) from None
        answer = Answer(place, response, limit)
        if limit.over:
            # A response that was cut off looks complete.
            answer.hang_up()
            raise _slow(place)
        return answer

    def _connect(self, place, targets, limit):
        """Connect to the first address that accepts."""
        last = None
        limit.sock = None   # that of the hop before is closed
        for target in targets:
            if limit.over:
                break
            try:
                limit.sock = socket.create_connection(
                    (target, place.port), limit.left(CONNECT_SECONDS))
                break
            except OSError as e:
                last = e
        if limit.sock is None:
            raise limit.error(place, last)
        try:
            for option in connection.SOCKET_OPTIONS:
                limit.sock.setsockopt(*option)
            if place.scheme == 'https':
                if self._context is None:
                    self._context = tls.context(self._verify, self._pem)
                limit.sock = self._context.wrap_socket(
                    limit.sock, server_hostname=place.host)
        except (OSError, ValueError) as e:
            raise limit.error(place, e) from None
        return limit.sock


def refused(answer):
    """Build the error for an unsuccessful response."""
    place, code = answer.place, answer.status
    kind = _KINDS.get(code, 'server' if code >= 500 else 'unreachable')
    text = '%s: its server answers %d %s' % (place.shown, code,
                                             answer.reason[:100])
    if kind == 'unauthorized':
        text += '; look at UserName and Password'
    return errors.MediaUnreachable(text.rstrip(), place.shown, kind)


def broken(place, error):
    """Build the error for a failed connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return errors.MediaUnreachable(
            '%s: the certificate of its server cannot be verified: %s. '
            'Install that of its CA in Certificates of the device, or set '
            'VerifyCertificate to false'
            % (place.shown, error.verify_message or error.reason),
            place.shown, 'tls')
    if isinstance(error, ssl.SSLError):
        return errors.MediaUnreachable(
            f'{place.shown}: TLS with its server fails: {reason(error)}',
            place.shown, 'tls')
    if error is None or isinstance(error, TimeoutError):
        return _slow(place)
    return errors.MediaUnreachable(
        f'{place.shown}: its server cannot be reached: {reason(error)}',
        place.shown)


def reason(error):
    """Describe an exception in a few words, without any data that was sent."""
    if isinstance(error, TimeoutError):
        return 'it does not answer in time'
    if isinstance(error, ssl.SSLError):
        return getattr(error, 'verify_message', '') or error.reason or 'TLS'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, http.client.RemoteDisconnected):
        return 'it hung up'
    if isinstance(error, http.client.HTTPException):
        return f'it does not speak HTTP ({type(error).__name__})'
    return type(error).__name__


def _slow(place):
    return errors.MediaUnreachable(
        f'{place.shown}: its server does not answer in time', place.shown)


def _redirected(place, error):
    return errors.InvalidValue(
        error.property, place.shown,
        message=f'{place.shown} redirects: {error}')
