# SPDX-License-Identifier: Apache-2.0
"""A release of KubeVirtBMC's chart becomes one of this chart, with real helm.

The chart in ``tests/clients/kubevirtbmc`` stands for KubeVirtBMC's. It is
upgraded with the values that users have set, while its BMCs exist.
"""

import json
import pathlib

from kubevirt_sandbox.testing import machines
from tests.clients import test_helm
from tests.fixtures import checkout
from tests.fixtures import documents
from tests.fixtures import kubevirtbmc
from tests.fixtures import operator
from tests.functional.install import test_manifests
from tools import helm_chart

CHART = pathlib.Path(__file__).parent / 'kubevirtbmc'
RELEASE, NAMESPACE = 'kubevirtbmc', 'kubevirtbmc-system'

#: Kinds of the chart that a sandbox lacks, and those of the values.
FOREIGN_KINDS = (
    'cert-manager.io/v1 Issuer issuers',
    'cert-manager.io/v1 Certificate certificates',
    'monitoring.coreos.com/v1 ServiceMonitor servicemonitors',
    'monitoring.coreos.com/v1 PodMonitor podmonitors',
    'monitoring.coreos.com/v1 PrometheusRule prometheusrules')
CLUSTER_KINDS = (
    'admissionregistration.k8s.io/v1 MutatingWebhookConfiguration '
    'mutatingwebhookconfigurations',
    'admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration '
    'validatingwebhookconfigurations')

#: What a user has set: what has a counterpart, and what is ignored.
VALUES = {
    'replicaCount': 1,
    'image': {'repository': 'registry.test/virtbmc-controller',
              'tag': 'v0.7.0', 'pullPolicy': 'IfNotPresent'},
    'serviceMonitor': {'create': True},
    'manager': {'args': ['--leader-elect', '--agent-cpu-request=25m']},
    'podAnnotations': {'team': 'infra'},
    'nodeSelector': {'kubernetes.io/os': 'linux'}}
IGNORED = ("Ignored value of KubeVirtBMC's chart: image: ",
           "Ignored value of KubeVirtBMC's chart: manager: ")

#: Name of each BMC, and of its VM: the second one needs names that
#: KubeVirtBMC has given to its objects.
BMCS = {'lab': 'node-0', 'node-1': 'node-1'}


class KubevirtbmcTestCase(test_helm.ReleaseCase):

    def release(self, action, *words, **more):
        return self.helm(action, RELEASE, *words, '--namespace', NAMESPACE,
                         '--wait', '--timeout', '90s', **more)

    @staticmethod
    def commands(section):
        """List the blocks of commands in a section of the page."""
        return [text for title, text, _ in documents.blocks(
            documents.KUBEVIRTBMC.read_text()) if title == section]

    def run_page(self, command, **more):
        """Run a block of commands of the page; return the output."""
        for name in 'charts', 'etc':
            if not (self.home / name).exists():
                (self.home / name).symlink_to(checkout.ROOT / name)
        return self.run_command(
            shell=f'helm() {{ {test_helm.HELM} "$@"; }}\n'
            + command.replace('REGISTRY', 'registry.test'), **more)

    def delete_left(self):
        """Delete what KubeVirtBMC has left, by the page's command."""
        command, = self.commands('Replacing an installation')
        self.run_page(command)
        self.assertEqual([], self.kubectl.names(
            'deployments', '-l', kubevirtbmc.LEFT))

    def install_kubevirtbmc(self, *words):
        """Install the stand-in, with BMCs as its controller makes them."""
        self.install_kinds()
        self.release('install', CHART, '--create-namespace', '--values',
                     self.values(VALUES), *words)
        self.create_bmcs()

    def install_kinds(self):
        kinds = [test_manifests.definition(one)
                 for one in FOREIGN_KINDS + CLUSTER_KINDS]
        for one in kinds[len(FOREIGN_KINDS):]:
            one['spec']['scope'] = 'Cluster'
        self.admin.apply(*kinds)

    def create_bmcs(self):
        self.sandbox.create('virtualmachines', machines.vm(
            'node-1', 'Halted', 'default'))
        self.kubectl.apply(operator.secret_manifest('login'))
        for name, vm in BMCS.items():
            bmc = operator.bmc_manifest(name)
            bmc['spec'] = {'virtualMachineRef': {'name': vm},
                           'authSecretRef': {'name': 'login'}}
            self.kubectl.apply(bmc)
            self.kubectl('create', '-f', '-', stdin=json.dumps({
                'apiVersion': 'v1', 'kind': 'List',
                'items': kubevirtbmc.objects(
                    self.kubectl.get('vmbmc', name), vm)}))

    def kept(self):
        """Return what must stay: BMCs, their Services, the definition."""
        services = [self.kubectl.get('service', f'{vm}-virtbmc')
                    for vm in BMCS.values()]
        return ([one['spec']['clusterIP'] for one in services], [
            one['metadata']['uid'] for one in [
                *services, self.admin.get(test_helm.DEFINITION),
                *(self.kubectl.get('vmbmc', name) for name in BMCS)]])

    def installed(self, chart):
        """List the objects of a chart that exist, without the definition."""
        text = self.helm('template', RELEASE, chart, '--namespace', NAMESPACE)
        return self.admin(
            'get', '--ignore-not-found', '-o', 'name', '-f', '-',
            stdin=text).replace(test_helm.DEFINITION, '').split()

    def serve(self):
        """Wait until all BMCs are ready; they serve at the old addresses."""
        for name, vm in BMCS.items():
            bmc = operator.Bmc(self.kubectl, name, 'admin', 'password')
            self.assertEqual('Off', bmc.ready().works())
            self.assertEqual('Off', operator.curl(
                'http://%s/redfish/v1/Systems/1' % self.kubectl.get(
                    'service', f'{vm}-virtbmc')['spec']['clusterIP'],
                config='user = "admin:password"').json()['PowerState'])

    def check_values(self):
        """The operator runs with the values that users have set."""
        spec = self.admin.get('deployment', operator.NAME, '-n', NAMESPACE)[
            'spec']
        pod = spec['template']['spec']
        container = pod['containers'][0]
        self.assertEqual(
            (1, VALUES['nodeSelector'], 'IfNotPresent',
             'registry.test/sushy-kubevirt-operator:latest'),
            (spec['replicas'], pod['nodeSelector'],
             container['imagePullPolicy'], container['image']))
        self.assertEqual('infra', spec['template']['metadata'][
            'annotations']['team'])
        self.assertIn('--bmc-cpu=25m', container['args'])
        self.assertEqual(1, len(self.admin.names(
            'podmonitors', '-n', NAMESPACE)))


