# SPDX-License-Identifier: Apache-2.0
"""The CustomResourceDefinition, validated by the sandbox's implementation."""

import pathlib

import yaml

from kubevirt_sandbox.testing import server
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

PATH = (pathlib.Path(__file__).parents[3]
        / 'etc/kubernetes/crd/virtualmachinebmc.yaml')

CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
BMCS = f'/apis/{naming.API_VERSION}/namespaces/default/{naming.PLURAL}'

VM = {'virtualMachineRef': {'name': 'vm'}}
OLD = {'virtualMachine': {'name': 'vm', 'namespace': 'far'}}

RANGES = 'service.beta.kubernetes.io/load-balancer-source-ranges'
TOPOLOGY = 'service.kubernetes.io/topology-'

# One character more than the prefix of a name may have.
LONG_PREFIX = 'x.' * 126 + 'xx'

# (spec, part of the error message)
REFUSED = (
    ({}, 'give either virtualMachineRef or virtualMachine'),
    ({**VM, **OLD}, 'give either virtualMachineRef or virtualMachine'),
    ({**VM, 'authSecret': {'name': 'a'}}, 'virtualMachineRef with authSec'),
    ({**OLD, 'authSecretRef': {'name': 'a'}}, 'virtualMachine goes with'),
    ({**VM, 'authSecretRef': {'name': 'a'}, 'authSecret': {'name': 'a'}},
     'give authSecretRef or authSecret, not both'),
    ({'virtualMachineRef': {'name': ''}}, 'at least 1 chars'),
    ({'virtualMachineRef': {}}, 'spec.virtualMachineRef.name: Required'),
    # The pod would not start with a name that no VM can have.
    ({'virtualMachineRef': {'name': 'VM_A'}}, 'should match'),
    ({'virtualMachine': {'name': 'a/b'}}, 'should match'),
    ({'virtualMachine': {'name': 'vm', 'namespace': ''}}, 'at least 1 char'),
    ({**VM, 'authSecretRef': {'name': ''}}, 'at least 1 chars'),
    ({**VM, 'ipmi': {'enabled': False}, 'redfish': {'enabled': False}},
     'enable ipmi, redfish or both'),
    ({**VM, 'redfish': {'plainHTTP': True, 'tls': {'secretName': 'a'}}},
     'plainHTTP has no use for tls'),
    ({**VM, 'redfish': {'tls': {}}}, 'secretName: Required'),
    ({**VM, 'service': {'type': 'ExternalName'}}, 'Unsupported value'),
    ({**VM, 'service': {'nodePorts': {'ipmi': 30623}}}, 'nodePorts need'),
    ({**VM, 'service': {'loadBalancerClass': 'a'}}, 'needs type LoadBal'),
    ({**VM, 'service': {'ports': {'ipmi': 0}}}, 'greater than or equal to 1'),
    ({**VM, 'service': {'ports': {'redfish': 65536}}}, 'less than or equal'),
    ({**VM, 'route': {}}, 'route.termination: Required'),
    ({**VM, 'route': {'termination': 'edge'}}, 'Unsupported value'),
    *(({**VM, 'route': {'termination': 'passthrough'}, 'redfish': redfish},
       'route needs redfish, without plainHTTP') for redfish in (
        {'enabled': False}, {'plainHTTP': True})),
    ({**VM, 'virtualMedia': {'mode': 'magic'}}, 'Unsupported value'),
    ({**VM, 'virtualMedia': {'allowedHosts': ['a', 'a']}}, 'Duplicate'),
    *(({**VM, 'networkPolicy': {'allowedCIDRs': ['10.0.0.0/8', text]}},
       'allowedCIDRs[1] in body must be of type cidr') for text in (
        '', '10.0.0.0', '10.0.0.0/33', '10.0.0/8', 'fd00::/129', 'everyone')),
    ({**VM, 'networkPolicy': {'allowedCIDRs': ['010.0.0.0/8']}},
     'allowedCIDRs[0] in body should match'),
    *(({**VM, 'networkPolicy': {'allowedCIDRs': [text]}}, 'should match')
      for text in ('10.0.0.0/08', '::ffff:10.0.0.0/104', 'fd00::/064')),
    *(({**VM, 'networkPolicy': {'allowedCIDRs': ['::/0', text]}},
       'allowedCIDRs[1]: Invalid value: "string": has bits behind its prefix')
      for text in ('10.0.0.1/8', '10.128.0.0/8', '10.1.1.128/24', '0.0.0.1/0',
                   '10.0.0.1/31', '2001:db8::1/64', '2001:db8::f:a/112')),
    *(({**VM, 'networkPolicy': {'allowedCIDRs': [text]}}, 'an IPv4 network')
      for text in ('::ffff:a00:0/104', '::FFFF:0:0/96')),
    *(({**VM, 'networkPolicy': {'allowedNamespaces': [text]}}, 'should match')
      for text in ('Lab', 'a.b', '*')),
    *(({**VM, 'virtualMedia': {'storageClassName': text}}, 'should match')
      for text in ('Fast', 'fast_ssd', '-fast', 'fast.', 'a b')),
    *(({**VM, 'virtualMedia': {'allowedHosts': [text]}}, 'schema (anyOf)')
      for text in ('10.0.0.0/33', '10.0.0', 'fd00::g', 'a b', 'a..b', '*.*.b',
                   'http://a', '-a.test', '.test', 'a/b')),
    *(({**VM, 'virtualMedia': {'defaultSize': text}}, 'should match')
      for text in ('', '0', '4 Gi', '4GB', '-1', '1e9', '1.5Gi', '4K')),
    *(({**VM, 'virtualMedia': {field: 'yes'}}, 'of type boolean')
      for field in ('allowLoopback', 'verifyCertificate')),
    *(({**VM, 'virtualMedia': {'accessMode': text}}, 'Unsupported value')
      for text in ('', 'ReadOnlyMany', 'Auto')),
    ({**VM, 'runStrategy': 'Halted'}, 'Unsupported value'),
    ({**VM, 'resources': {'ipmi': {'requests': {'cpu': 'much'}}}}, 'match'),
    *(({**VM, 'resources': {'bmc': {'requests': {'memory': text}}}}, 'match')
      for text in ('1K', '1e100', '-1', '1mi', '')),
    ({**VM, 'resources': {'bmc': {'limits': {'cpu': -1}}}},
     'greater than or equal to 0'),
    *(({**VM, 'resources': {'bmc': {'limits': {name: '1'}}}},
       'a container has no such resource')
      for name in ('cpus', 'storage', 'a b', 'a/b/c', '/b', 'hugepages-foo',
                   'hugepages-', 'hugepages-0', 'a..b/c', '.a/b',
                   'requests.a.test/x', f'{LONG_PREFIX[:245]}/x')),
    *(({**VM, 'resources': {'bmc': {kind: {'example.test/gpu': text}
                                    for kind in ('requests', 'limits')}}},
       'are whole numbers') for text in ('500m', '1.5', '0.5Ki', '9001T',
                                         '8Pi', '999P', '1E', '1e99',
                                         '99999999999999999999')),
    *(({**VM, 'resources': {'redfish': {kind: {'hugepages-2Mi': text}
                                        for kind in ('requests', 'limits')}}},
       'a multiple of their size') for text in ('3Mi', '2M', 1)),
    *(({**VM, 'resources': {'ipmi': resources}},
       'a request is at most its limit') for resources in (
        {'requests': {'cpu': 1}, 'limits': {'cpu': '999m'}},
        {'requests': {'memory': '1Gi'}, 'limits': {'memory': '1G'}},
        {'requests': {'example.test/gpu': 1}},
        {'requests': {'hugepages-2Mi': '2Mi'},
         'limits': {'hugepages-2Mi': '4Mi'}})),
    ({**VM, 'image': ''}, 'at least 1 chars'),
    *(({**VM, 'image': text}, 'should match') for text in (' a', 'a ', 'a b')),
    *(({**VM, 'nodeSelector': {'a': text}}, 'should match')
      for text in ('b c', '-', 'ä')),
    ({**VM, 'nodeSelector': {'a': 'x' * 64}}, 'more than 63'),
    *(({**VM, 'nodeSelector': {key: ''}}, 'keys of labels are names')
      for key in ('a b', 'a/b/c', '/a', 'A.test/b', 'x' * 64, '', 'a..b/c',
                  'a.-b/c', f'{LONG_PREFIX}/c')),
    ({**VM, 'tolerations': [{'effect': 'Maybe'}]}, 'Unsupported value'),
    *(({**VM, 'tolerations': [{'operator': 'Exists'}, toleration]}, message)
      for toleration, message in (
        ({'value': 'a'}, 'without key needs operator Exists'),
        ({'key': '', 'operator': 'Equal'}, 'without key needs operator Exi'),
        ({'key': 'a', 'operator': 'Exists', 'value': 'b'}, 'has no value'),
        ({'key': 'a', 'tolerationSeconds': 1}, 'needs effect NoExecute'),
        ({'key': 'a', 'tolerationSeconds': 1, 'effect': 'NoSchedule'},
         'needs effect NoExecute'),
        ({'key': 'a b'}, 'should match'),
        ({'key': 'a..b/c'}, 'should match'),
        ({'key': f'{LONG_PREFIX}/c'}, 'prefix of more than 253'),
        ({'key': 'a', 'value': 'b c'}, 'should match'))),
    *(({**VM, 'service': {'annotations': {key: ''}}}, 'keys of annotations')
      for key in ('no name!', 'a/b/c', '', 'x' * 64, 'a..b/c',
                  f'{LONG_PREFIX}/c')),
    *(({**VM, **{part: {**needed, 'annotations': {
        'a': 'x' * 150000, 'b': text}}}}, 'at most 255 KiB')
      for part, needed in (('service', {}),
                           ('route', {'termination': 'passthrough'}))
      for text in ('x' * 150000, 'ä' * 60000)),
    ({**VM, 'service': {'annotations': {
        TOPOLOGY + 'mode': 'Auto', TOPOLOGY + 'aware-hints': 'auto'}}},
     'have one value'),
    *(({**VM, 'service': {'type': 'LoadBalancer', 'annotations': {
        RANGES: text}}}, 'has networks such as') for text in (
        '10.0.0.0', '10.0.0.0/33', '10.0.0.256/32', '10.0.0.0/08', 'a',
        '10.0.0.0/8,', ',', '10.0.0.0/8 192.168.0.0/16', '010.0.0.0/8',
        'fd00::/129', '02001:db8::/32', ':::/8', '1:2/8', '1::2::3/8',
        '1:2:3:4:5:6:7:8:9/8', '1:2:3:4:5:6:7/8', 'fd00:/8',
        '1:2:3:4::5:6:7:8/64', '10.0.0.0/8, 1::2:3:4:5:6:7:8/64',
        '1:2:3:4:5:6:7::8/64', '1:2:3::4:5:6:7:8:9:a/64')),
    ({**VM, 'service': {'annotations': {RANGES: '10.0.0.0/8'}}},
     'needs type LoadBalancer'),
    *(({**VM, 'service': {'type': 'LoadBalancer', 'loadBalancerClass': text}},
       message) for text, message in (
        ('a b', 'should match'), ('a..b/c', 'should match'),
        (f'{LONG_PREFIX}/c', 'prefix of more than 253'))),
    *(({**VM, 'service': {'type': 'NodePort', **ports}},
       'a node port serves one port') for ports in (
        {'nodePorts': {'redfish': 30443, 'ipmi': 30443}},
        {'nodePorts': {'redfish': 30443, 'ipmi': 30443},
         'ports': {'redfish': 8443}})),
    *(({**VM, 'route': {'termination': 'passthrough', part: {'a b': 'c'}}},
       f'keys of {part}') for part in ('annotations', 'labels')),
    ({**VM, 'route': {'termination': 'passthrough', 'labels': {
        'a..b/c': ''}}}, 'keys of labels'),
    ({**VM, 'route': {'termination': 'passthrough', 'labels': {'a': 'b c'}}},
     'should match'),
    *(({**VM, 'authSecretRef': {'name': text}}, 'should match')
      for text in ('A', 'a/b', 'a..b', '-a')),
    ({**OLD, 'authSecret': {'name': 'a', 'namespace': 'a.b'}},
     'should match'),
    ({**VM, 'redfish': {'tls': {'secretName': 'a_b'}}}, 'should match'),
    ({'virtualMachineRef': {'name': 'a..b'}}, 'should match'),
    ({'virtualMachine': {'name': 'a', 'namespace': 'A'}}, 'should match'),
)


