# SPDX-License-Identifier: Apache-2.0
"""Cache of responses to GET and HEAD.

A response is stored with what it depends on: the account, and the version of
the machine (`machine.Machine.version`). It is sent again for a request with
the same target and headers while both are unchanged, which is checked for
each request. So a change of the VM is visible at once, and a request with a
changed password or an ended session is not answered. Routes whose responses
depend on more, such as the time, are not cached (`routing.Route.cached`).

The cache is in front of Flask, which takes most of the time of a GET. A server
that can tell that what it has received is a whole request looks for its bytes
before it parses them (`digest`, `ResponseCache.find`); the application looks
for the parsed request of others (`ResponseCache.find_parsed`). Clients can
fill the cache by GETs with other headers, also without login, and then
displace their own responses only, see `shares`.
"""

from __future__ import annotations

import collections
from collections import abc
import hashlib
import secrets
import threading
import typing

import flask

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import internal_requests
from sushy_kubevirt.redfish.protocol import request_validation
from sushy_kubevirt.redfish.protocol import routing

if typing.TYPE_CHECKING:
    from wsgiref import types

    from sushy_kubevirt.machine import machine
    from sushy_kubevirt.redfish.services import account_files

#: Largest number of bytes of all responses, and of one.
MAX_BYTES, MAX_BODY_BYTES = 2 ** 20, 2 ** 16

#: That of all responses of one of many BMCs of a process.
SHARED_BYTES = 2 ** 17

#: Bytes that an entry takes besides its body and what is kept of the request,
#: about.
_OVERHEAD = 2048

_READS = ('GET', 'HEAD')

#: Environ key of the digest of the request, by which its response is stored.
#: A server that has looked for it sets it.
DIGEST = internal_requests.PREFIX + 'digest'

# Environ key of the `_Conditions` of its response.
_CONDITIONS = internal_requests.PREFIX + 'conditions'

# What a request consists of, besides its headers.
_PARTS = ('REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING',
          'REQUEST_URI', 'RAW_URI', 'SERVER_PROTOCOL', 'wsgi.url_scheme')

# What is kept of the environ, for logs and metrics.
_LOGGED = 'REQUEST_METHOD', 'REQUEST_URI', 'SERVER_PROTOCOL', 'HTTP_USER_AGENT'

# Makes digests, which contain passwords and tokens, useless elsewhere.
_KEY = secrets.token_bytes(32)

_Headers: typing.TypeAlias = list[tuple[str, str]]


class Response(typing.NamedTuple):
    """A response that may be sent again.

    :ivar status: status line without the version, such as ``200 OK``
    :ivar lines: the headers, serialized
    :ivar environ: of the request, what logs and metrics need of it
    """

    status: str
    headers: _Headers
    lines: bytes
    body: bytes
    environ: types.WSGIEnvironment
    conditions: _Conditions

    @property
    def rule(self) -> str:
        """URL rule of its route."""
        return self.conditions.rule


