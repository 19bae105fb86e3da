# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, with the real helm.

It is built with Go, see `tests.clients.environment`; without Go, and without a
helm of the same major version that is installed otherwise, the tests are
skipped.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import unittest

from cryptography.hazmat.primitives import serialization
import fixtures
import yaml

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.clients import environment
from tests.fixtures import base
from tests.fixtures import file_servers
from tests.fixtures import operator
from tests.fixtures import sandbox
from tests.functional.install import test_manifests
from tools import helm_chart

_WITHOUT_GO = environment.without_go(environment.HELM_SOURCES)
HELM = (environment.installed_helm() if _WITHOUT_GO
        else environment.GO_BIN / 'helm')

RELEASE = 'sushy-kubevirt'
OVERLAYS = operator.MANIFESTS / 'overlays'
DIGEST = 'sha256:' + '0123456789abcdef' * 4

_DEPLOYMENT = {'kind': 'Deployment', 'name': operator.NAME}


@dataclasses.dataclass
class Case:
    """The same options for helm and for kustomize.

    :param values: of the chart
    :param overlays: of ``etc/kubernetes``
    :param patch: JSON patch of the Deployment
    :param edits: texts to replace, as the documents say, by file in
        ``etc/kubernetes/components``
    :param images: fields of the images in ``base/kustomization.yaml``, by name
    :param words: further arguments of ``helm template``
    """

    values: dict = dataclasses.field(default_factory=dict)
    overlays: tuple = ()
    patch: tuple = ()
    edits: dict = dataclasses.field(default_factory=dict)
    images: dict = dataclasses.field(default_factory=dict)
    words: tuple = ()


def option(text):
    """Return the patch that adds an option of the operator."""
    return {'op': 'add', 'path': '/spec/template/spec/containers/0/args/-',
            'value': text}


def user(operation, number=None):
    return [{'op': operation, 'path': '/spec/template/spec/securityContext/'
             + name, 'value': number} for name in ('runAsUser', 'runAsGroup')]


ISSUER = {'group': 'cert-manager.io', 'kind': 'ClusterIssuer',
          'name': 'sushy-kubevirt'}
AUTO, METAL3 = 'bmc.kubevirt.io/auto=true', 'bmc.kubevirt.io/metal3=true'
RESOURCES = {'requests': {'cpu': '1', 'memory': '1Gi'},
             'limits': {'memory': '2Gi', 'cpu': '2'}}
TOLERATIONS = [{'key': 'node-role.kubernetes.io/control-plane',
                'operator': 'Exists', 'effect': 'NoSchedule'}]

AFFINITY = {'nodeAffinity': {
    'requiredDuringSchedulingIgnoredDuringExecution': {'nodeSelectorTerms': [
        {'matchExpressions': [{'key': 'lab.test/infra',
                               'operator': 'Exists'}]}]}}}

#: What `helm install` finds on OpenShift.
ON_OPENSHIFT = '--api-versions', 'security.openshift.io/v1'

