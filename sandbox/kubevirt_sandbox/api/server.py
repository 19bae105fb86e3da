# SPDX-License-Identifier: Apache-2.0
"""HTTP server: authentication, authorization and routing of API requests.

One asyncio thread serves all requests. Other modules register routes outside
the Kubernetes API (``/sandbox/...``) and subresources of objects.
"""
import asyncio
import collections
import dataclasses
import functools
import logging
import random
import re
import secrets
import socket

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import discovery
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import protobuf
from kubevirt_sandbox.api import rbac
from kubevirt_sandbox.api import request_path
from kubevirt_sandbox.api import resources
from kubevirt_sandbox.api import store
from kubevirt_sandbox.api import web

LOG = logging.getLogger(__name__)

ADMINISTRATOR = auth.User('kubernetes-admin',
                          (auth.MASTERS, auth.AUTHENTICATED))


@dataclasses.dataclass
class SubresourceRequest:
    """A request for a subresource of an object, e.g. PUT .../start.

    :param path: rest of the path after the registered name, e.g. ``22`` for
        ``portforward/22``; or ``''``.
    :param body: parsed JSON, ``{}`` for an empty body.
    :param query: the query parameters (a multidict).
    """

    namespace: str
    name: str
    body: dict
    store: store.Store
    user: str
    query: object
    method: str
    path: str
    http: web.Request


@dataclasses.dataclass(frozen=True)
class Subresource:
    """A registered subresource; see :meth:`Server.register_subresource`."""

    group: str
    version: str
    plural: str
    name: str
    handler: object
    methods: tuple[str, ...]
    kind: str
    namespaced: bool
    kind_of: tuple[str, str] | None
    needs: str


