# SPDX-License-Identifier: Apache-2.0
"""Values that an API server of Kubernetes 1.36 and later refuses."""

import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import field_rules
from kubevirt_sandbox.api import network_rules
from kubevirt_sandbox.workloads import workload_kinds
from tests.unit.api import base

#: (network, part of the reason why it is refused; None if it is not)
NETWORKS = (
    ('10.0.0.0/8', None), ('0.0.0.0/0', None), ('10.0.0.1/32', None),
    ('2001:db8::/32', None), ('2001:DB8:0::/32', None), ('::/0', None),
    ('10.0.0.1/8', 'bits set'), ('2001:db8::1/64', 'bits set'),
    ('010.0.0.0/8', 'leading 0s'), ('10.0.0.0/08', 'leading 0s'),
    ('::ffff:10.0.0.0/104', 'IPv4-mapped'),
    ('10.0.0.0', 'valid CIDR'), ('10.0.0.0/33', 'valid CIDR'),
    ('10.0.0.0/255.0.0.0', 'valid CIDR'), ('fe80::%eth0/64', 'valid CIDR'),
    ('', 'valid CIDR'), ('a/8', 'valid CIDR'))

ADDRESSES = (
    ('10.0.0.1', None), ('2001:db8::1', None),
    ('010.0.0.1', 'leading 0s'), ('::ffff:10.0.0.1', 'IPv4-mapped'),
    ('fe80::1%eth0', 'valid IP'), ('10.0.0', 'valid IP'))


def policy(**peer):
    return {'podSelector': {}, 'ingress': [{'from': [peer]}]}


def block(cidr, *parts):
    return policy(ipBlock={'cidr': cidr, **(
        {'except': list(parts)} if parts else {})})


def ports(**port):
    return {'podSelector': {}, 'egress': [{'ports': [port]}]}