CASES = {
    'defaults': Case(),
    'auto-create': Case({'autoCreate': AUTO}, ('auto-create',)),
    'other selector': Case(
        {'autoCreate': 'tier in (a, b),!old'}, ('auto-create',), edits={
            'auto-create/operator.yaml': (AUTO, 'tier in (a, b),!old')}),
    'bare-metal-hosts': Case({'autoCreate': AUTO, 'bareMetalHosts': METAL3},
                             ('auto-create', 'bare-metal-hosts')),
    'claim-templates': Case(
        {'autoCreate': AUTO, 'bareMetalHosts': METAL3,
         'claimTemplates': 'bare-metal'},
        ('auto-create', 'bare-metal-hosts', 'claim-templates')),
    'namespaced': Case({'namespaces': ['default', 'lab']}, ('namespaced',)),
    'other namespaces': Case(
        {'namespaces': ['1234', 'bmcs']}, ('namespaced',), edits={
            'namespaced/namespaces.yaml': (
                'namespace: default', "namespace: '1234'",
                'namespace: lab', 'namespace: bmcs'),
            'namespaced/operator.yaml': ('=default', '=1234',
                                         '=lab', '=bmcs')}),
    'prometheus': Case({'prometheus': True}, ('prometheus',)),
    'cert-manager': Case({'certManager': {'issuerRef': ISSUER}},
                         ('cert-manager',)),
    'other issuer': Case(
        {'certManager': {'issuerRef': {'name': 'internal'}}},
        ('cert-manager',), edits={'cert-manager/authority.yaml': (
            '    group: cert-manager.io\n    kind: ClusterIssuer\n'
            '    name: sushy-kubevirt\n', '    name: internal\n')}),
    'openshift': Case({}, ('openshift',), words=ON_OPENSHIFT),
    'openshift by value': Case({'openshift': True}, ('openshift',)),
    'not openshift': Case({'openshift': False}, words=ON_OPENSHIFT),
    'no user': Case({'podUser': 'none'}, patch=(
        *user('remove'), option('--pod-user=none'))),
    'user': Case({'podUser': 1000680000}, patch=(
        *user('replace', 1000680000), option('--pod-user=1000680000'))),
    'user on OpenShift': Case(
        {'podUser': 1001, 'openshift': True}, ('openshift',),
        (*user('add', 1001), option('--pod-user=1001'))),
    'shared pods': Case(
        {'defaultPlacement': 'Shared', 'bmcsPerPod': 100},
        patch=(option('--default-placement=Shared'),
               option('--bmcs-per-pod=100'))),
    'denied hosts': Case(
        {'deniedHosts': ['192.0.2.0/24', '*.lab.test'],
         'deniedHostsExcept': ['images.lab.svc']},
        patch=(option('--denied-hosts=192.0.2.0/24'),
               option('--denied-hosts=*.lab.test'),
               option('--denied-hosts-except=images.lab.svc'))),
    'args': Case({'args': ['--max-unavailable=5', '--log-format=plain']},
                 patch=(option('--max-unavailable=5'),
                        option('--log-format=plain'))),
    'images': Case(
        {'images': {'operator': {'repository': 'registry.test:5000/operator',
                                 'tag': '1.2'},
                    'emulator': {'repository': 'registry.test/lab/emulator'}}},
        images={'operator': {'newName': 'registry.test:5000/operator',
                             'newTag': '1.2'},
                'emulator': {'newName': 'registry.test/lab/emulator'}}),
    'pull secrets': Case(
        {'imagePullSecrets': [{'name': 'registry'}, {'name': 'lab'}]},
        patch=(option('--image-pull-secret=registry'),
               option('--image-pull-secret=lab'),
               {'op': 'add', 'path': '/spec/template/spec/imagePullSecrets',
                'value': [{'name': 'registry'}, {'name': 'lab'}]})),
    'pull policy': Case(
        {'imagePullPolicy': 'Always'}, patch=(
            option('--image-pull-policy=Always'),
            {'op': 'add', 'value': 'Always', 'path':
             '/spec/template/spec/containers/0/imagePullPolicy'})),
    'digests': Case(
        {'images': {'operator': {'digest': DIGEST},
                    'emulator': {'digest': DIGEST}}},
        images={name: {'newTag': None, 'digest': DIGEST}
                for name in ('operator', 'emulator')}),
    'deployment': Case(
        {'replicas': 1, 'resources': RESOURCES, 'tolerations': TOLERATIONS,
         'nodeSelector': {'kubernetes.io/os': 'linux', 'zone': '1'},
         'affinity': AFFINITY, 'podLabels': {'team': 'infra'},
         'podAnnotations': {'lab.test/port': '8080'}},
        patch=({'op': 'add', 'path': '/spec/template/spec/affinity',
                'value': AFFINITY},
               {'op': 'add', 'path': '/spec/template/metadata/labels/team',
                'value': 'infra'},
               {'op': 'add', 'path': '/spec/template/metadata/annotations/'
                'lab.test~1port', 'value': '8080'},
               {'op': 'replace', 'path': '/spec/replicas', 'value': 1},
               {'op': 'add', 'path': '/spec/template/spec/tolerations',
                'value': TOLERATIONS},
               {'op': 'add', 'path': '/spec/template/spec/nodeSelector',
                'value': {'kubernetes.io/os': 'linux', 'zone': '1'}},
               {'op': 'replace', 'value': RESOURCES,
                'path': '/spec/template/spec/containers/0/resources'})),
    'values of KubeVirtBMC': Case(
        {'replicaCount': 1, 'serviceMonitor': {'create': True},
         'image': {'pullPolicy': 'Always', 'tag': 'v0.7.0'},
         'manager': {'args': ['--leader-elect', '--agent-cpu-request=25m']},
         'autoscaling': {'enabled': True}, 'volumes': [{'name': 'a'}],
         'nameOverride': 'bmc', 'service': {'metricsPort': 8443}},
        ('prometheus',), (
            {'op': 'replace', 'path': '/spec/replicas', 'value': 1},
            option('--image-pull-policy=Always'), option('--bmc-cpu=25m'),
            {'op': 'add', 'value': 'Always', 'path':
             '/spec/template/spec/containers/0/imagePullPolicy'})),
    'all': Case(
        {'autoCreate': AUTO, 'bareMetalHosts': METAL3,
         'claimTemplates': 'bare-metal', 'namespaces': ['default', 'lab'],
         'prometheus': True, 'certManager': {'issuerRef': ISSUER},
         'openshift': True, 'args': ['--log-level=debug']},
        ('auto-create', 'bare-metal-hosts', 'cert-manager',
         'claim-templates', 'namespaced', 'openshift', 'prometheus'),
        (option('--log-level=debug'),)),
}

