# SPDX-License-Identifier: Apache-2.0
"""Defaults and validation of built-in kinds."""

from oslotest import base

from kubevirt_sandbox.api import admission_policies
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import store
from kubevirt_sandbox.api import volumes
from kubevirt_sandbox.workloads import workload_kinds
from tests.unit.api import base as api


class BuiltinWritesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.server = api.cluster()
        for kind in workload_kinds.KINDS:
            self.server.register_kind(kind)
        self.store = self.server.store

    def make(self, kind, spec, name='a', unknown=None):
        obj = {'metadata': {'name': name, 'namespace': 'default'},
               'spec': spec}
        return self.store.create(
            kind, obj, write=store.Write(unknown=unknown))

    def deployment(self, container, unknown=None, name='a', **pod):
        spec = {'containers': [{'name': 'c', 'image': 'i:1', **container}],
                **pod}
        return self.make(workload_kinds.DEPLOYMENT, {
            'selector': {'matchLabels': {'a': 'b'}}, 'template': {
                'metadata': {'labels': {'a': 'b'}}, 'spec': spec}},
            name, unknown)['spec']['template']['spec']

    def test_normalizes_quantities(self):
        made = self.deployment({'resources': {
            'limits': {'cpu': '1000m', 'memory': '1024Mi'},
            'requests': {'cpu': 0.5, 'memory': 1000}}})
        self.assertEqual({'limits': {'cpu': '1', 'memory': '1Gi'},
                          'requests': {'cpu': '500m', 'memory': '1k'}},
                         made['containers'][0]['resources'])
        exc = self.assertRaises(errors.ApiError, self.deployment, {
            'resources': {'limits': {'cpu': 'much'}}}, name='b')
        self.assertEqual(400, exc.code)

    def test_omits_empty_values(self):
        made = self.deployment(
            {'args': [], 'workingDir': '', 'stdin': False,
             'env': [{'name': 'X', 'value': ''}],
             'securityContext': {'readOnlyRootFilesystem': False},
             'volumeMounts': [{'name': 'v', 'mountPath': '/v',
                               'readOnly': False}],
             'readinessProbe': {'exec': {'command': ['true']},
                                'initialDelaySeconds': 0}},
            tolerations=[], nodeSelector={}, hostNetwork=False,
            volumes=[{'name': 'v', 'emptyDir': {}}])
        for name in ('tolerations', 'nodeSelector', 'hostNetwork'):
            self.assertNotIn(name, made)
        # Pointers and objects that are present are not empty.
        self.assertEqual([{'name': 'v', 'emptyDir': {}}], made['volumes'])
        one = made['containers'][0]
        self.assertEqual({'readOnlyRootFilesystem': False},
                         one['securityContext'])
        for name in ('args', 'workingDir', 'stdin'):
            self.assertNotIn(name, one)
        self.assertEqual([{'name': 'X'}], one['env'])
        self.assertEqual([{'name': 'v', 'mountPath': '/v'}],
                         one['volumeMounts'])
        self.assertNotIn('initialDelaySeconds', one['readinessProbe'])

    def test_fills_in_defaults(self):
        made = self.deployment({
            'ports': [{'containerPort': 1}],
            'readinessProbe': {'httpGet': {'port': 1}},
            'env': [{'name': 'X', 'valueFrom': {
                'fieldRef': {'fieldPath': 'status.podIP'}}}]},
            volumes=[{'name': 's', 'secret': {'secretName': 's'}}])
        self.assertEqual(
            ('ClusterFirst', 'Always', 'default-scheduler', 30, {}),
            tuple(made[name] for name in (
                'dnsPolicy', 'restartPolicy', 'schedulerName',
                'terminationGracePeriodSeconds', 'securityContext')))
        one = made['containers'][0]
        self.assertEqual('IfNotPresent', one['imagePullPolicy'])
        self.assertEqual([{'containerPort': 1, 'protocol': 'TCP'}],
                         one['ports'])
        self.assertEqual(
            {'httpGet': {'port': 1, 'path': '/', 'scheme': 'HTTP'},
             'timeoutSeconds': 1, 'periodSeconds': 10, 'successThreshold': 1,
             'failureThreshold': 3}, one['readinessProbe'])
        self.assertEqual('v1', one['env'][0]['valueFrom']['fieldRef'][
            'apiVersion'])
        self.assertEqual(0o644, made['volumes'][0]['secret']['defaultMode'])

    def test_reports_unknown_fields(self):
        unknown = []
        self.deployment({'imagePolicy': 'Always'}, unknown, hostNet=True)
        self.assertEqual(['spec.template.spec.containers[0].imagePolicy',
                          'spec.template.spec.hostNet'], sorted(unknown))

    def test_service_defaults_depend_on_type(self):
        ports = [{'port': 80}]
        made = self.make(core.SERVICE, {'ports': ports})
        self.assertEqual(
            ('ClusterIP', 'Cluster', ['IPv4'], 'SingleStack', 'None'),
            tuple(made['spec'][name] for name in (
                'type', 'internalTrafficPolicy', 'ipFamilies',
                'ipFamilyPolicy', 'sessionAffinity')))
        self.assertEqual([{'port': 80, 'targetPort': 80, 'protocol': 'TCP'}],
                         made['spec']['ports'])
        self.assertEqual({'loadBalancer': {}}, made['status'])
        self.assertNotIn('externalTrafficPolicy', made['spec'])
        empty = self.make(core.SERVICE, {
            'ports': [{'port': 80, 'targetPort': 0, 'protocol': ''}],
            'type': '', 'sessionAffinity': ''}, 'empty')['spec']
        for field in 'ports', 'type', 'sessionAffinity':
            self.assertEqual(made['spec'][field], empty[field])

        def turn(kind):
            return self.store.change(
                core.SERVICE, 'default', 'a',
                lambda obj: obj['spec'].update(type=kind))['spec']
        self.assertEqual(
            ('Cluster', True), tuple(turn('LoadBalancer')[name] for name in (
                'externalTrafficPolicy', 'allocateLoadBalancerNodePorts')))
        self.store.change(
            core.SERVICE, 'default', 'a', lambda obj: obj['spec'].update(
                externalTrafficPolicy='Local', healthCheckNodePort=30000))
        self.assertEqual(made['spec'], turn('ClusterIP'))

    def test_rejects_invalid_services(self):
        port = {'port': 80, 'protocol': 'TCP'}
        for spec, field in (
                ({}, 'spec.ports'),
                ({'ports': [port, {'port': 81}]}, 'spec.ports[0].name'),
                ({'ports': [{'port': 0}]}, 'spec.ports[0].port'),
                ({'ports': [{'port': 1, 'protocol': 'ICMP'}]},
                 'spec.ports[0].protocol'),
                ({'ports': [port], 'type': 'Other'}, 'spec.type'),
                ({'ports': [port], 'externalTrafficPolicy': 'Local'},
                 'spec.externalTrafficPolicy'),
                ({'ports': [port], 'healthCheckNodePort': 30000},
                 'spec.healthCheckNodePort'),
                ({'ports': [port], 'allocateLoadBalancerNodePorts': True},
                 'spec.allocateLoadBalancerNodePorts'),
                ({'ports': [port], 'externalIPs': ['127.0.0.1']},
                 'spec.externalIPs[0]'),
                ({'ports': [port], 'loadBalancerClass': 'a/b'},
                 'spec.loadBalancerClass')):
            with self.subTest(field):
                exc = self.assertRaises(errors.ApiError, self.make,
                                        core.SERVICE, spec, 'b')
                self.assertIn(field, [
                    c['field'] for c in exc.status()['details']['causes']])
        exc = self.assertRaises(errors.ApiError, self.make, core.SERVICE,
                                {'ports': [port]}, 'a.b')
        self.assertIn('RFC 1123 label', str(exc))

    def test_rejects_invalid_secrets_and_config_maps(self):
        def put(kind, name='s', **fields):
            obj = {'metadata': {'name': name, 'namespace': 'default'},
                   **fields}
            if self.store.find(kind, 'default', name):
                return self.store.update(kind, obj)
            return self.store.create(kind, obj)

        def rejected_fields(kind, name='s', **fields):
            exc = self.assertRaises(errors.ApiError, put, kind, name,
                                    **fields)
            return [c['field'] for c in exc.status()['details']['causes']]
        put(core.SECRET, stringData={'a': 'b'})
        self.assertEqual(
            ['metadata.annotations[kubernetes.io/service-account.name]',
             'type'], rejected_fields(
                core.SECRET, type='kubernetes.io/service-account-token',
                stringData={'a': 'b'}))
        put(core.SECRET, stringData={'a': 'c'}, immutable=True)
        self.assertEqual(['data'], rejected_fields(
            core.SECRET, stringData={'a': 'd'}, immutable=True))
        self.assertEqual(['immutable'], rejected_fields(
            core.SECRET, stringData={'a': 'c'}))
        self.assertEqual(['data[tls.key]'], rejected_fields(
            core.SECRET, 't', type='kubernetes.io/tls',
            stringData={'tls.crt': ''}))
        self.assertEqual(['data[username]', 'data[password]'], rejected_fields(
            core.SECRET, 't', type='kubernetes.io/basic-auth'))
        self.assertEqual(['data[a/b]'], rejected_fields(
            core.SECRET, 't', stringData={'a/b': ''}))
        put(core.SECRET, 'large', stringData={'a': 'x' * 2 ** 20})
        self.assertEqual(['data'], rejected_fields(
            core.SECRET, 't', stringData={'a': 'x' * 2 ** 20 + 'x'}))
        put(core.CONFIG_MAP, data={'a': 'b'}, immutable=True)
        self.assertEqual(['data', 'binaryData'], rejected_fields(
            core.CONFIG_MAP, immutable=True, binaryData={'c': 'ZA=='}))
        self.assertEqual(['data[..]'], rejected_fields(
            core.CONFIG_MAP, 't', data={'..': ''}))
        self.assertEqual(['data[a]'], rejected_fields(
            core.CONFIG_MAP, 't', data={'a': ''}, binaryData={'a': ''}))
        self.assertEqual(['data[ssh-privatekey]'], rejected_fields(
            core.SECRET, 't', type='kubernetes.io/ssh-auth',
            data={'ssh-privatekey': ''}))
        self.assertEqual(['data[.dockercfg]'], rejected_fields(
            core.SECRET, 't', type='kubernetes.io/dockercfg',
            stringData={'.dockercfg': '{'}))
        for kind, fields in (
                (core.CONFIG_MAP, {'binaryData': {'a': '!'}}),
                (core.SECRET, {'data': {'a': '!'}, 'stringData': {'a': ''}})):
            exc = self.assertRaises(errors.ApiError, put, kind, 't', **fields)
            self.assertEqual(400, exc.code)

    def test_base64_with_line_breaks(self):
        """Tools fold it, and Go's decoder skips line breaks."""
        for kind, field in ((core.SECRET, 'data'),
                            (core.CONFIG_MAP, 'binaryData')):
            created = self.store.create(kind, {
                'metadata': {'name': 'folded', 'namespace': 'default'},
                field: {'a': 'Zm9v\nYmFy\r\n'}})
            self.assertEqual({'a': 'Zm9vYmFy'}, created[field])

    def test_rejects_invalid_metadata(self):
        owner = {'apiVersion': 'v1', 'kind': 'Pod', 'name': 'p', 'uid': 'u'}
        for fields, *names in (
                ({'finalizers': ['a']}, 'finalizers'),
                ({'ownerReferences': [{**owner, 'apiVersion': 'a/b/c'}]},
                 'ownerReferences[0].apiVersion'),
                ({'ownerReferences': [{**owner, 'kind': 'Event'}]},
                 'ownerReferences[0]'),
                ({'ownerReferences': [{
                    'apiVersion': 'v1', 'kind': 'Event', 'name': '',
                    'uid': 'u'}]},
                 'ownerReferences[0].name', 'ownerReferences[0]'),
                ({'ownerReferences': [{
                    'apiVersion': 'v1', 'kind': 'Event', 'uid': 'u'}]},
                 'ownerReferences[0].name', 'ownerReferences[0]'),
                ({'ownerReferences': [{**owner, 'controller': True}] * 2},
                 'ownerReferences')):
            exc = self.assertRaises(
                errors.ApiError, self.store.create, core.CONFIG_MAP, {
                    'metadata': {'name': 'm', 'namespace': 'default',
                                 **fields}})
            self.assertEqual([f'metadata.{name}' for name in names], [
                c['field'] for c in exc.status()['details']['causes']])
        self.store.create(core.CONFIG_MAP, {'metadata': {
            'name': 'm', 'namespace': 'default',
            'finalizers': ['orphan', 'a/b'],
            'ownerReferences': [owner, {**owner, 'controller': True}]}})

    def test_finalizers_without_a_domain(self):
        def faults(kind):
            return [cause.field for cause in metadata.causes(kind, {
                'metadata': {'name': 'a', 'finalizers': ['b']}})]
        for kind in (core.LEASE, admission_policies.POLICY, kinds.Kind(
                'snapshot.storage.k8s.io', 'v1', 'VolumeSnapshot',
                'volumesnapshots', 'volumesnapshot', crd=True)):
            self.assertEqual([], faults(kind))
        for kind in core.CONFIG_MAP, volumes.STORAGE_CLASS:
            self.assertEqual(['metadata.finalizers'], faults(kind))