def media(storage=None, tls=None):
    """Return KubeVirtBMC's section on media."""
    return {'redfish': {'virtualMedia': {
        'storage': storage or {}, 'tls': tls or {}}}}


REFUSED += (
    *(({**VM, **media(alias), 'virtualMedia': {field: value}},
       f'virtualMedia.{field} and redfish.virtualMedia.storage.{field} differ')
      for field, value, alias in (
        ('storageClassName', 'a', {'storageClassName': 'b'}),
        ('storageClassName', 'a', {'storageClassName': ''}),
        ('volumeMode', 'Block', {'volumeMode': 'Filesystem'}))),
    *(({**VM, 'storageClassName': 'a', **other}, 'storageClassName differs')
      for other in ({'virtualMedia': {'storageClassName': 'b'}},
                    media({'storageClassName': 'b'}))),
    ({**VM, 'storageClassName': 'A'}, 'should match'),
    *(({**VM, **media(tls={'insecureSkipVerify': value}),
        'virtualMedia': {'verifyCertificate': value}},
       'virtualMedia.verifyCertificate and redfish.virtualMedia.tls.'
       'insecureSkipVerify contradict each other') for value in (True, False)),
    ({**OLD, **media(tls={'caBundleConfigMapRef': {'name': 'a'}})},
     'caBundleConfigMapRef needs a virtual machine of the BMC'),
    *(({**VM, **media(tls={'caBundleConfigMapRef': {'name': text}})},
       'should match') for text in ('a/b', 'A')),
    *(({**VM, **given}, 'Unsupported value') for given in (
        media({'volumeMode': 'block'}), {'virtualMedia': {'volumeMode': ''}})),
    ({**VM, **media({'storageClassName': 'a b'})}, 'should match'),
    *(({**VM, 'service': {'labels': {key: ''}}}, 'keys of labels are names')
      for key in ('a b', 'a/b/c', '', 'x' * 64, f'{LONG_PREFIX}/c')),
    *(({**VM, 'service': {'labels': {'a': text}}}, message)
      for text, message in (('b c', 'should match'),
                            ('x' * 64, 'more than 63'))),
    ({**VM, 'service': {'labels': {f'a{n}': '' for n in range(51)}}},
     'at most 50'),
)

