# SPDX-License-Identifier: Apache-2.0
"""The tutorial of virtual bare metal, and README's section on it."""

import pathlib

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import documents
from tests.fixtures import ironic
from tests.fixtures import operator

SECTION = 'Virtual bare metal for OpenStack'

#: A terminal, in which a user leaves the console.
TERMINAL = ('sushy-kubevirt-cluster() { if [ "$1" = console ]; '
            "then echo '~.' | command sushy-kubevirt-cluster \"$@\"; "
            'else command sushy-kubevirt-cluster "$@"; fi; }')


@given_cluster.needs_sandbox('the sandbox that the tutorial starts')
class TutorialTestCase(base.FunctionalTestCase):

    def test_commands(self):
        home = self.useFixture(fixtures.TempDir()).path
        port = str(self.useFixture(ports.Port()).number)
        documents.write_script(
            [('Terminal', TERMINAL)]
            + [(title, text.replace('6385', port))
               for title, text, runs in documents.blocks(
                   documents.TUTORIAL.read_text()) if runs], home)
        shell = self.useFixture(process.Process(
            ['bash', 'script'], cwd=home, env=process.environment(home)))
        self.assertEqual(0, shell.wait(560), shell.tail(80))
        shell.end()
        self.assertEqual([], shell.leftovers)
        said = documents.by_title(shell.output)
        self.assertIn('did you mean "memory_mb"?', said['A cluster file'])
        self.assertIn('exit status 2', said['A cluster file'])
        for word in ('| large-0 | available |', 'CUSTOM_FAST', 'physnet1',
                     'nothing to do'):
            self.assertIn(word, said['Nodes'])
        for word in '\nOn\n', '| Running |', 'Connected to the BMC of':
            self.assertIn(word, said['Power and console'])
        for word in ('memory_mb: 8192 -> 4096', '| small-2 | available |',
                     '| small-2 | removed '):
            self.assertIn(word, said['Changes'])
        self.assertIn('"ironic_driver": "redfish"', said['A server of Nova'])
        self.assertIn('No resources found', said['Remove it'])


@given_cluster.needs_sandbox(
    'a cluster whose namespace default is empty, as in the document')
class ReadmeTestCase(operator.OperatorTestCase):

    def test_commands(self):
        baremetal = self.useFixture(ironic.Ironic())
        home = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(home, 'clouds.yaml').write_text(
            'clouds: {lab: {auth_type: none, auth: '
            f'{{endpoint: "{baremetal.url}"}}}}}}')
        blocks = [text for title, text, _ in documents.blocks(
            documents.README.read_text()) if title == SECTION]
        self.assertEqual(1, len(blocks))
        said = documents.run(
            [('Terminal', TERMINAL + '; export OS_CLOUD=lab'),
             (SECTION, *blocks)], home, self.sandbox.kubeconfig)[SECTION]
        for word in ('create | VirtualMachine', '| large-0 | available |',
                     '| small-0 | Running', 'Connected to the BMC of',
                     '| small-0 | removed '):
            self.assertIn(word, said)
