# SPDX-License-Identifier: Apache-2.0
"""Tokens that allow an upload into one claim, for five minutes.

JSON web tokens (RFC 7519) signed with PS256, as CDI's API server makes them.

Source: pkg/token/token.go, pkg/apiserver/apiserver.go (CDI 1.65).
"""
import base64
import binascii
import functools
import json
import threading
import time

from cryptography import exceptions

LIFETIME = 300
LEEWAY = 10

_ISSUER = 'cdi-apiserver'
_HEAD = {'alg': 'PS256'}
_LONGEST = 8192


class TokenError(Exception):
    """A token is not from this server or has expired."""


class Tokens:
    """Issues and verifies tokens, in any thread.

    :param lifetime: seconds.
    """

    def __init__(self, lifetime=LIFETIME):
        self._lifetime = lifetime
        self._lock = threading.Lock()

    @functools.cached_property
    def _key(self):
        # Made when first needed: it takes its time, as does the import.
        from cryptography.hazmat.primitives.asymmetric import rsa
        return rsa.generate_private_key(65537, 2048)

    def _private(self):
        with self._lock:
            return self._key

    def make(self, namespace, claim):
        """Make a token for uploads into a claim, which need not exist."""
        now = int(time.time())
        payload = {
            'operation': 'Upload', 'name': claim, 'namespace': namespace,
            'resource': {'Group': '', 'Version': 'v1',
                         'Resource': 'persistentvolumeclaims'},
            'iss': _ISSUER, 'iat': now, 'nbf': now,
            'exp': now + self._lifetime}
        signed = b'.'.join(_encode(json.dumps(part).encode())
                           for part in (_HEAD, payload))
        signature = self._private().sign(signed, *_algorithm())
        return (signed + b'.' + _encode(signature)).decode()

    def claim(self, token):
        """Return (namespace, name) of the claim of a token.

        :raises TokenError: the token is invalid or has expired.
        """
        try:
            signed, _, signature = token[:_LONGEST].encode().rpartition(b'.')
            head, _, body = signed.partition(b'.')
            if json.loads(_decode(head)).get('alg') != _HEAD['alg']:
                raise TokenError
            self._private().public_key().verify(
                _decode(signature), signed, *_algorithm())
            payload, now = json.loads(_decode(body)), time.time()
            if payload['iss'] != _ISSUER or not (
                    payload['nbf'] - LEEWAY <= now
                    <= payload['exp'] + LEEWAY):
                raise TokenError
            return payload['namespace'], payload['name']
        except (ValueError, KeyError, TypeError, AttributeError,
                binascii.Error, exceptions.InvalidSignature):
            raise TokenError from None


def _algorithm():
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives import hashes
    return (padding.PSS(padding.MGF1(hashes.SHA256()),
                        padding.PSS.DIGEST_LENGTH), hashes.SHA256())


def _encode(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b'=')


def _decode(text):
    return base64.urlsafe_b64decode(text + b'=' * (-len(text) % 4))
