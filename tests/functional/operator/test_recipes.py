# SPDX-License-Identifier: Apache-2.0
"""README's block, the quick start and the recipes work as written."""

import base64
import re

import fixtures
import yaml

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures import documents
from tests.fixtures import operator


def codes(output):
    """List the HTTP status codes that curl has printed."""
    return re.findall(r'(?m)(?:^|})(\d{3})$', output)


@given_cluster.needs_sandbox(
    'a cluster whose namespace default is empty, as in the documents')
class RecipesTestCase(operator.OperatorTestCase):

    def shell(self, steps):
        """Run blocks in a new folder; see `documents.run`."""
        return documents.run(steps, self.useFixture(fixtures.TempDir()).path,
                             self.sandbox.kubeconfig)

    @operator.other_platforms
    def test_commands_of_readme(self):
        """README's block, then the quick start with another VM."""
        title = 'A BMC by ``kubectl apply``'
        [block] = [text for one, text, _ in documents.blocks(
            documents.README.read_text()) if one == title]
        steps = [(one, text) for one, text, _ in documents.blocks(
            documents.QUICK_START.read_text())]
        # The commands of NOT_READY need an existing BMC. (The operator that
        # created it is not one of those pods.)
        steps[2:2] = [('wait', f'kubectl --namespace {operator.NAMESPACE} '
                       'rollout status --timeout=60s '
                       f'deployment/{operator.NAME}')] + [
            ('look', text) for _, text, _ in documents.blocks(
                documents.NOT_READY.read_text())]
        said = self.shell([('README', block),
                           ('another', 'kubectl delete vm node-0'), *steps])
        self.addCleanup(self.admin, 'delete', '--wait=false', 'vm', 'node-0')
        self.addCleanup(self.admin, 'scale', '--replicas=0', '-n',
                        operator.NAMESPACE, 'deployment', operator.NAME)
        self.assertIn('BMC node-0 is ready', said['README'])
        self.assertIn('Chassis Power is on', said['README'])
        self.assertIn('ServiceReady', said['look'])
        self.assertIn('Metrics and probes are at', said['look'])
        self.assertIn('Redfish on https://', said['look'])
        self.assertIn('Chassis Power is on', said['IPMI'])
        # Login, system, boot, reset and logout.
        self.assertEqual(['201', '200', '204', '204', '204'],
                         codes(said['Redfish']))
        self.assertIn('deleted', said['Delete the BMC'])
        # The VM of README, and the one of the quick start.
        self.sandbox.wait_boot('node-0', 3)
        self.assertEqual(['Hdd', 'Hdd', 'Pxe'], [
            boot['class'] for boot in self.sandbox.boots('node-0')])
        self.until('objects', lambda: self.kubectl.within('default').names(
            operator.OWNED, '-l', operator.LABEL + 'node-0'), [])

    def test_commands_of_recipes(self):
        found = documents.blocks(documents.RECIPES.read_text())
        manifests = [yaml.safe_load(text) for _, text, _ in found
                     if text.startswith('apiVersion:')]
        steps = [(title, text) for title, text, runs in found
                 if runs and not text.startswith('apiVersion:')]
        self.assertGreater(len(steps), 10)
        said = self.shell(steps)
        self.addCleanup(self.admin, 'delete', '--wait=false', 'vm', 'node-0')
        self.addCleanup(self.admin, 'delete', 'secret', 'node-0-host')
        self.assertIn('Chassis Power is off', said['Inside the cluster'])
        self.assertEqual(4, ''.join(said.values()).count('"PowerState":'))
        self.until('objects', lambda: self.kubectl.within('default').names(
            operator.OWNED, '-l', operator.LABEL + 'node-0'), [])
        self.check_foreign_manifests(manifests)

    def check_foreign_manifests(self, manifests):
        """Check names and paths in manifests of other projects."""
        host, machine = manifests
        self.assertEqual('BareMetalHost', host['kind'])
        self.assertEqual(
            'redfish-virtualmedia://node-0-virtbmc.default.svc'
            '/redfish/v1/Systems/1', host['spec']['bmc']['address'])
        secret = yaml.safe_load(
            (operator.MANIFESTS / 'samples/secret.yaml').read_text())
        name = secret['metadata']['name']
        # Metal3 deletes it with the host: not that of the BMC.
        its = host['spec']['bmc']['credentialsName']
        self.assertNotEqual(name, its)
        data = self.admin.within('default').get('secret', its)['data']
        self.assertEqual(
            {'username': 'admin', 'password': 'correct-horse'},
            {key: base64.b64decode(value).decode()
             for key, value in data.items()})
        connection = machine['spec']['connection']
        self.assertEqual('node-0-virtbmc.default.svc', connection['host'])
        self.assertEqual(name, connection['authSecretRef']['name'])
