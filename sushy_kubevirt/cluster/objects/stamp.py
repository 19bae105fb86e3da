# SPDX-License-Identifier: Apache-2.0
"""What a cluster's object carries about its cluster and its declaration.

Labels say whose it is. An annotation has a hash of what the object was made
from: objects are compared by it alone, as BMCs, KubeVirt and users change
other fields of an object. A second one has what the file declared, to say in
the file's words what has changed.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import json
import typing

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.kube import stored_names

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.cluster.objects import kinds
    from sushy_kubevirt.kube import objects

#: Longest text of a value in words about changes.
_LONGEST = 60

#: Keys whose values may contain secrets, such as cloud-init's user data.
_OPAQUE = 'vm', 'bmc', 'config'


@dataclasses.dataclass(frozen=True)
class Wanted:
    """An object that a cluster should have.

    :param node: name of its node; None for objects of the whole cluster
    :param body: the object; a Secret has no password yet
    """

    resource: kinds.AnyResource
    node: str | None
    body: objects.Json

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.body['metadata']['name']

    @property
    def hash(self) -> str | None:
        """`identity.hash_of` what the object is made from."""
        return hash_of(self.body)


def selector(cluster: str) -> str:
    """Return the label selector of a cluster's objects."""
    return f'{stored_names.CLUSTER}={cluster}'


def labels(cluster: model.Cluster, node: model.Node) -> dict[str, str]:
    """Return the labels of a node's object."""
    return {stored_names.CLUSTER: cluster.name, stored_names.NODE: node.name}


def wanted(resource: kinds.AnyResource, node: str | None, body: objects.Json,
           name: str, namespace: str, more_labels: dict[str, str],
           declared: objects.Json) -> Wanted:
    """Complete an object.

    :param node: name of its node, or None
    :param body: the object without the fields of the other parameters; is
        changed
    :param more_labels: in addition to those in the body
    :param declared: what the file declares about the object
    """
    metadata = body.setdefault('metadata', {})
    metadata['name'] = name
    metadata['labels'] = {**(metadata.get('labels') or {}), **more_labels}
    body.update(apiVersion=resource.api_version, kind=resource.kind)
    digest = identity.hash_of([body, declared])
    metadata['namespace'] = namespace
    metadata['annotations'] = {
        **(metadata.get('annotations') or {}), stored_names.HASH: digest,
        stored_names.DECLARED: json.dumps(
            declared, sort_keys=True, separators=(',', ':'))}
    return Wanted(resource, node, body)


def cluster_of(live: abc.Mapping[str, typing.Any]) -> str | None:
    """Return the name of the cluster that an object belongs to."""
    return (live['metadata'].get('labels') or {}).get(stored_names.CLUSTER)


def node_of(live: abc.Mapping[str, typing.Any]) -> str | None:
    """Return the name of the node that an object belongs to."""
    return (live['metadata'].get('labels') or {}).get(stored_names.NODE)


def hash_of(live: abc.Mapping[str, typing.Any]) -> str | None:
    """Return the hash of what an object was made from."""
    return (live['metadata'].get('annotations') or {}).get(stored_names.HASH)


def is_leaving(live: abc.Mapping[str, typing.Any]) -> bool:
    """Return whether an object is being deleted."""
    return 'deletionTimestamp' in live['metadata']


def changes(live: abc.Mapping[str, typing.Any],
            body: abc.Mapping[str, typing.Any]) -> tuple[str, ...]:
    """Say what has changed between two declarations of an object.

    :param live: the object in the cluster
    :param body: the wanted object
    :returns: such as ``memory_mb: 256 -> 512``
    """
    old, new = declared(live), declared(body)
    sentences = []
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key in _OPAQUE:
            sentences.append(f'{key}: changed')
        else:
            sentences.append(f'{_text(key)}: {_text(old.get(key))} -> '
                             f'{_text(new.get(key))}')
    return tuple(sentences) or ('made by another version',)


def declared(obj: abc.Mapping[str, typing.Any]) -> objects.Json:
    """Return what the file declared about an object."""
    text = (obj['metadata'].get('annotations') or {}).get(
        stored_names.DECLARED)
    try:
        declaration = json.loads(text or '{}')
    except (ValueError, RecursionError):
        declaration = None
    return declaration if isinstance(declaration, dict) else {}


def _text(value: object) -> str:
    text = 'none' if value is None else json.dumps(value).strip('"')
    return text if len(text) <= _LONGEST else text[:_LONGEST - 1] + '…'
