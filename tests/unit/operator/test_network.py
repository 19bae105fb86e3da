# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies


def by_ref(name='node', **fields):
    return spec.read(bodies.by_ref(name, **fields))


def ports(service):
    return [(port['name'], port['port'], port.get('nodePort'),
             port.get('appProtocol')) for port in service['spec']['ports']]


HTTP = ('redfish-http', 80, None, 'http')
HTTPS = ('redfish', 443, None, 'https')
IPMI = ('ipmi', 623, None, None)

# The same for BMCs whose VM KubeVirtBMC's field names, and ports of their
# second Service.
BY_REF = (
    ({}, [HTTPS, HTTP, IPMI], [HTTPS, HTTP, IPMI]),
    ({'redfish': {'plainHTTP': False}}, [HTTPS, IPMI], [HTTPS, IPMI]),
    ({'redfish': {'plainHTTP': True}},
     *[[('redfish', 80, None, 'http'), IPMI]] * 2),
    ({'redfish': {'enabled': False}}, [IPMI], [IPMI]),
    ({'ipmi': {'enabled': False}}, [HTTPS, HTTP], [HTTPS, HTTP]),
    ({'service': {'type': 'NodePort', 'ports': {'redfish': 8443, 'ipmi': 1},
                  'nodePorts': {'redfish': 30443}}},
     [('redfish', 8443, 30443, 'https'), ('ipmi', 1, None, None)],
     [HTTPS, HTTP, IPMI]),
    # HTTP beside HTTPS stays in the cluster.
    ({'service': {'type': 'LoadBalancer'}}, [HTTPS, IPMI],
     [HTTPS, HTTP, IPMI]),
    ({'service': {'type': 'ClusterIP', 'ports': {'redfish': 8443}}},
     [('redfish', 8443, None, 'https'), HTTP, IPMI], [HTTPS, HTTP, IPMI]),
    ({'service': {'type': 'LoadBalancer'}, 'redfish': {'plainHTTP': True}},
     *[[('redfish', 80, None, 'http'), IPMI]] * 2),
    # A port cannot have two protocols.
    ({'service': {'ports': {'redfish': 80}}},
     [('redfish', 80, None, 'https'), IPMI], [HTTPS, HTTP, IPMI]),
)


