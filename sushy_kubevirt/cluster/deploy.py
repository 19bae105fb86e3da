# SPDX-License-Identifier: Apache-2.0
"""Enrols the nodes of a cluster, and takes them out of Ironic again.

A VM is deleted only after its node has left Ironic: otherwise Nova would
choose the node for a server.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster.ironic import teardown
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import progress
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.remote import endpoint

if typing.TYPE_CHECKING:
    from openstack import connection

    from sushy_kubevirt.cluster.ironic import client as ironic_client
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.cluster.nova import flavors as nova_flavors
    from sushy_kubevirt.cluster.objects import kinds
    from sushy_kubevirt.cluster import plan
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects

#: Kinds of authentication with one endpoint, which openstacksdk takes for that
#: of every service.
_WITHOUT_CATALOG = 'none', 'http_basic'

_GROUP, _VERSION = 'instancetype.kubevirt.io', 'v1beta1'
_CLUSTER_KIND = 'VirtualMachineClusterInstancetype'
_INSTANCE_TYPES: dict[str, kinds.AnyResource] = {
    kind.lower(): api_resources.Resource(_GROUP, _VERSION, plural, kind)
    for kind, plural in (
        (_CLUSTER_KIND, 'virtualmachineclusterinstancetypes'),
        ('VirtualMachineInstancetype', 'virtualmachineinstancetypes'))}


@dataclasses.dataclass(frozen=True)
class Openstack:
    """Where nodes are enrolled, and how.

    :param owner: the cluster, an `identity.owner`
    :param force: whether nodes with an instance may be removed
    :param timeout: seconds for each of Ironic's operations
    :param parallel: nodes that are worked on at the same time
    """

    connection: connection.Connection
    owner: str
    force: bool = False
    lines: progress.Lines = progress.SILENT
    timeout: float = 0
    parallel: int = provision.PARALLEL

    @property
    def client(self) -> ironic_client.Client:
        """Client of Ironic."""
        # Imports openstacksdk.
        from sushy_kubevirt.cluster.ironic import client
        return client.Client(self.connection)


def leave(openstack: Openstack, plan: plan.Plan) -> dict[str, str]:
    """Take the nodes out of Ironic whose VMs a plan deletes or recreates.

    :returns: why a node remains, by its name
    :raises: `problems.NodesInUse` before anything is changed;
        `problems.ServiceError`
    """
    uids = deleted_vms(plan)
    names = set(uids.values())
    leaving = {}        # name of the node of the plan, by Ironic's name
    existing = []
    for node in owned(openstack, uids):
        record = nodes.record_of(node)
        name = uids.get(record['vm'] if 'vm' in record else node['uuid'],
                        node['name'])
        if name in names:
            leaving[node['name'] or node['uuid']] = name
            existing.append(node)
    return {leaving[result.name]: result.error
            for result in remove(openstack, existing) if result.error}


def deleted_vms(plan: plan.Plan) -> dict[str, str]:
    """Return the names of the VMs that a plan deletes or recreates, by UID."""
    return {change.metadata['uid']: change.name for change in plan.changes
            if change.resource == api_resources.VM and change.name in (
                *plan.removed, *plan.recreated)}


def remove(openstack: Openstack,
           existing: list[objects.Json]) -> list[provision.Result]:
    """Take nodes out of Ironic.

    :raises: `problems.NodesInUse` before anything is changed
    """
    return teardown.remove(
        openstack.client, existing, openstack.force, openstack.lines,
        openstack.timeout, openstack.parallel)


def owned(openstack: Openstack,
          vms: abc.Container[str] = ()) -> list[objects.Json]:
    """List the nodes of a cluster in Ironic.

    :param vms: UIDs of VMs: nodes with such a UUID are the cluster's too, as
        Bifrost enrols them without a record
    :raises: `problems.ServiceError`
    """
    existing = openstack.client.list('nodes', nodes.FIELDS)
    return nodes.owned(existing, openstack.owner) + [
        node for node in existing
        if node['uuid'] in vms and not nodes.record_of(node)]


def has_nova(connection: connection.Connection) -> bool:
    """Tell whether a cloud has Nova, or is Ironic by itself."""
    settings = connection.config.config
    if settings.get('auth_type') in _WITHOUT_CATALOG:
        return bool(settings.get('compute_endpoint_override'))
    return connection.has_service('compute')


def wanted(client: client.Client, cluster: model.Cluster, namespace: str,
           without: abc.Container[str | None] = ()
           ) -> tuple[list[nodes.Wanted], list[provision.Result]]:
    """Find out what to enrol.

    :param without: names of nodes to leave out
    :returns: nodes to enrol, and those that cannot be enrolled
    :raises: `errors.MachineError`
    """
    existing = bmcs.of_cluster(client, namespace, cluster.name)
    vms = api_server.listed(client, api_resources.VM, namespace,
                            stamp.selector(cluster.name), metadata_only=True)
    declared, failed = [], []
    for node in cluster.nodes:
        if node.ironic is None or node.name in without:
            continue
        bmc = existing.get(node.name) if node.name in vms else None
        try:
            if bmc is None:
                raise endpoint.BmcUnavailable(
                    node.name, 'there is no VirtualMachine and '
                    f'VirtualMachineBMC {namespace}/{node.name}. Run "apply" '
                    'first')
            if isinstance(bmc, endpoint.BmcUnavailable):
                raise bmc
            if node.outlet is None:
                bmcs.require(node.name, bmc, node.type.driver)
            declared.append(nodes.Wanted(
                node, bmc, vms[node.name]['metadata']['uid']))
        except endpoint.BmcUnavailable as error:
            failed.append(provision.Result(
                node.name, 'failed', error=str(error)))
    return declared, failed


def enrol(client: client.Client, openstack: Openstack, cluster: model.Cluster,
          namespace: str, without: abc.Container[str | None] = ()
          ) -> tuple[list[provision.Result], list[nova_flavors.Change]]:
    """Make nodes, ports and flavors what the file declares, and wait.

    Nodes that the file does not declare any more are removed.

    :param without: names of nodes that are left as they are
    :returns: a result for each node, and what was done with flavors
    :raises: `problems.NodesInUse` before anything is changed;
        `problems.ServiceError`; `errors.MachineError`
    """
    declared, failed = wanted(client, cluster, namespace, without)
    enrolment = _enrolment(openstack, declared)
    surplus = _surplus(enrolment, cluster)
    teardown.check_unused(surplus, openstack.force)
    for result in failed:
        openstack.lines.step(result.name, 'failed', result.error or '')
    results = failed + enrolment.apply() + remove(openstack, surplus)
    return results, _nova(client, openstack, cluster, namespace, {
        result.name for result in results if not result.error})


def preview(client: client.Client, openstack: Openstack,
            cluster: model.Cluster, plan: plan.Plan
            ) -> tuple[list[provision.Result], list[nova_flavors.Change]]:
    """Say what `enrol` does after a plan is carried out.

    :returns: a result for each node, whose action may also be ``recreate``,
        and what is done with flavors
    :raises: `problems.ServiceError`; `errors.MachineError`
    """
    namespace = plan.namespace
    declared, failed = wanted(
        client, cluster, namespace,
        {conflict.node for conflict in plan.conflicts})
    # Their BMCs do not exist yet, or will be other ones.
    new = {*plan.created, *plan.recreated}
    enrolment = _enrolment(openstack, [
        node for node in declared if node.node.name not in new])
    results = {result.name: result
               for result in (*failed, *enrolment.plan())}
    there = {node['name']: node for node in enrolment.surplus}
    for node in cluster.nodes:
        if node.ironic is not None and node.name in new:
            results[node.name] = (
                _planned('recreate', there[node.name]) if node.name in there
                else provision.Result(node.name, 'create'))
    planned = [results[node.name] for node in cluster.nodes
               if node.name in results]
    planned += [_planned('delete', node)
                for node in _surplus(enrolment, cluster)]
    return planned, compare_flavors(
        client, openstack, cluster.flavors, namespace)


def _planned(action: str, existing: objects.Json) -> provision.Result:
    return provision.Result(
        existing['name'] or existing['uuid'], action,
        error='has an instance: refused without --force'
        if nodes.is_in_use(existing) else None)


def _enrolment(openstack: Openstack,
               declared: list[nodes.Wanted]) -> provision.Enrolment:
    from sushy_kubevirt.cluster.ironic import images
    return provision.Enrolment(
        openstack.client, openstack.owner, declared, images.resolve(
            openstack.connection, nodes.image_names(declared)),
        openstack.lines, openstack.timeout, openstack.parallel)


def _surplus(enrolment: provision.Enrolment,
             cluster: model.Cluster) -> list[objects.Json]:
    """Return nodes of Ironic that are not declared any more."""
    names = {node.name for node in cluster.nodes if node.ironic is not None}
    return [node for node in enrolment.surplus if node['name'] not in names]


def compare_flavors(client: client.Client, openstack: Openstack,
                    declared: tuple[model.Flavor, ...], namespace: str
                    ) -> list[nova_flavors.Change]:
    """Compare flavors with those of Nova.

    :param declared: none to delete them all
    :returns: none where Ironic is by itself
    :raises: `problems.ServiceError`; `errors.MachineError`
    """
    connection = openstack.connection
    if not declared and not has_nova(connection):
        return []
    from sushy_kubevirt.cluster.nova import flavors
    return flavors.compare(connection, openstack.owner, declared,
                           _sizes(client, namespace, declared))


def _nova(client: client.Client, openstack: Openstack,
          cluster: model.Cluster, namespace: str,
          names: set[str]) -> list[nova_flavors.Change]:
    connection = openstack.connection
    changes = compare_flavors(
        client, openstack, cluster.flavors, namespace)
    if not changes:
        return changes
    from sushy_kubevirt.cluster.nova import flavors
    from sushy_kubevirt.cluster.nova import placement
    for change in changes:
        if change.action != 'unchanged':
            openstack.lines.step(change.name, 'flavor', change.action)
    flavors.apply(connection, changes)
    if cluster.flavors and cluster.wait_for_placement:
        placement.wait(
            connection, [node for node in owned(openstack)
                         if node['name'] in names
                         and node['provision_state'] == 'available'
                         and not node['instance_uuid']
                         and not node['maintenance']],
            openstack.timeout, lambda missing: openstack.lines.line(
                f'waiting for Placement to offer {len(missing)} nodes: '
                + ', '.join(missing[:10])))
    return changes


def _sizes(client: client.Client, namespace: str,
           declared: tuple[model.Flavor, ...]
           ) -> dict[str, nova_flavors.InstanceSize]:
    """Read the sizes of instance types."""
    from sushy_kubevirt.cluster.nova import flavors
    sizes: dict[str, nova_flavors.InstanceSize] = {}
    for matcher in (flavor.type.instancetype for flavor in declared):
        if not matcher or matcher['name'] in sizes:
            continue
        kind = matcher.get('kind') or _CLUSTER_KIND
        resource = _INSTANCE_TYPES.get(kind.lower())
        if resource is None:
            raise problems.ServiceError(
                f'KubeVirt has no kind of instance types {kind}')
        try:
            spec = client.get(
                resource,
                None if resource.kind == _CLUSTER_KIND else namespace,
                matcher['name'])['spec']
        except errors.ObjectNotFound as error:
            raise problems.ServiceError(
                f"there is no {resource.kind} {matcher['name']}, whose size a "
                'flavor is to have') from error
        sizes[matcher['name']] = flavors.InstanceSize(
            spec['cpu']['guest'],
            (quantity.to_int(spec['memory']['guest']) or 0) >> 20)
    return sizes
