# SPDX-License-Identifier: Apache-2.0
import base64
import datetime
import tracemalloc

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from oslotest import base

from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator import bodies


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class SecretSummaryTestCase(base.BaseTestCase):

    def test_contains_no_secret_data(self):
        pair = pki.make('any')
        secret = bodies.secret(annotations={
            'kubectl.kubernetes.io/last-applied-configuration': 'a secret',
            'bmc.kubevirt.io/allow-from': 'lab'})
        secret['data'].update(secret_summary.data(pair))
        summary = secret_summary.summarize(secret)
        for text in ('a secret', encoded('a secret'), 'PRIVATE KEY',
                     secret['data'][secret_summary.KEY]):
            self.assertNotIn(text, repr(summary))
        self.assertEqual(pair.certificate, summary.certificate)
        self.assertEqual({'bmc.kubevirt.io/allow-from': 'lab'},
                         summary.obj['metadata']['annotations'])
        del secret['metadata']['annotations']['bmc.kubevirt.io/allow-from']
        self.assertNotIn('a secret', repr(secret_summary.summarize(secret)))

    def test_digest_depends_on_credentials_and_role(self):
        one = secret_summary.summarize(bodies.secret()).digest
        self.assertEqual(one, secret_summary.summarize(
            bodies.secret('far')).digest)
        for other in ({'username': 'b', 'password': 'a secret'},
                      {'username': 'admin', 'password': 'b'},
                      {'username': 'admin'},
                      {'username': 'admin', 'password': 'a secret',
                       'role': 'ReadOnly'}):
            self.assertNotEqual(one, secret_summary.summarize(
                bodies.secret(**other)).digest)

    def test_certificate_is_kept_if_usable(self):
        pair, other = pki.make('one'), pki.make('other')
        for certificate, key, good in (
                (pair.certificate, pair.key, True),
                (pair.certificate, other.key, False),
                (pair.certificate, 'no key', False),
                ('none', pair.key, False),
                (pair.certificate, '', False)):
            summary = secret_summary.summarize({
                'metadata': {}, 'data': secret_summary.data(
                    pki.Pair(certificate, key))})
            self.assertEqual(certificate if good else None,
                             summary.certificate)
        for data in (None, {}, {'tls.crt': '!', 'tls.key': '!'},
                     {'tls.crt': '/w==', 'tls.key': '/w=='}):
            self.assertIsNone(secret_summary.summarize(
                {'metadata': {}, 'data': data}).certificate)

    def test_memory_per_secret_is_limited(self):
        # Users may write large Secrets repeatedly.
        issuer = pki.make('issuer')
        pair = pki.issue(issuer, ['node'])
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20):
            long = f'{pair.certificate}# {number} ' + 'x' * 500000
            summary = secret_summary.summarize({
                'metadata': {}, 'data': secret_summary.data(
                    pki.Pair(long, pair.key))})
            self.assertEqual(pair.certificate, summary.certificate)
            # These functions have caches, too.
            pki.renewal(long)
            self.assertFalse(pki.due(long, ['node'], issuer))
            del long, summary
        self.assertLess(tracemalloc.get_traced_memory()[0] - before, 1000000)

    def test_oversized_certificate_is_a_fault(self):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([])
        for size, expected in ((60000, ''), (70000, 'more than 65536 bytes')):
            now = datetime.datetime.now(datetime.UTC)
            made = x509.CertificateBuilder(
                name, name, key.public_key(), 1, now,
                now + datetime.timedelta(1)).add_extension(
                    x509.UnrecognizedExtension(
                        x509.ObjectIdentifier('1.2.3'), bytes(size)),
                    False).sign(key, hashes.SHA256())
            summary = secret_summary.summarize({
                'metadata': {}, 'data': secret_summary.data(
                    pki.Pair(
                        made.public_bytes(serialization.Encoding.PEM).decode(),
                        key.private_bytes(
                            serialization.Encoding.PEM,
                            serialization.PrivateFormat.PKCS8,
                            serialization.NoEncryption()).decode()))})
            self.assertIn(expected, summary.fault)
            self.assertEqual(not expected, bool(summary.certificate))

    def test_unfit_keys_by_protocol(self):
        ipmi = (('ipmi', 'username'), ('ipmi', 'password'))
        name = (('redfish', 'username'),)
        for data, unusable_keys in (
                ({'username': 'a' * 16, 'password': 'b' * 20}, ()),
                ({'username': 'a' * 17, 'password': 'b'}, ipmi[:1]),
                ({'username': 'a', 'password': 'b' * 21}, ipmi[1:]),
                ({'username': 'ä' * 9, 'password': 'ß' * 11}, ipmi),
                ({'username': 'a\nb', 'password': 'b\x7f'}, ipmi + name),
                ({'username': 'a:b', 'password': 'b'}, name),
                ({'username': 'a', 'password': 'b', 'role': 'root'},
                 (('ipmi', 'role'), ('redfish', 'role')))):
            with self.subTest(data=data):
                self.assertEqual(unusable_keys, secret_summary.summarize(
                    bodies.secret(**data)).unusable_keys)
