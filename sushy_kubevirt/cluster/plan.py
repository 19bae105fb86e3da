# SPDX-License-Identifier: Apache-2.0
"""Compares the objects of a cluster with those that its file declares.

Only reads: the metadata of the cluster's objects, one list for each kind; of
all objects of a kind if one of that kind has to be created, with a VM also of
the kinds of its volumes, to find names that are taken; and of existing
networks and claims that the file refers to.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import catalog
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster.objects import volumes
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects


#: Live objects, with their metadata alone, by name.
_Objects: typing.TypeAlias = dict[str, 'objects.Json']

#: Kinds of objects whose names a VM's volumes take.
_VOLUMES: tuple[kinds.AnyResource, ...] = (
    api_resources.DATA_VOLUME, api_resources.CLAIM)


class Action(enum.StrEnum):
    """What is done with an object."""

    #: It does not exist.
    CREATE = 'create'

    #: Its declaration has changed, and it can be changed.
    CHANGE = 'change'

    #: Its declaration has changed: it is deleted with its volumes, and
    #: created again. KubeVirt would apply most changes to a VM only when it
    #: is switched off and on, and cannot change volumes at all.
    RECREATE = 'recreate'

    #: It is declared no more.
    DELETE = 'delete'

    #: A shared definition of another cluster gets another user.
    JOIN = 'join'

    #: A shared definition that other clusters use loses a user.
    LEAVE = 'leave'


@dataclasses.dataclass(frozen=True)
class Change:
    """What is to be done with one object.

    :param name: of the object
    :param node: name of its node; None for objects of the whole cluster
    :param wanted: None to delete it
    :param live: the object in the cluster with its metadata alone; None if
        there is none
    :param reasons: what has changed
    """

    action: Action
    resource: kinds.AnyResource
    name: str
    node: str | None
    wanted: stamp.Wanted | None = None
    live: objects.Json | None = None
    reasons: tuple[str, ...] = ()

    @property
    def declared(self) -> stamp.Wanted:
        """What an object becomes that is not deleted."""
        assert self.wanted is not None
        return self.wanted

    @property
    def metadata(self) -> objects.ObjectMeta:
        """Metadata of an object that exists."""
        assert self.live is not None
        return self.live['metadata']

    def __str__(self) -> str:
        why = f' ({"; ".join(self.reasons)})' if self.reasons else ''
        return f'{self.action} {self.resource.kind} {self.name}{why}'


@dataclasses.dataclass(frozen=True)
class Conflict:
    """What keeps a node from being made.

    A name is taken by an object that is not of this cluster, or an object that
    the cluster file refers to does not exist.

    :param node: name of the node; None for the whole cluster
    :param text: what it is, and what to do
    """

    node: str | None
    text: str

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done.

    :param wanted: all objects of the cluster
    :param changes: of networks, then of nodes in the order of the file, then
        of nodes that are removed, the last name first
    :param users: names of the nodes with an interface in the network of a
        definition, by the definition's name
    """

    cluster: str
    namespace: str
    wanted: tuple[stamp.Wanted, ...] = ()
    changes: tuple[Change, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    users: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.changes or self.conflicts)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that are declared, in the file's order."""
        return tuple(dict.fromkeys(
            wanted.node for wanted in self.wanted if wanted.node is not None))

    @property
    def created(self) -> tuple[str, ...]:
        """Names of the nodes whose VM is created."""
        return self._nodes(Action.CREATE)

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of the nodes whose VM is deleted for good."""
        return self._nodes(Action.DELETE)

    @property
    def recreated(self) -> tuple[str, ...]:
        """Names of the nodes whose VM is deleted and created again."""
        return self._nodes(Action.RECREATE)

    def of_node(self, node: str | None) -> tuple[Change, ...]:
        """Return the changes of a node's objects.

        :param node: its name; None for those of the whole cluster
        """
        return tuple(self._by_node.get(node, ()))

    @functools.cached_property
    def _by_node(self) -> dict[str | None, list[Change]]:
        by_node = collections.defaultdict(list)
        for change in self.changes:
            by_node[change.node].append(change)
        return by_node

    def _nodes(self, action: Action) -> tuple[str, ...]:
        return tuple(change.name for change in self.changes
                     if change.action == action
                     and change.resource == api_resources.VM)


def make(client: client.Client, cluster: model.Cluster,
         namespace: str) -> Plan:
    """Compare a cluster with its declaration.

    :param cluster: without nodes and networks, everything it has is to be
        deleted
    """
    comparison = _Comparison(client, cluster, namespace)
    comparison.check_attachments()
    comparison.check_claims()
    changes = comparison.network_changes() + comparison.node_changes()
    return Plan(cluster.name, namespace, tuple(comparison.wanted),
                tuple(changes), tuple(comparison.conflicts), {
                    wanted.name: comparison.users(wanted.name)
                    for wanted in comparison.wanted
                    if wanted.resource == kinds.NETWORK})


class _Comparison:

    def __init__(self, client: client.Client, cluster: model.Cluster,
                 namespace: str) -> None:
        self._client = client
        self._cluster = cluster
        self._namespace = namespace
        self._live = {resource: self._own(resource)
                      for resource in kinds.OF_NODES}
        self.wanted = catalog.wanted(
            cluster, namespace, self._without_secret())
        self._wanted: dict[kinds.AnyResource, dict[str, stamp.Wanted]] = (
            collections.defaultdict(dict))
        for wanted in self.wanted:
            self._wanted[wanted.resource][wanted.name] = wanted
        self._strangers: dict[kinds.AnyResource, _Objects] = {}
        self.conflicts: list[Conflict] = []

    def check_attachments(self) -> None:
        """Find nodes that could not start, as a definition is missing."""
        for network in self._cluster.networks.values():
            if network.config is not None or network.attachment is None:
                continue
            nodes = [node.name for node in self._cluster.nodes if any(
                interface.network == network
                for interface in node.interfaces)]
            space, _, name = network.attachment.rpartition('/')
            space = space or self._namespace
            try:
                if nodes:
                    self._client.get(kinds.NETWORK, space, name,
                                     metadata_only=True)
            except errors.ObjectNotFound:
                self._lacking(nodes, kinds.NETWORK, space, name, (
                    f'which the network {network.name} is attached to'))
            except errors.AccessDenied:
                pass    # KubeVirt says so when a VM is started.

    def check_claims(self) -> None:
        """Find nodes that could not start, as a claim is missing."""
        wanted = {(node.name, claim) for node in self._cluster.nodes
                  for claim in volumes.claims(node)}
        try:
            live = self._list(api_resources.CLAIM, '') if wanted else {}
        except errors.AccessDenied:
            return
        for node, claim in sorted(wanted):
            if claim not in live:
                self._lacking([node], api_resources.CLAIM, self._namespace,
                              claim, f'which is a volume of {node}')

    def _lacking(self, nodes: list[str], resource: kinds.AnyResource,
                 namespace: str, name: str, what: str) -> None:
        self.conflicts += [Conflict(node, (
            f'{resource.kind} {namespace}/{name} does not exist, {what}. '
            'Create it, or change the file.')) for node in nodes]

    def network_changes(self) -> list[Change]:
        """Compare the definitions of networks."""
        return self._compare(kinds.NETWORK, self._live_networks())

    def node_changes(self) -> list[Change]:
        """Compare the objects of nodes."""
        changes: dict[str, list[Change]] = collections.defaultdict(list)
        for resource in kinds.OF_NODES:
            for change in self._compare(resource, self._live[resource]):
                changes[change.node or ''].append(change)
        taken = {conflict.node for conflict in self.conflicts}
        order = [node.name for node in self._cluster.nodes]
        removed = sorted(set(changes) - set(order), key=identity.order,
                         reverse=True)
        return [change for node in order + removed if node not in taken
                for change in changes[node]]

    def _own(self, resource: kinds.AnyResource) -> _Objects:
        """List the objects of the cluster's nodes.

        A user's copy of one has its labels, but another name.
        """
        labelled = self._list(resource, stamp.selector(self._cluster.name))
        return {name: live for name, live in labelled.items() if name == (
            bmc.secret_name(stamp.node_of(live) or '')
            if resource == api_resources.SECRET else stamp.node_of(live))}

    def _without_secret(self) -> set[str]:
        """Find the nodes that `catalog.manifests` has declared."""
        return {name for name, live in self._live[kinds.BMC].items()
                if bmc.has_operators_secret(live, self._cluster)
                and bmc.secret_name(name)
                not in self._live[api_resources.SECRET]}

    def _compare(self, resource: kinds.AnyResource,
                 live: _Objects) -> list[Change]:
        declared = self._wanted[resource]
        changes = [self._change(wanted, live[name]) if name in live
                   else self._create(wanted)
                   for name, wanted in declared.items()]
        changes += [self._delete(resource, name, obj)
                    for name, obj in live.items() if name not in declared]
        return [change for change in changes if change is not None]

    def _create(self, wanted: stamp.Wanted) -> Change | None:
        stranger = self._stranger(wanted.resource, wanted.name)
        if stranger is not None:
            self._taken(wanted, wanted.resource, stranger)
            return None
        if wanted.resource == api_resources.VM and self._has_taken_volume(
                wanted):
            return None
        return Change(Action.CREATE, wanted.resource, wanted.name,
                      wanted.node, wanted)

    def _has_taken_volume(self, wanted: stamp.Wanted) -> bool:
        """Tell whether a volume of a new VM has the name of another's.

        KubeVirt would use it as a disk of the VM.
        """
        for name in volumes.template_names(wanted.body):
            for resource in _VOLUMES:
                try:
                    stranger = self._stranger(resource, name)
                except (errors.AccessDenied, errors.Unavailable):
                    continue    # No right, or no CDI, as KubeVirt will say.
                if stranger is None:
                    continue
                if stamp.cluster_of(stranger) == self._cluster.name:
                    break
                self._taken(wanted, resource, stranger)
                return True
        return False

    def _taken(self, wanted: stamp.Wanted, resource: kinds.AnyResource,
               stranger: objects.Json) -> None:
        owner = stamp.cluster_of(stranger)
        whose = (f'belongs to cluster {owner}'
                 if owner not in (None, self._cluster.name)
                 else 'exists and belongs to no cluster')
        name = stranger['metadata']['name']
        self._conflict(wanted, (
            f'{resource.kind} {self._namespace}/{name} {whose}. Choose other '
            'names or another namespace, or delete it.'))

    def _change(self, wanted: stamp.Wanted,
                live: objects.Json) -> Change | None:
        resource = wanted.resource
        leaving = stamp.is_leaving(live)
        if networks.is_shared(live) and not leaving:
            return self._change_shared(wanted, live)
        if stamp.hash_of(live) == wanted.hash and not leaving:
            return None
        reasons = (('is being deleted',) if leaving
                   else stamp.changes(live, wanted.body))
        recreate = leaving or resource == api_resources.VM
        return Change(Action.RECREATE if recreate else Action.CHANGE,
                      resource, wanted.name, wanted.node, wanted, live,
                      reasons)

    def _change_shared(self, wanted: stamp.Wanted,
                       live: objects.Json) -> Change | None:
        others = networks.users(live) - {self._cluster.name}
        if stamp.hash_of(live) == wanted.hash:
            if self._cluster.name in networks.users(live):
                return None
            return Change(Action.JOIN, kinds.NETWORK, wanted.name, None,
                          wanted, live)
        if not others:
            return Change(Action.CHANGE, kinds.NETWORK, wanted.name, None,
                          wanted, live, stamp.changes(live, wanted.body))
        self._conflict(wanted, (
            f'{kinds.NETWORK.kind} {self._namespace}/{wanted.name} is shared '
            f'with {", ".join(sorted(others))}, and has another '
            'configuration. Declare the same one, or another name.'))
        return None

    def _delete(self, resource: kinds.AnyResource, name: str,
                live: objects.Json) -> Change | None:
        if networks.is_shared(live):
            users = networks.users(live)
            if users - {self._cluster.name}:
                return Change(Action.LEAVE, resource, name, None, None, live
                              ) if self._cluster.name in users else None
        node = (None if resource == kinds.NETWORK
                else stamp.node_of(live) or name)
        return Change(Action.DELETE, resource, name, node, None, live)

    def _conflict(self, wanted: stamp.Wanted, text: str) -> None:
        nodes = [wanted.node]
        if wanted.resource == kinds.NETWORK:
            nodes = [*self.users(wanted.name)] or [None]
        self.conflicts += [Conflict(node, text) for node in nodes]

    def users(self, definition: str) -> list[str]:
        """Return the names of the nodes with an interface in the network of a
        definition that is created.
        """
        return [node.name for node in self._cluster.nodes if any(
            interface.network.config is not None and _same_name(
                interface.network.attachment, definition)
            for interface in node.interfaces)]

    def _live_networks(self) -> _Objects:
        try:
            return self._list(kinds.NETWORK,
                              networks.selector(self._cluster.name))
        except (errors.AccessDenied, errors.Unavailable) as e:
            if (self._wanted[kinds.NETWORK]
                    or type(e) not in (errors.AccessDenied,
                                       errors.Unavailable)):
                raise
            # A cluster without Multus, or a user without the right to its
            # definitions: then none were created.
            return {}

    def _stranger(self, resource: kinds.AnyResource,
                  name: str) -> objects.Json | None:
        if resource not in self._strangers:
            self._strangers[resource] = self._list(resource, '')
        return self._strangers[resource].get(name)

    def _list(self, resource: kinds.AnyResource, selector: str) -> _Objects:
        return api_server.listed(self._client, resource, self._namespace,
                                 selector, metadata_only=True)


def _same_name(attachment: str | None, name: str) -> bool:
    return (attachment or '').rpartition('/')[2] == name
