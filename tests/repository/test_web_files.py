# SPDX-License-Identifier: Apache-2.0
"""The JavaScript of the web page, as far as its text shows it."""

import pathlib
import re

from oslotest import base

from sushy_kubevirt import web

STATIC = pathlib.Path(web.__file__).parent / 'static'
TEXTS = 'texts.js'


def scripts():
    """Return a dict of name to content of all scripts."""
    return {path.name: path.read_text() for path in STATIC.glob('*.js')}


class TextsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        found = scripts()
        self.texts = set(re.findall(r"^  '?([\w.]+)'?:$|^  '?([\w.]+)'?: ",
                                    found.pop(TEXTS), re.M))
        self.texts = {one or other for one, other in self.texts}
        self.used = set()
        for content in found.values():
            self.used |= set(re.findall(r"(?<![\w.])t\(\s*'([\w.]+)'",
                                        content))
            # Chosen by a condition.
            for call in re.findall(r'(?<![\w.])t\(([^`(){}]*\?[^`(){}]*)\)',
                                   content):
                self.used |= set(re.findall(r"[?:]\s*'([\w.]+)'", call))
        self.starts = set(re.findall(
            r'(?<![\w.])t\(`([\w.]+\.)\$', '\n'.join(found.values())))
        self.starts |= {f'{one}.' for one in re.findall(
            r"pick\('\w+', '(\w+)'\)", '\n'.join(found.values()))}

    def test_every_text_that_is_used_exists(self):
        self.assertGreater(len(self.used), 100)
        self.assertEqual(set(), self.used - self.texts)
        self.assertGreater(len(self.starts), 8)
        for start in self.starts:
            self.assertTrue(any(one.startswith(start) for one in self.texts),
                            start)

    def test_every_text_is_used(self):
        self.assertEqual(set(), {
            one for one in self.texts - self.used
            if not one.startswith(tuple(self.starts))})


class SafetyTestCase(base.BaseTestCase):

    def test_no_text_becomes_html(self):
        for name, content in scripts().items():
            for word in ('innerHTML', 'outerHTML', 'insertAdjacentHTML',
                         'document.write', 'eval(', 'new Function',
                         'DOMParser', 'srcdoc', 'javascript:'):
                self.assertNotIn(word, content, name)

    def test_nothing_names_another_host(self):
        for path in STATIC.iterdir():
            for url in re.findall(r'\w+://[^\s"\'<>]+', path.read_text()):
                self.assertEqual('http://www.w3.org/2000/svg', url, path.name)

    def test_page_has_no_inline_script_or_style(self):
        page = (STATIC / 'index.html').read_text()
        self.assertEqual([''], re.findall(
            r'<script[^>]*>(.*?)</script>', page, re.S))
        self.assertNotIn('<style', page)
        self.assertNotRegex(page, r'\s(on\w+|style)=')

    def test_scripts_import_existing_files(self):
        seen = 0
        for name, content in scripts().items():
            for other in re.findall(
                    r"(?:from|import\()\s*'\./([\w.]+)'", content):
                seen += 1
                self.assertTrue((STATIC / other).exists(),
                                f'{name} imports {other}')
        self.assertGreater(seen, 30)
