# SPDX-License-Identifier: Apache-2.0
"""Failures of the API on demand, for tests of its clients."""
import asyncio
import dataclasses
import itertools
import re
import socket
import struct

from aiohttp import web

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import views

VERBS = ('GET', 'PUT', 'PATCH', 'POST', 'DELETE', 'WATCH', 'WRITE', '*')

WRITES = ('PUT', 'PATCH', 'POST', 'DELETE')

#: What can happen to a call. ``delay`` alone: it is only late.
ACTIONS = ('401', '403', '409', '429', '500', '503', 'hang', 'silence',
           'reset', 'drop-after', 'gone', 'break', 'delay')


@dataclasses.dataclass
class Fault:
    """What shall happen to the next calls.

    :param verb: HTTP method, ``WATCH`` for watches (``GET`` is without
        them), ``WRITE`` for all methods that change something, ``*`` for
        all.
    :param path: regular expression that is searched in the path.
    :param user: regular expression that is searched in the name of who
        calls.
    :param after: how many such calls go well before.
    :param count: how many calls it happens to.
    :param action: one of :data:`ACTIONS`. ``reset`` does not carry out the
        call, ``drop-after`` does; both give no answer. ``silence`` carries
        it out and never answers. ``gone`` answers a
        watch 410, with ``event`` as an ERROR event in an answer 200.
        ``break`` cuts the watches that are open, all at once, and each of
        the next ``count - 1`` when it is open for ``delay`` seconds.
        ``hang`` never answers; a watch opens and stays silent. With a
        ``delay`` a call that hangs is reset after that time.
    :param delay: seconds to wait first.
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
        return self.hits >= self.count

    def to_dict(self):
        return {'id': self.id, 'verb': self.verb, 'path': self.path.pattern,
                'count': self.count, 'action': self.action,
                'delay': self.delay, 'event': self.event,
                'user': self.user.pattern, 'after': self.after,
                'hits': self.hits}

    def concerns(self, method, path, watch):
        """Whether it is about such a call, whoever makes it.

        :param method: of HTTP.
        :param watch: whether the call is a watch.
        """
        if not watch and self.action in ('gone', 'break'):
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
    """Break a connection so that its client notices at once."""
    transport = request.transport
    if transport is None:
        return
    sock = transport.get_extra_info('socket')
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack('ii', 1, 0))
        except OSError:
            pass  # It is closed already.
    transport.abort()


class Faults:
    """The faults that wait for calls, and those that had them."""

    def __init__(self, server):
        self._server = server
        self._faults = []
        self._ids = itertools.count(1)
        self._hanging = []

    def add(self, body):
        """Take a fault from the JSON of ``POST /sandbox/faults``.

        :returns: the :class:`Fault`.
        :raises errors.ApiError: 400.
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
        """All faults, as dicts, in the order they were set."""
        return [fault.to_dict() for fault in self._faults]

    def clear(self):
        """Forget all faults; calls that hang are reset."""
        self._faults.clear()
        for request in list(self._hanging):
            reset(request)

    def _match(self, request, verb):
        for fault in self._faults:
            if fault.spent or not fault.concerns(
                    request.method, request.path, verb == 'watch'):
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
        """Carry out a call, or let happen to it what was ordered."""
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
            # As Kubernetes words the refusal of access rights.
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
                response.enable_chunked_encoding()
                await response.prepare(request)
            # Ends when the client goes, when faults are cleared, or when
            # the server stops: its handler is cancelled then.
            await asyncio.sleep(delay or 86400)
            reset(request)
            return web.Response()
        finally:
            self._hanging.remove(request)
