# SPDX-License-Identifier: Apache-2.0
"""Names, labels, hashes and MAC addresses of a cluster's objects.

All follow from the cluster file alone, so that a later run, by another user
on another machine, finds what an earlier one has made.
"""

from __future__ import annotations

import hashlib
import json
import re

#: Longest name of a cluster, node, volume or interface: a label of DNS.
MAX_LENGTH = 63

#: Longest name of a cluster. Names of networks and of BMCs add to it.
MAX_CLUSTER_LENGTH = 40

#: First half of all MAC addresses, as libvirt's.
MAC_PREFIX = '52:54:00'

_NAME = re.compile(r'[a-z0-9]([-a-z0-9]*[a-z0-9])?')
_MAC = re.compile(r'[0-9a-f]{2}(:[0-9a-f]{2}){5}', re.IGNORECASE)
_LABEL_VALUE = re.compile(r'[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?')
_SUBDOMAIN = re.compile(
    r'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
_MAX_SUBDOMAIN_LENGTH = 253


def is_name(text: str, longest: int = MAX_LENGTH) -> bool:
    """Return whether text is a label of DNS (RFC 1123), which all names that
    this package makes are.
    """
    return len(text) <= longest and bool(_NAME.fullmatch(text))


def is_object_name(text: str) -> bool:
    """Return whether text may name an existing object of Kubernetes."""
    return (len(text) <= _MAX_SUBDOMAIN_LENGTH
            and bool(_SUBDOMAIN.fullmatch(text)))


def is_label_value(text: str) -> bool:
    """Return whether text may be the value of a label and is not empty."""
    return len(text) <= MAX_LENGTH and bool(_LABEL_VALUE.fullmatch(text))


def is_label(text: str) -> bool:
    """Return whether text is the name of a label, with or without a prefix."""
    prefix, slash, name = text.rpartition('/')
    return is_label_value(name) and (not slash or is_object_name(prefix))


def is_mac(text: str) -> bool:
    """Return whether text is a MAC address with colons."""
    return bool(_MAC.fullmatch(text))


def order(node: str) -> tuple[str, int, str]:
    """Return a sort key of a node's name: ``tk2`` is before ``tk10``."""
    return node.rstrip('0123456789'), len(node), node


def valid_name(text: str) -> str:
    """Return text if it `is_name`, otherwise a name with a digest of it."""
    if is_name(text):
        return text
    digest = hash_of(text)[:8]
    safe = re.sub(r'[^a-z0-9]+', '-', text.lower())
    safe = safe[:MAX_LENGTH - len(digest) - 1].strip('-')
    return f'{safe}-{digest}' if safe else f'x-{digest}'


def owner(namespace: str, cluster: str, uid: str) -> str:
    """Name a cluster in an OpenStack that several Kubernetes clusters share.

    :param namespace: of the cluster
    :param uid: UID of the namespace, which no other namespace has, nor one of
        another Kubernetes cluster
    :returns: ``NAMESPACE/NAME/UID``
    """
    return f'{namespace}/{cluster}/{uid}'


def bridge_name(namespace: str, cluster: str, network: str,
                shared: bool = False) -> str:
    """Make the name of the Linux bridge of a network that is created.

    :param namespace: of the NetworkAttachmentDefinition
    :param shared: whether it is used by several clusters of the namespace
    :returns: 14 characters; Linux allows 15
    """
    owner = None if shared else cluster
    return 'sk' + hash_of([namespace, owner, network])[:12]


def cluster_name(text: str) -> str:
    """Make the name of a cluster out of any text, such as a file's name.

    It is not shortened: two files with the same beginning would be one
    cluster, and each would delete the nodes of the other.

    :returns: may be too long; '' if nothing of the text is usable
    """
    return re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-')


def mac(cluster: str, node: str, network: str, attempt: int = 0) -> str:
    """Make the MAC address of an interface.

    :param attempt: number of addresses already found to be in use by another
        interface; there are 2^24 only
    """
    text = '/'.join((cluster, node, network) + (str(attempt),) * bool(attempt))
    digits = hashlib.sha256(text.encode()).hexdigest()
    return ':'.join((MAC_PREFIX, digits[:2], digits[2:4], digits[4:6]))


def hash_of(value: object) -> str:
    """Make a short digest of a value, the same in every process.

    :param value: of dicts, lists, tuples, text, numbers, booleans and None
    :returns: 16 hexadecimal digits
    """
    text = json.dumps(value, sort_keys=True, separators=(',', ':'))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