# (fields of the spec, ports of the Service)
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

    def test_ports_of_service(self):
        for fields, expected in PORTS:
            with self.subTest(fields=fields):
                self.assertEqual(expected, ports(
                    network.service(bodies.bmc(**fields))))

    def test_ports_for_clients_of_kubevirtbmc(self):
        for fields, expected, second in BY_REF:
            with self.subTest(fields=fields):
                bmc = by_ref(**fields)
                self.assertEqual(expected, ports(network.service(bmc)))
                self.assertEqual(second, ports(network.vm_service(bmc)))

    def test_service_with_name_of_vm(self):
        bmc = by_ref(service={
            'type': 'LoadBalancer', 'loadBalancerClass': 'c',
            'annotations': {'a': 'b'}, 'labels': {
                'c': 'd', 'kubevirt.io/vm-name': 'e'}})
        made, own = network.vm_service(bmc), network.service(bmc)
        self.assertEqual('vm-virtbmc', made['metadata']['name'])
        self.assertEqual('vm', made['metadata']['labels'][
            'kubevirt.io/vm-name'])
        self.assertNotIn('annotations', made['metadata'])
        self.assertEqual('ClusterIP', made['spec']['type'])
        self.assertEqual(own['spec']['selector'], made['spec']['selector'])
        self.assertEqual('d', made['metadata']['labels']['c'])
        self.assertEqual('e', own['metadata']['labels']['kubevirt.io/vm-name'])
        self.assertNotIn('kubevirt.io/vm-name', network.service(by_ref())[
            'metadata']['labels'])

    def test_types_of_service(self):
        for fields, expected in (
                ({}, {'type': 'ClusterIP'}),
                ({'type': 'NodePort'}, {'type': 'NodePort'}),
                ({'type': 'LoadBalancer', 'loadBalancerClass': 'c'},
                 {'type': 'LoadBalancer', 'loadBalancerClass': 'c'})):
            made = network.service(bodies.bmc(service=fields))['spec']
            with self.subTest(fields=fields):
                self.assertEqual(expected, {
                    key: value for key, value in made.items()
                    if key in ('type', 'loadBalancerClass')})

    def test_source_ranges(self):
        name = 'service.beta.kubernetes.io/load-balancer-source-ranges'
        for text, expected in (
                ('10.0.0.1/8', '10.0.0.0/8'),
                (' 10.1.2.3/32 , fd00::1/8', '10.1.2.3/32,fd00::/8'),
                ('::ffff:10.0.0.1/104', '10.0.0.0/8'),
                ('0:0:0:0:0:ffff:0:0/96', '0.0.0.0/0'),
                ('', ''), ('everyone', 'everyone'),
                ('10.0.0.0/8,a', '10.0.0.0/8,a')):
            with self.subTest(text):
                made = network.service(bodies.bmc(service={
                    'type': 'LoadBalancer', 'annotations': {name: text}}))
                self.assertEqual({name: expected},
                                 made['metadata']['annotations'])

    def test_has_another_class(self):
        def made(cls=None, type_='LoadBalancer'):
            return network.service(bodies.bmc(service={
                'type': type_, **({'loadBalancerClass': cls} if cls else {}),
            }))

        def chosen(service, cls):
            # Chosen by another component of the cluster.
            service['spec']['loadBalancerClass'] = cls
            return service
        for desired, live, another in (
                (made('a'), made('a'), False),
                (made('a'), made('b'), True),
                (made('a'), made(), True),
                (made(), made('a'), True),
                (made(), made(), False),
                (made(), chosen(made(), 'c'), False),
                (made(type_='ClusterIP'), made('a'), False),
                (made('a'), made(type_='NodePort'), False)):
            with self.subTest(desired=desired['spec'], live=live['spec']):
                self.assertIs(another, network.has_another_class(
                    desired, live))

    def test_allocated_fields_are_kept(self):
        desired = network.service(bodies.bmc(service={'type': 'NodePort'}))
        live = {'spec': {
            'type': 'NodePort', 'clusterIP': '10.0.0.7',
            'externalIPs': ['1.2.3.4'], 'loadBalancerIP': '1.2.3.5',
            'selector': {'a': 'b'}, 'ports': [
                {'name': 'redfish', 'port': 1, 'nodePort': 30001},
                {'name': 'more', 'port': 2, 'nodePort': 30002}]}}
        made = network.allocated(desired, live)['spec']
        self.assertEqual(
            ('10.0.0.7', desired['spec']['selector'],
             [('redfish', 443, 30001), ('ipmi', 623, None)]),
            (made['clusterIP'], made['selector'],
             [(port['name'], port['port'], port.get('nodePort'))
              for port in made['ports']]))
        self.assertNotIn('externalIPs', made)
        # The load balancer controller sets this field.
        self.assertEqual('1.2.3.5', made['loadBalancerIP'])
        # Node ports of another Service type are not kept.
        live['spec']['type'] = 'LoadBalancer'
        self.assertNotIn('nodePort', network.allocated(desired, live)[
            'spec']['ports'][0])

    def test_reserved_annotations_are_dropped(self):
        made = network.service(bodies.bmc(service={
            'annotations': {
                'a': 'b', 'bmc.kubevirt.io/applied': 'c',
                'kubectl.kubernetes.io/last-applied-configuration': 'd'}}))
        self.assertEqual({'a': 'b'}, made['metadata']['annotations'])

    def test_labels_of_the_operator_stay(self):
        own = network.service(bodies.bmc())['metadata']['labels']
        made = network.service(bodies.bmc(service={'labels': {
            **dict.fromkeys(own, 'x'), 'bmc.kubevirt.io/shared': '0',
            'team': 'lab'}}))
        self.assertEqual({**own, 'team': 'lab'}, made['metadata']['labels'])

    def test_network_policy(self):
        self.assertIsNone(network.policy(bodies.bmc()))
        allowed = [{'protocol': 'TCP', 'port': 8000},
                   {'protocol': 'UDP', 'port': 6230}]
        for fields, expected in (
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
                self.assertEqual(expected, made['spec']['ingress'])
                self.assertEqual(['Ingress'], made['spec']['policyTypes'])
        made = network.policy(by_ref(networkPolicy={
            'enabled': True, 'allowedCIDRs': ['10.0.0.0/8']}))
        self.assertEqual(
            [('TCP', 8000), ('TCP', 8080), ('UDP', 6230)],
            [(port['protocol'], port['port'])
             for port in made['spec']['ingress'][0]['ports']])
