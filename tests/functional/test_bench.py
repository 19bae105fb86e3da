# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs from end to end; its figures are nobody's concern."""

import json
import subprocess
import sys

import fixtures
from oslotest import base

from tests.functional import process


class BenchTestCase(base.BaseTestCase):

    def test_quick(self):
        home = self.useFixture(fixtures.TempDir()).path
        done = subprocess.run(
            [sys.executable, '-m', 'tests.bench', '--quick', '--json', '-'],
            cwd=process.ROOT, env=process.environment(home), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=300)
        self.assertEqual(0, done.returncode, done.stderr)
        result = json.loads(done.stdout)
        for turn in result['turns'].values():
            self.assertLess(0, turn['ratio']['median_ms']['middle'])
        for name in 'GET system, 4 clients', 'ipmitool power status':
            self.assertIn(name, done.stderr)
        self.assertEqual({'emulator', 'vbmcd'},
                         set(result['memory']['ratio']))
        # This is no matter of speed: a GET is answered from the cache.
        self.assertEqual(0, result['api_calls']['calls'])
