# SPDX-License-Identifier: Apache-2.0
"""aiohttp is let in by all that a kubeconfig can say.

The same as `test_tls` asks of the other client, and tokens that change.
"""

import asyncio
import threading

import aiohttp
from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import transport
from tests.unit.kube import test_client
from tests.unit.kube import test_tls
from tests.unit.machine import api


class TlsTestCase(test_tls.TlsTestCase):

    def look(self, way):
        async def main():
            mine = api_.Api(transport.Transport(way))
            try:
                return await mine.get(api_resources.VM, 'default', 'a')
            finally:
                await mine.close()

        return asyncio.run(main())

    def get(self, cluster, user=None):
        return self.look(connection.Connection.from_options(
            self.kubeconfig(cluster, user)))

    def test_a_certificate_that_is_replaced(self):
        self.serve('127.0.0.1')
        ca = self.file('ca.pem', test_tls.Authority().pem)
        where = 'https://127.0.0.1:%d' % self.server.server_port

        def read():
            with open(ca) as f:
                return connection.Access(where, ca=f.read())

        way = connection.Connection(read)

        async def main():
            mine = api_.Api(transport.Transport(way))
            self.file('ca.pem', self.ca.pem)
            way._taken_at -= connection.RENEW_SECONDS
            try:
                # The one that fails finds out.
                try:
                    await mine.get(api_resources.VM, 'default', 'a')
                except errors.Unavailable:
                    pass
                await mine.get(api_resources.VM, 'default', 'a')
            finally:
                await mine.close()

        asyncio.run(main())

    def test_a_proxy_that_is_none_for_aiohttp(self):
        for proxy in ('socks5://127.0.0.1:1', 'https://127.0.0.1:1'):
            error = self.assertRaises(
                errors.ConfigError, self.look,
                connection.Connection(lambda: connection.Access(
                    'https://127.0.0.1:1', proxy=proxy)))
            self.assertIn('HTTP proxy only', str(error))


class CredentialsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = self.useFixture(test_client._Fixture()).api
        self.api.put('virtualmachines', api.vm('a'))

    def test_a_token_that_changes(self):
        # The server takes another one from now on; a program that logs in
        # knows it.
        tokens = ['one', 'two', 'three']
        way = connection.Connection(lambda: connection.Access(
            server='http://127.0.0.1:%d' % self.api.port,
            authorization='Bearer ' + tokens[0]))
        counted = []

        async def main():
            made = transport.Transport(
                way, lambda *call: counted.append(call))
            mine = api_.Api(made)
            others = made.session()
            self.api.token = 'one'
            try:
                await mine.get(api_resources.VM, 'default', 'a')
                del tokens[0]
                self.api.token = 'two'
                way._taken_at -= connection.RENEW_SECONDS
                await mine.get(api_resources.VM, 'default', 'a')
                # kopf's session has it too.
                where = made.server + api_resources.VM.path('default', 'a')
                async with others.get(where) as answer:
                    self.assertEqual(200, answer.status)
                # Refused for good: said, and asked twice at most.
                self.api.token = 'unknown'
                way._taken_at -= connection.RENEW_SECONDS
                await self.refused(mine)
            finally:
                await mine.close()
                await others.close()

        asyncio.run(main())
        self.assertEqual([200, 401, 200, 200, 401],
                         [status for _, status in counted])
        self.assertEqual({'GET'}, {method for method, _ in counted})

    async def refused(self, mine):
        try:
            await mine.get(api_resources.VM, 'default', 'a')
        except errors.AccessDenied as e:
            self.assertNotIn('two', str(e))
        else:
            self.fail('it was let in')

    def test_credentials_that_are_about_to_end(self):
        # A login may take long: the loop goes on.
        loop_thread = []
        threads = []

        def read():
            threads.append(threading.current_thread())
            return connection.Access(
                server='http://127.0.0.1:%d' % self.api.port,
                authorization='Bearer x', expiry=1)

        way = connection.Connection(read)

        async def main():
            loop_thread.append(threading.current_thread())
            mine = api_.Api(transport.Transport(way))
            del threads[:]
            way._taken_at -= connection.RENEW_SECONDS
            try:
                await asyncio.gather(*(
                    mine.get(api_resources.VM, 'default', 'a')
                    for _ in range(3)))
            finally:
                await mine.close()

        asyncio.run(main())
        self.assertEqual(1, len(threads))
        self.assertNotIn(loop_thread[0], threads)

    def test_who_asks(self):
        async def main():
            made = transport.Transport(self.api.connection())
            session = made.session()
            async with session.get(made.server + api_resources.VM.path(
                    'default', 'a')):
                pass
            await session.close()
            self.assertIsInstance(session.cookie_jar, aiohttp.DummyCookieJar)

        asyncio.run(main())
        self.assertEqual('sushy-kubevirt-operator',
                         self.api.requests[-1][3]['User-Agent'])
