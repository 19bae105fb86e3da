# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc media``: by URL and by upload, with progress."""

import os
import pathlib

import fixtures

from tests.fixtures import file_servers
from tests.fixtures import image_server
from tests.fixtures import kubectl_case
from tests.fixtures import operator

MIB = 2 ** 20


class MediaTestCase(kubectl_case.KubectlCase):

    @classmethod
    def arguments(cls):
        url, ca = cls.sandbox.upload_proxy()
        return '--upload-proxy-url', url, '--upload-proxy-ca', ca

    def setUp(self):
        super().setUp()
        self.bmc(virtualMedia={'allowLoopback': True}).ready()

    def device(self, name='cd'):
        """Return the cells of a device."""
        lines = self.plugin('media', 'box').splitlines()
        return next(line.split(maxsplit=4)[1:] for line in lines
                    if line.split()[0] == name)

    def file(self, size):
        folder = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(folder, 'an "image".iso')
        path.write_bytes(os.urandom(size))
        return path

    def test_url(self):
        url = self.useFixture(image_server.ImageServer()).url + '/box.iso'
        self.assertEqual(['<none>', 'Empty', 'OK', '<none>'], self.device())
        self.plugin('media', 'box', 'insert', url, '--device', 'usb')
        self.assertEqual([url, 'Enabled', 'OK', '<none>'], self.device('usb'))
        self.assertEqual('Empty', self.device()[1])
        self.plugin('media', 'box', 'eject', '--device', 'usb')
        self.assertEqual('Empty', self.device('usb')[1])

    def test_progress_in_a_terminal(self):
        """And a medium that is ejected before it is complete."""
        server = self.useFixture(file_servers.Server(
            file_servers.image(b'x' * 5000)))
        self.addCleanup(self.sandbox.request, 'DELETE', '/sandbox/imports')
        self.sandbox.request('POST', '/sandbox/imports', {
            'url': server.url + '/slow.iso', 'rate': 50})
        started = self.terminal('media', 'box', 'insert',
                                server.url + '/slow.iso')
        started.wait(rb'\r\x1b\[KImport \d+ %\r\x1b\[KImport \d+ %')
        self.plugin('media', 'box', 'eject')
        started.wait(b'The medium was ejected meanwhile')
        self.assertEqual(1, started.wait_end(), started.output)

    def test_password_and_certificate(self):
        server = image_server.ImageServer
        url = self.useFixture(server()).url + '/private/box.iso'
        self.assertIn('401', self.refusal(
            'media', 'box', 'insert', url, '--user', server.USER,
            '--password-stdin', stdin='wrong\n'))
        self.plugin('media', 'box', 'insert', url, '--user', server.USER,
                    '--password-stdin', stdin=server.PASSWORD + '\n')
        self.assertEqual([url, 'Enabled', 'OK', '<none>'], self.device())
        pair = file_servers.pair()
        server = self.useFixture(file_servers.Server(
            file_servers.image(b'x' * 5000), pair))
        url = server.url + '/box.iso'
        self.assertIn('certificate', self.refusal(
            'media', 'box', 'insert', url))
        self.plugin('media', 'box', 'insert', url, '--insecure')
        # Of this image, not of the next.
        self.assertIn('certificate', self.refusal(
            'media', 'box', 'insert', url + '?other'))

    def test_upload(self):
        path = self.file(3 * MIB)
        started = self.run_bmc('media', 'box', 'insert', path)
        self.assertEqual(0, started.returncode, started.stderr)
        steps = [line for line in started.stderr.splitlines()
                 if line.startswith('Upload')]
        self.assertEqual('Upload 100 %', steps[-1])
        self.assertEqual(sorted(set(steps), key=steps.index), steps)
        image, *state = self.device()
        self.assertIn('Enabled', state)

    def test_storage_that_is_missing(self):
        self.kubectl.patch('vmbmc', 'box', {'spec': {'virtualMedia': {
            'storageClassName': 'missing'}}})
        operator.Bmc(self.kubectl, 'box', 'admin', '').current()
        url = self.useFixture(image_server.ImageServer()).url + '/box.iso'
        self.assertIn('missing', self.refusal('media', 'box', 'insert', url))

    def test_failures(self):
        server = self.useFixture(image_server.ImageServer())
        self.assertIn('404', self.refusal(
            'media', 'box', 'insert', server.url + '/no.img'))
        self.assertIn('No such file', self.refusal(
            'media', 'box', 'insert', '/no/such.iso'))
        self.assertIn('is empty', self.refusal(
            'media', 'box', 'insert', self.file(0)))
        self.assertIn('Give the URL or the file', self.refusal(
            'media', 'box', 'insert', status=2))
        # The import fails after it has begun.
        server = self.useFixture(file_servers.Server(
            lambda handler: file_servers.send(
                handler, 200 if handler.command == 'HEAD' else 404,
                Content_Length=5000 if handler.command == 'HEAD' else 0)))
        self.assertIn('404', self.refusal(
            'media', 'box', 'insert', server.url + '/late.iso'))
        self.assertEqual('Critical', self.device()[2])
