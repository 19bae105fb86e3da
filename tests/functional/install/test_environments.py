# SPDX-License-Identifier: Apache-2.0
"""Environments of suites are made once, and completely or not at all."""

import os
import pathlib
import subprocess
import sys
import threading

import fixtures
from oslotest import base

from tests.fixtures import environments


class EnvironmentTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch(
            'tests.fixtures.environments.CACHE', top / 'cache'))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.fixtures.checkout.ROOT', top))
        self.requirements = top / 'tests' / 'one' / 'requirements.txt'
        self.requirements.parent.mkdir(parents=True)
        # Packages from folders need no network.
        self.package = top / 'package'
        self.package.mkdir()
        (self.package / 'pyproject.toml').write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
            'backend-path = ["."]\n')
        self.requirements.write_text(f'{self.package}\n')
        self.environment = environments.Environment('one')

    def backend(self, text):
        (self.package / 'backend.py').write_text(text)

    def test_made_once_by_processes_at_the_same_time(self):
        self.backend("""
import zipfile
def build_wheel(folder, settings=None, metadata=None):
    with open(__file__ + '.log', 'a') as log:
        log.write('built ')
    name = 'one-1-py3-none-any.whl'
    with zipfile.ZipFile(folder + '/' + name, 'w') as wheel:
        info = 'one-1.dist-info/'
        wheel.writestr(info + 'METADATA',
                       'Metadata-Version: 2.1\\nName: one\\nVersion: 1\\n')
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\n'
                       'Root-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr(info + 'RECORD', '')
    return name
""")
        threads = [threading.Thread(target=self.environment.prepare)
                   for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.environment.prepare()
        self.assertEqual('1', self.environment.version_of('one'))
        self.assertEqual(
            'built ', (self.package / 'backend.py.log').read_text())

    def test_made_again_after_failure(self):
        self.backend('1 / 0')
        for _ in range(2):
            self.assertRaises(subprocess.CalledProcessError,
                              self.environment.prepare)
            self.assertFalse(self.environment.ready)

    def test_another_folder_for_other_requirements(self):
        before = self.environment.folder
        self.requirements.write_text('another\n')
        self.assertNotEqual(before, self.environment.folder)

    def test_command_names_the_environments(self):
        done = subprocess.run(
            [sys.executable, '-m', 'tests.fixtures.environments', 'none'],
            cwd=pathlib.Path(__file__).parents[3], capture_output=True,
            text=True, env=os.environ, stdin=subprocess.DEVNULL)
        self.assertEqual(2, done.returncode)
        self.assertIn('clients', done.stderr)