# Every form of an entry that the emulator accepts.
HOSTS = ['*', '*.example.com', 'images', 'Images.Example.com.', 'my_host',
         'a-1.b-2', '1.2.3.4', 'fd00::1', '10.0.0.0/8', 'fd00::/8', '3com.com']

NETWORKS = ('0.0.0.0/0', '128.0.0.0/1', '10.0.0.0/8', '172.16.0.0/12',
            '10.1.1.128/25', '10.1.2.3/32', '255.255.255.254/31', '::/0',
            '2001:DB8::/32', 'fd00:1:2:3::/64', '::1/128',
            '2001:db8:0:1:2:3:4:0/112', '2001:db8::f:a/127')

ACCEPTED = (
    VM,
    OLD,
    {'virtualMachine': {'name': 'vm'}, 'authSecret': {'name': 'a'}},
    {'virtualMachineRef': {'name': '0.vm-a.b'}},
    {**OLD, 'authSecret': {'name': 'a', 'namespace': 'far'}},
    {**VM, 'authSecretRef': {'name': 'a'}, 'ipmi': {'enabled': False},
     'accountManagement': {'enabled': False},
     'redfish': {'tls': {'secretName': 'a'}, 'webPage': False},
     'service': {'type': 'LoadBalancer', 'loadBalancerClass': 'a.test/b',
                 'annotations': {'a': 'b'}, 'nodePorts': {'redfish': 30443},
                 'ports': {'redfish': 8443, 'ipmi': 6230}},
     'networkPolicy': {'enabled': True, 'allowedCIDRs': ['10.0.0.0/8'],
                       'allowedNamespaces': ['metal3']},
     'virtualMedia': {'storageClassName': 'a', 'mode': 'import',
                      'accessMode': 'ReadWriteMany',
                      'verifyCertificate': False,
                      'allowedHosts': ['*.test']},
     'runStrategy': 'Always', 'image': 'registry.test/virtbmc:1',
     'resources': {'redfish': {'requests': {'memory': '64Mi', 'cpu': 1}}},
     'nodeSelector': {'a': 'b'},
     'tolerations': [{'key': 'a', 'operator': 'Exists'}]},
    {**VM, 'redfish': {'plainHTTP': True}},
    {**VM, 'route': {'termination': 'passthrough'},
     'redfish': {'enabled': True, 'plainHTTP': False}},
    {**VM, 'route': {'termination': 'reencrypt', 'annotations': {'a': 'b'},
                     'labels': {'router': 'management'}}},
    {**VM, 'networkPolicy': {'allowedCIDRs': ['0.0.0.0/0', '::/0',
                                              'fd00:1::/64', '10.1.2.3/32'],
                             'allowedNamespaces': ['kube-system', '0']},
     'service': {'type': 'LoadBalancer', 'annotations': {
         RANGES: '10.0.0.0/8', 'a.test/B_c.d': ''},
         'ports': {'redfish': 623},
         'nodePorts': {'redfish': 30623, 'ipmi': 30623}},
     'resources': {'bmc': {
         'requests': {'cpu': '1.5', 'example.test/gpu': 1},
         'limits': {'cpu': 2, 'memory': '1e9', 'example.test/gpu': '1'}}},
     'nodeSelector': {'kubernetes.io/arch': 'amd64', 'a.test/role': '',
                      f'{LONG_PREFIX[:-1]}/c': ''},
     'tolerations': [{'key': 'a.test/b', 'value': 'c', 'effect': 'NoExecute',
                      'tolerationSeconds': 0}, {'operator': 'Exists'}],
     'virtualMedia': {
         'storageClassName': 'ceph.block-1', 'defaultSize': '4Gi',
         'allowLoopback': True, 'allowedHosts': HOSTS}},
)

