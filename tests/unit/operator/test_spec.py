# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

LAB = bodies.NAMESPACE


#: Networks that a NetworkPolicy may have, and others.
NETWORKS = ('0.0.0.0/0', '10.1.2.3/32', '::/0', '2001:DB8::/32', '::1/128',
            '2001:db8:0:1:2:3:4:0/112')
NO_NETWORKS = ('10.0.0.1/8', '010.0.0.0/8', '10.0.0.0/08', '10.0.0.0',
               '10.0.0.0/255.0.0.0', '2001:db8::1/64', 'fd00:1:2:3::/48',
               '::ffff:10.0.0.0/104', '::ffff:a00:0/104', 'fe80::%eth0/64',
               '10.0.0.0/33', 'everyone', '')

# (field of `spec.Bmc`, VirtualMachineBMC, expected value)
CASES = (
    ('vm', bodies.body(), objects.ObjectKey(LAB, 'vm')),
    ('vm', bodies.by_ref(), objects.ObjectKey(LAB, 'vm')),
    ('vm', bodies.cross_namespace(), objects.ObjectKey('far', 'vm')),
    ('auth', bodies.body(), None),
    ('by_ref', bodies.body(), False),
    ('by_ref', bodies.by_ref(), True),
    ('auth', bodies.by_ref(authSecretRef={'name': 'a'}),
     objects.ObjectKey(LAB, 'a')),
    ('auth', bodies.body(authSecret={'name': 'a'}),
     objects.ObjectKey(LAB, 'a')),
    ('auth', bodies.cross_namespace(), objects.ObjectKey('far', 'key')),
    ('ipmi', bodies.body(), True),
    ('ipmi', bodies.body(ipmi={'enabled': False}), False),
    ('ipmi_is_optional', bodies.body(), False),
    *(('ipmi_is_optional', bodies.by_ref(**fields), optional)
      for fields, optional in (
        ({}, True), ({'ipmi': {}}, True), ({'ipmi': {'enabled': True}}, False),
        ({'ipmi': {'enabled': False}}, False),
        ({'redfish': {'enabled': False}}, False),
        ({'bareMetalHost': {'protocol': 'IPMI'}}, False))),
    ('account_management', bodies.body(), True),
    ('account_management', bodies.body(accountManagement={}), True),
    ('account_management', bodies.body(
        accountManagement={'enabled': False}), False),
    ('redfish', bodies.body(), spec.Redfish()),
    ('redfish', bodies.body(redfish={'enabled': False}),
     spec.Redfish(enabled=False)),
    ('redfish', bodies.body(redfish={'plainHTTP': True}),
     spec.Redfish(plain=True)),
    ('redfish', bodies.by_ref(), spec.Redfish(both=True)),
    ('redfish', bodies.by_ref(redfish={'plainHTTP': True}),
     spec.Redfish(plain=True)),
    ('redfish', bodies.by_ref(redfish={'plainHTTP': False}), spec.Redfish()),
    ('redfish', bodies.by_ref(redfish={'enabled': False}),
     spec.Redfish(enabled=False)),
    ('redfish', bodies.body(redfish={'webPage': False}),
     spec.Redfish(web_page=False)),
    ('redfish', bodies.body(redfish={'tls': {'secretName': 'a'}}),
     spec.Redfish(secret='a')),
    ('service', bodies.body(), spec.Service()),
    ('service', bodies.body(redfish={'plainHTTP': True}),
     spec.Service(redfish_port=80)),
    ('service', bodies.body(service={
        'type': 'LoadBalancer', 'loadBalancerClass': 'c',
        'annotations': {'a': 'b'}, 'labels': {'c': 'd'},
        'ports': {'redfish': 1, 'ipmi': 2},
        'nodePorts': {'redfish': 3, 'ipmi': 4}}),
     spec.Service('LoadBalancer', 'c', {'a': 'b'}, {'c': 'd'}, 1, 2, 3, 4)),
    ('route', bodies.body(), None),
    ('route', bodies.body(route={
        'termination': 'reencrypt', 'annotations': {'a': 'b'},
        'labels': {'c': 'd'}}), spec.Route('reencrypt', {'a': 'b'},
                                           {'c': 'd'})),
    ('network_policy', bodies.body(), spec.NetworkPolicy()),
    ('network_policy', bodies.body(networkPolicy={
        'enabled': True, 'allowedCIDRs': ['10.0.0.0/8'],
        'allowedNamespaces': ['a']}),
     spec.NetworkPolicy(True, ('10.0.0.0/8',), ('a',))),
    # What Kubernetes refuses is not in the NetworkPolicy.
    ('network_policy', bodies.body(networkPolicy={
        'enabled': True, 'allowedCIDRs': [*NO_NETWORKS, '10.0.0.0/8']}),
     spec.NetworkPolicy(True, ('10.0.0.0/8',))),
    ('refused_networks', bodies.body(), ()),
    ('refused_networks', bodies.body(networkPolicy={
        'enabled': True, 'allowedCIDRs': [*NO_NETWORKS, *NETWORKS]}),
     NO_NETWORKS),
    ('refused_networks', bodies.body(networkPolicy={
        'allowedCIDRs': ['10.0.0.1/8']}), ()),
    ('media', bodies.body(), spec.Media()),
    ('host', bodies.body(), spec.Host()),
    ('host', bodies.body(bareMetalHost={'enabled': False,
                                        'protocol': 'IPMI'}),
     spec.Host(enabled=False, ipmi=True)),
    ('media', bodies.body(virtualMedia={
        'storageClassName': 's', 'accessMode': 'ReadWriteMany',
        'mode': 'import', 'allowedHosts': ['h'],
        'defaultSize': '4Gi', 'allowLoopback': True,
        'verifyCertificate': False, 'volumeMode': 'Block'}),
     spec.Media('s', 'ReadWriteMany', 'import', '4Gi', ('h',), True,
                False, 'Block')),
    # KubeVirtBMC's fields, alone and with those of the same meaning.
    *(('media', bodies.body(redfish={'virtualMedia': {
        'storage': {'storageClassName': 's', 'volumeMode': 'Block'},
        'tls': {'insecureSkipVerify': True,
                'caBundleConfigMapRef': {'name': 'ca'}}}}, **own),
       spec.Media('s', verify=False, volume_mode='Block',
                  ca_config_map='ca'))
      for own in ({}, {'virtualMedia': {
          'storageClassName': 's', 'volumeMode': 'Block',
          'verifyCertificate': False}})),
    ('media', bodies.body(redfish={'virtualMedia': {
        'storage': {'storageClassName': ''},
        'tls': {'insecureSkipVerify': False}}}), spec.Media()),
    *(('media', bodies.body(storageClassName='s', **own),
       spec.Media(storage_class='s')) for own in (
        {}, {'virtualMedia': {'storageClassName': 's'}})),
    ('media', bodies.body(storageClassName=''), spec.Media()),
    *(('media', bodies.body(
        virtualMedia={'verifyCertificate': verify}, redfish={
            'virtualMedia': {'tls': {'insecureSkipVerify': not verify}}}),
       spec.Media(verify=verify)) for verify in (True, False)),
    ('media', bodies.with_margin('20'), spec.Media(margin='20')),
    ('run_strategy', bodies.body(runStrategy='Always'), 'Always'),
    ('resources', bodies.body(resources={'ipmi': {}}), {'ipmi': {}}),
    ('image', bodies.body(image='i'), 'i'),
    ('node_selector', bodies.body(nodeSelector={'a': 'b'}), {'a': 'b'}),
    ('tolerations', bodies.body(tolerations=[{'key': 'a'}]),
     ({'key': 'a'},)),
    ('placement', bodies.body(placement='Shared'), 'Shared'),
    ('generation', bodies.body(), 3),
    ('uid', bodies.body(), bodies.UID),
    ('deleting', bodies.body(), False),
)


