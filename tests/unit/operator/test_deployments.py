# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

DEFAULTS = deployments.Defaults('virtbmc:1', {
    'redfish': {'requests': {'memory': '48Mi'}},
    'ipmi': {'requests': {'memory': '24Mi'}}}, 'IfNotPresent')

ALL = (bodies.body(), bodies.body(ipmi={'enabled': False}),
       bodies.body(redfish={'enabled': False}),
       bodies.body(redfish={'plainHTTP': True}),
       bodies.body(redfish={'tls': {'secretName': 'cert'}},
                   authSecretRef={'name': 'key'}),
       bodies.body(runStrategy='Always', image='mine:2'),
       bodies.cross_namespace())


def made(body):
    return deployments.deployment(spec.read(body), DEFAULTS)


def pod(body):
    return made(body)['spec']['template']['spec']


def containers(body):
    return {one['name']: one for one in pod(body)['containers']}


def secrets(body):
    return {one['name']: one['secret']['secretName']
            for one in pod(body)['volumes'] if 'secret' in one}


class PodsTestCase(base.BaseTestCase):

    def test_each_is_locked_up(self):
        for body in ALL:
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
                    for probe in ('startupProbe', 'livenessProbe',
                                  'readinessProbe'):
                        self.assertIn(
                            one[probe]['httpGet']['port'],
                            [port['name'] for port in one['ports']])
                    self.assertTrue(one['resources'])

    def test_what_is_mounted_is_there(self):
        for body in ALL:
            found = pod(body)
            used = {mount['name'] for one in found['containers']
                    for mount in one['volumeMounts']}
            self.assertEqual(used, {one['name'] for one in found['volumes']})
            for one in found['containers']:
                # A single file of a Secret would never be renewed.
                self.assertFalse(any('subPath' in mount
                                     for mount in one['volumeMounts']))

    def test_names_of_ports_are_short_enough(self):
        for body in ALL:
            for one in pod(body)['containers']:
                for port in one['ports']:
                    self.assertLessEqual(len(port['name']), 15)

    def test_which_containers(self):
        for fields, wanted in (
                ({}, ['redfish', 'ipmi']),
                ({'ipmi': {'enabled': False}}, ['redfish']),
                ({'redfish': {'enabled': False}}, ['ipmi'])):
            with self.subTest(fields=fields):
                self.assertEqual(wanted, list(containers(
                    bodies.body(**fields))))

    def test_which_secrets(self):
        for body, wanted in (
                (bodies.body(), {'auth': 'node-virtbmc-auth',
                                 'tls': 'node-virtbmc-tls'}),
                (bodies.body(authSecretRef={'name': 'key'}),
                 {'auth': 'key', 'tls': 'node-virtbmc-tls'}),
                # No pod mounts what is elsewhere.
                (bodies.cross_namespace(), {'auth': 'node-virtbmc-auth',
                                            'tls': 'node-virtbmc-tls'}),
                (bodies.body(redfish={'tls': {'secretName': 'cert'}}),
                 {'auth': 'node-virtbmc-auth', 'tls': 'cert'}),
                (bodies.body(redfish={'plainHTTP': True}),
                 {'auth': 'node-virtbmc-auth'}),
                (bodies.body(redfish={'enabled': False}),
                 {'auth': 'node-virtbmc-auth'})):
            with self.subTest(spec=body['spec']):
                self.assertEqual(wanted, secrets(body))

    def test_no_secret_in_it(self):
        bmc = bodies.bmc()
        text = repr(deployments.deployment(bmc, DEFAULTS))
        self.assertNotIn(credentials.made(bmc)['data']['password'], text)
        for one in containers(bodies.body()).values():
            self.assertFalse(any('secretKeyRef' in (
                variable.get('valueFrom') or {}) for variable in one['env']))

    def test_what_a_user_asks_for(self):
        body = bodies.body(
            image='mine:2', nodeSelector={'a': 'b'}, runStrategy='Manual',
            tolerations=[{'key': 'a'}],
            resources={'ipmi': {'limits': {'memory': '32Mi'}}})
        found = pod(body)
        self.assertEqual({'a': 'b'}, found['nodeSelector'])
        self.assertEqual([{'key': 'a'}], found['tolerations'])
        redfish, ipmi = found['containers']
        self.assertEqual('mine:2', redfish['image'])
        self.assertEqual({'limits': {'memory': '32Mi'}}, ipmi['resources'])
        self.assertEqual(DEFAULTS.resources['redfish'], redfish['resources'])
        self.assertIn({'name': 'VIRTBMC_RUN_STRATEGY', 'value': 'Manual'},
                      ipmi['env'])

    def test_what_is_asked_for_when_nobody_says(self):
        template = deployments.deployment(
            spec.read(bodies.body()), deployments.Defaults('any'))['spec'][
                'template']['spec']
        self.assertEqual({'redfish', 'ipmi'}, set(deployments.RESOURCES))
        for one in template['containers']:
            resources = one['resources']
            self.assertEqual({'cpu', 'memory'}, set(resources['requests']))
            # A start is not to take long.
            self.assertEqual({'memory'}, set(resources['limits']))

    def test_one_at_a_time(self):
        found = made(bodies.body())['spec']
        self.assertEqual((1, {'type': 'Recreate'}),
                         (found['replicas'], found['strategy']))

    def test_a_change_of_the_config_file_is_a_new_pod(self):
        def annotations(body):
            return made(body)['spec']['template']['metadata']['annotations']
        self.assertEqual(annotations(bodies.body()),
                         annotations(bodies.body()))
        self.assertNotEqual(
            annotations(bodies.body()), annotations(bodies.body(
                virtualMedia={'mode': 'import'})))

    def test_service_and_policy_find_the_pod(self):
        for body in ALL:
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
                self.assertEqual('node', labels[naming.LABEL])

    def test_ready(self):
        ready = {'observedGeneration': 2, 'replicas': 1, 'updatedReplicas': 1,
                 'readyReplicas': 1}
        for status, wanted in (
                (ready, True), (None, False), ({}, False),
                ({**ready, 'observedGeneration': 1}, False),
                ({**ready, 'readyReplicas': 0}, False),
                ({**ready, 'updatedReplicas': 0}, False),
                # The ready one is the one before.
                ({**ready, 'replicas': 2}, False),
                # A user scaled it.
                ({**ready, 'replicas': 3, 'updatedReplicas': 3}, True)):
            with self.subTest(status=status):
                self.assertIs(wanted, deployments.is_ready({
                    'metadata': {'generation': 2}, 'status': status}))

    def test_config_file_is_where_the_command_looks(self):
        redfish = containers(bodies.body())['redfish']
        self.assertIn({'name': 'SUSHY_EMULATOR_CONFIG',
                       'value': '/etc/virtbmc/config/emulator.conf'},
                      redfish['env'])
        self.assertEqual([config_map.FILE], list(
            config_map.config_map(bodies.bmc())['data']))
