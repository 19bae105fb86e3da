# SPDX-License-Identifier: Apache-2.0
"""Routes: hosts, access rights, validation, and an ingress controller."""

import asyncio
import ssl

from kubevirt_sandbox.api import certificates
from kubevirt_sandbox.api import roles
from kubevirt_sandbox.testing import server
from kubevirt_sandbox.workloads import endpoints
from kubevirt_sandbox.workloads import route_kind
from kubevirt_sandbox.workloads import router
from kubevirt_sandbox.workloads import workload_kinds

ROUTES = '/apis/route.openshift.io/v1/namespaces/default/routes'
PASSTHROUGH = {'termination': 'passthrough'}
USER = {'Impersonate-User': 'tom'}


def route(name='web', tls=PASSTHROUGH, **spec):
    return {'apiVersion': 'route.openshift.io/v1', 'kind': 'Route',
            'metadata': {'name': name}, 'spec': {
                'to': {'kind': 'Service', 'name': name},
                'port': {'targetPort': 'https'}, 'tls': tls, **spec}}


class RouteTestCase(server.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        for kind in workload_kinds.KINDS:
            self.server.register_kind(kind)
        self.router = router.Router(self.server, asyncio.get_running_loop())
        self.addAsyncCleanup(self.router.stop)

    async def grant(self):
        """Let the user manage routes, but not their hosts."""
        for kind, obj in (
                (roles.CLUSTER_ROLE, {'rules': [
                    {'apiGroups': ['route.openshift.io'],
                     'resources': ['routes'], 'verbs': ['*']},
                    {'apiGroups': ['route.openshift.io'],
                     'resources': ['routes/custom-host'],
                     'verbs': ['get']}]}),
                (roles.CLUSTER_ROLE_BINDING, {
                    'roleRef': {'apiGroup': roles.GROUP, 'name': 'routes',
                                'kind': 'ClusterRole'},
                    'subjects': [{'kind': 'User', 'name': 'tom'}]})):
            self.store.create(kind, {'metadata': {'name': 'routes'}, **obj})

    async def read(self, name='web'):
        """Read a route when the ingress controller has seen it."""
        while True:
            found = await self.call('GET', f'{ROUTES}/{name}', expect=200)
            if found.get('status'):
                return found
            await asyncio.sleep(0.01)


class KindTestCase(RouteTestCase):

    async def test_host_is_assigned_and_stays(self):
        made = await self.call('POST', ROUTES, route('a.b'), 201)
        self.assertEqual('a-b-default.apps.sandbox.test',
                         made['spec']['host'])
        self.assertEqual('true', made['metadata']['annotations'][
            'openshift.io/host.generated'])
        self.assertEqual((100, 'None'), (made['spec']['to']['weight'],
                                         made['spec']['wildcardPolicy']))
        # Its client does not own the host, and cannot clear it.
        self.assertNotIn('f:host', str(made['metadata']['managedFields']))
        changed = await self.call('PATCH', f'{ROUTES}/a.b', [
            {'op': 'remove', 'path': '/spec/host'}], 200,
            'application/json-patch+json')
        self.assertEqual(made['spec']['host'], changed['spec']['host'])

    async def test_rights(self):
        await self.grant()
        reencrypt = {'termination': 'reencrypt'}
        trusting = {**reencrypt, 'destinationCACertificate': 'PEM'}

        async def refused(what, *request):
            answer = await self.call(*request, expect=422, headers=USER)
            self.assertIn(f'you do not have permission to set {what}',
                          answer['message'])
        hosts = 'the host field of the route'
        certs = 'certificate fields on the route'
        await refused(hosts, 'POST', ROUTES, route(host='a.test'))
        await refused(certs, 'POST', ROUTES, route(tls=trusting))
        await self.call('POST', ROUTES, route(tls=reencrypt), 201,
                        headers=USER)
        merge = {'media': 'application/merge-patch+json', 'headers': USER}
        for spec, why in (({'host': 'a.test'}, hosts),
                          ({'tls': trusting}, certs)):
            answer = await self.call('PATCH', ROUTES + '/web', {'spec': spec},
                                     422, **merge)
            self.assertIn(why, answer['message'])
        self.store.update(roles.CLUSTER_ROLE, {
            'metadata': {'name': 'routes'}, 'rules': [
                {'apiGroups': ['route.openshift.io'],
                 'resources': ['routes'], 'verbs': ['*']},
                {'apiGroups': ['route.openshift.io'],
                 'resources': ['routes/custom-host'],
                 'verbs': ['create']}]})
        await self.call('PATCH', ROUTES + '/web', {'spec': {'tls': trusting}},
                        200, **merge)
        await self.call('PATCH', ROUTES + '/web', {'spec': {
            'host': 'a.test'}}, 422, **merge)
        await self.call('POST', ROUTES, route('other', host='a.test'), 201,
                        headers=USER)

    async def test_validation(self):
        for made, why in (
                (route(tls={'termination': 'none'}), 'supported values'),
                (route(tls={**PASSTHROUGH, 'destinationCACertificate': 'x'}),
                 'does not support certificates'),
                (route(tls={**PASSTHROUGH,
                            'insecureEdgeTerminationPolicy': 'Allow'}),
                 'InsecureEdgeTerminationPolicy'),
                (route(path='/a'), 'does not support paths'),
                (route('a' * 60), 'must be no more than 63 characters'),
                (route(host='A_b.test'), 'RFC 1123'),
                (route(to={'kind': 'Pod', 'name': 'a'}), 'reference a Serv'),
                (route(to={}), 'spec.to.name: Required value')):
            answer = await self.call('POST', ROUTES, made, 422)
            self.assertIn(why, answer['message'])
        await self.call('POST', ROUTES, route(), 201)
        answer = await self.call('PATCH', ROUTES + '/web', {'spec': {
            'wildcardPolicy': 'Subdomain'}}, 422,
            'application/merge-patch+json')
        self.assertIn('field is immutable', answer['message'])

    async def test_status_and_columns(self):
        await self.call('POST', ROUTES, route(host='a.test'), 201)
        first = await self.read()
        self.assertEqual(
            [('a.test', 'default', 'router-default.apps.sandbox.test',
              'Admitted', 'True')],
            [(one['host'], one['routerName'], one['routerCanonicalHostname'],
              one['conditions'][0]['type'], one['conditions'][0]['status'])
             for one in first['status']['ingress']])
        await self.call('POST', ROUTES, route('late', host='a.test'), 201)
        # Both have the same age in seconds; the uid decides.
        found = {name: route_kind.admitted(
            (await self.read(name))['status']['ingress'][0])
            for name in ('web', 'late')}
        older, = (name for name in found if found[name]['status'] == 'True')
        del found[older]
        self.assertEqual(
            [f'route {older} already exposes a.test and is older'],
            [one['message'] for one in found.values()])
        table = await self.call('GET', ROUTES, expect=200, headers={
            'Accept': 'application/json;as=Table;v=v1;g=meta.k8s.io'})
        self.assertEqual(
            {'a.test', 'HostAlreadyClaimed'},
            {row['cells'][1] for row in table['rows']})
        for name in ('web', 'late'):
            await self.call('DELETE', f'{ROUTES}/{name}', expect=200)
        await asyncio.sleep(0)


class TrafficTestCase(RouteTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        await self.router.start()
        self.authority = certificates.Authority()
        context = self.authority.issue(
            ['web', 'web-default.apps.sandbox.test']).context()

        async def echo(reader, writer):
            writer.write(b'pod: ' + await reader.readline())
            await writer.drain()
            writer.close()
        pod = await asyncio.start_server(echo, '127.0.0.1', 0, ssl=context)
        self.addCleanup(pod.close)
        self.store.create(workload_kinds.ENDPOINT_SLICE, {
            'metadata': {'name': 'web', 'namespace': 'default',
                         'labels': {endpoints.SERVICE_NAME: 'web'}},
            'addressType': 'IPv4', 'endpoints': [
                {'addresses': ['127.0.0.1'], 'conditions': {'ready': True}}],
            'ports': [{'name': 'https', 'port': router._port(pod)}]})

    async def ask(self, ca, host='web-default.apps.sandbox.test'):
        """Connect to a route, and return what it answers."""
        context = ssl.create_default_context(cadata=ca.decode())
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(
                '127.0.0.1', router._port(self.router._servers[0]),
                ssl=context, server_hostname=host)
            writer.write(b'hello\n')
            answer = await reader.read()
            writer.close()
            return answer

    async def test_passthrough(self):
        await self.call('POST', ROUTES, route(), 201)
        self.assertEqual(b'pod: hello\n', await self.ask(
            self.authority.certificate))
        for host in ('other.apps.sandbox.test', '127.0.0.1'):
            with self.assertRaises(OSError):
                await self.ask(self.authority.certificate, host)

    async def test_reencrypt(self):
        own = self.router._authority.certificate
        for ca, answer in (
                (self.authority.certificate, b'pod: hello\n'), (own, b''),
                (None, b'')):
            made = route(tls={'termination': 'reencrypt', **(
                {'destinationCACertificate': ca.decode()} if ca else {})})
            await self.call('POST', ROUTES, made, 201)
            try:
                found = await self.ask(own)
            except OSError:
                found = b''
            self.assertEqual(answer, found)
            await self.call('DELETE', ROUTES + '/web', expect=200)

    async def test_no_tls(self):
        reader, writer = await asyncio.open_connection(
            '127.0.0.1', router._port(self.router._servers[0]))
        writer.write(b'GET / HTTP/1.1\r\n\r\n')
        with self.assertRaises((OSError, EOFError)):
            async with asyncio.timeout(10):
                await reader.readexactly(1)
        writer.close()
