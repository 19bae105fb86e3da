# SPDX-License-Identifier: Apache-2.0
"""What a cluster's object carries about its cluster and its declaration.

Labels say whose it is. An annotation has a hash of what the object was made
from: objects are compared by it alone, as BMCs, KubeVirt and users change
other fields of an object. A second one has what the file declared, to say in
the file's words what has changed.
"""

from __future__ import annotations

import dataclasses
import json

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.kube import api_resources

#: Annotation: what the file declared about the object, as JSON.
DECLARED = identity.GROUP + '/declared'

#: Longest text of a value in words about changes.
_LONGEST = 60

#: Keys whose values may contain secrets, such as cloud-init's user data.
_OPAQUE = 'vm', 'bmc', 'config'


@dataclasses.dataclass(frozen=True)
class Wanted:
    """An object that a cluster should have.

    :param resource: an `api_resources.Resource`
    :param node: name of its node; None for objects of the whole cluster
    :param body: dict, the object; a Secret has no password yet
    """

    resource: api_resources.Resource
    node: str | None
    body: dict

    @property
    def name(self):
        """Name of the object."""
        return self.body['metadata']['name']

    @property
    def hash(self):
        """`identity.hash_of` what the object is made from."""
        return hash_of(self.body)


def selector(cluster) -> str:
    """Return the label selector of a cluster's objects.

    :param cluster: its name
    """
    return f'{identity.CLUSTER}={cluster}'


def labels(cluster, node):
    """Return the labels of a node's object.

    :param cluster: a `model.Cluster`
    :param node: a `model.Node`
    """
    return {identity.CLUSTER: cluster.name, identity.NODE: node.name}


def wanted(resource, node, body, name, namespace, more_labels, declared):
    """Complete an object.

    :param resource: an `api_resources.Resource`
    :param node: name of its node, or None
    :param body: dict, the object without the fields of the other parameters;
        is changed
    :param more_labels: dict, in addition to those in the body
    :param declared: dict, what the file declares about the object
    :returns: a `Wanted`
    """
    metadata = body.setdefault('metadata', {})
    metadata['name'] = name
    metadata['labels'] = {**(metadata.get('labels') or {}), **more_labels}
    body.update(apiVersion=resource.api_version, kind=resource.kind)
    digest = identity.hash_of([body, declared])
    metadata['namespace'] = namespace
    metadata['annotations'] = {
        **(metadata.get('annotations') or {}), identity.HASH: digest,
        DECLARED: json.dumps(declared, sort_keys=True,
                             separators=(',', ':'))}
    return Wanted(resource, node, body)


def cluster_of(live):
    """Return the name of the cluster that an object belongs to, or None."""
    return (live['metadata'].get('labels') or {}).get(identity.CLUSTER)


def node_of(live):
    """Return the name of the node that an object belongs to, or None."""
    return (live['metadata'].get('labels') or {}).get(identity.NODE)


def hash_of(live):
    """Return the hash of what an object was made from, or None."""
    return (live['metadata'].get('annotations') or {}).get(identity.HASH)


def is_leaving(live) -> bool:
    """Return whether an object is being deleted."""
    return 'deletionTimestamp' in live['metadata']


def changes(live, body):
    """Say what has changed between two declarations of an object.

    :param live: dict, the object in the cluster
    :param body: dict, the wanted object
    :returns: tuple of text, such as ``memory_mb: 256 -> 512``
    """
    old, new = declared(live), declared(body)
    found = []
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key in _OPAQUE:
            found.append(f'{key}: changed')
        else:
            found.append(f'{_text(key)}: {_text(old.get(key))} -> '
                         f'{_text(new.get(key))}')
    return tuple(found) or ('made by another version',)


def declared(obj):
    """Return what the file declared about an object, as a dict."""
    text = (obj['metadata'].get('annotations') or {}).get(DECLARED)
    try:
        found = json.loads(text or '{}')
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _text(value):
    text = 'none' if value is None else json.dumps(value).strip('"')
    return text if len(text) <= _LONGEST else text[:_LONGEST - 1] + '…'
