# SPDX-License-Identifier: Apache-2.0
"""The contributor's guide names files and tests that exist."""

import re

from oslotest import base

from tests.fixtures import checkout

GUIDE = checkout.ROOT / 'doc/source/contributing.rst'
PATCHES = sorted((checkout.ROOT / 'doc/source/contributing').glob('*.patch'))


class GuideTestCase(base.BaseTestCase):

    def test_guide_includes_every_patch(self):
        self.assertEqual(
            [path.name for path in PATCHES],
            sorted(re.findall(r'literalinclude:: contributing/(\S+)',
                              GUIDE.read_text())))

    def test_quoted_files_and_tests_exist(self):
        text = GUIDE.read_text()
        paths = re.findall(r'``([a-z_]+/[\w/.-]+\.[a-z]+)``', text)
        self.assertGreater(len(paths), 40)
        for path in paths:
            if 'NAME' not in path:
                self.assertTrue((checkout.ROOT / path).exists(), path)
        source = '\n'.join(path.read_text() for path in (
            checkout.ROOT / 'tests').rglob('test_*.py'))
        for name in re.findall(r'``(test_\w+|\w+Test)``', text):
            self.assertTrue(re.search(rf'(def|class) {name}\(', source), name)

    def test_subject_and_body(self):
        for path in PATCHES:
            with self.subTest(patch=path.name):
                message, _separator, diff = path.read_text().partition(
                    '\n---\n')
                subject, blank, *body = message.split('\n')
                self.assertRegex(subject, r'^[A-Z].{0,70}[^.]$')
                self.assertEqual('', blank)
                self.assertIn(len(body), range(1, 4))
                self.assertTrue(all(line.strip() for line in body), body)
                self.assertTrue(diff.startswith('diff --git a/'))
