# SPDX-License-Identifier: Apache-2.0
"""Every package that the images pin has wheels for their architectures."""

import re
import subprocess

import fixtures

from tests.fixtures import base
from tests.fixtures import containerfile
from tools import locks
from tools import uv


class OtherArchitectureTestCase(base.FunctionalTestCase):

    def test_every_package_has_wheels_for_both(self):
        for platform in locks.PLATFORMS:
            # The stage that builds has the image's architecture, too.
            for path in containerfile.FOLDER.glob('**/*requirements.txt'):
                done = self.install(platform, '--no-deps',
                                    '--require-hashes', '--requirement', path)
                self.assertEqual(0, done.returncode, done.stdout)

    def test_a_package_without_wheels_for_one_is_noticed(self):
        # It has wheels for x86_64 alone.
        done = self.install('aarch64-manylinux_2_36', 'intel-openmp')
        self.assertIn('no wheels with a matching platform tag', done.stdout)

    def install(self, platform, *words):
        """Have uv do all of an installation but the download of wheels."""
        folder = self.useFixture(fixtures.TempDir()).path
        done = uv.run(
            'pip', 'install', '--dry-run', '--target', folder,
            '--only-binary', ':all:', '--python-platform', platform,
            '--python-version', locks.python_version(), *words,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300)
        if re.search(containerfile.NO_INDEX, done.stdout):
            self.skipTest('no package index can be reached')
        return done
