# SPDX-License-Identifier: Apache-2.0
import base64
import datetime
import pathlib
import ssl
import struct
import time

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
import fixtures
from oslotest import base

from sushy_kubevirt.operator import pki

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
PEM = serialization.Encoding.PEM
NAMES = ('node-virtbmc.lab.svc', 'node-virtbmc', '10.0.0.7', 'fd00::7')


def days(number):
    return NOW + datetime.timedelta(days=number)


class PkiTestCase(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.authority = pki.make('an authority', NOW)
        cls.server = pki.issue(cls.authority, NAMES, NOW)

    def handshake(self, pair, trusted, name):
        """Do a TLS handshake in memory.

        :raises: `ssl.SSLError`
        """
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'pem').write_text(pair.certificate + pair.key)
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_context.load_cert_chain(folder / 'pem')
        client_context = ssl.create_default_context(cadata=trusted.certificate)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(to_client, to_server,
                                         server_hostname=name)
        server = server_context.wrap_bio(to_server, to_client,
                                         server_side=True)
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
        self.assertIsNotNone(client.version())

    def test_usable_key_types_and_formats(self):
        self.assertEqual('', pki.fault(self.server))
        self.assertTrue(pki.fault(pki.Pair(
            self.server.certificate, self.authority.key)))
        formats = serialization.PrivateFormat
        for key, kinds in (
                (rsa.generate_private_key(65537, 2048), (
                    formats.PKCS8, formats.TraditionalOpenSSL)),
                (ec.generate_private_key(ec.SECP384R1()), (
                    formats.PKCS8, formats.TraditionalOpenSSL)),
                (ed25519.Ed25519PrivateKey.generate(), (formats.PKCS8,))):
            certificate = pki._builder(
                pki._name('a'), pki._name('a'), key, NOW,
                pki.CERTIFICATE_LIFE).sign(
                    key, None if isinstance(key, ed25519.Ed25519PrivateKey)
                    else hashes.SHA256()).public_bytes(PEM).decode()
            for kind in kinds:
                text = key.private_bytes(
                    PEM, kind, serialization.NoEncryption()).decode()
                for one in (text, text.replace('\n', '\r\n'),
                            '# A comment\n' + certificate + text):
                    self.assertEqual('', pki.fault(
                        pki.Pair(certificate, one)), (key, kind))
            self.assertTrue(pki.fault(pki.Pair(
                certificate, key.private_bytes(
                    PEM, formats.PKCS8, serialization.BestAvailableEncryption(
                        b'x')).decode())))

    def test_expensive_key_check_is_avoided(self):
        # Mersenne primes. A check of them takes 11 s and 98 s.
        for one, other in ((4253, 4423), (9689, 9941)):
            p, q, e = 2 ** one - 1, 2 ** other - 1, 65537
            d = pow(e, -1, (p - 1) * (q - 1))
            text = rsa.RSAPrivateNumbers(
                p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p),
                rsa.RSAPublicNumbers(e, p * q)).private_key(
                    unsafe_skip_rsa_key_validation=True).private_bytes(
                        PEM, serialization.PrivateFormat.PKCS8,
                        serialization.NoEncryption()).decode()
            begin = time.thread_time()
            self.assertTrue(pki.fault(pki.Pair(
                self.server.certificate, text)))
            self.assertLess(time.thread_time() - begin, 1)

    def test_unsupported_key_type(self):
        # OpenSSL computes the public key and refuses some keys with an error
        # that the cryptography package does not know.
        large = (b'\x02\x82\x09\xc4' + b'\x7f' * 2500)
        dh = bytes.fromhex('06092a864886f70d010301')
        inner = b'\x30\x82\x13\x90' + large + large
        kind = b'\x30\x82\x13\x9f' + dh + inner
        whole = (b'\x02\x01\x00' + kind + b'\x04\x82\x09\xc8' + large)
        text = '-----BEGIN PRIVATE KEY-----\n%s-----END PRIVATE KEY-----\n' % (
            base64.encodebytes(b'\x30\x82' + struct.pack('>H', len(whole))
                               + whole).decode())
        self.assertTrue(pki.fault(pki.Pair(
            self.server.certificate, text)))

    def test_certificate_with_invalid_version(self):
        der = x509.load_pem_x509_certificate(
            self.server.certificate.encode()).public_bytes(
                serialization.Encoding.DER)
        odd = '-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n' % (
            base64.encodebytes(der.replace(
                bytes.fromhex('a003020102'), bytes.fromhex('a003020105'), 1)
            ).decode())
        self.assertTrue(pki.fault(pki.Pair(
            odd, self.server.key)))
        self.assertTrue(pki.due(odd, NAMES, self.authority, NOW))

    def test_clients_accept_issued_certificate(self):
        root = pki.make('an authority')
        server = pki.issue(root, NAMES)
        for name in NAMES:
            self.handshake(server, root, name)

    def test_clients_refuse_other_names_issuers_and_dates(self):
        root = pki.make('an authority')
        server = pki.issue(root, NAMES)
        for pair, trusted, name in (
                (server, root, 'other.lab.svc'),
                (server, root, '10.0.0.8'),
                # An authority with the same name and another key.
                (server, pki.make('an authority'), NAMES[0]),
                (pki.issue(root, NAMES, NOW - datetime.timedelta(
                    days=4000)), root, NAMES[0]),
                # A server certificate cannot issue certificates.
                (pki.issue(server, NAMES), root, NAMES[0])):
            with self.subTest(name=name):
                self.assertRaises(ssl.SSLError, self.handshake, pair, trusted,
                                  name)

    def test_renewal_is_due(self):
        other = pki.make('an authority', NOW)
        for pem, names, signer, now, expected in (
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
                self.assertEqual(expected, pki.due(
                    pem, names, signer, now))

    def test_repr_contains_no_key(self):
        self.assertNotIn('PRIVATE', repr(self.authority))
        self.assertNotIn('PRIVATE', self.server.certificate)

    def test_long_dns_name(self):
        name = 'n' * 63 + '.' + 'm' * 63 + '.svc'
        pair = pki.issue(self.authority, [name], NOW)
        found = x509.load_pem_x509_certificate(pair.certificate.encode())
        self.assertEqual([name], found.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value.get_values_for_type(
                x509.DNSName))
