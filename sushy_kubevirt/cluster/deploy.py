# SPDX-License-Identifier: Apache-2.0
"""Enrols the nodes of a cluster, and takes them out of Ironic again.

A VM is deleted only after its node has left Ironic: otherwise Nova would
choose the node for a server.
"""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import progress
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import quantity

#: Kinds of authentication with one endpoint, which openstacksdk takes for that
#: of every service.
_WITHOUT_CATALOG = 'none', 'http_basic'

_GROUP, _VERSION = 'instancetype.kubevirt.io', 'v1beta1'
_CLUSTER_KIND = 'VirtualMachineClusterInstancetype'
_INSTANCE_TYPES = {
    one.kind.lower(): one for one in (
        api_resources.Resource(
            _GROUP, _VERSION, 'virtualmachineclusterinstancetypes',
            _CLUSTER_KIND),
        api_resources.Resource(
            _GROUP, _VERSION, 'virtualmachineinstancetypes',
            'VirtualMachineInstancetype'))}


@dataclasses.dataclass(frozen=True)
class Openstack:
    """Where nodes are enrolled, and how.

    :param connection: an `openstack.connection.Connection`
    :param owner: the cluster, an `identity.owner`
    :param force: whether nodes with an instance may be removed
    :param lines: `progress.Lines`
    :param timeout: seconds for each of Ironic's operations
    :param parallel: nodes that are worked on at the same time
    """

    connection: object
    owner: str
    force: bool = False
    lines: object = dataclasses.field(
        default_factory=lambda: progress.Lines(None))
    timeout: float = 0
    parallel: int = provision.PARALLEL

    @property
    def client(self):
        """A `client.Client` of Ironic."""
        # Imports openstacksdk.
        from sushy_kubevirt.cluster.ironic import client
        return client.Client(self.connection)


def leave(openstack, plan):
    """Take the nodes out of Ironic whose VMs a plan deletes or recreates.

    :param openstack: `Openstack`
    :param plan: a `plan.Plan`
    :returns: dict of name of a node to why it remains
    :raises: `problems.NodesInUse` before anything is changed;
        `problems.ServiceError`
    """
    uids = deleted_vms(plan)
    names = set(uids.values())
    leaving = {}        # name of the node of the plan, by Ironic's name
    existing = []
    for node in owned(openstack, uids):
        name = uids.get(nodes.record_of(node).get('vm', node['uuid']),
                        node['name'])
        if name in names:
            leaving[node['name'] or node['uuid']] = name
            existing.append(node)
    return {leaving[one.name]: one.error
            for one in remove(openstack, existing) if one.error}


def deleted_vms(plan):
    """:returns: dict of the UIDs of the VMs that a plan deletes or recreates
        to their names
    """
    return {one.live['metadata']['uid']: one.name for one in plan.changes
            if one.resource == api_resources.VM and one.name in (
                *plan.removed, *plan.recreated)}


def check_unused(existing, force):
    """Refuse to remove nodes with an instance.

    :param existing: iterable of dicts of Ironic
    :raises: `problems.NodesInUse`
    """
    used = [one['name'] or one['uuid'] for one in existing
            if nodes.is_in_use(one)]
    if used and not force:
        raise problems.NodesInUse(used)


def remove(openstack, existing):
    """Take nodes out of Ironic.

    :param existing: list of dicts of Ironic
    :returns: list of `provision.Result`
    :raises: `problems.NodesInUse` before anything is changed
    """
    from sushy_kubevirt.cluster.ironic import teardown
    return teardown.remove(
        openstack.client, existing, openstack.force, openstack.lines.step,
        openstack.timeout, openstack.parallel)


def owned(openstack, vms=()):
    """List the nodes of a cluster.

    :param vms: UIDs of VMs: nodes with such a UUID are the cluster's too, as
        Bifrost enrols them without a record
    :returns: list of dicts of Ironic
    :raises: `problems.ServiceError`
    """
    existing = openstack.client.list('nodes', nodes.FIELDS)
    return nodes.owned(existing, openstack.owner) + [
        one for one in existing
        if one['uuid'] in vms and not nodes.record_of(one)]


def has_nova(connection):
    """Tell whether a cloud has Nova, or is Ironic by itself.

    :param connection: an `openstack.connection.Connection`
    """
    settings = connection.config.config
    if settings.get('auth_type') in _WITHOUT_CATALOG:
        return bool(settings.get('compute_endpoint_override'))
    return connection.has_service('compute')


def flavors_to_delete(openstack):
    """:returns: list of `flavors.Change`; empty without Nova
    :raises: `problems.ServiceError`
    """
    if not has_nova(openstack.connection):
        return []
    from sushy_kubevirt.cluster.nova import flavors
    return flavors.compare(openstack.connection, openstack.owner, ())


def delete_flavors(openstack, changes) -> None:
    """Delete flavors.

    :param changes: list of `flavors_to_delete`
    :raises: `problems.ServiceError`
    """
    if changes:
        from sushy_kubevirt.cluster.nova import flavors
        flavors.apply(openstack.connection, changes)


def wanted(client, cluster, namespace, without=()):
    """Find out what to enrol.

    :param client: a `client.Client` of Kubernetes
    :param cluster: a `model.Cluster`
    :param namespace: of its objects
    :param without: names of nodes to leave out
    :returns: list of `nodes.Wanted`, and list of `provision.Result` of nodes
        that cannot be enrolled
    :raises: `errors.MachineError`
    """
    found = bmcs.of_cluster(client, namespace, cluster.name)
    uids = vm_uids(client, namespace, cluster.name)
    declared, failed = [], []
    for node in cluster.nodes:
        if node.ironic is None or node.name in without:
            continue
        bmc = found.get(node.name) if node.name in uids else None
        try:
            if bmc is None:
                raise problems.BmcUnavailable(
                    node.name, 'there is no VirtualMachine and '
                    f'VirtualMachineBMC {namespace}/{node.name}. Run "apply" '
                    'first')
            if isinstance(bmc, problems.BmcUnavailable):
                raise bmc
            bmcs.require(node.name, bmc, node.type.driver)
            declared.append(nodes.Wanted(node, bmc, uids[node.name]))
        except problems.BmcUnavailable as error:
            failed.append(provision.Result(
                node.name, 'failed', error=str(error)))
    return declared, failed


