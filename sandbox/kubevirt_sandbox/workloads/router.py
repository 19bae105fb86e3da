# SPDX-License-Identifier: Apache-2.0
"""OpenShift's ingress controller: admits routes, and serves them by HTTPS.

It is reached at the load balancer's address of Service ``router-default`` in
namespace ``openshift-ingress``, port 443, and distinguishes routes by the name
in the TLS handshake (SNI). Its certificate is for all hosts of the domain;
that of its authority is in ConfigMap ``default-ingress-cert`` of namespace
``openshift-config-managed``. Not simulated: HTTP, paths, alternate backends,
headers, certificates of routes, annotations, shards.

Sources (2026): openshift/router, pkg/router/controller (status.go,
unique_host.go), images/router/haproxy/conf/haproxy-config.template.
"""

import asyncio
import logging
import ssl
import weakref

from kubevirt_sandbox.api import certificates
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.workloads import endpoints
from kubevirt_sandbox.workloads import forwarding
from kubevirt_sandbox.workloads import index
from kubevirt_sandbox.workloads import route_kind
from kubevirt_sandbox.workloads import services
from kubevirt_sandbox.workloads import workload_kinds

LOG = logging.getLogger(__name__)

NAMESPACE, SERVICE = 'openshift-ingress', 'router-default'
NAME = 'default'
_MANAGER = 'openshift-router'

_SECONDS = 5.0  # of a handshake
_LARGEST = 16384 + 5  # bytes of its first record


