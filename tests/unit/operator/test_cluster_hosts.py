# SPDX-License-Identifier: Apache-2.0
import asyncio

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.operator import cluster_hosts

POD = {'KUBERNETES_SERVICE_HOST': '10.96.0.1'}
NAMES = ('*.cluster.local', '*.svc')


class Client:
    """A cluster.

    :param cidrs: of its ServiceCIDRs; None for one that has no such kind
    :param slice_: the EndpointSlice of the API server, or an exception
    """

    def __init__(self, cidrs, slice_):
        self._cidrs = cidrs
        self._slice = slice_

    async def serves(self, resource):
        return self._cidrs is not None

    async def list(self, resource):
        if isinstance(self._cidrs, Exception):
            raise self._cidrs
        return [{'spec': {'cidrs': one}} for one in self._cidrs]

    async def get(self, resource, namespace, name):
        if isinstance(self._slice, Exception):
            raise self._slice
        return self._slice


def slice_(port, *addresses):
    return {'ports': [{'port': port}], 'endpoints': [
        {'addresses': list(addresses)}]}


class ClusterHostsTestCase(base.BaseTestCase):

    def test_hosts(self):
        networks, addresses = ('networks of Services',
                               'addresses of the API server')
        for client, server, environ, expected, missing in (
                (Client([['10.96.0.0/12', 'fd00:96::/112'], ['10.4.0.0/16']],
                        slice_(6443, '192.0.2.1', '2001:db8::1')),
                 'https://10.96.0.1:443', POD,
                 ('10.4.0.0/16', '10.96.0.0/12', '10.96.0.1:443',
                  '192.0.2.1:6443', '[2001:db8::1]:6443',
                  'fd00:96::/112'), []),
                # Before Kubernetes 1.33.
                (Client(None, slice_(6443, '192.0.2.1')),
                 'https://10.96.0.1', POD,
                 ('10.96.0.1:443', '192.0.2.1:6443'),
                 [networks]),
                # Outside of the cluster.
                (Client([], errors.ObjectNotFound('x')),
                 'https://[2001:db8::2]:6443', {}, ('[2001:db8::2]:6443',),
                 [addresses]),
                (Client([], errors.ObjectNotFound('x')),
                 'https://api.test:6443', {}, (), [addresses]),
                # Without one right, or both.
                (Client(errors.AccessDenied('x'), slice_(6443, '192.0.2.1')),
                 'https://10.96.0.1', POD,
                 ('10.96.0.1:443', '192.0.2.1:6443'),
                 [networks]),
                (Client(errors.AccessDenied('x'), errors.AccessDenied('x')),
                 'https://10.96.0.1', POD, ('10.96.0.1:443',),
                 [networks, addresses])):
            found, gaps = asyncio.run(cluster_hosts.find(
                client, server, environ))
            self.assertEqual(sorted((*NAMES, *expected)), list(found))
            self.assertEqual(missing, [
                words for words in ('networks of Services',
                                    'addresses of the API server')
                if any(words in gap for gap in gaps)])
            for gap in gaps:
                self.assertIn('--denied-hosts', gap)
            for one in found:
                if url_policy.address_and_port(one) is None:
                    url_policy.network(one)
