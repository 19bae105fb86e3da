# SPDX-License-Identifier: Apache-2.0
"""Creates a certificate authority and the server certificate."""
import dataclasses
import datetime
import hashlib
import ipaddress
import os
import secrets
import ssl

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives import hashes

from kubevirt_sandbox.api import der

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
        # Clients do not resume sessions; tickets cost a part of a handshake.
        context.num_tickets = 0
        # The ssl module reads keys from files only; this one is in memory.
        with open(os.memfd_create('server.pem'), 'wb') as file:
            file.write(self.certificate + self.key)
            file.flush()
            context.load_cert_chain(f'/proc/self/fd/{file.fileno()}')
        return context


#: Key usages (RFC 5280, 4.2.1.3): digitalSignature; keyCertSign and cRLSign.
_SIGNS, _SIGNS_CERTIFICATES = der.bits(b'\x80', 7), der.bits(b'\x06', 1)

_ECDSA_SHA256 = der.sequence(der.identifier('1.2.840.10045.4.3.2'))
_P256 = der.identifier('1.2.840.10045.3.1.7')
_EC_KEY = der.sequence(der.identifier('1.2.840.10045.2.1'), _P256)


class _Ecdsa(ec.ECDSA):
    """ECDSA with SHA-256.

    The constructor of the base class imports all ciphers for a check of
    deterministic signatures, a twentieth of the sandbox's start.
    """

    algorithm = hashes.SHA256()
    deterministic_signing = False

    def __init__(self):
        pass


class _Key:
    """A new key of the curve P-256."""

    def __init__(self):
        self._key = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.private_numbers()
        public = numbers.public_numbers
        self._private = numbers.private_value.to_bytes(32)
        self._point = (b'\x04' + public.x.to_bytes(32)
                       + public.y.to_bytes(32))
        #: SubjectPublicKeyInfo.
        self.public = der.sequence(_EC_KEY, der.bits(self._point))
        #: Key identifier (RFC 5280, 4.2.1.2).
        self.id = hashlib.sha1(  # noqa: S324 - no secret
            self._point, usedforsecurity=False).digest()

    def sign(self, content):
        return self._key.sign(content, _Ecdsa())

    def pem(self):
        """Return the private key (RFC 5915)."""
        return der.pem('EC PRIVATE KEY', der.sequence(
            der.integer(1), der.octets(self._private),
            der.element(0xa0, _P256),
            der.element(0xa1, der.bits(self._point))))


def _name(text):
    return der.sequence(der.element(0x31, der.sequence(
        der.identifier('2.5.4.3'), der.element(12, text.encode()))))


def _alternative(host):
    try:
        return der.element(0x87, ipaddress.ip_address(host).packed)
    except ValueError:
        return der.element(0x82, host.encode())


def _extension(dotted, content, critical=False):
    return der.sequence(
        der.identifier(dotted), b'\x01\x01\xff' if critical else b'',
        der.octets(content))


class Authority:
    """A new CA, whose private key is only kept in memory."""

    def __init__(self):
        self._key = _Key()
        self._name = _name('sushy-kubevirt-sandbox-ca')
        #: Its certificate, PEM.
        self.certificate = self._sign(
            self._name, self._key,
            _extension('2.5.29.19', der.sequence(
                b'\x01\x01\xff', der.integer(0)), True),
            _extension('2.5.29.15', _SIGNS_CERTIFICATES, True),
            _extension('2.5.29.14', der.octets(self._key.id)))

    def _sign(self, subject, key, *extensions):
        """Return a certificate (RFC 5280, 4.1), PEM."""
        now = datetime.datetime.now(datetime.UTC)
        content = der.sequence(
            der.element(0xa0, der.integer(2)),
            der.integer(secrets.randbits(159)), _ECDSA_SHA256, self._name,
            der.sequence(der.time(now - datetime.timedelta(minutes=5)),
                         der.time(now + _LIFETIME)),
            subject, key.public,
            der.element(0xa3, der.sequence(*extensions)))
        return der.pem('CERTIFICATE', der.sequence(
            content, _ECDSA_SHA256, der.bits(self._key.sign(content))))

    def issue(self, hosts):
        """Issue a server certificate.

        :param hosts: names and addresses that the server is reached by.
        :returns: an :class:`Identity`.
        """
        key = _Key()
        certificate = self._sign(
            _name('sushy-kubevirt-sandbox'), key,
            _extension('2.5.29.19', der.sequence(), True),
            _extension('2.5.29.15', _SIGNS, True),
            _extension('2.5.29.37', der.sequence(
                der.identifier('1.3.6.1.5.5.7.3.1'))),
            _extension('2.5.29.17', der.sequence(*(
                _alternative(host) for host in dict.fromkeys(hosts)))),
            _extension('2.5.29.14', der.octets(key.id)),
            _extension('2.5.29.35', der.sequence(
                der.element(0x80, self._key.id))))
        return Identity(self.certificate, certificate, key.pem())


def make(hosts):
    """Make a new CA and a server certificate signed by it.

    The CA's key is thrown away.

    :param hosts: names and addresses that the server is reached by.
    :returns: an :class:`Identity`.
    """
    return Authority().issue(hosts)