class Server:
    """A Kubernetes API server.

    :param length: number of events kept for each resource.
    :param bookmark_seconds: interval of bookmarks in watches that request
        them, in seconds.
    :param ca: the CA's certificate (PEM) for clients in the cluster.
    :param lag: maximum random delay of work given to :meth:`soon`, in
        seconds.
    :param streaming_lists: whether watches may request the initial objects,
        Kubernetes' feature gate WatchList.
    """

    def __init__(self, length=store.HISTORY, bookmark_seconds=60,
                 ca=None, lag=0, streaming_lists=True):
        self.ca = ca
        self._lag = lag
        self.kinds = kinds.Registry()
        self.store = store.Store(self.kinds, length)
        self.token = secrets.token_urlsafe(32)
        self.tokens = auth.Tokens()
        self.tokens.add(self.token, ADMINISTRATOR)
        #: The :class:`rbac.Authorizer` that checks access rights.
        self.access = rbac.Authorizer(self.store)
        #: The :class:`accounts.Accounts`; see ``core.install``.
        self.accounts = None
        self.bookmark_seconds = bookmark_seconds
        self.streaming_lists = streaming_lists
        self.watches = {}
        #: Discovery documents: (changes of the kinds, {key: document}).
        self.discovered = None, {}
        self.subresources = {}
        #: Called around every call of the Kubernetes API:
        #: ``await around(request, verb, resource, carry_out)`` returns the
        #: response; ``await carry_out()`` carries out the call. Used for
        #: faults and statistics.
        self.around = None
        #: Binds and releases volume claims; see ``core.install``.
        self.provisioner = None
        #: Limits the resources of namespaces; see ``core.install``.
        self.quotas = None
        #: Finds nodes of pods; see ``scheduling.scheduler.of``.
        self.scheduler = None
        self._ssl = None
        self._http = web.Server(self._dispatch, bodies.LIMIT)
        self._routes = {}
        self._patterns = []
        self._socket = None
        self._away = False
        self.address = None
        self._on_kind = []
        self._later = collections.OrderedDict()
        self._loop = None

    @functools.cached_property
    def documents(self):
        """Return the :class:`openapi.Documents`, made for the first client."""
        from kubevirt_sandbox.api import openapi
        return openapi.Documents(self.kinds)

    # -- registration -----------------------------------------------------

    def register_kind(self, kind):
        """Serve a :class:`kinds.Kind`."""
        self.kinds.add(kind)
        for callback in self._on_kind:
            callback(kind)

    def on_kind(self, callback):
        """Register ``callback(kind)`` for kinds that are added later."""
        self._on_kind.append(callback)

    def soon(self, work, *arguments):
        """Schedule work to run after the current event.

        Work that is already scheduled with the same arguments is not added
        again. Before the server is started, work waits for :meth:`settle`.

        :param work: function to call.
        :param arguments: its positional arguments.
        """
        job = (work, arguments)
        if job not in self._later:
            self._later[job] = None
            if self._loop is not None and len(self._later) == 1:
                self._loop.call_later(
                    random.uniform(0, self._lag),  # noqa: S311
                    self.settle)

    def settle(self):
        """Run all scheduled work; see :meth:`soon`."""
        while self._later:
            (work, arguments), _ = self._later.popitem(last=False)
            try:
                work(*arguments)
            except Exception:
                LOG.exception('%s%r failed', work, arguments)

    def register_subresource(self, group, version, plural, name, handler,
                             methods=('PUT',), *, kind='', namespaced=True,
                             kind_of=None, needs=''):
        """Serve a subresource of a resource's objects.

        :param name: e.g. ``start``; the handler gets the rest of the path
            after this name and a slash as ``request.path``.
        :param handler: ``async handler(SubresourceRequest)`` returns
            ``(status, body)``, body a dict or None, or a response,
            and raises :class:`errors.ApiError`.
        :param methods: supported HTTP methods.
        :param kind: the kind shown in discovery.
        :param namespaced: whether the resource is namespaced.
        :param kind_of: (group, version) of ``kind`` when they differ from
            those of the resource.
        :param needs: a verb that the user must be allowed in addition.
        """
        entry = Subresource(group, version, plural, name, handler,
                            tuple(methods), kind, namespaced, kind_of,
                            needs)
        self.subresources.setdefault(
            (group, version, plural), {})[name] = entry
        self.kinds.changes += 1

    def register_route(self, method, path, handler, *, public=False):
        """Serve a path outside the Kubernetes API.

        :param path: e.g. ``/sandbox/x/{name}``; the handler finds what the
            names stand for in ``request.match_info``.
        :param handler: ``async handler(request)`` returns a response; see
            :mod:`web`.
        :param public: whether the path needs no access right.
        """
        async def guarded(request):
            try:
                if not public:
                    self.access.check(
                        self._user(request), self._wanted(
                            request,
                            request_path.parse(request.raw_path)))
                return await handler(request)
            except errors.ApiError as exc:
                return failure(exc)
        if '{' in path:
            pattern = re.sub(r'{(\w+)}', r'(?P<\1>[^{}/]+)', path)
            self._patterns.append((method, re.compile(pattern), guarded))
        else:
            self._routes[method, path] = guarded

    # -- running ----------------------------------------------------------

    async def start(self, host='127.0.0.1', port=0, ssl_context=None):
        """Start to serve.

        :param host: IP address to listen on.
        :param port: 0 chooses a free one; see :attr:`address`.
        :param ssl_context: None for plain HTTP (unit tests).
        """
        self._ssl = ssl_context
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self.settle)
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        # Bind without SO_REUSEPORT, which fails when the port is in use.
        self._socket = _bound(family, (host, port), False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.address = self._socket.getsockname()[:2]
        await self._open()

    @property
    def url(self):
        """Return the base URL, without a path."""
        host, port = self.address
        host = f'[{host}]' if ':' in host else host
        return f'{"https" if self._ssl else "http"}://{host}:{port}'

    async def _open(self):
        # The socket that reserves the port never listens: during an outage
        # connections are refused, and no other process can take the port.
        listening = _bound(self._socket.family, self._socket.getsockname(),
                           True)
        await self._http.listen(listening, self._ssl)

    def cut(self, match=None):
        """Abort the connections of open watches.

        :param match: function of the request that selects watches;
            None selects all.
        :returns: number of aborted watches.
        """
        cut = [r for r in self.watches.values()
               if match is None or match(r)]
        for request in cut:
            if request.transport is not None:
                request.transport.abort()
        return len(cut)

    def end_watches(self, kind):
        """End the watches of a kind that is not served any more."""
        for watch in list(self.watches):
            if watch.kind is kind:
                watch.end()

    async def go_away(self, but):
        """Refuse new connections and abort the open ones.

        :param but: transport of the connection to keep for a response.
        """
        self._away = True
        self._http.close()
        for connection in list(self._http.connections):
            if connection.transport not in (None, but):
                connection.transport.abort()

    async def come_back(self, seconds):
        """Accept connections again after a number of seconds."""
        await asyncio.sleep(seconds)
        self._away = False
        await self._open()

    async def stop(self):
        """Stop the server: end watches and close connections."""
        for watch in list(self.watches):
            watch.end()
        await self._http.stop()
        if self._socket is not None:
            self._socket.close()

    # -- serving ----------------------------------------------------------

    def _user(self, request):
        """Return the authenticated or the impersonated user of a request.

        :raises errors.ApiError: 401, or 403 when the user may not
            impersonate the requested one.
        """
        user = self.tokens.user(request.headers.get('Authorization'))
        if user is None:
            raise errors.unauthorized()
        other = auth.impersonated(request.headers)
        if other is None:
            return user
        if not other.name:
            raise errors.internal_error(
                'requested impersonation without impersonating a user')
        for wanted in attributes.of_impersonation(other):
            self.access.check(user, wanted)
        return auth.completed(other)

    @staticmethod
    def _wanted(request, target):
        """Return the :class:`attributes.Attributes` of a request."""
        if target is None:
            return attributes.of_path(request.method, request.path)
        return attributes.of_target(request.method, target, request.query)

    async def _dispatch(self, request):
        handler = self._routes.get((request.method, request.path))
        if handler is not None:
            return await handler(request)
        for method, pattern, handler in self._patterns:
            if method == request.method:
                match = pattern.fullmatch(request.path)
                if match:
                    request.match_info = match.groupdict()
                    return await handler(request)
        return await self._serve(request)

    async def _serve(self, request):
        if self._away:
            # The connection was established after the others were aborted.
            request.transport.abort()
            raise ConnectionResetError
        try:
            response = await self._route(request)
        except errors.ApiError as exc:
            response = failure(exc)
        except ConnectionError:
            raise
        except Exception as exc:
            LOG.exception('%s %s failed', request.method, request.path)
            response = failure(errors.internal_error(type(exc).__name__))
        return response

    async def _route(self, request):
        user = self._user(request)
        target = request_path.parse(request.raw_path)
        wanted = self._wanted(request, target)
        if discovery.public(request.path):
            self.access.check(user, wanted)
            return discovery.health(self, request)
        verb, resource = wanted.verb, ''
        try:
            self.access.check(user, wanted)
            if target is None:
                def carry_out():
                    return discovery.answer(self, request)
            else:
                verb, resource, carry_out = self._handler(
                    request, target, user)
        except errors.ApiError as exc:
            if exc.code != 403:
                raise
            resource, carry_out = _refusal(wanted, exc)
        if self.around is None:
            return await carry_out()
        return await self.around(request, verb, resource, carry_out)

    def _handler(self, request, target, user):
        """Return (verb, resource, function that carries it out) of a call."""
        kind = self.kinds.find(target.group, target.version, target.plural)
        if target.subresource:
            found = self._find_subresource(target)
            if found:
                entry, path = found
                self._check_whole(target, request, user, entry)
                return (_verb(request.method),
                        f'{target.plural}.{target.group}/{entry.name}'
                        if target.group else f'{target.plural}/{entry.name}',
                        lambda: self._subresource(request, target, user,
                                                  entry, path))
        if kind is None or (target.subresource and not (
                target.subresource == 'status' and kind.status)):
            raise errors.no_such_path()
        if kind.namespaced and not target.namespace:
            if target.name:
                raise errors.no_such_path()
            if request.method not in ('GET', 'HEAD') and (
                    'list' in kind.verbs):
                raise errors.method_not_allowed()
        if target.namespace and not kind.namespaced:
            raise errors.no_such_path()
        verb = resources.verb_of(request.method, target.name, request.query)
        if verb is None or verb not in kind.verbs or (
                target.subresource and verb not in (
                    'get', 'update', 'patch')):
            raise errors.method_not_allowed()
        call = resources.Call(self, request, target, kind, verb, user)
        resource = kind.resource
        if target.subresource:
            resource += '/' + target.subresource
        return verb, resource, lambda: resources.carry_out(call)

    def _find_subresource(self, target):
        entries = self.subresources.get(
            (target.group, target.version, target.plural), {})
        parts = target.subresource.split('/')
        for count in range(len(parts), 0, -1):
            entry = entries.get('/'.join(parts[:count]))
            if entry:
                return entry, '/'.join(parts[count:])
        return None

    def _check_whole(self, target, request, user, entry):
        """Check the additional rights that a subresource needs.

        A subresource whose name has several segments needs the right to the
        whole name as well: kube-apiserver checks the first segment only, the
        aggregated API server behind it the whole name.

        Source: pkg/virt-api/rest/authorizer.go (KubeVirt).

        :raises errors.ApiError: 403.
        """
        if entry.needs:
            self.access.check(user, attributes.of_target(
                request.method, target, request.query)._replace(
                    verb=entry.needs))
        if '/' in entry.name:
            self.access.check(user, attributes.of_target(
                request.method, target, request.query)._replace(
                    subresource=entry.name))

    async def _subresource(self, request, target, user, entry, path):
        if request.method not in entry.methods:
            raise errors.method_not_allowed()
        raw = await bodies.read(request)
        form = bodies.media_type(request)
        parse = {protobuf.MEDIA: protobuf.decode,
                 negotiation.YAML: bodies.parse_yaml}.get(
                     form, bodies.parse_json)
        body = parse(raw) if raw.strip() else {}
        if body is None:
            body = {}
        if not isinstance(body, dict):
            raise errors.bad_request('the body must be an object')
        answer = await entry.handler(SubresourceRequest(
            target.namespace, target.name, body, self.store, user.name,
            request.query, request.method, path, request))
        if not isinstance(answer, tuple):
            return answer
        status, body = answer
        if body is None:
            return web.Response(status=status)
        return resources.respond(history.encode(body), status)


def _refusal(wanted, exc):
    """Return (resource, function) of a refused call, for the statistics."""
    async def refuse():
        raise exc
    resource = wanted.resource
    if wanted.group:
        resource += f'.{wanted.group}'
    if wanted.subresource:
        resource += f'/{wanted.subresource}'
    return resource, refuse


def _verb(method):
    return {'PUT': 'update', 'POST': 'create', 'PATCH': 'patch',
            'DELETE': 'delete'}.get(method, 'get')


def failure(exc):
    """Return the response for an :class:`errors.ApiError`."""
    body = exc.status()
    if getattr(exc, 'list_meta', None):
        body['metadata'] = exc.list_meta
    response = resources.respond(history.encode(body), exc.code)
    response.headers.update(exc.headers)
    return response


def _bound(family, address, shared):
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
