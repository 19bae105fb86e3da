# SPDX-License-Identifier: Apache-2.0
"""Fault injection into API calls, for tests of API clients."""
import asyncio
import dataclasses
import itertools
import re
import socket
import struct

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import resources
from kubevirt_sandbox.api import views
from kubevirt_sandbox.api import web

VERBS = ('GET', 'PUT', 'PATCH', 'POST', 'DELETE', 'WATCH', 'WRITE', '*')

WRITES = ('PUT', 'PATCH', 'POST', 'DELETE')

#: Supported fault actions. ``delay`` only delays the call.
ACTIONS = ('401', '403', '409', '429', '500', '503', 'hang', 'silence',
           'reset', 'drop-after', 'gone', 'break', 'delay')


@dataclasses.dataclass
class Fault:
    """A fault that applies to the next matching API calls.

    :param verb: HTTP method, ``WATCH`` for watches (``GET`` excludes
        them), ``WRITE`` for all modifying methods, ``*`` for all calls.
    :param path: regular expression searched in the URL path.
    :param user: regular expression searched in the user name of the caller.
    :param after: number of matching calls that succeed first.
    :param count: number of calls that fail.
    :param action: one of :data:`ACTIONS`. ``reset`` closes the connection
        without carrying out the call, ``drop-after`` after carrying it out.
        ``silence`` carries out the call and never answers. ``gone`` answers
        a list with a continue token with 410, and a watch with 410, or with
        ``event`` as an ERROR event in a 200 response. ``break`` cuts all open
        watches at once, and each of the next ``count - 1`` watches after
        ``delay`` seconds. ``hang`` never answers; a watch opens and stays
        silent. With a ``delay`` a hanging call is reset after that time.
    :param delay: seconds to wait before the action.
    """

    id: int
    verb: str
    path: re.Pattern
    count: int
    action: str
    delay: float
    event: bool
    user: re.Pattern
    after: int
    passed: int = 0
    hits: int = 0

    @property
    def spent(self):
        """Tell whether the fault has hit its number of calls."""
        return self.hits >= self.count

    def to_dict(self):
        """Return the fault as the control interface shows it."""
        return {'id': self.id, 'verb': self.verb, 'path': self.path.pattern,
                'count': self.count, 'action': self.action,
                'delay': self.delay, 'event': self.event,
                'user': self.user.pattern, 'after': self.after,
                'hits': self.hits}

    def concerns(self, method, path, watch, continued=False):
        """Tell whether the fault matches a call, regardless of the user.

        :param method: HTTP method.
        :param path: URL path.
        :param watch: whether the call is a watch.
        :param continued: whether it is a list with a continue token.
        """
        if not watch and (self.action == 'break'
                          or self.action == 'gone' and not continued):
            return False
        name = 'WATCH' if watch else method
        return (self.verb in (name, '*')
                or self.verb == 'WRITE' and name in WRITES
                ) and self.path.search(path) is not None


def _field(body, name, types, default, check=lambda value: True):
    value = body.get(name, default)
    if isinstance(value, bool) and bool not in types:
        value = None
    if not isinstance(value, types) or not check(value):
        raise errors.bad_request(f'{name}: {body.get(name)!r} is not allowed')
    return value


def _pattern(body, name):
    try:
        return re.compile(_field(body, name, (str,), ''))
    except re.error as exc:
        raise errors.bad_request(f'{name}: {exc}') from None


def reset(request):
    """Reset the TCP connection so that the client fails immediately."""
    transport = request.transport
    if transport is None:
        return
    sock = transport.get_extra_info('socket')
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack('ii', 1, 0))
        except OSError:
            pass  # The socket is already closed.
    transport.abort()


