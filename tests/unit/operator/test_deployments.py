# SPDX-License-Identifier: Apache-2.0
from oslotest import base
import yaml

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import spec
from tests.fixtures import checkout
from tests.unit.operator import bodies

DEFAULTS = deployments.Defaults('virtbmc:1', {
    'redfish': {'requests': {'memory': '48Mi'}},
    'ipmi': {'requests': {'memory': '24Mi'}}}, 'IfNotPresent')

BODIES = (bodies.body(), bodies.body(ipmi={'enabled': False}),
          bodies.body(redfish={'enabled': False}),
          bodies.body(redfish={'plainHTTP': True}),
          bodies.body(redfish={'tls': {'secretName': 'cert'}},
                      authSecret={'name': 'key'}),
          bodies.body(runStrategy='Always', image='mine:2'),
          bodies.by_ref(), bodies.cross_namespace())


def made(body):
    return deployments.deployment(spec.read(body), DEFAULTS)


def pod(body):
    return made(body)['spec']['template']['spec']


def containers(body):
    return {one['name']: one for one in pod(body)['containers']}


def secrets(body):
    return {one['name']: one['secret']['secretName']
            for one in pod(body)['volumes'] if 'secret' in one}


class DeploymentTestCase(base.BaseTestCase):

    def test_security_context_mounts_and_probes(self):
        for body in BODIES:
            found = pod(body)
            self.assertTrue(found['securityContext']['runAsNonRoot'])
            self.assertEqual({'type': 'RuntimeDefault'},
                             found['securityContext']['seccompProfile'])
            for one in found['containers']:
                with self.subTest(spec=body['spec'], container=one['name']):
                    self.assertEqual(
                        {'allowPrivilegeEscalation': False,
                         'readOnlyRootFilesystem': True,
                         'capabilities': {'drop': ['ALL']}},
                        one['securityContext'])
                    self.assertTrue(all(
                        mount.get('readOnly') or mount['name'] == 'tmp'
                        for mount in one['volumeMounts']))
                    self.assertIn({'name': 'tmp', 'mountPath': '/tmp'},
                                  one['volumeMounts'])
                    for probe in ('startupProbe', 'livenessProbe',
                                  'readinessProbe'):
                        self.assertIn(
                            one[probe]['httpGet']['port'],
                            [port['name'] for port in one['ports']])
                    self.assertTrue(one['resources'])

    def test_volumes_equal_mounts(self):
        for body in BODIES:
            found = pod(body)
            used = {mount['name'] for one in found['containers']
                    for mount in one['volumeMounts']}
            self.assertEqual(used, {one['name'] for one in found['volumes']})
            for one in found['containers']:
                # The kubelet does not update files mounted by subPath.
                self.assertFalse(any('subPath' in mount
                                     for mount in one['volumeMounts']))

    def test_length_of_port_names(self):
        for body in BODIES:
            for one in pod(body)['containers']:
                for port in one['ports']:
                    self.assertLessEqual(len(port['name']), 15)

    def test_plain_http_beside_https(self):
        for body, expected in (
                (bodies.body(), None), (bodies.by_ref(), '8080'),
                (bodies.by_ref(redfish={'plainHTTP': False}), None),
                (bodies.by_ref(redfish={'plainHTTP': True}), None)):
            with self.subTest(spec=body['spec']):
                found = containers(body)['bmc']
                self.assertEqual(expected, next((
                    one['value'] for one in found['env']
                    if one['name'] == 'VIRTBMC_HTTP_PORT'), None))
                self.assertEqual(expected is not None, any(
                    port['name'] == 'redfish-http'
                    and port['containerPort'] == 8080
                    for port in found['ports']))

    def test_ports_by_protocol(self):
        for fields, expected in (
                ({}, {'redfish', 'ipmi'}),
                ({'ipmi': {'enabled': False}}, {'redfish'}),
                ({'redfish': {'enabled': False}}, {'ipmi'})):
            with self.subTest(fields=fields):
                found, = pod(bodies.body(**fields))['containers']
                self.assertEqual(
                    expected | {'bmc-health'},
                    {port['name'] for port in found['ports']})
                names = {one['name'] for one in found['env']}
                self.assertEqual('redfish' in expected,
                                 'VIRTBMC_OPTIONS' in names)
                self.assertEqual('ipmi' in expected, 'VIRTBMC_PORT' in names)

    def test_mounted_secrets(self):
        for body, expected in (
                (bodies.body(), {'auth': 'node-virtbmc-auth',
                                 'tls': 'node-virtbmc-tls'}),
                (bodies.body(authSecret={'name': 'key'}),
                 {'auth': 'key', 'tls': 'node-virtbmc-tls'}),
                # A pod mounts Secrets of its own namespace only.
                (bodies.cross_namespace(), {'auth': 'node-virtbmc-auth',
                                            'tls': 'node-virtbmc-tls'}),
                (bodies.body(redfish={'tls': {'secretName': 'cert'}}),
                 {'auth': 'node-virtbmc-auth', 'tls': 'cert'}),
                (bodies.body(redfish={'plainHTTP': True}),
                 {'auth': 'node-virtbmc-auth'}),
                (bodies.body(redfish={'enabled': False}),
                 {'auth': 'node-virtbmc-auth'})):
            with self.subTest(spec=body['spec']):
                self.assertEqual(expected, secrets(body))

    def test_contains_no_secret_data(self):
        bmc = bodies.bmc()
        text = repr(deployments.deployment(bmc, DEFAULTS))
        self.assertNotIn(credentials.generated(bmc)['data']['password'], text)
        for one in containers(bodies.body()).values():
            self.assertFalse(any('secretKeyRef' in (
                variable.get('valueFrom') or {}) for variable in one['env']))

    def test_fields_of_the_spec(self):
        body = bodies.body(
            image='mine:2', nodeSelector={'a': 'b'}, runStrategy='Manual',
            tolerations=[{'key': 'a'}],
            resources={'bmc': {'limits': {'memory': '32Mi'}}})
        found = pod(body)
        self.assertEqual({'a': 'b'}, found['nodeSelector'])
        self.assertEqual([{'key': 'a'}], found['tolerations'])
        bmc, = found['containers']
        self.assertEqual('mine:2', bmc['image'])
        self.assertEqual({'limits': {'memory': '32Mi'},
                          'requests': {'cpu': deployments.CPU}},
                         bmc['resources'])
        self.assertIn({'name': 'VIRTBMC_RUN_STRATEGY', 'value': 'Manual'},
                      bmc['env'])

    def test_parts_of_the_resources(self):
        defaults = deployments.Defaults('any', {
            'redfish': {'requests': {'memory': '32Mi'},
                        'limits': {'memory': '160Mi'}},
            'ipmi': {'requests': {'memory': '16Mi'},
                     'limits': {'memory': '64Mi'}}}, cpu='40m')
        redfish = {'requests': {'cpu': '40m', 'memory': '32Mi'},
                   'limits': {'memory': '160Mi'}}
        off = {'enabled': False}
        for fields, expected in (
                ({}, {'requests': {'cpu': '40m', 'memory': '48Mi'},
                      'limits': {'memory': '224Mi'}}),
                ({'ipmi': off}, redfish),
                ({'redfish': off},
                 {'requests': {'cpu': '40m', 'memory': '16Mi'},
                  'limits': {'memory': '64Mi'}}),
                ({'resources': {'redfish': {'limits': {'memory': '1Gi'}}}},
                 {'requests': {'cpu': '40m', 'memory': '1040Mi'},
                  'limits': {'memory': '1088Mi'}}),
                # IPMI's part has no limit.
                ({'resources': {'ipmi': {'requests': {'cpu': 1}}}},
                 {'requests': {'cpu': 1, 'memory': '32Mi'}}),
                ({'resources': {'ipmi': {'requests': {'cpu': 1}},
                                'redfish': {'requests': {'cpu': '2'}}}},
                 {'requests': {'cpu': '3'}}),
                ({'ipmi': off, 'resources': {
                    'ipmi': {'requests': {'cpu': '1'}}}}, redfish),
                ({'resources': {'bmc': {'requests': {'cpu': '1'}},
                                'ipmi': {'requests': {'cpu': '1'}}}},
                 {'requests': {'cpu': '1'}}),
                ({'resources': {'bmc': {'limits': {'memory': '1Gi'}}}},
                 {'limits': {'memory': '1Gi'}, 'requests': {'cpu': '40m'}}),
                # These cannot be overcommitted, so they need a limit.
                *(({'resources': {part: {kind: {
                    'example.test/gpu': 1, 'hugepages-2Mi': '2Mi'}
                    for kind in kinds}}},
                   {'requests': {'cpu': '40m', 'example.test/gpu': 1,
                                 'hugepages-2Mi': '2Mi', 'memory': memory},
                    'limits': {'example.test/gpu': 1,
                               'hugepages-2Mi': '2Mi'}})
                  for part, memory in (('redfish', '16Mi'),
                                       ('ipmi', '32Mi'))
                  for kinds in (('limits',), ('requests', 'limits'))),
                ({'resources': dict.fromkeys(('redfish', 'ipmi'), {
                    'limits': {'example.test/gpu': 1}})},
                 {'requests': {'cpu': '40m', 'example.test/gpu': '2'},
                  'limits': {'example.test/gpu': '2'}}),
                # The limit is the request.
                ({'resources': {'bmc': {'limits': {'cpu': '1'}}}},
                 {'limits': {'cpu': '1'}})):
            with self.subTest(fields=fields):
                self.assertEqual(expected, deployments.resources(
                    bodies.bmc(**fields), defaults))

    def test_disabled_account_management(self):
        ipmi = containers(bodies.body(
            accountManagement={'enabled': False}))['bmc']
        self.assertIn({'name': 'VIRTBMC_ACCOUNT_MANAGEMENT',
                       'value': 'false'}, ipmi['env'])

    def test_default_resources(self):
        template = deployments.deployment(
            spec.read(bodies.body()), deployments.Defaults('any'))['spec'][
                'template']['spec']
        self.assertEqual({'redfish', 'ipmi'}, set(deployments.RESOURCES))
        for one in template['containers']:
            resources = one['resources']
            self.assertEqual({'cpu', 'memory'}, set(resources['requests']))
            # A CPU limit would slow down the start.
            self.assertEqual({'memory'}, set(resources['limits']))

    def test_pull_secrets(self):
        for names in ((), ('registry', 'lab')):
            found = deployments.deployment(
                spec.read(bodies.body()), deployments.Defaults(
                    'any', pull_secrets=names))['spec']['template']['spec']
            self.assertEqual([{'name': one} for one in names],
                             found.get('imagePullSecrets', []))

    def test_user(self):
        for user, ids in ((deployments.USER, {65532}), (1000, {1000}),
                          (None, {None})):
            found = deployments.deployment(
                spec.read(bodies.body()), deployments.Defaults(
                    'any', user=user))['spec']['template']['spec']
            context = found['securityContext']
            self.assertEqual(ids, {context.get(name) for name in (
                'runAsUser', 'runAsGroup', 'fsGroup')})
            self.assertTrue(context['runAsNonRoot'])
            self.assertFalse(any('runAsUser' in one['securityContext']
                                 for one in found['containers']))

    def test_service_meshes_are_kept_out(self):
        found = made(bodies.body())['spec']['template']['metadata']
        # Istio's webhooks have the objectSelector "NotIn false" (1.26,
        # istio-discovery, mutatingwebhook.yaml); its CNI plugin (ambient
        # mode) and Linkerd's injector compare these values.
        self.assertEqual(('false', 'none'), tuple(
            found['labels'][name] for name in (
                'sidecar.istio.io/inject', 'istio.io/dataplane-mode')))
        self.assertEqual('disabled',
                         found['annotations']['linkerd.io/inject'])

    def test_service_meshes_are_kept_out_of_operator(self):
        text = (checkout.ROOT / 'etc/kubernetes/base/operator.yaml'
                ).read_text()
        metadata = next(one for one in yaml.safe_load_all(text) if one[
            'kind'] == 'Deployment')['spec']['template']['metadata']
        for field, values in (('labels', deployments.MESH_LABELS),
                              ('annotations', deployments.MESH_ANNOTATIONS)):
            self.assertEqual(values, {
                name: metadata[field][name] for name in values})

    def test_labels_and_annotations(self):
        bmc = spec.read(bodies.body())
        selector = naming.selector(bmc.name)
        found = deployments.deployment(bmc, deployments.Defaults(
            'any', labels={**selector, **dict.fromkeys(selector, 'x'),
                           'a': 'b'},
            annotations={stored_names.ACCOUNT: 'x', 'c': 'd'}), 'uid')['spec']
        metadata = found['template']['metadata']
        self.assertEqual({**naming.labels(bmc.name), 'a': 'b'},
                         metadata['labels'])
        self.assertEqual('d', metadata['annotations']['c'])
        self.assertEqual('uid', metadata['annotations'][stored_names.ACCOUNT])
        # A selector cannot be changed later.
        self.assertEqual(selector, found['selector']['matchLabels'])

    def test_one_replica_is_recreated(self):
        found = made(bodies.body())['spec']
        self.assertEqual((1, {'type': 'Recreate'}),
                         (found['replicas'], found['strategy']))

    def test_changed_config_file_restarts_pod(self):
        def annotations(body):
            return made(body)['spec']['template']['metadata']['annotations']
        self.assertEqual(annotations(bodies.body()),
                         annotations(bodies.body()))
        self.assertNotEqual(
            annotations(bodies.body()), annotations(bodies.body(
                virtualMedia={'mode': 'import'})))

    def test_service_and_policy_find_the_pod(self):
        for body in BODIES:
            bmc = spec.read(body)
            labels = made(body)['spec']['template']['metadata']['labels']
            service = network.service(bmc)
            ports = {port['name']: port['protocol']
                     for one in pod(body)['containers']
                     for port in one['ports']}
            with self.subTest(spec=body['spec']):
                self.assertLessEqual(service['spec']['selector'].items(),
                                     labels.items())
                for port in service['spec']['ports']:
                    self.assertEqual(port['protocol'],
                                     ports[port['targetPort']])
                self.assertEqual('node', labels[stored_names.BMC_NAME])

    def test_is_ready(self):
        ready = {'observedGeneration': 2, 'replicas': 1, 'updatedReplicas': 1,
                 'readyReplicas': 1}
        for status, expected in (
                (ready, True), (None, False), ({}, False),
                ({**ready, 'observedGeneration': 1}, False),
                ({**ready, 'readyReplicas': 0}, False),
                ({**ready, 'updatedReplicas': 0}, False),
                # The ready pod is the previous one.
                ({**ready, 'replicas': 2}, False),
                # A user scaled it.
                ({**ready, 'replicas': 3, 'updatedReplicas': 3}, True)):
            with self.subTest(status=status):
                self.assertIs(expected, deployments.is_ready({
                    'metadata': {'generation': 2}, 'status': status}))

    def test_path_of_config_file(self):
        redfish = containers(bodies.body())['bmc']
        self.assertIn({'name': 'VIRTBMC_OPTIONS',
                       'value': '/etc/virtbmc/config/options.json'},
                      redfish['env'])
        self.assertEqual(['options.json'], list(
            config_map.config_map(bodies.bmc())['data']))

    def test_port_that_ipmi_reports(self):
        for service, port in (
                ({}, '623'), ({'ports': {'ipmi': 1623}}, '1623'),
                ({'type': 'NodePort'}, '623'),
                ({'type': 'NodePort', 'nodePorts': {'ipmi': 30623}}, '30623'),
                ({'type': 'LoadBalancer', 'nodePorts': {'ipmi': 30623}},
                 '623')):
            body = bodies.body(service=service)
            env = {one['name']: one.get('value')
                   for one in containers(body)['bmc']['env']}
            self.assertEqual(port, env['VIRTBMC_SERVICE_PORT'], service)
