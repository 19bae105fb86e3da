# SPDX-License-Identifier: Apache-2.0
import datetime
import pathlib
import ssl

from cryptography import x509
import fixtures
from oslotest import base

from sushy_kubevirt.operator import authority

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
NAMES = ('node-virtbmc.lab.svc', 'node-virtbmc', '10.0.0.7', 'fd00::7')


def days(number):
    return NOW + datetime.timedelta(days=number)


class AuthorityTestCase(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.authority = authority.make('an authority', NOW)
        cls.server = authority.issue(cls.authority, NAMES, NOW)

    def shake(self, pair, trusted, name):
        """A handshake, in memory. :raises: `ssl.SSLError`"""
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'pem').write_text(pair.certificate + pair.key)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(folder / 'pem')
        asking = ssl.create_default_context(cadata=trusted.certificate)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = asking.wrap_bio(back, there, server_hostname=name)
        server = serving.wrap_bio(there, back, server_side=True)
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
        self.assertIsNotNone(client.version())

    def test_clients_accept_it(self):
        root = authority.make('an authority')
        server = authority.issue(root, NAMES)
        for name in NAMES:
            self.shake(server, root, name)

    def test_clients_refuse_it(self):
        root = authority.make('an authority')
        server = authority.issue(root, NAMES)
        for pair, trusted, name in (
                (server, root, 'other.lab.svc'),
                (server, root, '10.0.0.8'),
                # Of the same name, and another key.
                (server, authority.make('an authority'), NAMES[0]),
                (authority.issue(root, NAMES, NOW - datetime.timedelta(
                    days=4000)), root, NAMES[0]),
                # A server is no authority.
                (authority.issue(server, NAMES), root, NAMES[0])):
            with self.subTest(name=name):
                self.assertRaises(ssl.SSLError, self.shake, pair, trusted,
                                  name)

    def test_due(self):
        other = authority.make('an authority', NOW)
        for pem, names, signer, now, wanted in (
                (self.server.certificate, NAMES, self.authority, NOW, False),
                (self.server.certificate, NAMES[::-1], self.authority, NOW,
                 False),
                (self.server.certificate, NAMES, self.authority, days(240),
                 False),
                (self.server.certificate, NAMES, self.authority, days(250),
                 True),
                (self.server.certificate, NAMES[:2], self.authority, NOW,
                 True),
                (self.server.certificate, NAMES, other, NOW, True),
                (self.authority.certificate, NAMES, self.authority, NOW,
                 True),
                ('nothing', NAMES, self.authority, NOW, True),
                ('', NAMES, self.authority, NOW, True),
                (self.authority.certificate, (), None, NOW, False),
                (self.authority.certificate, (), None, days(3000), True),
                ('nothing', (), None, NOW, True)):
            with self.subTest(pem=pem[-40:], names=names, now=now):
                self.assertEqual(wanted, authority.due(
                    pem, names, signer, now))

    def test_keys_are_not_shown(self):
        self.assertNotIn('PRIVATE', repr(self.authority))
        self.assertNotIn('PRIVATE', self.server.certificate)

    def test_long_names(self):
        name = 'n' * 63 + '.' + 'm' * 63 + '.svc'
        pair = authority.issue(self.authority, [name], NOW)
        found = x509.load_pem_x509_certificate(pair.certificate.encode())
        self.assertEqual([name], found.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value.get_values_for_type(
                x509.DNSName))