#: (kind, spec, field of the cause; None if the spec is accepted)
SPECS = (
    (workload_kinds.NETWORK_POLICY, block('10.0.0.0/8', '10.1.0.0/16'), None),
    (workload_kinds.NETWORK_POLICY, block('10.0.0.1/8'),
     'spec.ingress[0].from[0].ipBlock.cidr'),
    (workload_kinds.NETWORK_POLICY, block('10.0.0.0/8', '11.0.0.0/16'),
     'spec.ingress[0].from[0].ipBlock.except[0]'),
    (workload_kinds.NETWORK_POLICY, block('10.0.0.0/8', '10.0.0.0/8'),
     'spec.ingress[0].from[0].ipBlock.except[0]'),
    (workload_kinds.NETWORK_POLICY, block(''),
     'spec.ingress[0].from[0].ipBlock.cidr'),
    (workload_kinds.NETWORK_POLICY, policy(), 'spec.ingress[0].from[0]'),
    (workload_kinds.NETWORK_POLICY, policy(
        ipBlock={'cidr': '10.0.0.0/8'}, podSelector={}),
     'spec.ingress[0].from[0]'),
    (workload_kinds.NETWORK_POLICY, policy(
        podSelector={'matchLabels': {'a b': 'c'}}),
     'spec.ingress[0].from[0].podSelector.matchLabels'),
    *((workload_kinds.NETWORK_POLICY, {'podSelector': {'matchExpressions': [
        {'key': 'a', **term}]}}, field and (
            f'spec.podSelector.matchExpressions[0].{field}'))
      for term, field in (
          ({'operator': 'In', 'values': ['b', '']}, None),
          ({'operator': 'Exists'}, None),
          ({'operator': 'NotIn'}, 'values'),
          ({'operator': 'Exists', 'values': ['b']}, 'values'),
          ({'operator': 'in', 'values': ['b']}, 'operator'),
          ({'operator': 'In', 'values': ['b c']}, 'values[0]'),
          ({'operator': 'Exists', 'key': 'b c'}, 'key'))),
    (workload_kinds.NETWORK_POLICY, policy(namespaceSelector={
        'matchExpressions': [{'key': 'a'}]}),
     'spec.ingress[0].from[0].namespaceSelector.matchExpressions[0].operator'),
    (workload_kinds.NETWORK_POLICY, ports(port=443, endPort=500), None),
    (workload_kinds.NETWORK_POLICY, ports(port='https'), None),
    (workload_kinds.NETWORK_POLICY, ports(port=0),
     'spec.egress[0].ports[0].port'),
    (workload_kinds.NETWORK_POLICY, ports(port='redfish', endPort=500),
     'spec.egress[0].ports[0].endPort'),
    (workload_kinds.NETWORK_POLICY, ports(port=443, endPort=80),
     'spec.egress[0].ports[0].endPort'),
    (workload_kinds.NETWORK_POLICY, ports(protocol='ICMP'),
     'spec.egress[0].ports[0].protocol'),
    (workload_kinds.NETWORK_POLICY, {'policyTypes': ['Both']},
     'spec.policyTypes[0]'),
    (workload_kinds.INGRESS, {}, 'spec'),
    (workload_kinds.INGRESS, {'rules': [{'host': 'a.test'}]}, None),
    (workload_kinds.INGRESS, {'rules': [{'host': '*.a.test'}]}, None),
    (workload_kinds.INGRESS, {'rules': [{'host': '10.0.0.1'}]},
     'spec.rules[0].host'),
    (workload_kinds.INGRESS, {'rules': [{'host': 'A.test'}]},
     'spec.rules[0].host'),
    (workload_kinds.INGRESS, {'rules': [{'http': {'paths': [{
        'pathType': 'Prefix', 'path': 'x', 'backend': {'service': {
            'name': '0-bmc', 'port': {'number': 443}}}}]}}]},
     'spec.rules[0].http.paths[0].path'),
    (workload_kinds.INGRESS, {'rules': [{'http': {'paths': [{
        'pathType': 'Prefix', 'path': '/', 'backend': {'service': {
            'name': 'bmc', 'port': {}}}}]}}]},
     'spec.rules[0].http.paths[0].backend'),
    (workload_kinds.INGRESS, {'rules': [{}], 'tls': [{'hosts': ['a_b']}]},
     'spec.tls[0].hosts[0]'),
    (core.LEASE, {'leaseDurationSeconds': 0}, 'spec.leaseDurationSeconds'),
    (core.LEASE, {'leaseTransitions': -1}, 'spec.leaseTransitions'),
    (core.SERVICE, {'ports': [{'port': 1, 'nodePort': 30000}]},
     'spec.ports[0].nodePort'),
    (core.SERVICE, {'type': 'NodePort', 'ports': [
        {'name': 'a', 'port': 1, 'nodePort': 30000},
        {'name': 'b', 'port': 2, 'nodePort': 30000}]},
     'spec.ports[1].nodePort'),
    (core.SERVICE, {'ports': [{'name': 'a', 'port': 1},
                              {'name': 'b', 'port': 1}]}, 'spec.ports[1]'),
    (core.SERVICE, {'ports': [{'port': 1, 'targetPort': 'Redfish'}]},
     'spec.ports[0].targetPort'),
    (core.SERVICE, {'ports': [{'port': 1, 'appProtocol': 'a b'}]},
     'spec.ports[0].appProtocol'),
    (core.SERVICE, {'ports': [{'port': 1}], 'selector': {'a': 'b c'}},
     'spec.selector'),
    (core.SERVICE, {'ports': [{'port': 1}], 'sessionAffinity': 'Some'},
     'spec.sessionAffinity'),
    (core.SERVICE, {'ports': [{'port': 1}], 'externalIPs': ['010.0.0.1']},
     'spec.externalIPs[0]'),
    (core.SERVICE, {'ports': [{'port': 1}], 'type': 'LoadBalancer',
                    'loadBalancerClass': 'a class'},
     'spec.loadBalancerClass'),
    (core.SERVICE, {'ports': [{'port': 1}], 'type': 'LoadBalancer',
                    'loadBalancerSourceRanges': ['10.0.0.1/8']},
     'spec.LoadBalancerSourceRanges'),
)

