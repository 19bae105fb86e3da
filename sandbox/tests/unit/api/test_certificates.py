# SPDX-License-Identifier: Apache-2.0
import datetime
import ipaddress
import ssl

from cryptography.hazmat.primitives import serialization
from cryptography import x509
from oslotest import base

from kubevirt_sandbox.api import certificates
from kubevirt_sandbox.api import der

HOSTS = ('127.0.0.1', '::1', 'localhost', 'kubernetes.default.svc')


class CertificatesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.identity = certificates.make((*HOSTS, 'localhost'))
        self.ca, self.server = (
            x509.load_pem_x509_certificate(pem) for pem in (
                self.identity.ca, self.identity.certificate))

    def test_authority(self):
        self.assertEqual(x509.BasicConstraints(True, 0), self.value(
            self.ca, x509.BasicConstraints))
        usage = self.value(self.ca, x509.KeyUsage)
        self.assertTrue(usage.key_cert_sign and usage.crl_sign)
        self.assertFalse(usage.digital_signature or usage.key_encipherment)
        self.ca.verify_directly_issued_by(self.ca)

    def test_server(self):
        self.server.verify_directly_issued_by(self.ca)
        self.assertEqual(x509.BasicConstraints(False, None), self.value(
            self.server, x509.BasicConstraints))
        usage = self.value(self.server, x509.KeyUsage)
        self.assertTrue(usage.digital_signature)
        self.assertFalse(usage.key_cert_sign)
        names = self.value(self.server, x509.SubjectAlternativeName)
        self.assertEqual(list(HOSTS[2:]),
                         names.get_values_for_type(x509.DNSName))
        self.assertEqual([ipaddress.ip_address(h) for h in HOSTS[:2]],
                         names.get_values_for_type(x509.IPAddress))
        self.assertEqual(
            self.value(self.ca, x509.SubjectKeyIdentifier).digest,
            self.value(self.server, x509.AuthorityKeyIdentifier)
            .key_identifier)
        self.assertEqual(
            x509.SubjectKeyIdentifier.from_public_key(
                self.server.public_key()),
            self.value(self.server, x509.SubjectKeyIdentifier))
        for certificate in (self.ca, self.server):
            now = datetime.datetime.now(datetime.UTC)
            self.assertLess(certificate.not_valid_before_utc, now)
            self.assertGreater(certificate.not_valid_after_utc,
                               now + datetime.timedelta(days=364))

    @staticmethod
    def value(certificate, kind):
        return certificate.extensions.get_extension_for_class(kind).value

    def test_key(self):
        key = serialization.load_pem_private_key(self.identity.key, None)
        self.assertEqual(self.server.public_key(), key.public_key())

    def test_strict_clients(self):
        context = ssl.create_default_context(
            cadata=self.identity.ca.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        for host, expected in (('localhost', True), ('example.test', False)):
            here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = context.wrap_bio(here, there, server_hostname=host)
            server = self.identity.context().wrap_bio(
                there, here, server_side=True)
            self.assertEqual(expected, self.shake(client, server), host)

    @staticmethod
    def shake(client, server):
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLCertVerificationError:
                    return False
        return True

    def test_identifiers(self):
        self.assertEqual('06082a8648ce3d040302', der.identifier(
            '1.2.840.10045.4.3.2').hex())
