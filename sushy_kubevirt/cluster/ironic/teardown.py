# SPDX-License-Identifier: Apache-2.0
"""Remove nodes from Ironic. Their ports and port groups go with them."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster.ironic import states
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import progress

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import client
    from sushy_kubevirt.kube import objects


def remove(client: client.Client, existing: list[objects.Json],
           force: bool = False, lines: progress.Lines = progress.SILENT,
           timeout: float = 1800, parallel: int = provision.PARALLEL
           ) -> list[provision.Result]:
    """Delete nodes.

    With ``force``, nodes with an instance are undeployed by Ironic. Nova's
    servers remain, without a node, until their owners delete them.

    :param force: whether to delete nodes with an instance
    :param timeout: seconds for each of Ironic's operations
    :param parallel: nodes that are worked on at the same time
    :raises: `problems.NodesInUse` before anything is changed
    """
    check_unused(existing, force)
    if not existing:
        return []
    with states.Watcher(client, timeout) as watcher:
        return list(provision.run(
            lambda node: _removed(client, node, force, lines, watcher),
            sorted(existing, key=_name), parallel))


def check_unused(existing: abc.Iterable[objects.Json], force: bool) -> None:
    """Refuse to remove nodes with an instance.

    :raises: `problems.NodesInUse`
    """
    used = [_name(node) for node in existing if nodes.is_in_use(node)]
    if used and not force:
        raise problems.NodesInUse(used)


def _removed(client: client.Client, node: objects.Json, force: bool,
             lines: progress.Lines,
             watcher: states.Watcher) -> provision.Result:
    name, state = _name(node), node['provision_state']
    try:
        if nodes.is_in_use(node):
            _undeploy(client, node, lines, watcher)
        elif state in states.BUSY:
            lines.step(name, 'wait', state)
            watcher.settled(node['uuid'])
        _delete(client, node, force)
    except problems.ClusterError as error:
        lines.step(name, 'failed', str(error))
        return provision.Result(name, 'failed', state=state, error=str(error))
    lines.step(name, 'deleted')
    return provision.Result(name, 'delete')


def _undeploy(client: client.Client, node: objects.Json,
              lines: progress.Lines, watcher: states.Watcher) -> None:
    lines.step(_name(node), 'undeploy', node['instance_uuid'] or '')
    try:
        client.provision(node['uuid'], 'deleted')
        watcher.settled(node['uuid'])
    except problems.ServiceError as error:
        # States that cannot be undeployed; maintenance deletes them all.
        lines.step(_name(node), 'undeploy', str(error))


def _delete(client: client.Client, node: objects.Json, force: bool) -> None:
    # Between the list and now, Nova may have taken the node.
    client.set_maintenance(node['uuid'], provision.MAINTENANCE)
    now = client.node(node['uuid'], ('uuid', 'instance_uuid'))
    if now['instance_uuid'] and not force:
        client.set_maintenance(node['uuid'], None)
        raise problems.NodesInUse([_name(node)])
    client.delete('nodes', node['uuid'])


def _name(node: objects.Json) -> str:
    return node['name'] or node['uuid']
