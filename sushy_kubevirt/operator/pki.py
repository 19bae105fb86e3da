# SPDX-License-Identifier: Apache-2.0
"""X.509: creates a certificate authority, issues and checks certificates.

The operator issues certificates for BMCs without a certificate of the user.
Certificates and keys are PEM text; `certificate_authority` stores them.
"""

from __future__ import annotations

import base64
from collections import abc
import contextlib
import dataclasses
import datetime
import functools
import ipaddress
import re
import typing

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography import x509
from cryptography.x509 import oid

if typing.TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import types

#: Validity. A certificate is renewed when a third of it is left.
AUTHORITY_LIFE = datetime.timedelta(days=3650)
CERTIFICATE_LIFE = datetime.timedelta(days=365)

#: Start of the validity before the issue, for clients whose clock is behind.
_BACKDATE = datetime.timedelta(minutes=10)

#: Maximum characters of a Secret's key. RSA of 16384 bits, the largest key
#: that OpenSSL accepts, has 12,700.
_MAX_KEY_LENGTH = 2 ** 14

#: A PEM key; PKCS #8 has no algorithm in its label.
_KEY = re.compile('-----BEGIN (RSA |EC |)PRIVATE KEY-----'
                  r'([A-Za-z0-9+/=\s]+)'
                  r'-----END \1PRIVATE KEY-----\n?')

#: DER identifiers of the algorithms of TLS 1.2 and 1.3: RSA, RSASSA-PSS,
#: elliptic curves, Ed25519 and Ed448 (RFC 8017, 5480 and 8410), which are in
#: the first bytes of a key. They are searched before it is parsed: see `_key`.
_KINDS = tuple(map(bytes.fromhex, (
    '06092a864886f70d010101', '06092a864886f70d01010a', '06072a8648ce3d0201',
    '06032b6570', '06032b6571')))
_HEAD = 32

#: Maximum bytes of a certificate in a Secret, which is cached; one with a key
#: of 16384 bits and a thousand names has less.
_MAX_CERTIFICATE_BYTES = 2 ** 16

#: Maximum characters of a certificate and its names whose check is cached, so
#: that users cannot fill the cache with large ones.
_MAX_CACHED_LENGTH = 2 ** 12

#: Maximum length of a common name (X.520, ub-common-name).
_MAX_NAME_LENGTH = 64

_USAGES = ('digital_signature', 'content_commitment', 'key_encipherment',
           'data_encipherment', 'key_agreement', 'key_cert_sign', 'crl_sign',
           'encipher_only', 'decipher_only')


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM text.

    :param certificate: of a server: without those of its chain
    :param key: PKCS #8
    """

    certificate: str
    key: str = dataclasses.field(repr=False)


def make(name: str, now: datetime.datetime | None = None) -> Pair:
    """Create a certificate authority.

    :param name: its common name
    :param now: aware; default: the present
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(True, 0), True)
        .add_extension(_usage('key_cert_sign', 'crl_sign'), True)
        .sign(key, hashes.SHA256()))
    return _pair(certificate, key)


def issue(authority: Pair, names: abc.Iterable[str],
          now: datetime.datetime | None = None) -> Pair:
    """Issue a server certificate with a new key.

    :param names: host names and addresses, at least one
    :param now: aware; default: the present
    """
    names = tuple(dict.fromkeys(names))
    signer, signing_key = _load(authority)
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


# Cached, as a thousand certificates are issued at once.
@functools.lru_cache(maxsize=1)
def _load(authority: Pair) -> tuple[
        x509.Certificate, types.CertificateIssuerPrivateKeyTypes]:
    key = serialization.load_pem_private_key(authority.key.encode(), None)
    return (x509.load_pem_x509_certificate(authority.certificate.encode()),
            typing.cast('types.CertificateIssuerPrivateKeyTypes', key))


def due(certificate: str, names: abc.Collection[str],
        authority: Pair | None = None,
        now: datetime.datetime | None = None) -> bool:
    """Tell whether a certificate has to be issued again.

    :param certificate: PEM text, which may be invalid
    :param names: host names and addresses that it has to be valid for; ()
        for an authority's own
    :param authority: that has to be its issuer; None for an authority's own
    :param now: aware; default: the present
    """
    issuer = authority.certificate if authority else None
    is_long = sum(map(len, (certificate, *names))) > _MAX_CACHED_LENGTH
    check = is_issued_for.__wrapped__ if is_long else is_issued_for
    renew = renewal if is_long else _renewal
    return (not check(certificate, tuple(names), issuer)
            or (now or _now()) >= renew(certificate))