class Faults:
    """All configured faults, pending and used up."""

    def __init__(self, server):
        self._server = server
        self._faults = []
        self._ids = itertools.count(1)
        self._hanging = []

    def add(self, body):
        """Add a fault from the JSON body of ``POST /sandbox/faults``.

        :param body: dict with the fields of :class:`Fault`.
        :returns: the :class:`Fault`.
        :raises errors.ApiError: 400 for an invalid body.
        """
        if not isinstance(body, dict):
            raise errors.bad_request('a fault is an object')
        allowed = {'verb', 'path', 'count', 'action', 'delay', 'event',
                   'user', 'after'}
        if body.keys() - allowed:
            raise errors.bad_request(
                f'not known: {", ".join(sorted(body.keys() - allowed))}; '
                f'a fault has {", ".join(sorted(allowed))}')
        body = {**body, 'action': str(body.get('action', ''))}
        fault = Fault(
            next(self._ids),
            _field(body, 'verb', (str,), '*', lambda v: v in VERBS),
            _pattern(body, 'path'),
            _field(body, 'count', (int,), 1, lambda v: v > 0),
            _field(body, 'action', (str,), '', lambda v: v in ACTIONS),
            _field(body, 'delay', (int, float), 0,
                   lambda v: 0 <= v <= 3600),
            _field(body, 'event', (bool,), False),
            _pattern(body, 'user'),
            _field(body, 'after', (int,), 0, lambda v: v >= 0))
        self._faults.append(fault)
        if fault.action == 'break':
            self._break(fault)
        return fault

    def _break(self, fault):
        fault.hits += 1
        asyncio.get_running_loop().call_later(
            fault.delay, lambda: self._server.cut(
                lambda request: fault.path.search(request.path)))

    def report(self):
        """Return all faults as dicts, in the order they were added."""
        return [fault.to_dict() for fault in self._faults]

    def clear(self):
        """Delete all faults and reset the calls that hang."""
        self._faults.clear()
        for request in list(self._hanging):
            reset(request)

    def _match(self, request, verb):
        for fault in self._faults:
            if fault.spent or not fault.concerns(
                    request.method, request.path, verb == 'watch',
                    verb == 'list' and 'continue' in request.query):
                continue
            if fault.user.pattern and not fault.user.search(
                    self._server.tokens.user(
                        request.headers.get('Authorization')).name):
                continue
            if fault.passed < fault.after:
                fault.passed += 1
                continue
            fault.hits += 1
            return fault
        return None

    async def around(self, request, verb, carry_out):
        """Carry out a call, or apply the first fault that matches it.

        :param request: the request.
        :param verb: Kubernetes verb of the call.
        :param carry_out: coroutine function that carries out the call.
        :returns: the response.
        """
        fault = self._match(request, verb)
        if fault is None:
            return await carry_out()
        action = fault.action
        if action == 'silence':
            await carry_out()
        if action in ('hang', 'silence'):
            return await self._hang(request, verb, fault.delay)
        if action == 'break':
            asyncio.get_running_loop().call_later(
                fault.delay or 0.05, reset, request)
            return await carry_out()
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if action == 'delay':
            return await carry_out()
        if action == 'drop-after':
            await carry_out()
            action = 'reset'
        if action == 'reset':
            reset(request)
            return web.Response()
        if action == 'gone' and verb == 'list':
            raise resources.expired(request.query['continue'])
        if action == 'gone':
            exc = errors.gone('The resourceVersion for the provided watch is '
                              'too old.')
            if not fault.event:
                raise exc
            return web.Response(
                body=views.line('ERROR', history.encode(exc.status())),
                content_type='application/json')
        raise {
            '401': errors.unauthorized(),
            # The same message as Kubernetes' RBAC refusal.
            '403': errors.ApiError(
                403, 'Forbidden', f'{request.path} is forbidden: User '
                f'"ordered-by-a-test" cannot {verb} this resource'),
            '409': errors.ApiError(
                409, 'Conflict', 'Operation cannot be fulfilled on '
                f'{request.path}: {errors.STALE}'),
            '429': errors.too_many_requests(),
            '500': errors.internal_error('ordered by a test'),
            '503': errors.unavailable(
                'the server is currently unable to handle the request')
        }[action]

    async def _hang(self, request, verb, delay):
        self._hanging.append(request)
        try:
            if verb == 'watch':
                response = web.StreamResponse(
                    headers={'Content-Type': 'application/json'})
                await response.prepare(request)
            # The handler is cancelled when the client disconnects, when the
            # faults are cleared or when the server stops.
            await asyncio.sleep(delay or 86400)
            reset(request)
            return web.Response()
        finally:
            self._hanging.remove(request)
