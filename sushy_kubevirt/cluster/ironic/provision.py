# SPDX-License-Identifier: Apache-2.0
"""Enrol the nodes of a cluster, and bring them to ``available``.

Everything that exists is read at the beginning, in lists; a node that matches
costs no further request. The others are worked on in parallel. Each step can
be the last one: the next run finds the node by its name and continues.
"""

from __future__ import annotations

import collections
from collections import abc
from concurrent import futures
import dataclasses
import typing

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import ports
from sushy_kubevirt.cluster.ironic import states
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import progress

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import client
    from sushy_kubevirt.kube import objects

#: Reason of the maintenance in which ports of an available node are changed,
#: and nodes deleted, as Nova takes none in maintenance. A run that finds it
#: ends it.
MAINTENANCE = 'sushy-kubevirt-cluster changes or deletes this node'

#: Nodes at a time. Threads mostly wait for Ironic, whose conductor has 300.
PARALLEL = 100

#: Times that a node is told to do what did not fail by itself: SQLite was
#: busy, or another run was at work.
_ATTEMPTS = 5

#: Provision state that a verb leads to.
_RESULTS = {'manage': 'manageable', 'inspect': 'manageable',
            'provide': 'available'}

#: States in which Ironic changes neither interfaces nor resource class nor
#: ports; ``manage`` ends them at once.
_FAILED = {'inspect failed', 'clean failed', 'adopt failed'}

#: States after which ``manage`` tries again.
_UNMANAGED = {'enroll', *_FAILED}

_ItemT = typing.TypeVar('_ItemT')
_ResultT = typing.TypeVar('_ResultT')


@dataclasses.dataclass(frozen=True)
class Result:
    """What is to be done with a node, or what was done.

    :param action: ``create``, ``change``, ``wait`` (Ironic is at work),
        ``manage``, ``inspect``, ``provide``, ``delete``, ``unchanged`` or
        ``failed``
    :param changed: names of what changes
    :param deferred: names of what would change if the node had no instance
    :param state: provision state; None if there is no node
    :param error: None without
    """

    name: str
    action: str
    changed: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    state: str | None = None
    error: str | None = None


