# SPDX-License-Identifier: Apache-2.0
"""A server of the API in the test's own process, without TLS."""
import asyncio
import json
import unittest

import aiohttp

from sushy_kubevirt.sandbox.api import core
from sushy_kubevirt.sandbox.api import kinds
from sushy_kubevirt.sandbox.api import server

SCHEMA = {'type': 'object', 'properties': {
    'spec': {'type': 'object', 'required': ['size'], 'properties': {
        'size': {'type': 'integer', 'minimum': 1, 'maximum': 100},
        'colour': {'type': 'string', 'enum': ['red', 'green'],
                   'default': 'red'},
        'ports': {'type': 'array', 'x-kubernetes-list-type': 'map',
                  'x-kubernetes-list-map-keys': ['name'], 'items': {
                      'type': 'object', 'required': ['name'], 'properties': {
                          'name': {'type': 'string'},
                          'number': {'type': 'integer'}}}},
        'tags': {'type': 'array', 'x-kubernetes-list-type': 'set',
                 'items': {'type': 'string'}},
        'order': {'type': 'array', 'items': {'type': 'string'}},
        'free': {'type': 'object',
                 'x-kubernetes-preserve-unknown-fields': True}}},
    'status': {'type': 'object', 'properties': {
        'phase': {'type': 'string'}}}}}


def thing(**more):
    """The kind that the tests use."""
    return kinds.Kind('example.test', 'v1', 'Thing', 'things', 'thing',
                      ('th',), schema=SCHEMA, status=True, crd=True,
                      columns=(kinds.Column('Size', 'integer',
                                            '.spec.size'),),
                      selectable_fields=('spec.colour',), **more)


def make(name='a', **spec):
    """An object of it."""
    return {'apiVersion': 'example.test/v1', 'kind': 'Thing',
            'metadata': {'name': name, 'namespace': 'default'},
            'spec': {'size': 1, **spec}}


def cluster(kind=None, **options):
    """A server with the core kinds and one more; not started."""
    made = server.Server(**options)
    core.install(made)
    made.register_kind(kind or thing())
    made.settle()
    return made


class ServerTestCase(unittest.IsolatedAsyncioTestCase):
    """Tests that speak HTTP with a server."""

    options = {}

    async def asyncSetUp(self):
        self.kind = thing()
        self.server = cluster(self.kind, **self.options)
        self.store = self.server.store
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)
        self.client = aiohttp.ClientSession(
            self.server.url, headers={
                'Authorization': f'Bearer {self.server.token}'},
            timeout=aiohttp.ClientTimeout(total=20))
        self.addAsyncCleanup(self.client.close)

    THINGS = '/apis/example.test/v1/namespaces/default/things'

    async def call(self, method, path, body=None, expect=None, media=None,
                   **more):
        """An answer as JSON; its HTTP answer is in ``self.answer``."""
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
        """The events of a watch, as far as ``until(events)`` is false."""
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
        """Wait for a function to give something true."""
        async with asyncio.timeout(seconds):
            while True:
                found = what()
                if found:
                    return found
                await asyncio.sleep(0.01)
