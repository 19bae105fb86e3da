# SPDX-License-Identifier: Apache-2.0
"""Example commits of the contributor's guide apply, and their tests pass."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import fixtures
from oslotest import base

from tests.fixtures import checkout

PATCHES = sorted((checkout.ROOT / 'doc/source/contributing').glob('*.patch'))

#: Compare documents and the chart with the code, whatever a patch changes.
DOCUMENT_TESTS = {'tests.repository.test_documents',
                  'tests.repository.test_helm_chart',
                  'tests.repository.test_resource_reference'}

_UNIT_TEST = re.compile(
    r'(?m)^\+\+\+ b/(tests/(?:unit|repository)/\S*?test_\w+)\.py$')


def touched_modules():
    """:returns: sorted names of the unit test modules that patches change"""
    return sorted(DOCUMENT_TESTS.union(
        name.replace('/', '.') for path in PATCHES
        for name in _UNIT_TEST.findall(path.read_text())))


class PatchedCheckoutTestCase(base.BaseTestCase):
    """All patches are applied to one copy, in alphabetical order."""

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path).resolve()
        self.copy = folder / 'copy'
        shutil.copytree(checkout.ROOT, self.copy,
                        ignore=shutil.ignore_patterns(
                            '.*', '__pycache__', '*.egg-info', 'build'))
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(('GIT_', 'PYTHON'))}
        self.env.update(
            # A repository around the temporary folder is not to be used.
            GIT_CEILING_DIRECTORIES=str(folder),
            PBR_VERSION='0', PYTHONDONTWRITEBYTECODE='1', OS_LOG_CAPTURE='1',
            # stevedore stores there which entry points it found.
            XDG_CACHE_HOME=str(folder / 'cache'))

    def run_in_copy(self, *command):
        """Run a command, which must succeed; return its output."""
        done = subprocess.run(
            command, cwd=self.copy, env=self.env, text=True, timeout=240,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        words = ' '.join(str(word) for word in command)
        self.assertEqual(0, done.returncode, f'{words}\n{done.stdout}')
        return done.stdout

    def test_patches_apply_and_their_tests_pass(self):
        for path in PATCHES:
            self.run_in_copy('git', 'apply', path)
        # Entry points are read from the copy too.
        self.run_in_copy(sys.executable, 'setup.py', '-q', 'egg_info')
        imported = self.run_in_copy(
            sys.executable, '-c', 'import sushy_kubevirt, tests, '
            'vbmc_kubevirt\nfor one in sushy_kubevirt, tests, vbmc_kubevirt: '
            'print(one.__file__)')
        self.assertEqual(
            [str(self.copy / name / '__init__.py')
             for name in ('sushy_kubevirt', 'tests', 'vbmc_kubevirt')],
            imported.split())
        self.run_in_copy(sys.executable, '-m', 'unittest', *touched_modules())