ACCEPTED += (
    {**VM, 'service': {'annotations': {
        TOPOLOGY + 'mode': 'Auto', TOPOLOGY + 'aware-hints': 'Auto'}}},
    *({**VM, 'service': {'type': 'LoadBalancer', 'annotations': {
        RANGES: text, 'a.B/c': 'x' * 100000, 'd': 'x' * 160000}}} for text in (
        '', ' ', '10.0.0.0/8', ' 10.0.0.0/8 , fd00::/8,0.0.0.0/0 ',
        '10.0.0.1/8', '::/0,::1/128,1::/16', '1:2:3:4:5:6:7:8/128',
        '1:2:3:4:5:6:7::/112', '::2:3:4:5:6:7:8/128', '1:2::7:8/128',
        '::ffff:a00:1/104', '1:2:3:4::6:7:8/64,1::3:4:5:6:7:8/64,::/0')),
    *({**VM, 'resources': {part: {'requests': huge, 'limits': huge}}}
      for part in ('bmc', 'redfish', 'ipmi') for huge in (
        {'hugepages-2Mi': '4Mi', 'hugepages-1Gi': '1Gi'},
        {'hugepages-2Mi': 0, 'example.test/gpu': 2},
        {f'{LONG_PREFIX[-244:]}/gpu': '1k'},
        {'example.test/gpu': '9P'})),
)