#: Values that the schema refuses, and what the message names.
REFUSED = (
    ({'replica': 1}, 'replica'),
    ({'replicas': 0}, '/replicas'),
    ({'openshift': 'yes'}, '/openshift'),
    ({'podUser': 'root'}, '/podUser'),
    ({'podUser': 0}, '/podUser'),
    ({'imagePullSecrets': ['registry']}, '/imagePullSecrets/0'),
    ({'imagePullSecrets': [{'name': 'a..b'}]}, '/imagePullSecrets/0/name'),
    ({'imagePullSecrets': [{'name': 'a'}] * 2}, '/imagePullSecrets'),
    ({'namespaces': 'lab'}, '/namespaces'),
    ({'namespaces': ['Lab']}, '/namespaces/0'),
    ({'namespaces': ['lab', 'lab']}, '/namespaces'),
    ({'autoCreate': True}, '/autoCreate'),
    ({'autoCreate': 'a="b"'}, '/autoCreate'),
    ({'autoCreate': ','}, '/autoCreate'),
    ({'autoCreate': 'a=b,'}, '/autoCreate'),
    ({'autoCreate': 'a in b'}, '/autoCreate'),
    ({'args': ['max-unavailable=5']}, '/args/0'),
    ({'images': {'operator': {'repository': 'registry.test/x:1@2'}}},
     '/images/operator/repository'),
    ({'images': {'operator': {'digest': 'sha256:0'}}},
     '/images/operator/digest'),
    ({'certManager': {'issuerRef': {'kind': 'Issuer'}}},
     '/certManager/issuerRef'),
    ({'crd': {'keep': 'yes'}}, '/crd/keep'),
    ({'replicaCount': 1, 'replicas': 3}, '/replicas'),
    ({'podLabels': {'app.kubernetes.io/name': 'a'}},
     'app.kubernetes.io/name'),
    ({'podAnnotations': {'sidecar.istio.io/inject': 'true'}},
     'sidecar.istio.io/inject'),
)