class UpgradeTestCase(KubevirtbmcTestCase):

    def test_upgrade_rollback_uninstall(self):
        upgrade, keep_nothing = self.commands('Replacing by Helm')
        self.install_kubevirtbmc()
        kept, theirs = self.kept(), self.installed(CHART)
        refused = self.run_page(upgrade.replace(
            '--reset-then-reuse-values', '--reuse-values'), code=1)
        self.assertIn("missing property 'crd'", refused)
        self.assertIn('invalid ownership metadata', self.run_page(
            upgrade.replace('--take-ownership', ''), code=1))
        output = self.run_page(upgrade)
        for one in IGNORED:
            self.assertIn(one, output)
        self.check_values()
        self.serve()
        self.assertEqual(kept, self.kept())
        self.assertEqual([], self.installed(CHART))
        self.assertEqual(['deployment.apps/node-0-virtbmc'],
                         self.kubectl.names('deployments', '-l',
                                            kubevirtbmc.LEFT))

        self.release('rollback', '1')
        self.assertEqual([], self.installed(helm_chart.CHART))
        self.assertEqual(theirs, self.installed(CHART))
        self.assertEqual(kept, self.kept())
        self.serve()

        self.run_page(upgrade.replace('--reset-then-reuse-values',
                                      f'--values {self.values(VALUES)}'))
        self.check_values()
        self.serve()
        self.assertEqual(kept, self.kept())
        self.delete_left()
        self.assertNothingDenied()
        self.release('uninstall')
        self.assertEqual([], self.installed(helm_chart.CHART))
        self.assertEqual(kept, self.kept())
        self.serve()
        self.run_page(keep_nothing)
        self.assertEqual([], self.kubectl.names('deployments'))


class ClientSideTestCase(KubevirtbmcTestCase):
    """A release that Helm 3 has made, which applies on the client's side."""

    def test_upgrade(self):
        upgrade, _ = self.commands('Replacing by Helm')
        self.install_kubevirtbmc('--server-side=false')
        kept = self.kept()
        self.run_page(upgrade, code=1)
        self.run_page(upgrade.replace('--force-conflicts', ''))
        self.check_values()
        self.serve()
        self.assertEqual(kept, self.kept())
        self.assertEqual([], self.installed(CHART))


class ManifestsTestCase(KubevirtbmcTestCase):
    """An installation by manifests is replaced by manifests."""

    def test_replaced(self):
        text = self.helm('template', RELEASE, CHART, '--include-crds',
                         '--namespace', NAMESPACE)
        self.install_kinds()
        self.admin('create', 'namespace', NAMESPACE)
        self.admin('apply', '-n', NAMESPACE, '-f', '-', stdin=text)
        self.admin.wait('crd/virtualmachinebmcs.bmc.kubevirt.io',
                        'condition=Established')
        self.create_bmcs()
        kept = self.kept()
        for command in self.commands('Replacing by manifests'):
            self.run_page(command)
        self.serve()
        self.assertEqual(kept, self.kept())
        self.delete_left()
        self.serve()
