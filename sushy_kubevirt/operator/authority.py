# SPDX-License-Identifier: Apache-2.0
"""The operator's own certificate authority, and what it issues.

It signs the certificates of BMCs whose users gave none. Keys are PEM texts,
to be kept in Secrets; where, is others' affair.
"""

import dataclasses
import datetime
import functools
import ipaddress

from cryptography import exceptions
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from cryptography.x509 import oid

#: How long each lives. One is renewed when a third of that is left.
AUTHORITY_LIFE = datetime.timedelta(days=3650)
CERTIFICATE_LIFE = datetime.timedelta(days=365)

#: Clocks differ: what is issued has been valid for a while.
_BEFORE = datetime.timedelta(minutes=10)

#: The longest common name (X.520, ub-common-name).
_LONGEST_NAME = 64

_USAGES = ('digital_signature', 'content_commitment', 'key_encipherment',
           'data_encipherment', 'key_agreement', 'key_cert_sign', 'crl_sign',
           'encipher_only', 'decipher_only')


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM texts.

    :param certificate: of a server: its own alone, without the authority's
    :param key: PKCS #8
    """

    certificate: str
    key: str = dataclasses.field(repr=False)


def make(name, now=None):
    """Make an authority.

    :param name: its common name
    :param now: aware `datetime.datetime`; the present when left out
    :returns: `Pair`
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(True, 0), True)
        .add_extension(_usage('key_cert_sign', 'crl_sign'), True)
        .sign(key, hashes.SHA256()))
    return _pair(certificate, key)


def issue(authority, names, now=None):
    """Issue a certificate for a server, with a key of its own.

    :param authority: `Pair`
    :param names: host names and addresses, at least one
    :param now: aware `datetime.datetime`; the present when left out
    :returns: `Pair`
    """
    names = tuple(dict.fromkeys(names))
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signing_key = serialization.load_pem_private_key(
        authority.key.encode(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(names[0]), signer.subject, key, now, CERTIFICATE_LIFE)
        .add_extension(x509.BasicConstraints(False, None), True)
        .add_extension(_usage('digital_signature'), True)
        .add_extension(x509.ExtendedKeyUsage(
            [oid.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(x509.SubjectAlternativeName(
            [_alternative(name) for name in names]), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(
                signing_key.public_key()), False)
        .sign(signing_key, hashes.SHA256()))
    return _pair(certificate, key)


def due(certificate, names, authority=None, now=None):
    """Whether a certificate is to be made anew.

    :param certificate: PEM text, maybe of somebody else's making
    :param names: host names and addresses that it is to be good for; ()
        for an authority's own
    :param authority: `Pair` that should have issued it, or None for an
        authority's own
    :param now: aware `datetime.datetime`; the present when left out
    """
    if not _is_as_wanted(certificate, tuple(names),
                         authority and authority.certificate):
        return True
    return (now or _now()) >= renewal(certificate)


# It is asked whenever something about a BMC has changed, mostly in vain.
@functools.lru_cache(maxsize=4096)
def _is_as_wanted(certificate, names, issuer):
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        if issuer is not None:
            found.verify_directly_issued_by(
                x509.load_pem_x509_certificate(issuer.encode()))
        alternatives = set(found.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value) if names else set()
    except (ValueError, TypeError, exceptions.InvalidSignature,
            x509.ExtensionNotFound):
        return False
    return alternatives == {_alternative(name) for name in names}


def usable(pair):
    """Whether a server can serve with a certificate.

    :param pair: `Pair`, maybe of somebody else's making
    """
    try:
        found = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        return False
    return found.public_key() == key.public_key()


@functools.lru_cache(maxsize=4096)
def renewal(certificate):
    """When a certificate is to be made anew for its age.

    :param certificate: PEM text
    :returns: aware `datetime.datetime`
    """
    found = x509.load_pem_x509_certificate(certificate.encode())
    life = found.not_valid_after_utc - found.not_valid_before_utc
    return found.not_valid_after_utc - life / 3


def _builder(subject, issuer, key, now, life):
    now = now or _now()
    return (x509.CertificateBuilder()
            .subject_name(subject).issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE).not_valid_after(now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(
                key.public_key()), False))


def _usage(*usages):
    return x509.KeyUsage(**{usage: usage in usages for usage in _USAGES})


def _name(text):
    return x509.Name([x509.NameAttribute(
        oid.NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _alternative(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate, key):
    pem = serialization.Encoding.PEM
    return Pair(
        certificate.public_bytes(pem).decode(),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8,
                          serialization.NoEncryption()).decode())


def _now():
    return datetime.datetime.now(datetime.UTC)
