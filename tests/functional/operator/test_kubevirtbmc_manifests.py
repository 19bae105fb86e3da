# SPDX-License-Identifier: Apache-2.0
"""Manifests written for KubeVirtBMC, unchanged, and the effect of each field.

They are in ``tests/fixtures/kubevirtbmc_manifests``.
"""

import json

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import webserver
from tests.fixtures import checkout
from tests.fixtures import image_server
from tests.fixtures import operator

MANIFESTS = checkout.ROOT / 'tests/fixtures/kubevirtbmc_manifests'
ACTIONS = '/redfish/v1/Managers/BMC/VirtualMedia/CD1/Actions/VirtualMedia.'
MARGIN = 'bmc.kubevirt.io/datavolume-size-margin'
MIB = 1 << 20

#: Password of ``least.yaml``.
LONG = 'a-password-of-more-than-20-bytes'


class ManifestsTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()
        self.sandbox.reset_stats()
        self.vm('box')

    def tearDown(self):
        self.assert_no_warnings(self.mark, pods=True)
        super().tearDown()

    def apply(self, name):
        """Apply a manifest; no field of it may be unknown."""
        self.kubectl('apply', '--validate=strict', '-f', MANIFESTS / name)
        box = operator.Bmc(self.kubectl, 'rack', 'operator', 'a-password-0')
        return box.ready()

    def serve_images(self):
        """Serve an image by HTTPS; return its URL and the CA certificate."""
        address = webserver.own_address()
        if address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        made = self.useFixture(certificates.Certificate([address]))
        server = self.useFixture(image_server.ImageServer(
            address, (made.certificate, made.key)))
        return f'{server.url}/size-{100 * MIB}.iso', made.ca

    def trust(self, ca):
        self.kubectl.apply(self.kubectl(
            'create', 'configmap', 'image-servers', f'--from-file=ca.pem={ca}',
            '--dry-run=client', '-o', 'yaml'))

    def act(self, box, action, **body):
        return box.curl(
            f'{ACTIONS}{action}Media', '-X', 'POST', '-H',
            'Content-Type: application/json', '-d', json.dumps(body))

    def insert(self, box, url):
        """Insert an image; return the spec of its DataVolume."""
        answer = self.act(box, 'Insert', Image=url, Inserted=True)
        self.assertEqual(204, answer.code, answer.text)
        volume, = self.kubectl.get('datavolumes')['items']
        if not self.sandbox.external:
            # Other storage may have no block devices.
            self.until('import', lambda: self.kubectl.get(
                'datavolume', volume['metadata']['name'])['status']['phase'],
                'Succeeded')
        return volume['spec']

    def eject(self, box):
        self.assertEqual(204, self.act(box, 'Eject').code)
        self.until('ejected', lambda: self.kubectl.names('datavolumes'), [])

    def services(self):
        return [self.kubectl.get('service', name)
                for name in ('rack-virtbmc', 'box-virtbmc')]

    def check_services(self):
        own, second = self.services()
        self.assertEqual(('NodePort', 'ClusterIP'), tuple(
            service['spec']['type'] for service in (own, second)))
        self.assertEqual('lab', own['metadata']['annotations'][
            'example.test/pool'])
        for service in own, second:
            labels = service['metadata']['labels']
            self.assertEqual(('metal', 'rack', operator.NAME), (
                labels['example.test/team'], labels[operator.LABEL[:-1]],
                labels['app.kubernetes.io/managed-by']))
            self.assertIn(623, [port['port']
                                for port in service['spec']['ports']])

    def check_media(self, box, url, ca):
        answer = self.act(box, 'Insert', Image=url, Inserted=True)
        self.assertEqual(409, answer.code, answer.text)
        for text in (f'ConfigMap {self.namespace}/image-servers does not',
                     'under its key ca.pem',
                     'spec.redfish.virtualMedia.tls.caBundleConfigMapRef of '
                     f'VirtualMachineBMC {self.namespace}/rack'):
            self.assertIn(text, answer.text)
        self.trust(ca)
        volume = self.insert(box, url)
        self.assertEqual(
            {'storageClassName': 'standard', 'volumeMode': 'Block',
             'accessModes': ['ReadWriteOnce'],
             'resources': {'requests': {'storage': '125Mi'}}},
            volume['storage'])
        http = volume['source']['http']
        self.assertNotIn('insecureSkipVerify', http)
        self.assertEqual(
            {'operator.pem': ca.read_text()},
            self.kubectl.get('configmap', http['certConfigMap'])['data'])
        self.eject(box)

    def test_every_field(self):
        box, (url, ca) = self.apply('every-field.yaml'), self.serve_images()
        self.assertEqual('Off', box.works())
        self.check_services()
        self.check_media(box, url, ca)
        # A CA of later is read for the next image.
        self.trust(self.useFixture(certificates.Certificate()).ca)
        answer = self.act(box, 'Insert', Image=url, Inserted=True)
        self.assertEqual(400, answer.code, answer.text)
        self.assertIn('cannot be verified', answer.text)
        self.assertEqual(1, self.may_read_bundle(box.base))
        self.trust(ca)
        self.check_changes(box, url)

    def check_changes(self, box, url):
        """Change what the manifest has; the running BMC follows."""
        box.patch(service={'labels': {'example.test/team': None}},
                  redfish={'virtualMedia': {
                      'storage': None, 'tls': {'caBundleConfigMapRef': None,
                                               'insecureSkipVerify': True}}})
        self.kubectl('annotate', '--overwrite', 'vmbmc/rack', f'{MARGIN}=50')
        box.current()
        self.until('margin', lambda: '"SUSHY_EMULATOR_KUBEVIRT_MEDIA_'
                   'SIZE_MARGIN": 50' in self.kubectl.get(
                       'configmap', box.base)['data']['options.json'], True)
        box.ready()
        self.until('labels', lambda: [
            'example.test/team' in service['metadata']['labels']
            for service in self.services()], [False, False])
        self.until('rights', lambda: self.may_read_bundle(box.base), 0)
        # The pod is another one.
        self.until('size', lambda: self.size_of(box, url), '150Mi')
        self.assertNotIn('volumeMode', self.volume['storage'])
        self.assertNotIn('storageClassName', self.volume['storage'])
        self.assertIs(True, self.volume['source']['http'][
            'insecureSkipVerify'])

    def size_of(self, box, url):
        self.volume = self.insert(box, url)
        self.eject(box)
        return self.volume['storage']['resources']['requests']['storage']

    def may_read_bundle(self, account):
        """Count the ConfigMaps of the test that an account may read."""
        return sum(self.admin.run(
            'auth', 'can-i', verb, f'configmaps/{name}', '-n', self.namespace,
            '--as', f'system:serviceaccount:{self.namespace}:{account}'
        ).returncode == 0 for verb, name in (
            ('get', 'image-servers'), ('get', 'other'),
            ('list', 'image-servers'), ('patch', 'image-servers')))

    def test_every_field_in_a_shared_pod(self):
        url, ca = self.serve_images()
        box = self.apply('every-field.yaml')
        box.patch(placement='Shared')
        self.until('shared', lambda: box.status['placement']['type'], 'Shared')
        self.until('own pod', lambda: self.kubectl.names(
            'deployments', '-l', operator.LABEL + 'rack'), [])
        self.check_services()
        self.check_media(box, url, ca)
        self.assertEqual(1, self.may_read_bundle(
            'sushy-kubevirt-shared-0-virtbmc'))
        box.patch(redfish={'virtualMedia': {'tls': None}})
        self.until('rights', lambda: self.may_read_bundle(
            'sushy-kubevirt-shared-0-virtbmc'), 0)

    def test_without_verification_and_ipmi(self):
        box, url = self.apply('insecure.yaml'), self.serve_images()[0]
        self.assertEqual('Off', box.power())
        self.assertEqual({'redfish'}, set(box.status['endpoints']))
        for service in self.services():
            self.assertEqual(['TCP', 'TCP'], [
                port['protocol'] for port in service['spec']['ports']])
        self.assertIs(True, self.insert(box, url)['source']['http'][
            'insecureSkipVerify'])
        self.eject(box)
        box.patch(placement='Shared')
        self.until('shared', lambda: box.status['placement']['type'], 'Shared')
        self.assertEqual({'redfish'}, set(box.status['endpoints']))
        self.until('image', lambda: self.insert(box, url)['source']['http'][
            'insecureSkipVerify'])

    def serves(self, box, password, *protocols):
        """Change the Secret, and wait until the BMC serves these protocols at
        both Services."""
        self.kubectl.patch('secret', 'rack-login', {
            'stringData': {'password': password}})
        self.until(f'protocols with {password}', lambda: (
            set(box.status['endpoints']), [
                [port['protocol'] for port in service['spec']['ports']].count(
                    'UDP') for service in self.services()]),
            ({*protocols}, [int('ipmi' in protocols)] * 2))
        box.password = password
        box.ready()

    def check_unusable_for_ipmi(self, box):
        self.assertEqual(('True', 'SecretUnusableForIPMI'),
                         box.condition('SecretAvailable'))
        message = box.message('SecretAvailable')
        self.assertIn(
            f'under password of Secret {self.namespace}/rack-login', message)
        self.assertNotIn(LONG, message)
        self.until('event', lambda: [
            event['message'] for event in self.kubectl.get('events')['items']
            if event['reason'] == 'SecretUnusableForIPMI'], [message])

    def test_password_too_long_for_ipmi(self):
        box = self.apply('least.yaml')
        box.password = LONG
        self.assertIn('"SUSHY_EMULATOR_KUBEVIRT_MEDIA_STORAGE_CLASS": '
                      '"standard"', self.kubectl.get(
                          'configmap', box.base)['data']['options.json'])
        self.check_unusable_for_ipmi(box)
        self.assertEqual('Off', box.power())
        self.serves(box, LONG, 'redfish')
        self.serves(box, 'short', 'redfish', 'ipmi')
        self.until('IPMI', lambda: box.ipmitool('power', 'status').returncode,
                   0)
        self.serves(box, LONG, 'redfish')
        self.until('Redfish', lambda: box.curl().code, 200)
        # IPMI on demand: then the Secret is wrong.
        box.patch(ipmi={'enabled': True})
        self.until('reason', box.condition, ('False', 'SecretUnusable'))
        box.patch(ipmi=None)
        box.ready()
        self.assertEqual({'redfish'}, set(box.status['endpoints']))

    def test_password_too_long_for_ipmi_in_a_shared_pod(self):
        box = self.apply('least.yaml')
        box.password = LONG
        box.patch(placement='Shared')
        self.until('shared', lambda: box.status['placement']['type'], 'Shared')
        box.ready()
        self.check_unusable_for_ipmi(box)
        self.assertEqual('Off', box.power())
        self.serves(box, 'short', 'redfish', 'ipmi')
        self.until('IPMI', lambda: box.ipmitool('power', 'status').returncode,
                   0)
        self.serves(box, LONG, 'redfish')
        self.until('Redfish', lambda: box.curl().code, 200)

    def test_invalid_size_margin(self):
        box = self.apply('every-field.yaml')
        self.kubectl('annotate', '--overwrite', 'vmbmc/rack', f'{MARGIN}=10%')
        self.until('reason', lambda: box.condition('BMCEmulatorReady'),
                   ('True', 'SizeMarginInvalid'))
        self.assertIn(f"{MARGIN}='10%'", box.message('BMCEmulatorReady'))
        self.until('event', lambda: [
            event['message'] for event in self.kubectl.get('events')['items']
            if event['reason'] == 'SizeMarginInvalid'],
            [box.message('BMCEmulatorReady')])
        self.kubectl('annotate', 'vmbmc/rack', MARGIN + '-')
        self.until('reason', lambda: box.condition('BMCEmulatorReady'),
                   ('True', 'EmulatorReady'))

    def test_conflicts_are_refused(self):
        self.apply('every-field.yaml')
        for media, field in (
                ({'storageClassName': 'late'}, 'storageClassName'),
                ({'volumeMode': 'Filesystem'}, 'volumeMode'),
                ({'verifyCertificate': False}, 'verifyCertificate')):
            message = self.kubectl.refused(
                'patch', 'vmbmc', 'rack', '--type=merge', '-p',
                json.dumps({'spec': {'virtualMedia': media}}))
            self.assertIn(f'virtualMedia.{field} and redfish.virtualMedia.',
                          message)