ACCEPTED += (
    # All fields of KubeVirtBMC.
    {**VM, 'authSecretRef': {'name': 'a'}, 'ipmi': {'enabled': True},
     'service': {'type': 'NodePort', 'annotations': {'a': 'b'},
                 'labels': {'a.test/B_c.d': '', 'e': 'F-g.h_1'}},
     **media({'storageClassName': 'a', 'volumeMode': 'Block'},
             {'insecureSkipVerify': True,
              'caBundleConfigMapRef': {'name': 'a.b'}})},
    {**VM, **media({'storageClassName': ''}, {'insecureSkipVerify': False}),
     'virtualMedia': {'volumeMode': 'Filesystem'}},
    {**VM, **media({'storageClassName': 'a', 'volumeMode': 'Block'},
                   {'insecureSkipVerify': True}),
     'virtualMedia': {'storageClassName': 'a', 'volumeMode': 'Block',
                      'verifyCertificate': False}},
    # Its definition requires nothing below these.
    *({**VM, 'authSecretRef': {'name': 'a'}, **given} for given in (
        {'ipmi': {}, 'service': {}, 'redfish': {}},
        {'service': {'labels': {}, 'annotations': {}}},
        {'redfish': {'virtualMedia': {}}}, media(),
        *(media(tls={'caBundleConfigMapRef': reference})
          for reference in ({}, {'name': ''})))),
    {**VM, 'storageClassName': ''},
    {**VM, 'storageClassName': 'a', **media({'storageClassName': 'a'}),
     'virtualMedia': {'storageClassName': 'a'}},
    # A default of one field must not contradict the other.
    {**VM, **media(tls={'insecureSkipVerify': True}), 'virtualMedia': {}},
    {'virtualMachine': {'name': 'vm'},
     **media(tls={'caBundleConfigMapRef': {'name': 'a'}})},
)

