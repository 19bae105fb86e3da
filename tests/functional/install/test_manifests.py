# SPDX-License-Identifier: Apache-2.0
"""``etc/kubernetes``: kustomize output that an API server accepts."""

import pathlib
import re
import shutil
import unittest

import fixtures
import yaml

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import metrics
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec
from tests.fixtures import base
from tests.fixtures import checkout
from tests.fixtures import operator
from tests.fixtures import sandbox

OVERLAYS = operator.MANIFESTS / 'overlays'
COMPONENTS = operator.MANIFESTS / 'components'
SAMPLES = operator.MANIFESTS / 'samples'
ALL = (operator.MANIFESTS, *sorted(OVERLAYS.iterdir()))

#: Kinds of other projects that overlays and samples use.
FOREIGN_KINDS = ('monitoring.coreos.com/v1 ServiceMonitor servicemonitors',
                 'monitoring.coreos.com/v1 PodMonitor podmonitors',
                 'monitoring.coreos.com/v1 PrometheusRule prometheusrules',
                 'cert-manager.io/v1 Issuer issuers',
                 'cert-manager.io/v1 Certificate certificates',
                 'gateway.networking.k8s.io/v1 TLSRoute tlsroutes',
                 'metal.harvesterhci.io/v1alpha1 AddressPool addresspools',
                 'metal.harvesterhci.io/v1alpha1 Inventory inventories',
                 'metal.harvesterhci.io/v1alpha1 Cluster clusters')


@unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
class ManifestsCase(base.FunctionalTestCase):

    def objects(self, folder=operator.MANIFESTS):
        """Return kustomize's objects of a folder: {kind: {name: object}}."""
        found = {}
        for one in operator.manifests(folder):
            found.setdefault(one['kind'], {})[one['metadata']['name']] = one
        return found

    def container(self, objects):
        deployment = objects['Deployment'][naming.OPERATOR]
        return deployment['spec']['template']['spec']['containers'][0]

    def options(self, objects):
        """Parse the operator's command line in its Deployment."""
        container = self.container(objects)
        environ = {one['name']: one.get('value', 'n')
                   for one in container['env']}
        environ['POD_IP'] = '10.0.0.1'
        words = [re.sub(r'\$\((\w+)\)', lambda m: environ[m[1]], word)
                 for word in container['args']]
        return command_line.parse(words, environ)