@unittest.skipUnless(HELM, f'helm 4 is not installed, and {_WITHOUT_GO}')
@unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
class HelmCase(base.FunctionalTestCase):

    KUBECONFIG = '/dev/null'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not pathlib.Path(HELM).exists():
            raise RuntimeError('run: python -m tests.clients.environment')

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def run_command(self, *words, shell=None, code=0, secret=False):
        """Run a command and return its output, standard error included.

        :param words: program and arguments
        :param shell: instead, commands of bash
        :param code: the expected exit code
        :param secret: whether the output must not be shown
        """
        done = subprocess.run(
            ['bash', '-ec', shell] if shell else list(map(str, words)),
            cwd=self.home, env=process.environment(
                self.home, {'KUBECONFIG': self.KUBECONFIG}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=180)
        self.assertEqual(code, done.returncode,
                         'secret' if secret else done.stdout[-5000:])
        return done.stdout

    def helm(self, *words, **more):
        return self.run_command(HELM, *words, **more)

    def values(self, values):
        """Write a file of values and return its path."""
        path = self.home / 'values.yaml'
        path.write_text(yaml.safe_dump(values))
        return path

    def template(self, values, *words, namespace=operator.NAMESPACE):
        """Return what the chart renders: {(kind, namespace, name): object}."""
        return named(self.helm(
            'template', RELEASE, helm_chart.CHART, '--namespace', namespace,
            '--values', self.values(values), *words))


def named(text):
    """Parse manifests: {(kind, namespace, name): object}."""
    found = [one for one in yaml.safe_load_all(text) if one]
    result = {(one['kind'], one['metadata'].get('namespace'),
               one['metadata']['name']): one for one in found}
    if len(result) != len(found):
        raise AssertionError('an object is rendered twice')
    return result


class TemplateTestCase(HelmCase):
    """What helm renders is what kustomize builds."""

    def kustomize(self, case):
        """Return what kustomize builds, without the namespace's object."""
        manifests = self.home / 'kubernetes'
        shutil.rmtree(manifests, ignore_errors=True)
        shutil.copytree(operator.MANIFESTS, manifests)
        place = manifests / 'base/kustomization.yaml'
        changed = yaml.safe_load(place.read_text())
        for image in changed['images']:
            image.update(case.images.get(
                image['name'].removeprefix('sushy-kubevirt-'), {}))
            if image['newTag'] is None:
                del image['newTag']
        place.write_text(yaml.safe_dump(changed))
        for name, edits in case.edits.items():
            path = manifests / 'components' / name
            text = path.read_text()
            for old, new in zip(edits[::2], edits[1::2], strict=True):
                self.assertEqual(1, text.count(old), old)
                text = text.replace(old, new)
            path.write_text(text)
        mine = manifests / 'mine'
        mine.mkdir()
        (mine / 'kustomization.yaml').write_text(yaml.safe_dump({
            'resources': ['../crd', '../base'],
            'components': [f'../components/{name}'
                           for name in case.overlays],
            'patches': [{'target': _DEPLOYMENT, 'patch': json.dumps(
                list(case.patch))}] if case.patch else []}))
        found = named(kubectl.Kubectl('/dev/null')('kustomize', mine))
        # `helm install` needs its namespace, and can create it.
        del found['Namespace', None, operator.NAMESPACE]
        return found

    def assertSame(self, wanted, found, name):
        self.assertEqual(set(wanted), set(found), name)
        for key, one in wanted.items():
            self.assertEqual(one, found[key], (name, key))

    def test_renders_what_kustomize_builds(self):
        for name, case in CASES.items():
            self.assertSame(
                self.kustomize(case), self.template(
                    {**case.values, 'crd': {'keep': False}}, *case.words),
                name)

    def test_every_option_has_a_case(self):
        values = yaml.safe_load(
            (helm_chart.CHART / 'values.yaml').read_text())
        tested = {name for case in CASES.values() for name in case.values}
        self.assertEqual({'crd'}, set(values) - tested)
        self.assertEqual(
            {path.name for path in OVERLAYS.iterdir()},
            {name for case in CASES.values() for name in case.overlays})

    def test_lint(self):
        for name, case in CASES.items():
            output = self.helm('lint', '--strict', helm_chart.CHART,
                               '--values', self.values(case.values))
            self.assertIn('1 chart(s) linted, 0 chart(s) failed', output,
                          name)

    def test_definition(self):
        key = ('CustomResourceDefinition', None,
               'virtualmachinebmcs.bmc.kubevirt.io')
        kept = self.template({})[key]
        self.assertEqual({'helm.sh/resource-policy': 'keep'},
                         kept['metadata'].pop('annotations'))
        wanted = self.template({'crd': {'keep': False}})
        self.assertEqual(wanted.pop(key), kept)
        self.assertSame(wanted, self.template({'crd': {'install': False}}),
                        'without it')

    def test_other_namespace(self):
        """Every mention of the namespace is that of the release."""
        values = {'prometheus': True}
        text = '\n---\n'.join(map(json.dumps, self.template(values).values()))
        for name in 'bmcs', '1234':
            self.assertSame(named(text.replace(operator.NAMESPACE, name)),
                            self.template(values, namespace=name), name)

    def test_schema_refuses(self):
        for values, place in REFUSED:
            output = self.helm('template', RELEASE, helm_chart.CHART,
                               '--values', self.values(values), code=1)
            self.assertIn(place, output, values)

    def test_package_has_version_of_project(self):
        helm_chart.package(self.home, '1.2.0.0rc1', HELM)
        made = self.home / 'sushy-kubevirt-1.2.0-rc1.tgz'
        chart = yaml.safe_load(self.helm('show', 'chart', made))
        self.assertEqual(('1.2.0-rc1', '1.2.0.0rc1'),
                         (chart['version'], chart['appVersion']))
        deployment = named(self.helm('template', RELEASE, made))[
            'Deployment', 'default', operator.NAME]
        container = deployment['spec']['template']['spec']['containers'][0]
        self.assertEqual(
            ('sushy-kubevirt-operator:1.2.0.0rc1',
             'sushy-kubevirt-emulator:1.2.0.0rc1'),
            (container['image'], container['env'][0]['value']))


class ReleaseCase(HelmCase):
    """A sandbox to install the chart in, with the VM of the notes.

    A class has one test, as a cluster can have one release.

    :cvar SANDBOX: additional arguments of the sandbox
    """

    SANDBOX = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0, arguments=cls.SANDBOX))
        cls.KUBECONFIG = cls.sandbox.kubeconfig
        cls.admin = kubectl.Kubectl(cls.KUBECONFIG)
        cls.kubectl = cls.admin.within('default')
        cls.sandbox.create('virtualmachines', machines.vm(
            'node-0', 'Halted', 'default'))

    def package(self, version, chart=helm_chart.CHART):
        helm_chart.package(self.home, version, HELM, chart)
        return self.home / f'sushy-kubevirt-{version}.tgz'

    def release(self, action, *words, **more):
        """Run a command of helm for the release, and wait."""
        return self.helm(action, RELEASE, *words, '--namespace',
                         operator.NAMESPACE, '--wait', '--timeout', '90s',
                         **more)

    def follow_notes(self, output):
        """Run the commands of the chart's notes, except the last one.

        :param output: of ``helm install``
        :returns: `operator.Bmc`, and the last command
        """
        *first, password, last = re.findall(
            r'(?:^  .+\n)+', output.partition('NOTES:')[2], re.MULTILINE)
        self.assertEqual(2, len(first), output)
        for one in first:
            self.run_command(shell=one)
        return operator.Bmc(self.kubectl, 'node-0', 'admin', self.run_command(
            shell=password, secret=True)), last

    def image(self):
        """Return the image of the BMC's pod."""
        pod = self.kubectl.get('deployment', 'node-0-virtbmc')['spec'][
            'template']['spec']
        return {one['image'] for one in pod['containers']}

    def objects(self):
        """List the objects of the chart that exist."""
        text = self.helm('template', RELEASE, helm_chart.CHART, '--namespace',
                         operator.NAMESPACE)
        return self.admin('get', '--ignore-not-found', '-o', 'name', '-f', '-',
                          stdin=text).split()

    def assertNothingDenied(self):
        self.assertNotIn(operator.USER, self.sandbox.stats()['refused'])


