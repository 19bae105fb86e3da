# SPDX-License-Identifier: Apache-2.0
"""``tools/bench --compare`` measures another agent beside this project's."""

import json
import pathlib
import subprocess
import sys

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout

#: A second instance of this project, without IPMI.
AGENT = """\
#!/bin/sh
echo 'not served: ipmi: this agent has no IPMI'
export BENCH_SERVE=redfish
exec tests/bench/agents/project {bin}
"""


@given_cluster.needs_sandbox('a cluster of its own')
class CompareTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def bench(self, *words):
        return subprocess.run(
            [sys.executable, '-m', 'tests.bench', *words],
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=300,
            env={**process.environment(self.folder),
                 'TMPDIR': str(self.folder)})

    def test_second_instance(self):
        agent = self.folder / 'agent'
        agent.write_text(AGENT.format(bin=process.BIN))
        agent.chmod(0o755)
        figures = self.folder / 'figures.json'
        done = self.bench('--quick', '--compare', str(agent), '--as', 'twin',
                          '--json', str(figures))
        self.assertEqual(0, done.returncode, done.stderr)
        rows = {(row['name'], row['unit'], row.get('neighbour')): row
                for row in json.loads(figures.read_text())['rows']}

        for protocol in 'HTTPS', 'HTTP':
            row = rows[f'GET system, {protocol}, 1 client', 'a second', 'twin']
            self.assertEqual(2, row['rounds'])
            for name in 'value', 'other', 'ratio':
                self.assertGreater(row[name], 0, name)
        calls = rows['POST Reset On', 'API calls', 'twin']
        self.assertEqual(calls['value'], calls['other'])
        self.assertEqual(
            1, rows['POST Reset On', 'API calls', 'PUT start']['other'])
        self.assertGreater(rows['start to first answer, Redfish',
                                'ms, median', 'twin']['other'], 0)
        for key in (('IPMI commands to the BMC, one session', 'a second'),
                    ('idle BMC, both protocols', 'MiB of PSS'),
                    ('start to first answer, IPMI', 'ms, median'),
                    ('start to first answer, both protocols', 'ms, median')):
            row = rows[(*key, 'twin')]
            self.assertGreater(row['value'], 0, key)
            self.assertEqual('twin: not served: this agent has no IPMI',
                             row['reason'])
            self.assertNotIn('ratio', row)
            self.assertIn('not compared: ' + ', '.join(key), done.stdout)
        self.assertEqual([], process.running(str(self.folder)))

    def test_agent_that_fails(self):
        # A version whose Redfish does not start.
        (self.folder / 'sushy-kubevirt-ipmi').symlink_to(
            process.BIN / 'sushy-kubevirt-ipmi')
        done = self.bench('--quick', '--compare',
                          f'tests/bench/agents/project {self.folder}')
        self.assertNotEqual(0, done.returncode)
        self.assertRegex(done.stderr, 'project .* ended with 127; its output')
        self.assertRegex(done.stderr,
                         'sushy-kubevirt-redfish.*No such file')
