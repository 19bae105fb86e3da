# SPDX-License-Identifier: Apache-2.0
"""Certificates that the conditions say nothing about."""

import datetime

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import bmc as bmcs
from sushy_kubevirt.operator.diagnose import certificates
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import pki
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator.diagnose import fakes

NOW = datetime.datetime.now(datetime.UTC)


def der(pem):
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(
        serialization.Encoding.DER)


class CertificatesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        self.authority = pki.make('test', NOW)
        self.names = endpoints.names(bodies.bmc(), bodies.service())
        self.publish(self.authority.certificate)

    def publish(self, text):
        self.client.put(bmc_resources.CONFIG_MAP, fakes.named(
            'node-virtbmc-ca', 'lab', data={'ca.crt': text}))

    def issue(self, names=None, at=NOW):
        return pki.issue(self.authority, names or self.names, at).certificate

    def check(self, pem, served=None, now=NOW, **spec):
        judged = cases.judged(bodies.body(**spec),
                              {'service': bodies.service()})
        found = list(certificates.check(
            fakes.reading(self.client), bmcs.Bmc(
                judged[0], {}, *judged[1:], pem, served), now))
        self.message = ' '.join(one.message for one in found)
        return fakes.brief(found)

    MINE = {'redfish': {'tls': {'secretName': 'mine'}}}

    def test_certificate_of_the_operator(self):
        pem = self.issue()
        self.assertEqual([('ok', 'CertificateValid')],
                         self.check(pem, der(pem)))
        self.assertEqual([], self.check(None))

    def test_other_names_or_another_authority(self):
        outdated = [('problem', 'CertificateOutdated')]
        self.assertEqual(outdated, self.check(self.issue(('old',))))
        pem = self.issue()
        self.publish(pki.make('test').certificate)
        self.assertEqual(outdated, self.check(pem))
        # While the authority is renewed, the bundle has both.
        self.publish(pki.make('test').certificate
                     + self.authority.certificate)
        self.assertEqual([('ok', 'CertificateValid')], self.check(pem))
        self.publish('')
        self.assertEqual([('problem', 'AuthorityNotPublished')],
                         self.check(pem))

    def test_not_renewed(self):
        self.assertEqual(
            [('problem', 'CertificateExpired')], self.check(
                self.issue(), now=NOW + datetime.timedelta(days=400)))

    def test_another_certificate_is_served(self):
        self.assertEqual(
            [('warning', 'CertificateNotServed'), ('ok', 'CertificateValid')],
            self.check(self.issue(), der(self.issue())))

    def test_certificate_of_a_user(self):
        pem = self.issue(('bmc.example.com', '192.0.2.1'))
        self.assertEqual([('ok', 'CertificateValid')],
                         self.check(pem, **self.MINE))
        self.assertIn('for bmc.example.com, 192.0.2.1.', self.message)
        soon = NOW + pki.CERTIFICATE_LIFE - datetime.timedelta(days=3)
        self.assertEqual(
            [('warning', 'CertificateExpiresSoon'),
             ('ok', 'CertificateValid')],
            self.check(pem, now=soon, **self.MINE))
        # A condition reports this.
        self.assertEqual([], self.check(
            pem, now=NOW + datetime.timedelta(days=400), **self.MINE))

    def test_certificate_without_a_name(self):
        # That of an authority has none.
        self.assertEqual([('warning', 'CertificateWithoutName')],
                         self.check(self.authority.certificate, **self.MINE))

    def test_names_that_cannot_be_read(self):
        # A name of kind x400Address, which the library refuses.
        key = ec.generate_private_key(ec.SECP256R1())
        pem = x509.CertificateBuilder(
            x509.Name([]), x509.Name([]), key.public_key(), 1, NOW,
            NOW + datetime.timedelta(days=30)).add_extension(
                x509.UnrecognizedExtension(
                    x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
                    bytes.fromhex('3004a3023000')), False).sign(
                        key, hashes.SHA256()).public_bytes(
                            serialization.Encoding.PEM).decode()
        self.assertEqual([('warning', 'CertificateWithoutName')],
                         self.check(pem, **self.MINE))