class ResponseCache:
    """The responses of one application. Thread-safe.

    :param most: largest number of bytes of all responses
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._responses: collections.OrderedDict[
            bytes, Response] = collections.OrderedDict()
        # Bytes by owner.
        self._sizes: collections.Counter[str] = collections.Counter()

    def find_parsed(self, environ: types.WSGIEnvironment) -> Response | None:
        """Find the response to a request. Does not wait for anything.

        :param environ: of the request, unchanged since it came
        :returns: None if the application has to be called
        """
        if (environ['REQUEST_METHOD'] not in _READS
                or environ.get('CONTENT_LENGTH') not in (None, '', '0')
                or 'HTTP_TRANSFER_ENCODING' in environ):
            environ.pop(DIGEST, None)
            return None
        if DIGEST in environ:
            return None     # the server has looked already
        environ[DIGEST] = _digest_parsed(environ)
        response = self.find(environ[DIGEST])
        if response is None:
            return None
        if response.conditions.account is not None:
            try:
                authentication.identify(environ, response.conditions.account)
            except error_responses.RedfishError:
                return None     # which the application raises again
        environ[routing.RULE] = response.rule
        return response

    def find(self, digest: bytes) -> Response | None:
        """Find the response to a request. Does not wait for anything.

        :param digest: of the request
        :returns: None if the application has to be called
        """
        with self._lock:
            response = self._responses.get(digest)
            if response is None:
                return None
            self._responses.move_to_end(digest)
        try:
            # A session whose account has changed may need an API call.
            if not blocking.attempt(response.conditions.hold):
                return None
        except blocking.WouldBlock:
            return None
        return response

    def call(self, app: types.WSGIApplication, environ: types.WSGIEnvironment,
             start_response: types.StartResponse) -> abc.Iterable[bytes]:
        """Call an application, and store its response if that is possible.

        :param environ: of a request for which `find_parsed` has found nothing
        """
        digest = environ.get(DIGEST)
        if digest is None:
            return app(environ, start_response)
        request = {name: environ.get(name) for name in _LOGGED}
        head: list[tuple[str, _Headers]] = []

        def start(status: str, headers: _Headers, exc_info: typing.Any = None
                  ) -> abc.Callable[[bytes], object]:
            head[:] = [(status, list(headers))]
            return start_response(status, headers, exc_info)

        answer = app(environ, start)
        conditions = environ.get(_CONDITIONS)
        if conditions is None or head[0][0][:3] not in ('200', '304'):
            return answer
        try:
            body = b''.join(answer)
        finally:
            if hasattr(answer, 'close'):
                answer.close()
        # The machine may have changed while its properties were read.
        if len(body) <= MAX_BODY_BYTES and conditions.hold():
            status, headers = head[0]
            self._store(digest, Response(
                status, headers, http_framing.lines(headers), body, request,
                conditions))
        return [body]

    def clear(self) -> None:
        """Remove all responses."""
        with self._lock:
            self._responses.clear()
            self._sizes.clear()

    def _store(self, digest: bytes, response: Response) -> None:
        with self._lock:
            self._drop(digest)
            self._responses[digest] = response
            self._sizes[response.conditions.owner] += _size(response)
            while self._sizes.total() > self._most:
                self._drop(self._surplus())

    def _surplus(self) -> bytes:
        """Choose the least recently used response of the owner with most.

        :returns: its digest
        """
        owner = max(self._sizes, key=self._sizes.__getitem__)
        return next(digest for digest, response in self._responses.items()
                    if response.conditions.owner == owner)

    def _drop(self, digest: bytes) -> None:
        dropped = self._responses.pop(digest, None)
        if dropped is not None:
            owner = dropped.conditions.owner
            self._sizes[owner] -= _size(dropped)
            if not self._sizes[owner]:
                del self._sizes[owner]


def note_conditions() -> None:
    """Note on what the response to this request depends, if all is known.

    For Flask's before_request, as the last check.
    """
    request = application.request()
    environ = request.environ
    if DIGEST not in environ or request.url_rule is None:
        return      # an internal request, or a change
    query = environ.get(request_validation.QUERY)
    if (not routing.current().of(request.endpoint).cached
            or query is not None and (query.only or query.expand)):
        return      # the latter read other resources
    conditions = _Conditions(request.url_rule.rule)
    if conditions.complete:
        environ[_CONDITIONS] = conditions


class _Conditions:
    """What a response depends on, as it is now.

    :param rule: URL rule of its route
    """

    __slots__ = ('rule', '_services', 'account', 'owner', '_token',
                 '_machine', '_version')

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self._services = authentication.services()
        self.account: account_files.Account | None = flask.g.account
        self.owner = authentication.owner()
        # Without an account, any text of a client, of any length.
        self._token = self.account and flask.request.environ.get(
            'HTTP_X_AUTH_TOKEN')
        self._machine: machine.Machine | None = flask.g.machine
        self._version = self._machine and self._machine.version()

    @property
    def complete(self) -> bool:
        """Whether all conditions are known."""
        return self._machine is None or self._version is not None

    def hold(self) -> bool:
        """Return whether the conditions are what they were."""
        return self._authorized() and (
            self._machine is None
            or self._machine.version() == self._version)

    def _authorized(self) -> bool:
        account = self.account
        if account is None:
            return True
        # The first also records that the session is used. Without a session,
        # the request has the same password.
        return (self._token is None
                or self._services.sessions.find(self._token) is not None) and (
            self._services.login.account(account.name) == account)


def _size(response: Response) -> int:
    return _OVERHEAD + len(response.body) + sum(
        len(text or '') for text in response.environ.values())


def digest(scheme: str, request: bytes) -> bytes:
    """Return what a request is found by, see `ResponseCache.find`.

    :param scheme: ``http`` or ``https``
    :param request: its bytes
    """
    # No parsed request begins with a scheme, and no other scheme with this and
    # a colon.
    return _keyed(f'{scheme}:'.encode() + request)


def _digest_parsed(environ: types.WSGIEnvironment) -> bytes:
    parts = [f'{name}={environ.get(name)}' for name in _PARTS]
    parts += [f'{name}={value}' for name, value in environ.items()
              if name.startswith('HTTP_')]
    return _keyed('\n'.join(parts).encode(errors='surrogatepass'))


def _keyed(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=32, key=_KEY).digest()