class Enrolment:
    """The nodes of a cluster, compared with those of Ironic.

    :param owner: the cluster, an `identity.owner`
    :param images: those of `images.resolve`
    :param timeout: seconds for each of Ironic's operations
    :param parallel: nodes that are worked on at the same time
    :raises: `problems.ServiceError`
    """

    def __init__(self, client: client.Client, owner: str,
                 wanted: abc.Iterable[nodes.Wanted],
                 images: abc.Mapping[str, str] | None = None,
                 lines: progress.Lines = progress.SILENT,
                 timeout: float = 1800, parallel: int = PARALLEL) -> None:
        self._client = client
        self._owner = owner
        self._wanted = tuple(wanted)
        self._images = images or {}
        self._lines = lines
        self._timeout = timeout
        self._parallel = parallel
        existing = client.list('nodes', nodes.FIELDS)
        self._existing = nodes.find(existing, owner, self._wanted)
        kept = {node['uuid'] for node in self._existing.values()
                if isinstance(node, dict)}
        #: Nodes of the cluster that the file does not have any more.
        self.surplus = [node for node in nodes.owned(existing, owner)
                        if node['uuid'] not in kept]
        #: Ports and port groups, by kind and UUID of the node.
        self._interfaces: dict[str, dict[str, list[objects.Json]]] = {
            kind: collections.defaultdict(list) for kind in ports.FIELDS}
        for kind, fields in ports.FIELDS.items() if kept else ():
            for interface in client.list(kind, fields):
                self._interfaces[kind][interface['node_uuid']].append(
                    interface)

    def plan(self) -> list[Result]:
        """Say what `apply` does. No request is made.

        :returns: in the order of the nodes
        """
        return [self._planned(wanted) for wanted in self._wanted]

    def apply(self) -> list[Result]:
        """Enrol, change and provide. Failures of nodes are in the results.

        :returns: in the order of the nodes
        """
        results = {result.name: result for result in self.plan()}
        todo = [wanted for wanted in self._wanted
                if results[wanted.node.name].action not in (
                    'unchanged', 'failed')]
        if todo:
            with states.Watcher(self._client, self._timeout) as watcher:
                for result in run(
                        lambda wanted: self._applied(
                            wanted, results[wanted.node.name], watcher), todo,
                        self._parallel):
                    results[result.name] = result
        for result in results.values():
            if result.error:
                self._lines.step(result.name, 'failed', result.error)
        return list(results.values())

    def _planned(self, wanted: nodes.Wanted) -> Result:
        name = wanted.node.name
        node = self._existing.get(name)
        if node is None:
            return Result(name, 'create')
        if isinstance(node, problems.NodeFailed):
            return Result(name, 'failed', error=str(node))
        difference = self._difference(wanted, node)
        changed, deferred = list(difference.changed), difference.deferred
        if (self._group_changes(wanted, node)
                or self._port_changes(wanted, node)):
            if nodes.is_in_use(node):
                deferred = *deferred, 'ports'
            else:
                changed.append('ports')
        if node['maintenance_reason'] == MAINTENANCE:
            changed.append('maintenance')
        state = node['provision_state']
        if changed:
            action = 'change'
        elif state in states.BUSY:
            action = 'wait'
        elif nodes.is_in_use(node):
            action = 'unchanged'
        else:
            action = _next_verb(
                state, wanted, _is_inspected(wanted, node)) or 'unchanged'
        return Result(name, action, tuple(changed), deferred, state)

    def _applied(self, wanted: nodes.Wanted, planned: Result,
                 watcher: states.Watcher) -> Result:
        node = self._existing.get(wanted.node.name)
        try:
            if not isinstance(node, dict):
                node = self._create(wanted)
            elif node['provision_state'] in states.BUSY:
                self._lines.step(wanted.node.name, 'wait',
                                 node['provision_state'])
                watcher.settled(node['uuid'])
                node = self._client.node(node['uuid'], nodes.FIELDS)
            inspected = _is_inspected(wanted, node)
            if node['provision_state'] in _FAILED and planned.changed:
                node = self._recover(wanted, node, watcher)
            self._change(wanted, node)
            state = node['provision_state']
            if not nodes.is_in_use(node):
                state = self._provide(wanted, node, inspected, watcher)
        except problems.ClusterError as error:
            # Ironic's reasons repeat patches, and BMCs' errors.
            text = str(error)
            if wanted.bmc.password:
                text = text.replace(wanted.bmc.password, '***')
            return dataclasses.replace(planned, action='failed', error=text)
        self._lines.step(wanted.node.name, state)
        return dataclasses.replace(planned, state=state)

    def _create(self, wanted: nodes.Wanted) -> objects.Json:
        self._lines.step(wanted.node.name, 'create')
        return self._client.create(
            'nodes', nodes.creation(wanted, self._owner, self._images))

    def _recover(self, wanted: nodes.Wanted, node: objects.Json,
                 watcher: states.Watcher) -> objects.Json:
        # Manage a node whose last operation failed, before it is changed.
        self._lines.step(wanted.node.name, 'manage', node['provision_state'])
        self._client.provision(node['uuid'], 'manage')
        watcher.settled(node['uuid'])
        return self._client.node(node['uuid'], nodes.FIELDS)

    def _change(self, wanted: nodes.Wanted, node: objects.Json) -> None:
        # Make a node, its port group and its ports what they shall be.
        try:
            self._change_node(wanted, node)
            if not nodes.is_in_use(node):
                self._change_ports(wanted, node)
        finally:
            if node['maintenance_reason'] == MAINTENANCE:
                self._client.set_maintenance(node['uuid'], None)

    def _change_ports(self, wanted: nodes.Wanted, node: objects.Json) -> None:
        name, uuid = wanted.node.name, node['uuid']
        for change in self._group_changes(wanted, node):
            group = self._make(name, change)
            if group is not None and change.verb == 'create':
                self._interfaces['portgroups'][uuid].append(group)
        changes = self._port_changes(wanted, node)
        if (node['provision_state'] == 'available' and not node['maintenance']
                and any(change.needs_maintenance for change in changes)):
            self._client.set_maintenance(uuid, MAINTENANCE)
            node['maintenance_reason'] = MAINTENANCE
        for change in changes:
            self._make(name, change)

    def _change_node(self, wanted: nodes.Wanted, node: objects.Json) -> None:
        difference = self._difference(wanted, node)
        if difference and difference.changed:
            self._lines.step(wanted.node.name, 'change',
                             ', '.join(difference.changed))
        if difference.patch:
            self._client.change(
                'nodes', node['uuid'], difference.patch,
                'driver' in difference.changed)
        if difference.traits is not None:
            self._client.set_traits(node['uuid'], difference.traits)

    def _make(self, name: str, change: ports.Change) -> objects.Json | None:
        self._lines.step(name, f'{change.verb} {change.kind[:-1]}',
                         change.label)
        if change.verb == 'create':
            return self._client.create(change.kind, change.body)
        if change.verb == 'change':
            return self._client.change(change.kind, change.uuid, change.patch)
        self._client.delete(change.kind, change.uuid)
        return None

    def _provide(self, wanted: nodes.Wanted, node: objects.Json,
                 inspected: bool, watcher: states.Watcher) -> str:
        # Go from a settled state to the wanted one; return it.
        uuid, state = node['uuid'], node['provision_state']
        if node['maintenance'] and node['fault'] == 'clean failure':
            # Ironic has begun it, and does not end it.
            self._client.set_maintenance(uuid, None)
        attempts = _ATTEMPTS
        while verb := _next_verb(state, wanted, inspected):
            self._lines.step(wanted.node.name, verb)
            self._client.provision(uuid, verb)
            now = watcher.settled(uuid)
            state = now['provision_state']
            if state != _RESULTS[verb]:
                reason = now['last_error'] or 'Ironic gives no reason'
                attempts -= 1
                if attempts and (not now['last_error']
                                 or nodes.DATABASE_LOCKED in reason):
                    # Another run may have told the node something else.
                    continue
                raise problems.NodeFailed(
                    f'{verb}: {state}: {reason}{_advice(wanted, reason)}')
            if verb == 'inspect':
                inspected = True
                self._change_inspected(wanted, uuid)
        return state

    def _change_inspected(self, wanted: nodes.Wanted, uuid: str) -> None:
        # Inspection writes into properties and ports, too: it sets
        # ``pxe_enabled`` by what the node has booted from.
        for kind, fields in ports.FIELDS.items():
            self._interfaces[kind][uuid] = self._client.list(
                kind, fields, uuid)
        self._change(wanted, self._client.node(uuid, nodes.FIELDS))

    def _difference(self, wanted: nodes.Wanted,
                    node: objects.Json) -> nodes.Difference:
        return nodes.difference(node, wanted, self._owner, self._images)

    def _group_changes(self, wanted: nodes.Wanted,
                       node: objects.Json) -> list[ports.Change]:
        return ports.group_changes(
            wanted, node['uuid'], self._owner,
            self._interfaces['portgroups'][node['uuid']])

    def _port_changes(self, wanted: nodes.Wanted,
                      node: objects.Json) -> list[ports.Change]:
        return ports.changes(
            wanted, node['uuid'], self._owner,
            self._interfaces['ports'][node['uuid']],
            self._interfaces['portgroups'][node['uuid']])


