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
        """As Kubernetes does it: one link is turned."""
        folder = self.folder / ('..%d' % number)
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

    def assertServes(self, made, one):
        """A client that trusts one authority alone is served."""
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

    def test_renewed(self):
        self.mount(self.made[0], 1)
        one = self.load()
        first = one.context()
        self.assertServes(self.made[0], one)
        self.assertIs(first, one.context())
        self.mount(self.made[1], 2)
        self.assertServes(self.made[1], one)
        self.assertIn('was renewed', self.log.output)

    def test_what_cannot_be_used_leaves_the_old_one(self):
        self.mount(self.made[0], 1)
        one = self.load()
        (self.folder / '..1' / 'tls.crt').write_bytes(b'nonsense')
        for _ in range(3):
            self.assertServes(self.made[0], one)
        self.assertEqual(1, self.log.output.count('cannot be used'))
        self.assertNotIn('nonsense', self.log.output)
        self.mount(self.made[1], 2)
        self.assertServes(self.made[1], one)

    def test_key_of_another(self):
        self.mount(self.made[0], 1)
        one = self.load()
        (self.folder / '..1' / 'tls.key').write_bytes(self.made[1].key)
        self.assertServes(self.made[0], one)
        (self.folder / '..1' / 'tls.crt').write_bytes(
            self.made[1].certificate)
        self.assertServes(self.made[1], one)

    def test_gone(self):
        self.mount(self.made[0], 1)
        one = self.load()
        (self.folder / 'tls.crt').unlink()
        self.assertServes(self.made[0], one)

    def test_unusable_at_the_start(self):
        error = self.assertRaises(OSError, self.load)
        self.assertIn('tls.crt', error.strerror)
        self.assertIn('No such file', error.strerror)
        self.mount(self.made[0], 1)
        (self.folder / '..1' / 'tls.crt').write_bytes(b'nonsense')
        error = self.assertRaises(OSError, self.load)
        self.assertIn('tls.crt', error.strerror)
        self.assertNotIn('nonsense', error.strerror)

    def test_sessions_are_not_kept_for_ever(self):
        self.mount(self.made[0], 1)
        one = self.load()
        first = one.context()
        with mock.patch.object(certificate, '_MAX_SESSIONS', 0):
            self.assertIsNot(first, one.context())
        self.assertNotIn('was renewed', self.log.output)

    def test_no_old_protocols(self):
        self.mount(self.made[0], 1)
        self.assertEqual(ssl.TLSVersion.TLSv1_2,
                         self.load().context().minimum_version)
