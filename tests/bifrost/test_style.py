# SPDX-License-Identifier: Apache-2.0
"""Playbook and role have no findings of ansible-lint."""

import os
import pathlib
import subprocess

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import process
from tests.bifrost import case


class StyleTestCase(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case.ENVIRONMENT.prepare()

    def test_ansible_lint(self):
        home = self.useFixture(fixtures.TempDir()).path
        done = subprocess.run(
            [case.BIN / 'ansible-lint', '--offline', '--nocolor',
             '--strict', '--config-file',
             pathlib.Path(__file__).with_name('ansible-lint.yaml'), '.'],
            cwd=case.OURS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=240,
            env=process.environment(home, {'PATH': os.pathsep.join(
                (str(case.BIN), os.environ['PATH']))}))
        self.assertEqual(0, done.returncode, done.stdout)
