# SPDX-License-Identifier: Apache-2.0
"""The operator's own certificate authority, and what it issues.

It signs the certificates of BMCs whose users gave none. Keys are PEM texts,
to be kept in Secrets; where, is others' affair.
"""

import base64
import dataclasses
import datetime
import functools
import ipaddress
import re

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

#: Characters of a server's key, with what is around it. RSA of 16384 bits,
#: the most that OpenSSL serves with, has 12,700.
_LONGEST_KEY = 2 ** 14

#: A key; without a kind before it, it says inside of which one it is.
_KEY = re.compile('-----BEGIN (RSA |EC |)PRIVATE KEY-----'
                  r'([A-Za-z0-9+/=\s]+)'
                  r'-----END \1PRIVATE KEY-----\n?')

#: The kinds that TLS 1.2 and 1.3 have: RSA, RSASSA-PSS, of elliptic curves,
#: Ed25519 and Ed448 (RFC 8017, 5480 and 8410); within the first bytes.
_KINDS = tuple(map(bytes.fromhex, (
    '06092a864886f70d010101', '06092a864886f70d01010a', '06072a8648ce3d0201',
    '06032b6570', '06032b6571')))
_HEAD = 32

#: Bytes of a server's certificate, which is remembered: with a key of 16384
#: bits and a thousand names it has less.
_LONGEST = 2 ** 16

#: Characters of a certificate and its names, of which more are seldom and
#: not remembered: anybody may write others again and again.
_USUAL = 2 ** 12

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
    look = _is_as_wanted
    if sum(map(len, (certificate, *names))) > _USUAL:
        look = look.__wrapped__
    if not look(certificate, tuple(names),
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
    except Exception:
        # As in `usable`.
        return False
    return alternatives == {_alternative(name) for name in names}


def usable(pair):
    """Whether a server can serve with a certificate, were it valid now.

    :param pair: `Pair`, maybe of somebody else's making
    """
    return not fault(pair)


def fault(pair):
    """Why a server cannot serve with a certificate, whatever its age.

    :param pair: `Pair`, maybe of somebody else's making
    :returns: words that say nothing of what is in it; '' if it can
    """
    try:
        found = x509.load_pem_x509_certificate(pair.certificate.encode())
        public = found.public_key()
        validity(pair.certificate)
        size = len(found.public_bytes(serialization.Encoding.DER))
    except Exception:
        # Whatever the library makes of it: x509.InvalidVersion, say.
        return 'its certificate cannot be read'
    if size > _LONGEST:
        return 'its certificate has more than %d bytes' % _LONGEST
    try:
        own = _key(pair.key).public_key()
    except Exception:
        return ('its key cannot be read, or is of a kind that servers do not '
                'have')
    return '' if own == public else 'its key is that of another certificate'


def _key(text):
    """Read a key of somebody else's making, in no time.

    Anybody may make a Secret, and nothing else happens meanwhile. To see
    whether a large key's primes are primes takes minutes, and to find out
    what is public of a large one of another kind, seconds.

    :raises: ValueError and others, if it is none for a server
    """
    block = _KEY.search(text[:_LONGEST_KEY])
    if block is None:
        raise ValueError('There is no key')
    if block[1] == '' and not any(
            kind in base64.b64decode(block[2])[:_HEAD] for kind in _KINDS):
        raise ValueError('It is of another kind')
    return serialization.load_pem_private_key(
        block[0].encode(), None, unsafe_skip_rsa_key_validation=True)


def renewal(certificate):
    """When a certificate is to be made anew for its age.

    :param certificate: PEM text
    :returns: aware `datetime.datetime`
    """
    begin, end = validity(certificate)
    return end - (end - begin) / 3


def first(certificate):
    """The certificate that a server shows, without the rest of its chain.

    :param certificate: PEM text, of which `fault` finds none
    :returns: PEM text
    """
    return x509.load_pem_x509_certificate(certificate.encode()).public_bytes(
        serialization.Encoding.PEM).decode()


def validity(certificate):
    """From when to when a certificate is valid.

    :param certificate: PEM text; the first one in it counts
    :returns: two aware `datetime.datetime`
    """
    found = x509.load_pem_x509_certificate(certificate.encode())
    return found.not_valid_before_utc, found.not_valid_after_utc


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
