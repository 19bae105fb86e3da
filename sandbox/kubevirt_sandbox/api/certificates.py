# SPDX-License-Identifier: Apache-2.0
"""Creates a certificate authority and the server certificate."""
import dataclasses
import datetime
import ipaddress
import os
import ssl
import tempfile

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from cryptography.x509 import oid

_PEM = serialization.Encoding.PEM
_LIFETIME = datetime.timedelta(days=365)


@dataclasses.dataclass(frozen=True)
class Identity:
    """PEM texts: the CA's certificate, the server's and its key."""

    ca: bytes
    certificate: bytes
    key: bytes = dataclasses.field(repr=False)

    def context(self):
        """Return an ``ssl.SSLContext`` that serves with this identity."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The ssl module reads keys from files only. The file is readable by
        # this user only and removed before the first client connects.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'server.pem')
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600),
                      'wb') as file:
                file.write(self.certificate + self.key)
            context.load_cert_chain(path)
        return context


def _builder(subject, issuer, key):
    now = datetime.datetime.now(datetime.UTC)
    return (x509.CertificateBuilder()
            .subject_name(subject).issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _LIFETIME))


def _name(text):
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, text)])


def _alternative(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


_USAGE = dict.fromkeys((
    'digital_signature', 'content_commitment', 'key_encipherment',
    'data_encipherment', 'key_agreement', 'key_cert_sign', 'crl_sign',
    'encipher_only', 'decipher_only'), False)


class Authority:
    """A new CA, whose private key is only kept in memory."""

    def __init__(self):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name('sushy-kubevirt-sandbox-ca')
        self._id = x509.SubjectKeyIdentifier.from_public_key(
            self._key.public_key())
        #: Its certificate, PEM.
        self.certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(True, 0), True)
            .add_extension(x509.KeyUsage(**{**_USAGE, 'key_cert_sign': True,
                                            'crl_sign': True}), True)
            .add_extension(self._id, False)
            .sign(self._key, hashes.SHA256())).public_bytes(_PEM)

    def issue(self, hosts):
        """Issue a server certificate.

        :param hosts: names and addresses that the server is reached by.
        :returns: an :class:`Identity`.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        server = (
            _builder(_name('sushy-kubevirt-sandbox'), self._name, key)
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(x509.KeyUsage(**{
                **_USAGE, 'digital_signature': True}), True)
            .add_extension(x509.ExtendedKeyUsage(
                [oid.ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .add_extension(x509.SubjectAlternativeName(
                [_alternative(h) for h in dict.fromkeys(hosts)]), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(
                key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier
                .from_issuer_subject_key_identifier(self._id), False)
            .sign(self._key, hashes.SHA256()))
        return Identity(
            self.certificate, server.public_bytes(_PEM),
            key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8,
                              serialization.NoEncryption()))


def make(hosts):
    """Make a new CA and a server certificate signed by it.

    The CA's key is thrown away.

    :param hosts: names and addresses that the server is reached by.
    :returns: an :class:`Identity`.
    """
    return Authority().issue(hosts)