def run(function: abc.Callable[[_ItemT], _ResultT],
        items: abc.Iterable[_ItemT],
        parallel: int = PARALLEL) -> abc.Iterator[_ResultT]:
    """Call a function for each item, in parallel.

    :param parallel: calls at the same time
    :returns: what it returns, in the order of the items
    """
    pool = futures.ThreadPoolExecutor(parallel)
    try:
        yield from pool.map(function, items)
    finally:
        # After an interruption, what waits for Ironic ends with its watcher.
        pool.shutdown(wait=False, cancel_futures=True)


def _advice(wanted: nodes.Wanted, reason: str) -> str:
    # What to do about reasons that Ironic has from libraries.
    if 'CERTIFICATE_VERIFY_FAILED' in reason:
        return (". Ironic's conductors do not trust the BMC's certificate. "
                'Copy its authority, ca.crt in the ConfigMap '
                f'{wanted.bmc.authority}, to a file there and name it in '
                '"ca_file", or set "verify_ca: false"')
    if 'Max retries exceeded' in reason:
        return (f". Ironic's conductors have to reach {wanted.bmc.address}; "
                '"bmc: {service: {type: LoadBalancer}}" of the node type '
                'gives the BMC an address outside of the Kubernetes cluster')
    return ''


def _is_inspected(wanted: nodes.Wanted, node: objects.Json) -> bool:
    # A VM that was made anew is inspected again.
    return (not wanted.ironic.inspect
            or bool(node['inspection_finished_at'])
            and nodes.record_of(node).get('vm') == wanted.vm)


def _next_verb(state: str, wanted: nodes.Wanted,
               inspected: bool) -> str | None:
    # The verb that leads from a settled state towards the wanted one.
    if state in _UNMANAGED:
        return 'manage'
    if state == 'manageable':
        if not inspected:
            return 'inspect'
        return 'provide' if wanted.ironic.provide else None
    if state == 'available' and not (inspected and wanted.ironic.provide):
        return 'manage'
    return None
