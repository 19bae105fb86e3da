# SPDX-License-Identifier: Apache-2.0
"""The API server in the test's own process, without TLS, for unit tests.

It serves Kubernetes' core kinds; tests can add others, also through
CustomResourceDefinitions. No controllers run.
"""

import asyncio
import json
import unittest

import aiohttp

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import server
from kubevirt_sandbox.workloads import workload_kinds

#: Kinds of Deployments and the like, for `cluster`.
WORKLOADS = workload_kinds.KINDS


def cluster(*kinds, **options):
    """Make a server with the core kinds and others, without starting it.

    :param kinds: additional kinds, `kubevirt_sandbox.api.kinds.Kind`
    :param options: parameters of `kubevirt_sandbox.api.server.Server`
    """
    made = server.Server(**options)
    core.install(made)
    for kind in kinds:
        made.register_kind(kind)
    made.settle()
    return made


class ServerTestCase(unittest.IsolatedAsyncioTestCase):
    """A test case with an HTTP client of a server, as ``server``."""

    options = {}

    def cluster(self):
        """Make the server; see `cluster`."""
        return cluster(**self.options)

    async def asyncSetUp(self):
        """Start the server and an HTTP client with the administrator's token.
        """
        self.server = self.cluster()
        self.store = self.server.store
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)
        self.client = aiohttp.ClientSession(
            self.server.url, headers={
                'Authorization': f'Bearer {self.server.token}'},
            timeout=aiohttp.ClientTimeout(total=20))
        self.addAsyncCleanup(self.client.close)

    async def call(self, method, path, body=None, expect=None, media=None,
                   **more):
        """Call the API and return the JSON body of the response.

        The HTTP response is kept in ``self.answer``.
        """
        headers = more.pop('headers', {})
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        if body is not None:
            headers = {'Content-Type': media or 'application/json',
                       **headers}
        async with self.client.request(method, path, data=body,
                                       headers=headers, **more) as answer:
            self.answer = answer
            raw = await answer.read()
            if expect is not None:
                self.assertEqual(expect, answer.status, raw[:500])
            return json.loads(raw) if raw else None

    async def watch(self, path, until, **params):
        """Return the events of a watch until ``until(events)`` is true."""
        events = []
        params = {'watch': '1', **params}
        async with self.client.get(path, params=params) as answer:
            self.assertEqual(200, answer.status)
            async for line in answer.content:
                events.append(json.loads(line))
                if until(events):
                    break
        return events

    async def eventually(self, what, seconds=30):
        """Wait until a function returns a true value."""
        async with asyncio.timeout(seconds):
            while True:
                found = what()
                if found:
                    return found
                await asyncio.sleep(0.01)
