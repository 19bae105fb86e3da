# SPDX-License-Identifier: Apache-2.0
"""Large clusters of virtual bare metal, with pods that start at once."""

import pathlib
import subprocess
import time

import fixtures
from testtools import content

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from tests.fixtures import virtual_cluster_case


@given_cluster.needs_sandbox('pods that start at once, for many BMCs')
class ManyNodesTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """A hundred nodes."""

    COUNT = 100
    #: Limits of the promises, in seconds: of `apply`, and of a command with
    #: an unchanged cluster of 50 nodes.
    APPLY, UNCHANGED = 60, 5

    TEXT = f'''
        networks: {{pods: {{attachment: pod}}}}
        node_types:
          a: {{vcpus: 1, memory_mb: 64, physical_networks: [pods],
              volumes: [{{capacity: 1MiB}}]}}
        specs: [{{type: a, count: {COUNT}}}]
        '''

    def run_unchanged(self):
        """Apply the file by the command line.

        :returns: seconds
        """
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'c.yaml').write_text(self.TEXT)
        # Any write would fail.
        self.sandbox.fault('403', verb='WRITE', user=':dev$', count=9)
        began = time.monotonic()
        done = subprocess.run(
            [process.BIN / 'sushy-kubevirt-cluster', 'apply', 'c.yaml'],
            cwd=folder, env=process.environment(folder, {
                'KUBECONFIG': self.kubeconfig}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        seconds = time.monotonic() - began
        self.assertEqual(('', 'nothing to do\n'), (done.stderr, done.stdout))
        self.sandbox.clear_faults()
        return seconds

    def test_many_nodes(self):
        made = self.read(self.TEXT)
        applied = self.apply(made).seconds
        again = self.new_user()
        began = time.monotonic()
        self.assertFalse(again.plan(made))
        planned = time.monotonic() - began
        result = again.apply(made)
        self.assertEqual(self.COUNT, len(result.ready))
        self.assertEqual(0, again.writes())
        unchanged = self.run_unchanged()
        began = time.monotonic()
        self.check_teardown('c')
        self.addDetail('figures', content.text_content(
            f'apply {applied:.1f} s, plan {planned:.2f} s, unchanged '
            f'{result.seconds:.2f} s, by the command line {unchanged:.2f} s, '
            f'teardown {time.monotonic() - began:.1f} s'))
        self.assertLess(applied, self.APPLY)
        # On a busy machine, both take longer.
        self.assertLess(unchanged, max(self.UNCHANGED, applied / 4))