# Cached, as each reconcile checks it several times, and those of a thousand
# new BMCs take turns.
@functools.lru_cache(maxsize=1024)
def is_issued_for(certificate: str, names: tuple[str, ...],
                  issuer: str | None) -> bool:
    """Tell whether a certificate is valid for names, apart from its time.

    :param certificate: PEM text, which may be invalid
    :param names: all host names and addresses; () for any
    :param issuer: PEM text of the authority's certificate; None for any
    """
    try:
        parsed = x509.load_pem_x509_certificate(certificate.encode())
        if issuer is not None:
            parsed.verify_directly_issued_by(
                x509.load_pem_x509_certificate(issuer.encode()))
        alternatives = set(parsed.extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value) if names else set()
    except Exception:
        # As in `fault`.
        return False
    return alternatives == {_alternative(name) for name in names}


def fault(pair: Pair) -> str:
    """Find why a server cannot use a certificate, apart from its validity.

    :param pair: may be invalid
    :returns: words that reveal nothing of its content; '' if it can be used
    """
    try:
        parsed = x509.load_pem_x509_certificate(pair.certificate.encode())
        public = parsed.public_key()
        validity(pair.certificate)
        size = len(parsed.public_bytes(serialization.Encoding.DER))
    except Exception:
        # The library raises many kinds, such as x509.InvalidVersion.
        return 'its certificate cannot be read'
    if size > _MAX_CERTIFICATE_BYTES:
        return ('its certificate has more than '
                f'{_MAX_CERTIFICATE_BYTES} bytes')
    try:
        own = _key(pair.key).public_key()
    except Exception:
        return ('its key cannot be read, or is of a kind that servers do not '
                'have')
    return '' if own == public else 'its key is that of another certificate'


def _key(text: str) -> types.PrivateKeyTypes:
    """Parse a user's key within milliseconds, as this blocks the event loop.

    Checking the primes of a large RSA key takes minutes, so the check is
    skipped. Computing the public part of a large key of another kind takes
    seconds, so such keys are rejected by their first bytes before the library
    parses them.

    :raises: ValueError and others, if it is not a server's key
    """
    block = _KEY.search(text[:_MAX_KEY_LENGTH])
    if block is None:
        raise ValueError('There is no key')
    if block[1] == '' and not any(
            kind in base64.b64decode(block[2])[:_HEAD] for kind in _KINDS):
        raise ValueError('It is of another kind')
    return serialization.load_pem_private_key(
        block[0].encode(), None, unsafe_skip_rsa_key_validation=True)


def renewal(certificate: str) -> datetime.datetime:
    """Compute when a certificate has to be renewed.

    :param certificate: PEM text
    :returns: aware
    """
    begin, end = validity(certificate)
    return end - (end - begin) / 3


_renewal = functools.lru_cache(maxsize=256)(renewal)


def first(certificate: str) -> str:
    """Extract a server's certificate from its chain.

    :param certificate: PEM text, of which `fault` finds nothing
    :returns: PEM text
    """
    return x509.load_pem_x509_certificate(certificate.encode()).public_bytes(
        serialization.Encoding.PEM).decode()


def authorities(text: str) -> str | None:
    """Keep the certificates of a PEM text, and nothing else.

    :param text: '' for none
    :returns: PEM text; None if it cannot be read or is too large
    """
    if len(text) > _MAX_CERTIFICATE_BYTES:
        return None
    try:
        return ''.join(
            parsed.public_bytes(serialization.Encoding.PEM).decode()
            for parsed in x509.load_pem_x509_certificates(text.encode())
        ) if text else ''
    except Exception:
        # As in `fault`.
        return None


def validity(certificate: str) -> tuple[datetime.datetime, datetime.datetime]:
    """Read the validity of a certificate.

    :param certificate: PEM text; the first one in it counts
    :returns: begin and end, aware
    """
    parsed = x509.load_pem_x509_certificate(certificate.encode())
    return parsed.not_valid_before_utc, parsed.not_valid_after_utc


def _builder(subject: x509.Name, issuer: x509.Name,
             key: ec.EllipticCurvePrivateKey, now: datetime.datetime | None,
             life: datetime.timedelta) -> x509.CertificateBuilder:
    now = now or _now()
    return (x509.CertificateBuilder()
            .subject_name(subject).issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATE).not_valid_after(now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(
                key.public_key()), False))


def _usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in usages for usage in _USAGES})


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(
        oid.NameOID.COMMON_NAME, text[:_MAX_NAME_LENGTH])])


def _alternative(name: str) -> x509.GeneralName:
    # Most names do not look like addresses, and cost no exception.
    if ':' in name or name[-1:].isdigit():
        with contextlib.suppress(ValueError):
            return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


def _pair(certificate: x509.Certificate,
          key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    return Pair(
        certificate.public_bytes(pem).decode(),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8,
                          serialization.NoEncryption()).decode())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