DEFINITION = ('customresourcedefinition.apiextensions.k8s.io/'
              'virtualmachinebmcs.bmc.kubevirt.io')


class UpgradeTestCase(ReleaseCase):

    def newer_chart(self):
        """Return a chart whose definition has one more name."""
        chart = self.home / 'newer'
        shutil.copytree(helm_chart.CHART, chart)
        path = chart / 'templates/virtualmachinebmc.yaml'
        text = path.read_text()
        self.assertIn('      - vmbmcs\n', text)
        path.write_text(text.replace('      - vmbmcs\n',
                                     '      - vmbmcs\n      - newer\n'))
        return chart

    def wait_image(self, bmc, tag):
        """Wait until a BMC has an image and answers."""
        wanted = {f'sushy-kubevirt-emulator:{tag}'}
        self.until(lambda: self.image() == wanted, describe=self.image)
        self.kubectl('rollout', 'status', '--timeout=60s',
                     'deployment/node-0-virtbmc')
        bmc.ready()
        self.assertEqual('Off', bmc.works())

    def test_upgrade_and_rollback(self):
        bmc, last = self.follow_notes(self.release(
            'install', self.package('1.0.0'), '--create-namespace'))
        self.wait_image(bmc, '1.0.0')
        self.release('upgrade', self.package('1.1.0', self.newer_chart()))
        # Helm does not upgrade a definition that is in "crds/".
        self.assertIn('node-0', self.kubectl('get', 'newer'))
        self.wait_image(bmc, '1.1.0')
        self.release('rollback', '1')
        self.assertNotIn('newer', self.admin.get(DEFINITION)['spec']['names'][
            'shortNames'])
        self.wait_image(bmc, '1.0.0')
        self.assertNothingDenied()
        self.run_command(shell=last)
        self.release('uninstall')
        self.assertEqual([DEFINITION], self.objects())


