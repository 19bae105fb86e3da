# SPDX-License-Identifier: Apache-2.0
"""The Secret with user name and password: generated, copied, or a user's own.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import string
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec

USERNAME, PASSWORD = 'username', 'password'

#: Role of the account in Redfish; optional.
ROLE = 'role'

#: All keys of a Secret that pods read.
KEYS = (USERNAME, PASSWORD, ROLE)

#: The user of a Secret that the operator makes.
DEFAULT_USERNAME = 'admin'

#: The protocols, which accept different credentials.
IPMI, REDFISH = 'ipmi', 'redfish'

#: Maximum bytes of each in IPMI 2.0 (sections 22.28, 22.30). The same numbers
#: and rules as in `vbmc_kubevirt.mounted_secret`, which must not be imported
#: here; a test compares them.
_IPMI_MAX_BYTES = {USERNAME: 16, PASSWORD: 20}

#: Maximum bytes of a user name, and of any file, in Redfish. As in
#: `redfish.services.account_files`, whose import costs memory; a test
#: compares them.
_REDFISH_MAX_NAME_BYTES = 128
_REDFISH_MAX_BYTES = 1024
_ROLES = ('Administrator', 'Operator', 'ReadOnly')

#: Finalizer of the Secret with the credentials of a BareMetalHost, and the
#: owner that baremetal-operator gives it (``pkg/secretutils``).
_HOST_FINALIZER = 'baremetalhost.metal3.io/secret'
_HOST_GROUP, _HOST_KIND = 'metal3.io', 'BareMetalHost'

# 20 letters and digits have 119 bits, fit IPMI 2.0 (20 bytes, section 22.30)
# and need no quoting in a shell.
_LENGTH = 20
_LETTERS = string.ascii_letters + string.digits


def copies(bmc: spec.Bmc) -> bool:
    """Tell whether the pod mounts a copy of a Secret of another namespace."""
    return bmc.auth is not None and bmc.auth.namespace != bmc.namespace


def is_made(bmc: spec.Bmc) -> bool:
    """Tell whether the operator generates or copies the BMC's Secret."""
    return bmc.auth is None or copies(bmc)


def protocols(bmc: spec.Bmc) -> list[str]:
    """List the protocols of a BMC that use its Secret."""
    return [protocol for protocol, enabled in (
        (IPMI, bmc.ipmi), (REDFISH, bmc.redfish.enabled)) if enabled]


def password() -> str:
    """Make a random password that both protocols can use."""
    return ''.join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def generated(bmc: spec.Bmc) -> objects.Json:
    """Make the Secret of a BMC that refers to none, with a random password."""
    return _secret(bmc, {USERNAME: encoded(DEFAULT_USERNAME),
                         PASSWORD: encoded(password())})


def copied(bmc: spec.Bmc, secret: objects.Json) -> objects.Json:
    """Copy the Secret of a BMC that refers to one in another namespace.

    All keys that pods read are copied: without its role, an account would
    have more privileges than its owner allows.

    :param secret: the Secret in the other namespace
    """
    return _secret(bmc, {key: secret['data'][key]
                         for key in KEYS if key in secret['data']})


def is_left_over(bmc: spec.Bmc, secret: objects.AnyObject) -> bool:
    """Tell whether a Secret was made for a deleted BMC of this name, and is
    kept by a BareMetalHost that uses it.

    baremetal-operator adds a finalizer and an owner to the Secrets that hosts
    name. The BMC of that name adopts such a Secret: the host goes on working,
    and cannot be deprovisioned otherwise.

    :param secret: its metadata is enough
    """
    metadata = secret['metadata']
    owners = metadata.get('ownerReferences') or ()
    tags = metadata.get('labels') or {}
    return (
        metadata.get('namespace') == bmc.namespace
        and naming.labels(bmc.name).items() <= tags.items()
        and (_HOST_FINALIZER in (metadata.get('finalizers') or ())
             or any(_is_host(owner) for owner in owners))
        and not any(owner['uid'] == bmc.uid for owner in owners)
        and all(naming.is_bmc(bmc.name, owner) for owner in owners
                if owner.get('controller')))


def owning_host(secret: objects.AnyObject) -> str | None:
    """Find the BareMetalHost with which a Secret will be deleted.

    :returns: name of the last one; None if nothing, or something else, owns
        the Secret
    """
    owners = secret['metadata'].get('ownerReferences') or ()
    if not owners or not all(_is_host(owner) for owner in owners):
        return None
    return owners[-1]['name']


def adopted_owners(bmc: spec.Bmc, secret: objects.AnyObject
                   ) -> list[objects.OwnerReference]:
    """Make the owner references of a Secret of `is_left_over`."""
    owners = secret['metadata'].get('ownerReferences') or ()
    return [*(owner for owner in owners
              if not naming.is_bmc(bmc.name, owner)),
            naming.owner(bmc.name, bmc.uid)]


def missing(secret: objects.Json) -> tuple[str, ...]:
    """Find what a Secret lacks for a BMC.

    :returns: keys that are missing, empty or not text
    """
    return tuple(key for key in (USERNAME, PASSWORD)
                 if not text((secret.get('data') or {}).get(key)))


def unusable_keys(secret: objects.Json) -> tuple[tuple[str, str], ...]:
    """Find the values of a Secret that a protocol cannot use.

    :param secret: one of which `missing` finds nothing
    :returns: pairs of protocol and key, such as a user name with a colon,
        which HTTP's Basic authentication cannot have (RFC 7617, section 2)
    """
    data = secret.get('data') or {}
    texts = {key: text(data.get(key)) for key in KEYS if key in data}
    bad = [(IPMI, key) for key, limit in _IPMI_MAX_BYTES.items()
           if len(texts.get(key, '').encode()) > limit
           or not texts.get(key, '').isprintable()]
    if texts.get(ROLE, _ROLES[0]) not in _ROLES:
        bad += [(IPMI, ROLE), (REDFISH, ROLE)]
    name = texts.get(USERNAME, '')
    for key, fits in (
            (USERNAME, len(name.encode()) <= _REDFISH_MAX_NAME_BYTES
             and ':' not in name and name.isprintable()),
            (PASSWORD, True)):
        if not fits or len(_bytes(data.get(key))) > _REDFISH_MAX_BYTES:
            bad.append((REDFISH, key))
    return tuple(bad)


def _is_host(reference: objects.OwnerReference) -> bool:
    return (reference['apiVersion'].partition('/')[0] == _HOST_GROUP
            and reference['kind'] == _HOST_KIND)


def text(value: str | None) -> str:
    """Decode a value of a Secret; '' if it is not text."""
    try:
        text = _bytes(value).decode()
    except UnicodeDecodeError:
        return ''
    # The newline that editors leave at the end of a file is not part of it.
    return text.removesuffix('\r\n' if text.endswith('\r\n') else '\n')


def _bytes(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or '', validate=True)
    except binascii.Error:
        return b''


def encoded(text: str) -> str:
    """Encode a value of a Secret."""
    return base64.b64encode(text.encode()).decode()


def _secret(bmc: spec.Bmc, data: dict[str, str]) -> objects.Json:
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': naming.metadata(bmc, naming.auth(bmc.name)),
            'data': data}
