# SPDX-License-Identifier: Apache-2.0
"""The files of the web page."""

import gzip
import pathlib
import re

import fixtures

from sushy_kubevirt.redfish.resources import web_page
from sushy_kubevirt import web
from tests.unit.redfish import base

STATIC = pathlib.Path(web.__file__).parent / 'static'


class WebPageTestCase(base.AccountsTestCase):

    def test_page_and_files_need_no_login(self):
        page = self.client.get('/')
        self.assertEqual(200, page.status_code)
        self.assertEqual('text/html; charset=utf-8', page.content_type)
        self.assertEqual((STATIC / 'index.html').read_bytes(), page.data)
        for name in re.findall(r'(?:src|href)="/(web/[^"]+)"', page.text):
            self.assertEqual(200, self.client.get('/' + name).status_code)

    def test_every_file_is_served_with_strict_headers(self):
        for path in ('/', *('/web/' + one.name for one in STATIC.iterdir())):
            answer = self.client.get(path)
            self.assertEqual(200, answer.status_code, path)
            headers = answer.headers
            self.assertEqual('nosniff', headers['X-Content-Type-Options'])
            self.assertEqual('DENY', headers['X-Frame-Options'])
            policy = headers['Content-Security-Policy']
            self.assertNotIn('unsafe', policy)
            self.assertIn("default-src 'none'", policy)
            self.assertIn("frame-ancestors 'none'", policy)

    def test_only_files_of_the_page_are_served(self):
        for path in ('/web/', '/web/absent.js', '/web/__init__.py',
                     '/web/static', '/web/.', '/web/a\0.js'):
            self.assertEqual(404, self.client.get(path).status_code, path)
        self.assertEqual(401, self.client.post('/').status_code)

    def test_compressed_and_revalidated(self):
        plain = self.client.get('/')
        self.assertNotIn('Content-Encoding', plain.headers)
        packed = self.client.get('/', headers={'Accept-Encoding': 'gzip'})
        self.assertEqual('gzip', packed.headers['Content-Encoding'])
        self.assertEqual(plain.data, gzip.decompress(packed.data))
        again = self.client.get('/', headers={
            'If-None-Match': plain.headers['ETag']})
        self.assertEqual(304, again.status_code)
        self.assertIn('Content-Security-Policy', again.headers)


class WebModulesTestCase(base.RedfishTestCase):

    def setUp(self):
        self.above = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.folder = self.above / 'modules'
        self.folder.mkdir()
        self.CONFIG = {
            'SUSHY_EMULATOR_KUBEVIRT_WEB_MODULES': str(self.folder)}
        super().setUp()

    def test_modules_come_from_their_folder(self):
        where = self.folder / 'novnc' / 'core'
        where.mkdir(parents=True)
        (where / 'rfb.js').write_text('export default 1;')
        answer = self.client.get('/web/modules/novnc/core/rfb.js')
        self.assertEqual('export default 1;', answer.text)
        self.assertTrue(answer.content_type.startswith('text/javascript'))
        self.assertEqual(404, self.client.get(
            '/web/modules/xterm/xterm.mjs').status_code)

    def test_files_beside_the_folders_are_not_served(self):
        static = self.above / 'static'
        static.mkdir()
        self.useFixture(fixtures.MockPatchObject(
            web_page, '_STATIC', str(static)))
        beside = self.above / 'x.js'
        beside.write_text('secret')
        for where in '/web/', '/web/modules/':
            for name in ('../x.js', '%2e%2e/x.js', '..%2fx.js',
                         'a/../../x.js', str(beside), f'%2f{beside}'):
                # Flask merges slashes, and redirects.
                answer = self.client.get(where + name, follow_redirects=True)
                self.assertEqual(404, answer.status_code, where + name)


class NoWebPageTestCase(base.RedfishTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_WEB_PAGE': False}

    def test_nothing_is_served(self):
        for path in '/', '/web/index.html', '/web/modules/novnc/core/rfb.js':
            self.assertEqual(404, self.client.get(path).status_code)