class UninstallTestCase(ReleaseCase):

    def test_uninstall_keeps_bmcs(self):
        # Its rights may be deleted before the operator has released the Lease.
        install = ('install', helm_chart.CHART, '--create-namespace',
                   '--set', 'args={--lease-seconds=5}')
        bmc, _ = self.follow_notes(self.release(*install))
        self.release('uninstall')
        self.assertEqual([DEFINITION], self.objects())
        self.assertEqual('Off', bmc.works())
        self.release(*install)
        self.kubectl('delete', 'deployment', 'node-0-virtbmc')
        self.kubectl.wait('deployment/node-0-virtbmc', 'create')
        bmc.ready()
        self.assertEqual('Off', bmc.works())


class TakeOverTestCase(ReleaseCase):

    def test_takes_over_from_kubectl(self):
        self.admin('apply', '-k', operator.MANIFESTS)
        self.assertIn('invalid ownership metadata', self.release(
            'install', helm_chart.CHART, code=1))
        bmc, _ = self.follow_notes(self.release(
            'install', helm_chart.CHART, '--take-ownership',
            '--force-conflicts'))
        self.assertEqual('Off', bmc.works())


class CertManagerTestCase(ReleaseCase):

    def issue(self, certificate):
        """Write the Secret of a Certificate, in place of cert-manager.

        :returns: text of the certificate
        """
        spec = certificate['spec']
        self.assertEqual(
            ({'algorithm': 'ECDSA', 'size': 256}, True, ISSUER),
            (spec['privateKey'], spec['isCA'], spec['issuerRef']))
        issued, key = file_servers.pair(spec['commonName'], ca=True)
        (self.home / 'tls.crt').write_text(issued)
        # cert-manager's default encoding is PKCS #1, for ECDSA SEC 1.
        (self.home / 'tls.key').write_bytes(
            serialization.load_pem_private_key(
                key.encode(), None).private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.TraditionalOpenSSL,
                    serialization.NoEncryption()))
        self.admin('create', 'secret', 'tls', spec['secretName'],
                   '--namespace', operator.NAMESPACE,
                   '--cert', self.home / 'tls.crt',
                   '--key', self.home / 'tls.key')
        return issued

    def test_authority_of_cert_manager(self):
        self.admin.apply(test_manifests.definition(
            'cert-manager.io/v1 Certificate certificates'))
        self.admin.wait('crd/certificates.cert-manager.io',
                        'condition=Established')
        output = self.release('install', helm_chart.CHART,
                              '--create-namespace', '--values', self.values(
                                  {'certManager': {'issuerRef': ISSUER}}))
        issued = self.issue(self.admin.get(
            'certificate', 'sushy-kubevirt-ca', '-n', operator.NAMESPACE))
        bmc, _ = self.follow_notes(output)
        self.assertEqual(issued, bmc.ca_file().read_text())
        self.assertEqual('Off', bmc.works())
        self.assertNothingDenied()


class OpenShiftTestCase(ReleaseCase):

    SANDBOX = ('--openshift',)

    def test_installs(self):
        bmc, _ = self.follow_notes(self.release(
            'install', helm_chart.CHART, '--create-namespace'))
        self.assertEqual('Off', bmc.works())
        self.assertNotIn('runAsUser', self.admin.get(
            'deployment', operator.NAME, '-n', operator.NAMESPACE)['spec'][
                'template']['spec']['securityContext'])
