# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import network
from tests.unit.operator import bodies


def ports(**fields):
    return [(port['name'], port['port'], port.get('nodePort'),
             port.get('appProtocol'))
            for port in network.service(bodies.bmc(**fields))['spec'][
                'ports']]


# fields of the spec, ports of the Service
PORTS = (
    ({}, [('redfish', 443, None, 'https'), ('ipmi', 623, None, None)]),
    ({'ipmi': {'enabled': False}}, [('redfish', 443, None, 'https')]),
    ({'redfish': {'enabled': False}}, [('ipmi', 623, None, None)]),
    ({'redfish': {'plainHTTP': True}},
     [('redfish', 80, None, 'http'), ('ipmi', 623, None, None)]),
    ({'service': {'type': 'NodePort', 'ports': {'redfish': 8443},
                  'nodePorts': {'ipmi': 30623}}},
     [('redfish', 8443, None, 'https'), ('ipmi', 623, 30623, None)]),
)


class NetworkTestCase(base.BaseTestCase):

    def test_ports(self):
        for fields, wanted in PORTS:
            with self.subTest(fields=fields):
                self.assertEqual(wanted, ports(**fields))

    def test_types(self):
        for fields, wanted in (
                ({}, {'type': 'ClusterIP'}),
                ({'type': 'NodePort'}, {'type': 'NodePort'}),
                ({'type': 'LoadBalancer', 'loadBalancerClass': 'c'},
                 {'type': 'LoadBalancer', 'loadBalancerClass': 'c'})):
            made = network.service(bodies.bmc(service=fields))['spec']
            with self.subTest(fields=fields):
                self.assertEqual(wanted, {
                    key: value for key, value in made.items()
                    if key in ('type', 'loadBalancerClass')})

    def test_another_class(self):
        def made(cls=None, type_='LoadBalancer'):
            return network.service(bodies.bmc(service={
                'type': type_, **({'loadBalancerClass': cls} if cls else {}),
            }))

        def chosen(service, cls):
            # By something else in the cluster.
            service['spec']['loadBalancerClass'] = cls
            return service
        for wanted, live, another in (
                (made('a'), made('a'), False),
                (made('a'), made('b'), True),
                (made('a'), made(), True),
                (made(), made('a'), True),
                (made(), made(), False),
                (made(), chosen(made(), 'c'), False),
                (made(type_='ClusterIP'), made('a'), False),
                (made('a'), made(type_='NodePort'), False)):
            with self.subTest(wanted=wanted['spec'], live=live['spec']):
                self.assertIs(another, network.has_another_class(
                    wanted, live))

    def test_allocated(self):
        wanted = network.service(bodies.bmc(service={'type': 'NodePort'}))
        live = {'spec': {
            'type': 'NodePort', 'clusterIP': '10.0.0.7',
            'externalIPs': ['1.2.3.4'], 'loadBalancerIP': '1.2.3.5',
            'selector': {'a': 'b'}, 'ports': [
                {'name': 'redfish', 'port': 1, 'nodePort': 30001},
                {'name': 'more', 'port': 2, 'nodePort': 30002}]}}
        made = network.allocated(wanted, live)['spec']
        self.assertEqual(
            ('10.0.0.7', wanted['spec']['selector'],
             [('redfish', 443, 30001), ('ipmi', 623, None)]),
            (made['clusterIP'], made['selector'],
             [(port['name'], port['port'], port.get('nodePort'))
              for port in made['ports']]))
        self.assertNotIn('externalIPs', made)
        # The controller of load balancers sets this.
        self.assertEqual('1.2.3.5', made['loadBalancerIP'])
        # No port of a node is left over from another type.
        live['spec']['type'] = 'LoadBalancer'
        self.assertNotIn('nodePort', network.allocated(wanted, live)[
            'spec']['ports'][0])

    def test_annotations(self):
        made = network.service(bodies.bmc(service={
            'annotations': {
                'a': 'b', 'bmc.kubevirt.io/applied': 'c',
                'kubectl.kubernetes.io/last-applied-configuration': 'd'}}))
        self.assertEqual({'a': 'b'}, made['metadata']['annotations'])

    def test_policy(self):
        self.assertIsNone(network.policy(bodies.bmc()))
        allowed = [{'protocol': 'TCP', 'port': 8000},
                   {'protocol': 'UDP', 'port': 6230}]
        for fields, wanted in (
                # An empty list allows no client, not all.
                ({}, []),
                ({'allowedCIDRs': ['10.0.0.0/8'],
                  'allowedNamespaces': ['metal3']},
                 [{'ports': allowed, 'from': [
                     {'ipBlock': {'cidr': '10.0.0.0/8'}},
                     {'namespaceSelector': {'matchLabels': {
                         'kubernetes.io/metadata.name': 'metal3'}}}]}])):
            made = network.policy(bodies.bmc(networkPolicy={
                'enabled': True, **fields}))
            with self.subTest(fields=fields):
                self.assertEqual(wanted, made['spec']['ingress'])
                self.assertEqual(['Ingress'], made['spec']['policyTypes'])
