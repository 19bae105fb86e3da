# SPDX-License-Identifier: Apache-2.0
"""What fails a test although no assertion of it does; and nothing stays."""

import os
import pathlib
import ssl
import subprocess
import sys

import fixtures

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import guard
from kubevirt_sandbox.testing import webserver
from tests.fixtures import base
from tests.fixtures import browser
from tests.fixtures import checkout
from tests.fixtures import environments

#: A test process that is killed while it has a browser.
KILLED = """
import sys
from tests.fixtures import browser

one = browser.Browser('http://127.0.0.1')
one.setUp()
page = one.page()
page.setUp()
page.page.goto('data:text/html,')
print('open', flush=True)
sys.stdin.read()
"""


def runs(pid):
    """Return whether a process runs; one that has ended has no command."""
    try:
        return pathlib.Path(f'/proc/{pid}/cmdline').read_bytes() != b''
    except OSError:
        return False


class BrowserTestCase(base.FunctionalTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.server = cls.share(webserver.files(cls.folder))
        cls.browser = cls.share(browser.Browser(cls.server.url))

    def fails(self, body, *allowed, load='index.html'):
        """Show a page; return why it fails the test, '' if it does not."""
        (self.folder / 'index.html').write_text(
            '<!DOCTYPE html><html lang="en"><title>Page</title>'
            '<link rel="icon" href="data:,">' + body)
        tab = self.browser.page()
        tab.setUp()
        for one in allowed:
            tab.allow_error(one)
        tab.page.goto(load)
        try:
            tab.cleanUp()
        except AssertionError as exc:
            return str(exc)
        return ''

    def test_nothing_wrong(self):
        self.assertEqual('', self.fails('<p>Text'))

    def test_error_on_console(self):
        body = '<script>console.error("mistake")</script>'
        self.assertIn('console: mistake', self.fails(body))
        self.assertEqual('', self.fails(body, 'mistake'))

    def test_exception(self):
        self.assertIn('exception: ', self.fails('<script>none()</script>'))

    def test_violation_of_policy(self):
        self.assertIn('Content Security Policy', self.fails(
            '<meta http-equiv="Content-Security-Policy" '
            """content="script-src 'self'"><script>1</script>"""))

    def test_another_host(self):
        self.assertIn(
            'request to another host: http://127.0.0.2:1/x.png',
            self.fails('<img alt="" src="http://127.0.0.2:1/x.png">',
                       'Failed to load'))

    def test_barriers(self):
        tab = self.useFixture(self.browser.page())
        tab.page.set_content('<html><title>Page</title><img src="data:,">')
        self.assertEqual(
            {'critical image-alt', 'serious html-has-lang'},
            {one.partition(':')[0] for one in tab.axe()})

    def test_picture(self):
        tab = self.useFixture(self.browser.page())
        tab.page.set_content('<p>Text')
        self.useFixture(fixtures.MonkeyPatch(
            'tests.fixtures.browser.FOLDER', self.folder / 'pages'))
        path = tab.save('name')
        self.assertEqual(b'\x89PNG', path.read_bytes()[:4])
        self.assertIn('<p>Text', path.with_suffix('.html').read_text())


class NewBrowserTestCase(base.FunctionalTestCase):
    """Tests with browsers of their own, one after the other."""

    def test_other_certificates_are_verified(self):
        ours, other = (self.useFixture(certificates.Certificate())
                       for _ in range(2))
        for pins, expected in (([ours.certificate], ''),
                               ([other.certificate], 'ERR_CERT_AUTHORITY')):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(ours.certificate, ours.key)
            server = self.useFixture(webserver.WebServer(
                webserver.Handler, context))
            with browser.Browser(server.url, pins) as one, one.page() as tab:
                # The handler answers 501, which is an answer.
                tab.allow_error('status of 501')
                try:
                    tab.page.goto('/')
                    found = ''
                except one.error as exc:
                    found = str(exc)
                self.assertIn(expected, found)
                self.assertEqual(bool(expected), bool(found), found)

    def test_ends_with_killed_tests(self):
        child = subprocess.Popen(
            [sys.executable, '-c', KILLED], cwd=checkout.ROOT, text=True,
            # Tests have another HOME.
            env=dict(os.environ, XDG_CACHE_HOME=environments.CACHE.parent),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.assertEqual('open\n', child.stdout.readline())
        below = guard.below(child.pid)
        self.assertTrue(any(map(runs, below)))
        child.kill()
        self.until(lambda: not any(map(runs, below)))