def vm_uids(client, namespace, cluster):
    """:returns: dict of the names of a cluster's VMs to their UIDs"""
    return {one['metadata']['name']: one['metadata']['uid']
            for items, _ in client.pages(
                api_resources.VM, namespace, stamp.selector(cluster),
                metadata_only=True)
            for one in items}


def enrol(client, openstack, cluster, namespace, without=()):
    """Make nodes, ports and flavors what the file declares, and wait.

    Nodes that the file does not declare any more are removed.

    :param client: a `client.Client` of Kubernetes
    :param openstack: `Openstack`
    :param cluster: a `model.Cluster`
    :param namespace: of its objects
    :param without: names of nodes that are left as they are
    :returns: list of `provision.Result`, one for each node, and list of
        `flavors.Change`
    :raises: `problems.NodesInUse` before anything is changed;
        `problems.ServiceError`; `errors.MachineError`
    """
    declared, failed = wanted(client, cluster, namespace, without)
    enrolment = _enrolment(openstack, declared)
    surplus = _surplus(enrolment, cluster)
    check_unused(surplus, openstack.force)
    for one in failed:
        openstack.lines.step(one.name, 'failed', one.error)
    results = failed + enrolment.apply() + remove(openstack, surplus)
    return results, _nova(client, openstack, cluster, namespace, {
        one.name for one in results if not one.error})


def plan(client, openstack, cluster, namespace, kubernetes):
    """Say what `enrol` does after a plan is carried out.

    :param client: a `client.Client` of Kubernetes
    :param openstack: `Openstack`
    :param cluster: a `model.Cluster`
    :param namespace: of its objects
    :param kubernetes: the `plan.Plan`
    :returns: list of `provision.Result`, whose action may also be
        ``recreate``, and list of `flavors.Change`
    :raises: `problems.ServiceError`; `errors.MachineError`
    """
    declared, failed = wanted(
        client, cluster, namespace, {one.node for one in kubernetes.conflicts})
    # Their BMCs do not exist yet, or will be other ones.
    new = {*kubernetes.created, *kubernetes.recreated}
    enrolment = _enrolment(
        openstack, [one for one in declared if one.node.name not in new])
    results = {one.name: one for one in (*failed, *enrolment.plan())}
    there = {one['name']: one for one in enrolment.surplus}
    for node in cluster.nodes:
        if node.ironic is not None and node.name in new:
            results[node.name] = (
                _planned('recreate', there[node.name]) if node.name in there
                else provision.Result(node.name, 'create'))
    made = [results[one.name] for one in cluster.nodes if one.name in results]
    made += [_planned('delete', one) for one in _surplus(enrolment, cluster)]
    return made, _compared(client, openstack, cluster, namespace)


def _planned(action, existing):
    return provision.Result(
        existing['name'] or existing['uuid'], action,
        error='has an instance: refused without --force'
        if nodes.is_in_use(existing) else None)


def _enrolment(openstack, declared):
    from sushy_kubevirt.cluster.ironic import images
    return provision.Enrolment(
        openstack.client, openstack.owner, declared, images.resolve(
            openstack.connection, nodes.image_names(declared)),
        openstack.lines.step, openstack.timeout, openstack.parallel)


def _surplus(enrolment, cluster):
    """:returns: list of dicts of the nodes that are not declared any more"""
    names = {one.name for one in cluster.nodes if one.ironic is not None}
    return [one for one in enrolment.surplus if one['name'] not in names]


def _compared(client, openstack, cluster, namespace):
    """:returns: list of `flavors.Change`"""
    connection = openstack.connection
    if not cluster.flavors and not has_nova(connection):
        # Ironic by itself.
        return []
    from sushy_kubevirt.cluster.nova import flavors
    return flavors.compare(
        connection, openstack.owner, cluster.flavors,
        _sizes(client, namespace, cluster.flavors))


def _nova(client, openstack, cluster, namespace, names):
    connection = openstack.connection
    changes = _compared(client, openstack, cluster, namespace)
    if not changes:
        return changes
    from sushy_kubevirt.cluster.nova import flavors
    from sushy_kubevirt.cluster.nova import placement
    for one in changes:
        if one.action != 'unchanged':
            openstack.lines.step(one.name, 'flavor', one.action)
    flavors.apply(connection, changes)
    if cluster.flavors and cluster.wait_for_placement:
        placement.wait(
            connection, [one for one in owned(openstack)
                         if one['name'] in names
                         and one['provision_state'] == 'available'
                         and not one['instance_uuid']
                         and not one['maintenance']],
            openstack.timeout, lambda missing: openstack.lines.line(
                f'waiting for Placement to offer {len(missing)} nodes: '
                + ', '.join(missing[:10])))
    return changes


def _sizes(client, namespace, flavors):
    """Read the sizes of instance types.

    :returns: dict of name to vCPUs and MiB
    """
    found = {}
    for matcher in (one.type.instancetype for one in flavors):
        if not matcher or matcher['name'] in found:
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
        found[matcher['name']] = (
            spec['cpu']['guest'],
            quantity.to_int(spec['memory']['guest']) >> 20)
    return found