class Router:
    """The ingress controller.

    :param server: the :class:`kubevirt_sandbox.api.server.Server`.
    :param loop: the asyncio loop.
    :param lag: maximum delay of each reconciliation in seconds.
    """

    def __init__(self, server, loop, lag=0):
        self._store = server.store
        self._kind = route_kind.Routes(server).kind
        self._queue = workqueue.WorkQueue(loop, self._sync, 'router', lag)
        self._slices = index.by_labels(
            self._store, workload_kinds.ENDPOINT_SLICE)
        self._routes = index.Index(
            self._store, self._kind, lambda route: [_host(route)])
        self._end = self._store.subscribe(self._kind, self._on_route)
        self._authority = certificates.Authority()
        self._servers = []
        self._tasks = set()
        self._names = weakref.WeakKeyDictionary()

    async def start(self):
        """Start to serve routes."""
        context = self._authority.issue(
            [f'*.{route_kind.DOMAIN}', route_kind.DOMAIN]).context()
        context.sni_callback = self._named
        for accept, more in ((self._accept, {}),
                             (self._decrypt, {'ssl': context})):
            self._servers.append(await asyncio.start_server(
                accept, '127.0.0.1', 0, **more))
        self._show()

    async def stop(self):
        """End all connections."""
        self._end()
        self._routes.close()
        self._slices.close()
        self._queue.close()
        for one in self._servers:
            one.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _show(self):
        """Create the objects by which users find the ingress controller."""
        for name in (NAMESPACE, 'openshift-config-managed'):
            if self._store.find(core.NAMESPACE, '', name) is None:
                self._store.create(core.NAMESPACE, {
                    'metadata': {'name': name}}, manager=_MANAGER)
        if self._store.find(core.SERVICE, NAMESPACE, SERVICE) is not None:
            return
        for kind, obj in (
                (core.CONFIG_MAP, {
                    'metadata': {'name': 'default-ingress-cert',
                                 'namespace': 'openshift-config-managed'},
                    'data': {'ca-bundle.crt':
                             self._authority.certificate.decode()}}),
                (core.SERVICE, {
                    'metadata': {'name': SERVICE, 'namespace': NAMESPACE},
                    'spec': {'type': 'LoadBalancer', 'ports': [
                        {'name': 'https', 'port': 443}]}}),
                (workload_kinds.ENDPOINT_SLICE, {
                    'metadata': {
                        'name': SERVICE, 'namespace': NAMESPACE,
                        'labels': {endpoints.SERVICE_NAME: SERVICE}},
                    'addressType': 'IPv4', 'ports': [{
                        'name': 'https', 'protocol': 'TCP',
                        'port': _port(self._servers[0])}],
                    'endpoints': [{'addresses': ['127.0.0.1'],
                                   'conditions': {'ready': True}}]})):
            self._store.create(kind, obj, manager=_MANAGER)

    # -- status -----------------------------------------------------------

    def _on_route(self, type_, route, old):
        for one in filter(None, (route, old)):
            self._queue.add(_host(one))

    def _claims(self, host):
        """List the routes of a host, the oldest first."""
        return sorted(self._routes.get(host), key=lambda route: (
            route['metadata']['creationTimestamp'], route['metadata']['uid']))

    def _sync(self, host):
        found = self._claims(host)
        for route in found:
            status, reason, message = 'True', '', ''
            if not host:
                status, reason = 'False', 'NoHostValue'
                message = 'no host value was defined for the route'
            elif route is not found[0]:
                status, reason = 'False', 'HostAlreadyClaimed'
                first = found[0]['metadata']
                message = (
                    f"route {first['name']} already exposes {host} and is "
                    'older' if first['namespace'] == route['metadata'][
                        'namespace'] else 'a route in another namespace '
                    f"holds {host} and is older than "
                    f"{route['metadata']['name']}")
            self._record(route, {key: value for key, value in (
                ('type', 'Admitted'), ('status', status), ('reason', reason),
                ('message', message)) if value})

    def _record(self, route, condition):
        def change(new):
            ingress = new.setdefault('status', {}).setdefault('ingress', [])
            mine = next((one for one in ingress
                         if one.get('routerName') == NAME), None)
            if mine is None:
                mine = {'routerName': NAME}
                ingress.append(mine)
            before = route_kind.admitted(mine)
            same = {**before, **condition} == before
            mine.update(
                host=_host(new), wildcardPolicy=new['spec']['wildcardPolicy'],
                routerCanonicalHostname='router-default.' + route_kind.DOMAIN,
                conditions=[before if same else {
                    **condition, 'lastTransitionTime': metadata.now()}])
        meta = route['metadata']
        self._store.change(self._kind, meta['namespace'], meta['name'],
                           change, subresource='status', manager=_MANAGER)

    # -- traffic ----------------------------------------------------------

    async def _accept(self, reader, writer):
        """Forward a connection to the pod, or to this router's own TLS."""
        async def forward():
            async with asyncio.timeout(_SECONDS):
                begin, name = await _server_name(reader)
                route, backends = self._find(name)
                if not backends:
                    return
                if route['spec']['tls']['termination'] != 'passthrough':
                    backends = [('127.0.0.1', _port(self._servers[1]))]
                there = await asyncio.open_connection(*backends[0])
            there[1].write(begin)
            await forwarding.both(reader, writer, *there)
        await self._run(forward(), writer)

    async def _decrypt(self, reader, writer):
        """Encrypt again what this router's own TLS has decrypted."""
        async def forward():
            name = self._names.get(writer.get_extra_info('ssl_object'))
            route, backends = self._find(name)
            if not backends:
                return
            tls, more = route['spec']['tls'], {}
            if tls['termination'] == 'reencrypt':
                # As HAProxy with verify and ca-file, the name not verified;
                # without a CA nothing is trusted.
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                if tls.get('destinationCACertificate'):
                    context.load_verify_locations(
                        cadata=tls['destinationCACertificate'])
                more = {'ssl': context, 'server_hostname': name}
            async with asyncio.timeout(_SECONDS):
                there = await asyncio.open_connection(*backends[0], **more)
            await forwarding.both(reader, writer, *there)
        await self._run(forward(), writer)

    async def _run(self, forward, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await forward
        except (OSError, EOFError, ValueError, TimeoutError) as exc:
            LOG.info('A connection to a route failed: %r', exc)
        except asyncio.CancelledError:
            pass  # the sandbox ends
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    def _named(self, connection, name, context):
        self._names[connection] = name

    def _find(self, name):
        """Find a route by its host.

        :returns: (the route, or None; list of (address, port) of its pods).
        """
        routes = self._claims(name) if name else ()
        if not routes or not routes[0]['spec'].get('tls'):
            return None, []
        route = routes[0]
        ports = services.targets(self._slices.get((
            route['metadata']['namespace'], endpoints.SERVICE_NAME,
            route['spec']['to']['name'])))
        wanted = (route['spec'].get('port') or {}).get('targetPort')
        return route, [where for port, found in ports.items()
                       for where in found
                       if wanted in (None, port, where[1])]


def _host(route):
    return route['spec'].get('host', '').lower()


def _port(server):
    return server.sockets[0].getsockname()[1]


async def _server_name(reader):
    """Read the beginning of a TLS handshake.

    :returns: (what was read, the name of the server in it or None).
    :raises ValueError: it is no TLS.
    """
    names, data = [], b''
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda connection, name, _: names.append(name)
    incoming = ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    while not names and len(data) < _LARGEST:
        found = await reader.read(_LARGEST - len(data))
        if not found:
            raise EOFError('closed during the handshake')
        data += found
        incoming.write(found)
        try:
            handshake.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            # There is no certificate; the name has been read before.
            break
    if not names:
        raise ValueError('no beginning of a TLS handshake')
    return data, names[0]
