# SPDX-License-Identifier: Apache-2.0
import pathlib
import socket
import ssl
import tempfile
import threading
from unittest import mock

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.pod import certificate


class CertificateTestCase(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = [certificates.make(['localhost']) for _ in range(2)]

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.useFixture(fixtures.FakeLogger())

    def mount(self, made, number):
        """Replace the mounted files by one symlink, as kubelet does."""
        folder = self.folder / f'..{number}'
        folder.mkdir()
        (folder / 'tls.crt').write_bytes(made.certificate)
        (folder / 'tls.key').write_bytes(made.key)
        link = self.folder / '..new'
        link.symlink_to(folder.name)
        link.rename(self.folder / '..data')
        for name in 'tls.crt', 'tls.key':
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to('..data/' + name)

    def load(self):
        return certificate.Certificate(str(self.folder / 'tls.crt'),
                                       str(self.folder / 'tls.key'))

    def assert_serves(self, made, one):
        """Check with a client that trusts only the CA of `made`."""
        client = ssl.create_default_context(cadata=made.ca.decode())
        ours, theirs = socket.socketpair()

        def serve():
            with one.context().wrap_socket(theirs, server_side=True) as sock:
                sock.sendall(b'x')

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with client.wrap_socket(
                    ours, server_hostname='localhost') as sock:
                self.assertEqual(b'x', sock.recv(1))
        finally:
            thread.join()

    def test_serves_renewed_certificate(self):
        self.mount(self.made[0], 1)
        one = self.load()
        first = one.context()
        self.assert_serves(self.made[0], one)
        self.assertIs(first, one.context())
        self.mount(self.made[1], 2)
        self.assert_serves(self.made[1], one)
        self.assertIn('was renewed', self.log.output)

    def test_unusable_renewal_keeps_old_certificate(self):
        self.mount(self.made[0], 1)
        one = self.load()
        (self.folder / '..1' / 'tls.crt').write_bytes(b'nonsense')
        for _ in range(3):
            self.assert_serves(self.made[0], one)
        self.assertEqual(1, self.log.output.count('cannot be used'))
        self.assertNotIn('nonsense', self.log.output)
        self.mount(self.made[1], 2)
        self.assert_serves(self.made[1], one)

    def test_mismatched_key_keeps_old_certificate(self):
        self.mount(self.made[0], 1)
        one = self.load()
        (self.folder / '..1' / 'tls.key').write_bytes(self.made[1].key)
        self.assert_serves(self.made[0], one)
        (self.folder / '..1' / 'tls.crt').write_bytes(
            self.made[1].certificate)
        self.assert_serves(self.made[1], one)

    def test_missing_file_keeps_old_certificate(self):
        self.mount(self.made[0], 1)
        one = self.load()
        (self.folder / 'tls.crt').unlink()
        self.assert_serves(self.made[0], one)

    def test_unusable_certificate_at_start_raises_error(self):
        error = self.assertRaises(OSError, self.load)
        self.assertIn('tls.crt', error.strerror)
        self.assertIn('No such file', error.strerror)
        self.mount(self.made[0], 1)
        (self.folder / '..1' / 'tls.crt').write_bytes(b'nonsense')
        error = self.assertRaises(OSError, self.load)
        self.assertIn('tls.crt', error.strerror)
        self.assertNotIn('nonsense', error.strerror)

    def test_makes_new_context_when_tls_sessions_expire(self):
        self.mount(self.made[0], 1)
        one = self.load()
        first = one.context()
        with mock.patch.object(certificate, '_MAX_SESSIONS', 0):
            self.assertIsNot(first, one.context())
        self.assertNotIn('was renewed', self.log.output)

    def test_requires_tls_1_2(self):
        self.mount(self.made[0], 1)
        self.assertEqual(ssl.TLSVersion.TLSv1_2,
                         self.load().context().minimum_version)
