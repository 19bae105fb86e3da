# SPDX-License-Identifier: Apache-2.0
"""Kubernetes: what an API server of 1.36 and later accepts and refuses."""

import uuid

from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt

_CORE = f'/api/v1/namespaces/{sandbox.NAMESPACE}'
_GROUPS = '/apis/{}/v1/namespaces/' + sandbox.NAMESPACE
MAPS = _CORE + '/configmaps'
SERVICES = _CORE + '/services'
LEASES = _GROUPS.format('coordination.k8s.io') + '/leases'
POLICIES = _GROUPS.format('networking.k8s.io') + '/networkpolicies'

_KINDS = {MAPS: 'ConfigMap', SERVICES: 'Service', LEASES: 'Lease',
          POLICIES: 'NetworkPolicy'}


class KubernetesTest(kubevirt.KubeVirtTestCase):

    def create(self, collection, name='', annotations=None, **fields):
        """Create an object until the end of the test.

        :returns: (HTTP status, path of the object, the response's JSON)
        """
        name = name + 'case-' + uuid.uuid4().hex[:8]
        group = collection.split('/')[2]
        response = self.cluster.request('POST', collection, {
            'apiVersion': 'v1' if group == 'v1' else f'{group}/v1',
            'kind': _KINDS[collection],
            'metadata': {'name': name, 'annotations': annotations or {}},
            **fields})
        where = f'{collection}/{name}'
        if response.status_code == 201:
            self.addCleanup(self.cluster.request, 'DELETE', where)
        return response.status_code, where, response.json()

    def patch(self, where, *operations):
        """Send a JSON patch of operations (op, path, value)."""
        return self.cluster.request(
            'PATCH', where, [dict(zip(('op', 'path', 'value'), operation))
                             for operation in operations],
            content_type='application/json-patch+json')


class JsonPatchTest(KubernetesTest):

    def check(self, code, *operations, **fields):
        _, where, _ = self.create(MAPS, **fields)
        response = self.patch(where, *operations)
        self.assertEqual(code, response.status_code, operations)
        return response.json()['metadata'].get('annotations')

    def test_null_tests_that_a_member_is_absent(self):
        absent = ('test', '/metadata/annotations/y', None)
        self.assertEqual({'x': '1', 'y': '2'}, self.check(
            200, absent, ('add', '/metadata/annotations/y', '2'),
            annotations={'x': '1'}))
        self.check(422, absent, annotations={'y': '1'})
        # All annotations, too; but nothing below what is absent.
        self.check(200, absent[:1] + ('/metadata/annotations', None))
        self.check(422, absent)

    def test_replace_adds(self):
        self.assertEqual({'x': '1', 'y': '2'}, self.check(
            200, ('replace', '/metadata/annotations/y', '2'),
            annotations={'x': '1'}))

    def test_negative_index(self):
        _, where, _ = self.create(SERVICES, spec={
            'selector': {'a': 'b'}, 'ports': [
                {'name': 'one', 'port': 1}, {'name': 'two', 'port': 2}]})
        self.assertEqual(200, self.patch(
            where, ('test', '/spec/ports/-1/name', 'two'),
            ('add', '/spec/ports/-1', {'name': 'three', 'port': 3}),
            ('test', '/spec/ports/2/name', 'three')).status_code)
        # A number is compared as text.
        self.assertEqual(422, self.patch(
            where, ('test', '/spec/ports/0/port', 1.0)).status_code)


class ValuesTest(KubernetesTest):

    def test_times_of_leases_have_microseconds(self):
        for time, code in (('2026-11-27T10:00:00.000000Z', 201),
                           ('2026-11-27T10:00:00.000000+00:00', 201),
                           ('2026-11-27T10:00:00Z', 400),
                           ('2026-11-27T10:00:00.1Z', 400)):
            self.assertEqual(code, self.create(LEASES, spec={
                'holderIdentity': 'x', 'renewTime': time})[0], time)

    def test_networks_of_policies_are_canonical(self):
        for network, code in (('10.0.0.0/8', 201), ('2001:DB8::/32', 201),
                              ('10.0.0.1/8', 422), ('010.0.0.0/8', 422),
                              ('::ffff:10.0.0.0/104', 422)):
            self.assertEqual(code, self.create(POLICIES, spec={
                'podSelector': {}, 'ingress': [{'from': [
                    {'ipBlock': {'cidr': network}}]}]})[0], network)

    def test_a_service_may_begin_with_a_digit(self):
        ports = [{'port': 443}]
        for name, code in (('0-', 201), ('a.', 422)):
            self.assertEqual(code, self.create(
                SERVICES, name, spec={'ports': ports})[0], name)

    def test_node_ports(self):
        def two(*ports):
            return self.create(SERVICES, spec={'type': 'NodePort', 'ports': [
                {'name': f'port-{index}', **port}
                for index, port in enumerate(ports)]})

        # Protocols of one port share its node port.
        code, _, created = two({'port': 623}, {'port': 623,
                                               'protocol': 'UDP'})
        self.assertEqual(201, code)
        numbers = [port['nodePort'] for port in created['spec']['ports']]
        self.assertEqual(1, len(set(numbers)), numbers)
        # Two ports do not, even of other protocols or of another Service.
        code, _, created = two({'port': 443}, {'port': 623,
                                               'protocol': 'UDP'})
        self.assertEqual(201, code)
        first, second = (port['nodePort']
                         for port in created['spec']['ports'])
        self.assertNotEqual(first, second)
        self.assertEqual(422, two({'port': 1, 'protocol': 'UDP',
                                   'nodePort': first})[0])
        self.assertEqual(422, self.create(SERVICES, spec={
            'ports': [{'port': 1, 'nodePort': second}]})[0])