class KustomizeTestCase(ManifestsCase):

    def test_overlays_have_all_objects_of_base(self):
        base = {(kind, name) for kind, named in self.objects().items()
                for name in named if kind != 'ClusterRoleBinding'}
        for folder in ALL:
            objects = self.objects(folder)
            self.assertEqual([], sorted(base - {
                (kind, name) for kind, named in objects.items()
                for name in named}))
            self.assertEqual([naming.OPERATOR],
                             self.container(objects)['command'])
            self.options(objects)

    def test_options_of_operator(self):
        options = self.options(self.objects())
        self.assertEqual('sushy-kubevirt-emulator:latest', options.image)
        self.assertEqual(('10.0.0.1', 8080), options.listen)
        self.assertEqual((), options.namespaces)
        self.assertIsNone(options.auto_create)

    def test_overlay_namespaced(self):
        objects = self.objects(OVERLAYS / 'namespaced')
        self.assertEqual(('default', 'lab'),
                         self.options(objects).namespaces)
        # What is left names the networks of the cluster.
        self.assertEqual(['sushy-kubevirt-operator-networks'],
                         list(objects['ClusterRoleBinding']))
        self.assertEqual({'default', 'lab'}, {
            one['metadata']['namespace'] for one in yaml.safe_load_all(
                (COMPONENTS / 'namespaced/namespaces.yaml').read_text())})

    def test_overlay_auto_create(self):
        self.assertEqual(
            'bmc.kubevirt.io/auto=true', self.options(
                self.objects(OVERLAYS / 'auto-create')).auto_create)

    def test_all_components_together(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        shutil.copytree(operator.MANIFESTS, folder / 'kubernetes')
        mine = folder / 'mine'
        mine.mkdir()
        (mine / 'kustomization.yaml').write_text(yaml.safe_dump({
            'resources': ['../kubernetes/crd', '../kubernetes/base'],
            'components': ['../kubernetes/components/' + path.name
                           for path in sorted(COMPONENTS.iterdir())]}))
        objects = self.objects(mine)
        options = self.options(objects)
        self.assertEqual(('default', 'lab'), options.namespaces)
        self.assertEqual('bmc.kubevirt.io/auto=true', options.auto_create)
        self.assertIn('PodMonitor', objects)
        # What is left names the networks of the cluster.
        self.assertEqual(['sushy-kubevirt-operator-networks'],
                         list(objects['ClusterRoleBinding']))

    def test_images_are_set_in_one_place(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'k'
        shutil.copytree(operator.MANIFESTS, folder)
        place = folder / 'base/kustomization.yaml'
        changed = yaml.safe_load(place.read_text())
        for image in changed['images']:
            image.update(newName='registry.test/lab/' + image['name'],
                         newTag='1.2')
        place.write_text(yaml.safe_dump(changed))
        objects = self.objects(folder)
        self.assertEqual('registry.test/lab/sushy-kubevirt-operator:1.2',
                         self.container(objects)['image'])
        options = self.options(objects)
        self.assertEqual('registry.test/lab/sushy-kubevirt-emulator:1.2',
                         options.image)
        self.assertEqual(('registry.test/lab/sushy-kubevirt-emulator',),
                         options.allowed_images)

    def test_selectors_match_labels(self):
        objects = self.objects(OVERLAYS / 'prometheus')
        deployment = objects['Deployment'][naming.OPERATOR]['spec']
        labels = deployment['template']['metadata']['labels'].items()
        budget = objects['PodDisruptionBudget'][naming.OPERATOR]['spec']
        service = objects['Service'][naming.OPERATOR]
        for selector in (deployment['selector']['matchLabels'],
                         budget['selector']['matchLabels'],
                         service['spec']['selector']):
            self.assertLessEqual(selector.items(), labels)
        monitor = objects['ServiceMonitor'][naming.OPERATOR]['spec']
        self.assertLessEqual(monitor['selector']['matchLabels'].items(),
                             service['metadata']['labels'].items())
        self.assertEqual(
            [one['name'] for one in service['spec']['ports']],
            [one['port'] for one in monitor['endpoints']])
        # The operator's labels differ from those of a BMC's pod.
        self.assertNotIn('virtbmc', dict(labels).values())
        monitor = objects['PodMonitor']['virtbmc']['spec']
        for pod in naming.selector('node-0'), naming.shared_selector(0):
            self.assertLessEqual(monitor['selector']['matchLabels'].items(),
                                 pod.items())
        self.assertEqual([stored_names.BMC_NAME, stored_names.SHARD],
                         monitor['podTargetLabels'])

    def test_pod_monitor_matches_ports(self):
        monitor = self.objects(OVERLAYS / 'prometheus')['PodMonitor']
        made = deployments.deployment(spec.read({
            'metadata': {'name': 'b', 'namespace': 'n', 'uid': 'u',
                         'generation': 1},
            'spec': {'virtualMachine': {'name': 'v'}}}),
            deployments.Defaults('any'))
        names = {port['name'] for container in made['spec']['template'][
            'spec']['containers'] for port in container['ports']}
        monitored = {one['port'] for one in monitor['virtbmc']['spec'][
            'podMetricsEndpoints']}
        self.assertEqual({'bmc-health'}, monitored)
        self.assertLessEqual(monitored, names)

    def test_alerts_use_existing_metrics(self):
        rules = self.objects(OVERLAYS / 'prometheus')['PrometheusRule']
        shown = metrics.Metrics()
        shown.bmcs = {'ServiceReady': 1}
        known = set(re.findall(r'(?m)^# TYPE (\S+)', shown.text().decode()))
        source = ''.join(
            path.read_text() for package in ('sushy_kubevirt/pod',
                                             'vbmc_kubevirt')
            for path in (checkout.ROOT / package).rglob('*.py'))
        known |= set(re.findall(r"'(virtbmc_\w+)'", source))
        used = set()
        for group in rules[naming.OPERATOR]['spec']['groups']:
            for rule in group['rules']:
                found = set(re.findall(
                    r'\b(?:sushy_kubevirt_operator|virtbmc)_\w+',
                    rule['expr']))
                self.assertNotEqual(set(), found, rule['alert'])
                used |= found
        self.assertEqual(set(), used - known)


@given_cluster.needs_sandbox(
    'a cluster of its own, for the operator that it installs')
class ApplyTestCase(ManifestsCase):
    """The API server accepts all manifests without warnings."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0))
        cls.admin = kubectl.Kubectl(cls.sandbox.kubeconfig)
        cls.admin('create', 'namespace', 'lab')
        cls.admin.apply(*(definition(one) for one in FOREIGN_KINDS))
        for one in FOREIGN_KINDS:
            api, _, plural = one.split()
            cls.admin.wait(f"crd/{plural}.{api.partition('/')[0]}",
                           'condition=Established')

    def apply(self, *words):
        done = self.admin.run('apply', *words)
        self.assertEqual((0, ''), (done.returncode, done.stderr))

    def test_all_overlays_and_samples_apply(self):
        for folder in ALL:
            self.apply('-k', folder)
            self.assertEqual(
                2, self.admin.get('deployment', naming.OPERATOR, '-n',
                                  operator.NAMESPACE)['spec']['replicas'])
        for path in sorted(SAMPLES.glob('*.yaml')):
            self.apply('-f', path)
        self.apply('--server-side', '--force-conflicts', '-k',
                   operator.MANIFESTS)
        for folder in ALL:
            self.admin('delete', '--ignore-not-found', '--wait=false', '-k',
                       folder)


@given_cluster.needs_sandbox('pods that run this checkout')
class InstalledTestCase(ManifestsCase):
    """The installed operator, in pods with the manifests' options."""

    def setUp(self):
        super().setUp()
        self.sandbox = self.useFixture(sandbox.Sandbox(vms=0))
        self.admin = kubectl.Kubectl(self.sandbox.kubeconfig)

    def install(self, folder):
        self.admin('apply', '-k', folder)
        self.admin('rollout', 'status', '--timeout=60s', '-n',
                   operator.NAMESPACE, 'deployment/' + naming.OPERATOR)

    def sample(self, name, namespace='default', **changes):
        """Apply a sample, in a namespace."""
        text = (SAMPLES / name).read_text()
        for old, new in changes.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        self.admin('apply', '-f', '-', stdin=text.replace(
            'namespace: default', 'namespace: ' + namespace))

    def samples(self, namespace):
        for name in 'vm.yaml', 'secret.yaml', 'bmc.yaml':
            self.sample(name, namespace)
        return self.admin.within(namespace)

    def holder(self):
        """Return the name of the pod that is the leader."""
        lease = self.admin.get('lease', naming.OPERATOR, '-n',
                               operator.NAMESPACE)
        return (lease['spec'].get('holderIdentity') or '').partition('_')[0]

    def assertNothingDenied(self):
        self.assertNotIn(operator.USER, self.sandbox.stats()['refused'])

    def test_namespaced_operator(self):
        for name in 'lab', 'elsewhere':
            self.admin('create', 'namespace', name)
        self.install(OVERLAYS / 'namespaced')
        other = self.samples('elsewhere')
        self.samples('lab').wait('vmbmc/node-0', 'condition=Ready')
        self.samples('default').wait('vmbmc/node-0', 'condition=Ready')
        self.assertNotIn('status', other.get('vmbmc', 'node-0'))
        self.assertEqual([], other.names(
            operator.OWNED, '-l', operator.LABEL + 'node-0'))
        self.assertNothingDenied()
        user = ['--as', operator.USER, '-n']
        for namespace, answer in ('lab', 'yes'), ('elsewhere', 'no'):
            done = self.admin.run('auth', 'can-i', 'get', 'secrets',
                                  *user, namespace)
            self.assertEqual(answer, done.stdout.strip())

    def test_auto_create_operator(self):
        self.install(OVERLAYS / 'auto-create')
        self.sample('vm.yaml', **{
            '  name: node-0\n': '  name: node-0\n  labels: '
            '{bmc.kubevirt.io/auto: "true"}\n'})
        self.admin('wait', 'vmbmc/node-0', '--for=create', '--timeout=60s')
        self.admin.wait('vmbmc/node-0', 'condition=Ready')
        self.admin('delete', 'vm', 'node-0')
        self.admin('wait', 'vmbmc/node-0', '--for=delete', '--timeout=60s')
        self.assertNothingDenied()

    def test_other_replica_takes_over(self):
        self.install(operator.MANIFESTS)
        self.samples('default').wait('vmbmc/node-0', 'condition=Ready')
        first = self.holder()
        self.admin('delete', 'pod', first, '-n', operator.NAMESPACE)
        self.admin('delete', 'deployment', 'node-0-virtbmc')
        self.admin('wait', 'deployment/node-0-virtbmc', '--for=create',
                   '--timeout=60s')
        self.admin.wait('vmbmc/node-0', 'condition=Ready')
        self.assertNotEqual(first, self.holder())
        self.assertNothingDenied()


def definition(words):
    """Return a CustomResourceDefinition of a kind without a schema."""
    api, kind, plural = words.split()
    group, _, version = api.partition('/')
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.{group}'},
        'spec': {'group': group, 'scope': 'Namespaced',
                 'names': {'kind': kind, 'plural': plural,
                           'singular': kind.lower()},
                 'versions': [{
                     'name': version, 'served': True, 'storage': True,
                     'schema': {'openAPIV3Schema': {
                         'type': 'object',
                         'x-kubernetes-preserve-unknown-fields': True}}}]}}
