# SPDX-License-Identifier: Apache-2.0
"""Large clusters of virtual bare metal, with pods that start at once."""

import pathlib
import subprocess

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from tests.fixtures import virtual_cluster_case


@given_cluster.needs_sandbox('pods that start at once, for many BMCs')
class ManyNodesTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """A hundred nodes."""

    COUNT = 100
    TEXT = f'''
        networks: {{pods: {{attachment: pod}}}}
        node_types:
          a: {{vcpus: 1, memory_mb: 64, physical_networks: [pods],
              volumes: [{{capacity: 1MiB}}]}}
        specs: [{{type: a, count: {COUNT}}}]
        '''

    def run_unchanged(self):
        """Apply the file by the command line, which only reads."""
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'c.yaml').write_text(self.TEXT)
        # Any write would fail.
        self.sandbox.fault('403', verb='WRITE', user=':dev$', count=9)
        done = subprocess.run(
            [process.BIN / 'sushy-kubevirt-cluster', 'apply', 'c.yaml'],
            cwd=folder, env=process.environment(folder, {
                'KUBECONFIG': self.kubeconfig}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        self.assertEqual(('', 'nothing to do\n'), (done.stderr, done.stdout))
        self.sandbox.clear_faults()

    def test_many_nodes(self):
        made = self.read(self.TEXT)
        self.apply(made)
        again = self.new_user()
        self.assertFalse(again.plan(made))
        result = again.apply(made)
        self.assertEqual(self.COUNT, len(result.ready))
        self.assertEqual(0, again.writes())
        self.run_unchanged()
        self.check_teardown('c')
