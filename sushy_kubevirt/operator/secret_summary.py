# SPDX-License-Identifier: Apache-2.0
"""Summaries of Secrets, without anything secret.

A Secret is read by name when its version changes, summarized and dropped.
"""

from __future__ import annotations

import base64
import binascii
from collections import abc
import dataclasses
import functools
import hmac
import os
import sys

from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import pki

TYPE = 'Opaque'

_KEPT = ('name', 'namespace', 'uid', 'resourceVersion', 'labels',
         'ownerReferences', 'finalizers', 'deletionTimestamp')

CERTIFICATE, KEY = 'tls.crt', 'tls.key'

#: Key of the CA certificates in Secrets of cert-manager.
AUTHORITY = 'ca.crt'

# Key of the digests by which credentials are compared, so that the digests are
# useless outside of this process.
_SALT = os.urandom(32)


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """What is cached of a Secret.

    :param metadata: its metadata, compressed
    :param version: the resourceVersion that was summarized
    :param missing_keys: missing credentials: see `credentials.missing`
    :param unusable_keys: credentials that a protocol cannot use: see
        `credentials.unusable_keys`
    :param digest: changes with the values that pods read
    :param certificate: PEM text of its certificate, the first of a chain;
        None without a usable certificate and its key
    :param fault: why certificate and key are unusable: see `pki.fault`
    :param authority: PEM text of CA certificates; '' if there are none, None
        if they are unusable
    """

    metadata: bytes
    version: str
    type: str
    missing_keys: tuple[str, ...]
    unusable_keys: tuple[tuple[str, str], ...]
    digest: bytes
    certificate: str | None
    fault: str = ''
    authority: str | None = ''

    @property
    def obj(self) -> objects.Json:
        """The Secret with its metadata alone, not to be modified."""
        return {'metadata': _unpacked(self.metadata)}


_PACKER = object_cache.Packer()

# Cached, as each reconcile looks at a few often.
_unpacked = functools.lru_cache(64)(_PACKER.unpack)


def summarize(secret: objects.Json) -> Summary:
    """Summarize a Secret as the API has it."""
    data, metadata = secret.get('data') or {}, secret['metadata']
    served = pair(secret)
    whole = bool(served.certificate and served.key)
    fault = pki.fault(served) if whole else ''
    return Summary(
        _PACKER.pack(trimmed(metadata)),
        metadata.get('resourceVersion', ''),
        sys.intern(secret.get('type', TYPE)), credentials.missing(secret),
        credentials.unusable_keys(secret),
        digest(data),
        pki.first(served.certificate) if whole and not fault else None,
        fault, pki.authorities(text(secret, AUTHORITY)))


def trimmed(metadata: objects.Json) -> objects.Json:
    """Trim metadata.

    The annotation of ``kubectl apply`` is dropped: it repeats the Secret.
    """
    kept = {name: metadata[name] for name in _KEPT if name in metadata}
    allowed = (metadata.get('annotations') or {}).get(stored_names.ALLOW_FROM)
    if allowed is not None:
        kept['annotations'] = {stored_names.ALLOW_FROM: allowed}
    return kept


def digest(data: abc.Mapping[str, str]) -> bytes:
    """Return bytes that change with the values of a Secret that pods read."""
    values = (str(data.get(key)) for key in credentials.KEYS)
    return hmac.digest(_SALT, '\0'.join(values).encode(), 'sha256')


def pair(secret: objects.Json) -> pki.Pair:
    """Read the certificate and the key of a Secret."""
    data = secret.get('data') or {}
    return pki.Pair(_text(data.get(CERTIFICATE)),
                    _text(data.get(KEY)))


def text(secret: objects.Json, key: str) -> str:
    """Return the value of a key; '' if it is not text."""
    return _text((secret.get('data') or {}).get(key))


def data(pair: pki.Pair) -> dict[str, str]:
    """Make the data of a Secret with a certificate."""
    return {CERTIFICATE: base64.b64encode(pair.certificate.encode()).decode(),
            KEY: base64.b64encode(pair.key.encode()).decode()}


def _text(value: str | None) -> str:
    try:
        return base64.b64decode(value or '', validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ''