class SpecTestCase(base.BaseTestCase):

    def test_value_of_each_field(self):
        for field, body, expected in CASES:
            with self.subTest(field=field, spec=body['spec']):
                self.assertEqual(expected, getattr(spec.read(body), field))

    def test_every_field_has_a_case(self):
        self.assertEqual(
            set(), {field.name for field in dataclasses.fields(spec.Bmc)}
            - {case[0] for case in CASES} - {'name', 'namespace'})

    def test_every_field_of_a_field_has_a_case(self):
        values = {}
        for _field, _body, expected in CASES:
            if dataclasses.is_dataclass(expected):
                for field in dataclasses.fields(expected):
                    values.setdefault((type(expected), field.name), []).append(
                        getattr(expected, field.name))
        self.assertLess(20, len(values))
        # One case has the default; a Route has none.
        self.assertEqual([], [
            f'{kind.__name__}.{name}' for (kind, name), seen in values.items()
            if kind not in (objects.ObjectKey, spec.Route)
            and all(value == seen[0] for value in seen)])

    def test_size_margin(self):
        self.assertEqual(0, bodies.bmc().media.size_margin)
        for text, expected in (
                ('0', 0), ('20', 20), ('020', 20), ('1000', 1000),
                ('1001', None), ('-5', None), ('10%', None), ('', None),
                ('1.5', None), (' 5', None), ('5\n', None), ('\u0665', None),
                ('9' * 5000, None)):
            with self.subTest(text=text[:9]):
                self.assertEqual(expected, spec.read(
                    bodies.with_margin(text)).media.size_margin)

    def test_both_spellings_differ_in_compatibility_only(self):
        self.assertEqual(
            dataclasses.replace(
                spec.read(bodies.by_ref(authSecretRef={'name': 'a'})),
                by_ref=False, ipmi_is_optional=False, redfish=spec.Redfish()),
            spec.read(bodies.body(
                virtualMachine={'name': 'vm', 'namespace': LAB},
                authSecret={'name': 'a', 'namespace': LAB})))

    def test_deleting(self):
        body = bodies.body()
        body['metadata']['deletionTimestamp'] = '2026-11-21T14:00:00Z'
        self.assertTrue(spec.read(body).deleting)

    def test_tolerates_spec_without_required_fields(self):
        body = bodies.body()
        body['spec'] = {'virtualMachineRef': {'name': 'vm'},
                        'authSecretRef': {'name': ''}}
        self.assertEqual(('vm', None), (spec.read(body).vm.name,
                                        spec.read(body).auth))
        body['spec']['virtualMachineRef']['name'] = ''
        self.assertEqual('', spec.read(body).vm.name)
        del body['spec']
        self.assertEqual('', spec.read(body).vm.name)
