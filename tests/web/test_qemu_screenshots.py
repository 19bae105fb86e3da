# SPDX-License-Identifier: Apache-2.0
"""``tools/screenshots`` makes the pictures of the documentation."""

import pathlib
import subprocess
import sys

import fixtures
from oslotest import base

from tests.fixtures import checkout

PICTURES = checkout.ROOT / 'doc' / 'source' / '_static' / 'web'


class ScreenshotsTestCase(base.BaseTestCase):

    def test_all_pictures(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        done = subprocess.run(
            [sys.executable, '-m', 'tools.web_pictures', '--folder', folder],
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual({one.name for one in PICTURES.iterdir()},
                         {one.name for one in folder.iterdir()})
