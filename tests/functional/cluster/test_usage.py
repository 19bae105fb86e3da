# SPDX-License-Identifier: Apache-2.0
"""Interruptions, and completion by bash, of ``sushy-kubevirt-cluster``."""

import pathlib
import signal
import subprocess
import tempfile

import yaml

from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import operator
from tests.fixtures import terminal

COMMAND = process.BIN / 'sushy-kubevirt-cluster'

#: What the package bash-completion has, as far as completions use it here.
HELPER = """
_get_comp_words_by_ref() {
  words=("${COMP_WORDS[@]}")
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD-1]}
}
"""


class CompletionTestCase(base.FunctionalTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.script = subprocess.run(
            [COMMAND, 'complete'], check=True, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60).stdout

    def complete(self, *words):
        """Have bash complete the last word."""
        done = subprocess.run(
            ['bash', '--noprofile', '--norc', '-c', HELPER + self.script + """
             COMP_WORDS=(sushy-kubevirt-cluster "$@")
             COMP_CWORD=$#
             _sushy_kubevirt_cluster
             echo "${COMPREPLY[@]}" """, 'bash', *words],
            check=True, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual('', done.stderr)
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(['teardown'], self.complete('te'))
        self.assertEqual(['--without-openstack'],
                         self.complete('teardown', '--wi'))
        self.assertIn('--format', self.complete('show', '--f'))


class InterruptTestCase(operator.OperatorTestCase):

    SANDBOX = operator.PRETENDED_PODS
    RUNS = False

    def test_interrupted_run(self):
        """Without an operator, ``apply`` would wait for BMCs."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / 'lab.yaml'
        file.write_text(yaml.safe_dump({
            'node_types': {'small': {'vcpus': 1, 'memory_mb': 256}},
            'specs': [{'type': 'small', 'count': 1}]}))
        running = self.useFixture(terminal.Terminal(
            [COMMAND, 'apply', str(file), '--namespace', self.namespace],
            process.environment(folder.name, {
                'KUBECONFIG': self.sandbox.kubeconfig})))
        running.wait(rb'volumes  done')
        running.process.send_signal(signal.SIGINT)
        self.assertEqual(130, running.wait_end(), running.output)
        self.assertNotIn(b'Traceback', running.output)