RANGES = 'service.beta.kubernetes.io/load-balancer-source-ranges'
MODE = 'service.kubernetes.io/topology-mode'
HINTS = 'service.kubernetes.io/topology-aware-hints'


def pod(image='i', resources=None, **spec):
    return {'containers': [{'name': 'c', 'image': image,
                            'resources': resources or {}}], **spec}


def tolerating(**toleration):
    return pod(tolerations=[toleration])


#: (spec of a pod, field of the cause without the path of the spec)
PODS = (
    (pod(), None), (pod(image=' i'), 'containers[0].image'),
    (pod(nodeSelector={'a/b/c': ''}), 'nodeSelector'),
    (pod(nodeSelector={'a': 'b c'}), 'nodeSelector'),
    (tolerating(key='a', value='b', effect='NoExecute', tolerationSeconds=1),
     None),
    (tolerating(operator='Exists'), None),
    (tolerating(value='b'), 'tolerations[0].operator'),
    (tolerating(key='a b', value='b'), 'tolerations[0].key'),
    (tolerating(key='a', value='b c'), 'tolerations[0].value'),
    (tolerating(key='a', operator='Exists', value='b'),
     'tolerations[0].operator'),
    (tolerating(key='a', effect='NoSchedule', tolerationSeconds=1),
     'tolerations[0].effect'),
    (pod(resources={'requests': {'cpu': '2'}, 'limits': {'cpu': '1'}}),
     'containers[0].resources.requests'),
    (pod(resources={'requests': {'cpus': '1'}}),
     'containers[0].resources.requests'),
    (pod(resources={'requests': {'memory': '-1'}}),
     'containers[0].resources.requests[memory]'),
    (pod(resources={'limits': {'example.com/gpu': '500m'}}),
     'containers[0].resources.limits[example.com/gpu]'),
    (pod(resources={'requests': {'example.com/gpu': '1'}}),
     'containers[0].resources.limits'),
    (pod(resources={'limits': {'hugepages-2Mi': '2Mi'}}),
     'containers[0].resources'),
    (pod(resources={'limits': {'requests.example.com/gpu': '1'}}),
     'containers[0].resources.limits'),
    *((pod(resources={'limits': {'cpu': '1', name: amount}}), None if valid
       else f'containers[0].resources.limits[{name}]')
      for name, amount, valid in (
        ('hugepages-2Mi', '4Mi', True), ('hugepages-2Mi', '0', True),
        ('hugepages-2Mi', '3Mi', False), ('hugepages-0', '2Mi', False),
        ('hugepages-a', '2Mi', False))),
    (pod(serviceAccountName='A'), 'serviceAccountName'),
    (pod(volumes=[{'name': 'v', 'secret': {}}]),
     'volumes[0].secret.secretName'),
)


class FieldRulesTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        server = base.cluster()
        for kind in workload_kinds.KINDS:
            server.register_kind(kind)
        self.store = server.store

    def check(self, kind, spec, field, name='a', **metadata):
        """Create an object and compare the field that is refused."""
        obj = {'metadata': {'name': name, 'namespace': 'default', **metadata},
               'spec': spec}
        if field is None:
            self.store.create(kind, obj)
            self.store.delete(kind, 'default', name)
            return
        with self.assertRaises(errors.ApiError) as caught:
            self.store.create(kind, obj)
        self.assertEqual(422, caught.exception.code)
        self.assertIn(field, [cause['field'] for cause in (
            caught.exception.status()['details']['causes'])])

    def test_networks_and_addresses(self):
        for rule, cases in ((field_rules.cidr, NETWORKS),
                            (field_rules.ip, ADDRESSES)):
            for value, part in cases:
                with self.subTest(value):
                    why = rule(value)
                    if part is None:
                        self.assertIsNone(why)
                    else:
                        self.assertIn(part, why)

    def test_specs(self):
        for kind, spec, field in SPECS:
            with self.subTest(kind=kind.kind, spec=spec):
                self.check(kind, spec, field)

    def test_pods_and_templates(self):
        for spec, field in PODS:
            with self.subTest(spec=spec):
                self.check(core.POD, spec, field and 'spec.' + field)
                self.check(workload_kinds.DEPLOYMENT, {
                    'selector': {'matchLabels': {'a': 'b'}}, 'template': {
                        'metadata': {'labels': {'a': 'b'}}, 'spec': spec}},
                    field and 'spec.template.spec.' + field)

    def test_an_invalid_network_that_was_there_before_stays(self):
        """An API server that was upgraded keeps what it has."""
        old = {'metadata': {'name': 'a'}, 'spec': block('10.0.0.1/8')}
        new = {**old, 'spec': block('10.0.0.1/8', '10.1.0.0/16')}
        self.assertEqual([], network_rules.policy_faults(new, old))
        self.assertTrue(network_rules.policy_faults(new, None))

    def test_a_policy_restricts_what_it_has_rules_for(self):
        for spec, types in ((block('10.0.0.0/8'), ['Ingress']),
                            (ports(port=1), ['Ingress', 'Egress'])):
            created = self.store.create(workload_kinds.NETWORK_POLICY, {
                'metadata': {'name': 'a' * len(types),
                             'namespace': 'default'}, 'spec': spec})
            self.assertEqual(types, created['spec']['policyTypes'])

    def test_source_ranges_by_annotation(self):
        port = [{'port': 1}]
        for type_, text, valid in (
                ('LoadBalancer', '10.0.0.0/8, 11.0.0.0/8', True),
                ('LoadBalancer', '10.0.0.1/8', False),
                ('ClusterIP', '10.0.0.0/8', False), ('ClusterIP', '', False)):
            with self.subTest(type=type_, text=text):
                self.check(
                    core.SERVICE, {'type': type_, 'ports': port},
                    None if valid else f'metadata.annotations[{RANGES}]',
                    annotations={RANGES: text})

    def test_names_of_an_annotation_have_one_value(self):
        for mode, field in (
                ('Auto', None), ('Disabled', f'metadata.annotations[{MODE}]')):
            self.check(core.SERVICE, {'ports': [{'port': 80}]}, field,
                       annotations={MODE: mode, HINTS: 'Auto'})

    def test_a_service_name_is_a_label(self):
        for name, valid in (('0-a', True), ('a.b', False), ('A', False),
                            ('a' * 64, False)):
            with self.subTest(name):
                self.check(core.SERVICE, {'ports': [{'port': 1}]},
                           None if valid else 'metadata.name', name)

    def test_times_with_another_precision_are_not_read(self):
        for time, code in (('2026-11-27T10:00:00.000000Z', None),
                           ('2026-11-27T10:00:00.000000+00:00', None),
                           ('2026-11-27T10:00:00Z', 400),
                           ('2026-11-27T10:00:00.1Z', 400),
                           ('2026-11-27t10:00:00.000000Z', 400),
                           ('2026-11-27 10:00:00.000000Z', 400),
                           ('2026-11-27T10:00:00.000000', 400), ('now', 400)):
            with self.subTest(time):
                lease = {'metadata': {'name': 'l', 'namespace': 'default'},
                         'spec': {'renewTime': time}}
                if code is None:
                    self.store.create(core.LEASE, lease)
                    self.store.delete(core.LEASE, 'default', 'l')
                    continue
                with self.assertRaises(errors.ApiError) as caught:
                    self.store.create(core.LEASE, lease)
                self.assertEqual(code, caught.exception.code)
