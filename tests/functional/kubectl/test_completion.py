# SPDX-License-Identifier: Apache-2.0
"""Completion of ``kubectl bmc`` by the real kubectl."""

from kubevirt_sandbox.testing import kubectl
from tests.fixtures import kubectl_case
from tests.fixtures import operator


class CompletionTestCase(kubectl_case.KubectlCase):

    SANDBOX = operator.PRETENDED_PODS
    RUNS = False

    def complete(self, *words):
        """Return candidates, and the directive."""
        *lines, directive = self.user(
            '__complete', 'bmc', *words,
            env={'PATH': kubectl_case.ENVIRONMENT_PATH}).splitlines()
        return [line.partition('\t')[0] for line in lines], directive

    def test_commands_and_options(self):
        names, directive = self.complete('')
        self.assertEqual(':4', directive)
        self.assertLessEqual({'list', 'power', 'boot', 'create'}, set(names))
        self.assertEqual((['power'], ':4'), self.complete('po'))
        self.assertIn('--wait', self.complete('power', 'box', '-')[0])
        self.assertEqual((['uefi', 'legacy'], ':4'),
                         self.complete('boot', 'box', '--mode', ''))

    def test_names_and_actions(self):
        self.vm('box')
        self.kubectl.apply(operator.bmc_manifest('bmc-1', 'box'),
                           operator.bmc_manifest('other', 'box'))
        self.assertEqual((['bmc-1', 'other'], ':4'),
                         self.complete('power', ''))
        self.assertEqual((['bmc-1'], ':4'), self.complete('power', 'bm'))
        self.assertEqual((['on', 'off'], ':4'),
                         self.complete('power', 'bmc-1', 'o'))
        self.assertEqual((['box'], ':4'), self.complete('create', ''))
        self.assertEqual(([], ':4'), self.complete('power', 'bmc-1', 'on', ''))

    def test_namespace_of_command_line(self):
        self.vm('box')
        self.kubectl.apply(operator.bmc_manifest('bmc-1', 'box'))
        self.user = kubectl.Kubectl(self.sandbox.kubeconfig)
        self.assertEqual(([], ':4'), self.complete('power', ''))
        self.assertEqual((['bmc-1'], ':4'), self.complete(
            'power', '-n', self.namespace, ''))
        self.assertEqual((['bmc-1'], ':4'), self.complete(
            f'--namespace={self.namespace}', 'power', ''))

    def test_files_and_unreachable_cluster(self):
        self.assertEqual(([], ':0'), self.complete('list', '--kubeconfig', ''))
        self.assertEqual(([], ':1'), self.complete(
            '--kubeconfig', '/no/such/file', 'power', ''))