# (spec before, spec after, part of the error message or None)
CHANGES = (
    (VM, {'virtualMachineRef': {'name': 'other'}}, 'cannot be changed'),
    (OLD, {'virtualMachine': {'name': 'vm', 'namespace': 'further'}},
     "virtual machine's namespace cannot be changed"),
    (VM, OLD, "virtual machine's namespace cannot be changed"),
    (VM, {'virtualMachine': {'name': 'vm'}}, None),
    (VM, {**VM, 'authSecretRef': {'name': 'a'}}, None),
    (VM, {**VM, 'ipmi': {'enabled': False}}, None),
)


class DefinitionTestCase(server.ServerTestCase):

    def cluster(self):
        return server.cluster(*server.WORKLOADS)

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.definition = yaml.safe_load(PATH.read_text())
        await self.call('POST', CRDS, self.definition, 201)

    async def make(self, given, expect, name='node'):
        body = bodies.body(name)
        body['metadata'] = {'name': name}
        body['spec'] = given
        return await self.call('POST', BMCS, body, expect)

    async def test_invalid_specs_are_refused(self):
        for given, message in REFUSED:
            with self.subTest(spec=given):
                body = await self.make(given, 422)
                self.assertIn(message, body['message'])

    async def test_valid_specs_are_stored_completely(self):
        for number, given in enumerate(ACCEPTED):
            with self.subTest(spec=given):
                made = await self.make(given, 201, f'node-{number}')
                for field, value in given.items():
                    stored = made['spec'][field]
                    if isinstance(value, dict):
                        # Defaults are added.
                        stored = {key: stored[key] for key in value}
                    self.assertEqual(value, stored)
                self.assertEqual(
                    given.get('service', {}).get('type', 'ClusterIP'),
                    made['spec']['service']['type'])

    async def test_objects_of_valid_specs_are_accepted(self):
        for number, given in enumerate(ACCEPTED):
            body = bodies.body(f'node-{number}')
            body['metadata']['namespace'] = 'default'
            body['spec'] = given
            bmc = spec.read(body)
            with self.subTest(spec=given):
                for path, made in (
                        ('/api/v1/namespaces/default/services',
                         network.service(bmc)),
                        ('/apis/apps/v1/namespaces/default/deployments',
                         deployments.deployment(
                             bmc, deployments.Defaults('a')))):
                    await self.call('POST', path, plan.marked(made), 201)

    async def test_names_of_shared_pods_are_refused(self):
        # The BMC's objects would have the names of the pod's.
        self.assertEqual(naming.shared(0),
                         naming.base(naming.SHARED_PREFIX + '0'))
        body = await self.make(VM, 422, naming.SHARED_PREFIX + '0')
        self.assertIn('choose another name', body['message'])

    async def test_immutable_fields(self):
        for number, (old, new, message) in enumerate(CHANGES):
            with self.subTest(old=old, new=new):
                made = await self.make(old, 201, f'node-{number}')
                made['spec'] = new
                body = await self.call(
                    'PUT', f'{BMCS}/node-{number}', made,
                    422 if message else 200)
                if message:
                    self.assertIn(message, body['message'])

    async def test_status_and_columns(self):
        made = await self.make(VM, 201)
        made['status'] = {
            'virtualMachine': 'vm', 'serviceIP': '10.0.0.7',
            'clusterIP': '10.0.0.7', 'loadBalancerIP': '192.0.2.1',
            'observedGeneration': 1, 'authSecret': 'key',
            'bootOverride': {
                'mode': 'Oneshot', 'vmiUID': 'u', 'originalFirmware': 'UEFI',
                'bootOrders': {'disk:root': 1, 'interface:default': 0}},
            'endpoints': {'ipmi': {'address': '10.0.0.7:623',
                                   'host': '10.0.0.7', 'port': 623},
                          'redfish': {'url': 'https://10.0.0.7/'},
                          'route': {'host': 'node.apps.test',
                                    'url': 'https://node.apps.test/'}},
            'bareMetalHost': {'name': 'node', 'uid': 'u', 'paused': True,
                              'state': 'provisioned',
                              'consumer': 'HostClaim/team/c'},
            'conditions': [{
                'type': type_, 'status': status, 'reason': 'ServiceReady',
                'message': 'm', 'lastTransitionTime':
                    '2026-11-21T14:00:00Z', 'observedGeneration': 1}
                for type_, status in (('ServiceReady', 'Unknown'),
                                      ('Ready', 'True'))]}
        stored = await self.call('PUT', BMCS + '/node/status', made, 200)
        self.assertEqual(made['status'], stored['status'])
        table = await self.call('GET', BMCS, expect=200, headers={
            'Accept': 'application/json;as=Table;v=v1;g=meta.k8s.io'})
        # Those of KubeVirtBMC first, so that positions are the same.
        columns = table['columnDefinitions'][1:]
        self.assertEqual(
            ['VIRTUALMACHINE', 'SECRET', 'CLUSTERIP', 'SERVICEREADY', 'READY',
             'AGE'],
            [column['name'] for column in columns if not column['priority']])
        # kubectl shows the others with --output wide.
        self.assertEqual(
            ['IPMI', 'REDFISH', 'ROUTE', 'HOST', 'HOST STATE', 'CONSUMER',
             'PLACEMENT'],
            [column['name'] for column in columns if column['priority']])
        self.assertEqual(
            ['node', 'vm', 'key', '10.0.0.7', 'Unknown', '10.0.0.7:623',
             'https://10.0.0.7/', 'node.apps.test', 'node', 'provisioned',
             'HostClaim/team/c', None, 'True'],
            table['rows'][0]['cells'][:13])

    async def test_invalid_validation_rule_is_refused(self):
        schema = self.definition['spec']['versions'][0]['schema'][
            'openAPIV3Schema']
        schema['x-kubernetes-validations'] = [{'rule': 'self ==== 1'}]
        self.definition['metadata']['resourceVersion'] = (
            await self.call(
                'GET', f"{CRDS}/{self.definition['metadata']['name']}",
                expect=200)
        )['metadata']['resourceVersion']
        body = await self.call(
            'PUT', f"{CRDS}/{self.definition['metadata']['name']}",
            self.definition, 422)
        self.assertIn('compilation failed', body['message'])

    def test_each_field_has_a_description(self):
        def fields(schema, path):
            for name, below in schema.get('properties', {}).items():
                yield f'{path}.{name}', below
                yield from fields(below, f'{path}.{name}')

        schema = self.definition['spec']['versions'][0]['schema'][
            'openAPIV3Schema']['properties']['spec']
        self.assertEqual([], [path for path, below in fields(schema, 'spec')
                              if not below.get('description')])

    def test_emulator_accepts_valid_hosts(self):
        self.assertEqual('', spec.wrong_hosts(bodies.bmc(
            virtualMedia={'allowedHosts': HOSTS})))

    async def test_networks_that_the_operator_accepts(self):
        for number, text in enumerate(NETWORKS):
            with self.subTest(text):
                self.assertTrue(spec.is_network(text))
                await self.make({**VM, 'networkPolicy': {
                    'allowedCIDRs': [text]}}, 201, f'node-{number}')

    def test_names(self):
        found = self.definition['spec']
        self.assertEqual(
            (naming.GROUP, naming.KIND, naming.PLURAL, naming.VERSION),
            (found['group'], found['names']['kind'], found['names']['plural'],
             found['versions'][0]['name']))
        self.assertEqual(['vmbmc', 'vmbmcs'], found['names']['shortNames'])
