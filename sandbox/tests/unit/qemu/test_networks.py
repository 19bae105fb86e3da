# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import socket
import unittest

from kubevirt_sandbox.qemu import networks


class Store:
    """Fake store of definitions: their configurations by name."""

    def __init__(self, **configs):
        self.configs = configs

    def find(self, kind, namespace, name):
        config = self.configs.get(name)
        return config and {'spec': {'config': config}}


def vmi(*references, namespace='default'):
    return {'metadata': {'name': 'x', 'namespace': namespace}, 'spec': {
        'networks': [{'name': 'pod', 'pod': {}}, *(
            {'name': f'n{number}', 'multus': {'networkName': one}}
            for number, one in enumerate(references))]}}


class NetworksTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        bridge = json.dumps({'type': 'bridge', 'bridge': 'br0'})
        self.networks = networks.Networks(Store(
            a='{}', b='no JSON', bridge=bridge,
            chained=json.dumps({'plugins': [json.loads(bridge)]})))

    def connect(self, *references, **more):
        links = self.networks.connect(vmi(*references, **more))
        self.addCleanup(links.close)
        guests = [socket.socket(fileno=one)
                  for one in links.descriptors.values()]
        for one in guests:
            self.addCleanup(one.detach)
            one.setblocking(False)
        return links, *guests

    async def received(self, one, seconds=30):
        return await asyncio.wait_for(
            asyncio.get_running_loop().sock_recv(one, 100), seconds)

    async def assert_silent(self, one):
        with self.assertRaises(TimeoutError):
            await self.received(one, 0.1)

    async def test_frames_reach_others_in_the_network_only(self):
        _, one, other = self.connect('a', 'b')
        _, two = self.connect('default/a')
        _, elsewhere = self.connect('a', namespace='elsewhere')
        one.send(b'frame')
        self.assertEqual(b'frame', await self.received(two))
        for silent in one, other, elsewhere:
            await self.assert_silent(silent)
        two.send(b'answer')
        self.assertEqual(b'answer', await self.received(one))

    async def test_definitions_with_the_same_bridge(self):
        _, one = self.connect('bridge')
        _, two = self.connect('chained', namespace='elsewhere')
        one.send(b'frame')
        self.assertEqual(b'frame', await self.received(two))

    async def test_guest_that_has_ended(self):
        _, one = self.connect('a')
        ended = self.networks.connect(vmi('a'))
        _, two = self.connect('a')
        ended.hand_over()
        one.send(b'frame')
        self.assertEqual(b'frame', await self.received(two))
        ended.close()
        ended.close()
        one.send(b'again')
        self.assertEqual(b'again', await self.received(two))

    async def test_pod_network_alone(self):
        links = self.networks.connect(vmi())
        self.assertEqual({}, links.descriptors)
        links.close()
