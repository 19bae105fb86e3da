# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import endpoints
from tests.unit.operator import bodies

BALANCED = {'service': {'type': 'LoadBalancer'}}
PATH = '/redfish/v1/Systems/1'


def balanced(*ingress):
    return bodies.service('LoadBalancer', ingress=ingress)


# (fields of the spec, the Service, URL of Redfish, address of IPMI)
CASES = (
    ({}, bodies.service(), 'https://10.0.0.7' + PATH, '10.0.0.7:623'),
    ({}, bodies.service(address='fd00::7'), 'https://[fd00::7]' + PATH,
     '[fd00::7]:623'),
    ({}, bodies.service(ports={'redfish': 8443, 'ipmi': 6230}),
     'https://10.0.0.7:8443' + PATH, '10.0.0.7:6230'),
    ({'redfish': {'plainHTTP': True}},
     bodies.service(ports={'redfish': 80, 'ipmi': 623}),
     'http://10.0.0.7' + PATH, '10.0.0.7:623'),
    ({'ipmi': {'enabled': False}}, bodies.service(ports={'redfish': 443}),
     'https://10.0.0.7' + PATH, None),
    ({'redfish': {'enabled': False}}, bodies.service(ports={'ipmi': 623}),
     None, '10.0.0.7:623'),
    (BALANCED, balanced({'ip': '192.0.2.1'}), 'https://192.0.2.1' + PATH,
     '192.0.2.1:623'),
    (BALANCED, balanced({'hostname': 'lb.test'}), 'https://lb.test' + PATH,
     'lb.test:623'),
    # No address is assigned yet.
    (BALANCED, balanced(), None, None),
    ({}, bodies.service(address=None), None, None),
    ({}, bodies.service(address='None'), None, None),
    ({}, None, None, None),
)


class EndpointsTestCase(base.BaseTestCase):

    def test_redfish_url_and_ipmi_address(self):
        for fields, service, url, address in CASES:
            with self.subTest(fields=fields, service=service):
                found = endpoints.status(
                    bodies.bmc(**fields), service).get('endpoints', {})
                self.assertEqual(url, found.get('redfish', {}).get('url'))
                self.assertEqual(address,
                                 found.get('ipmi', {}).get('address'))

    def test_addresses_in_fields_of_kubevirtbmc(self):
        for fields, service, expected in (
                ({}, bodies.service(), ('10.0.0.7', None)),
                (BALANCED, balanced(), ('10.0.0.7', None)),
                (BALANCED, balanced({'ip': '192.0.2.1'}, {'ip': '192.0.2.2'}),
                 ('10.0.0.7', '192.0.2.1')),
                # A name is no address.
                (BALANCED, balanced({'hostname': 'lb.test'}),
                 ('10.0.0.7', None)),
                # What a load balancer of an earlier type has left.
                ({}, balanced({'ip': '192.0.2.1'}), ('10.0.0.7', None)),
                ({}, bodies.service(address='None'), (None, None)),
                ({}, None, (None, None))):
            with self.subTest(fields=fields, service=service):
                found = endpoints.status(bodies.bmc(**fields), service)
                self.assertEqual(expected, (found.get('clusterIP'),
                                            found.get('loadBalancerIP')))

    def test_route_does_not_wait_for_a_load_balancer(self):
        live = {'status': {'ingress': [{'host': 'a.test', 'conditions': [
            {'type': 'Admitted', 'status': 'True'}]}]}}
        bmc = bodies.bmc(route={'termination': 'passthrough'}, **BALANCED)
        expected = {'host': 'a.test', 'url': 'https://a.test' + PATH}
        self.assertEqual({'route': expected}, endpoints.status(
            bmc, balanced(), live)['endpoints'])
        self.assertNotIn('endpoints', endpoints.status(bmc, balanced()))
        found = endpoints.status(bmc, balanced({'ip': '192.0.2.1'}), live)
        self.assertEqual({'redfish', 'ipmi', 'route'}, set(found[
            'endpoints']))
        self.assertEqual(expected, found['endpoints']['route'])

    def test_certificate_names_both_services(self):
        bmc = bodies.bmc()
        own = endpoints.names(bmc, bodies.service())
        self.assertIn('node-virtbmc.lab.svc', own)
        self.assertNotIn('vm-virtbmc', ' '.join(own))
        self.assertEqual(
            {'vm-virtbmc', 'vm-virtbmc.lab', 'vm-virtbmc.lab.svc',
             'vm-virtbmc.lab.svc.cluster.local'},
            set(endpoints.names(bmc, bodies.service(), 'vm-virtbmc'))
            - set(own))

    def test_service_ip_is_cluster_ip(self):
        found = endpoints.status(bodies.bmc(**BALANCED),
                                 balanced({'ip': '192.0.2.1'}))
        self.assertEqual(('10.0.0.7', '10.0.0.7'),
                         (found['serviceIP'], found['clusterIP']))

    def test_reference_to_certificate_authority(self):
        for fields, expected in (
                ({}, {'configMap': 'node-virtbmc-ca', 'key': 'ca.crt'}),
                ({'redfish': {'plainHTTP': True}}, None),
                ({'redfish': {'tls': {'secretName': 'a'}}}, None)):
            with self.subTest(fields=fields):
                self.assertEqual(expected, endpoints.status(
                    bodies.bmc(**fields), bodies.service())['endpoints'][
                        'redfish'].get('certificateAuthority'))

    def test_names_in_certificate(self):
        internal = ('node-virtbmc.lab.svc', 'node-virtbmc', 'node-virtbmc.lab',
                    'node-virtbmc.lab.svc.cluster.local')
        self.assertEqual((*internal, '10.0.0.7'), endpoints.names(
            bodies.bmc(), bodies.service()))
        self.assertEqual((*internal, '10.0.0.7', '192.0.2.1'), endpoints.names(
            bodies.bmc(**BALANCED), balanced({'ip': '192.0.2.1'})))
        # Names of other Services are not accepted as a load balancer's name.
        self.assertEqual(
            (*internal, '10.0.0.7', 'lb.test', 'fd00::9'), endpoints.names(
                bodies.bmc(service={'type': 'LoadBalancer'}), balanced(*(
                    {'hostname': name} for name in (
                        'other-virtbmc.far.svc', 'Other-virtbmc.far.SVC.',
                        'other-virtbmc', 'a.far.svc.cluster.local',
                        'lb.test')), {'ip': 'fd00::9'})))
        self.assertEqual((*internal, '10.0.0.7'), endpoints.names(
            bodies.bmc(), balanced({'ip': '192.0.2.1'})))
