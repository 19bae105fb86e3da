# SPDX-License-Identifier: Apache-2.0
"""The state of nodes in Kubernetes, KubeVirt and Ironic."""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster import readiness
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import stored_names

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects


@dataclasses.dataclass(frozen=True)
class Row:
    """A node.

    :param vm: KubeVirt's ``printableStatus``; None without a VM
    :param bmc: ``Ready``, or the reason why it is not; None without a BMC
    :param ironic: provision state, with ``, maintenance`` if it is in that;
        None if it is unknown or not enrolled
    :param server: UUID of the Nova server; None without
    :param kubernetes_node: where the VM runs; None if it does not
    :param problem: what is wrong with the VM, the BMC or in Ironic; None
        without
    """

    cluster: str
    node: str
    vm: str | None
    bmc: str | None
    ironic: str | None
    server: str | None
    kubernetes_node: str | None
    problem: str | None


class _EnrolledKey(typing.NamedTuple):
    """Identifies a node of Ironic; the owner is an `identity.owner`."""

    owner: str | None
    name: str


def rows(client: client.Client, namespace: str, cluster: str | None = None,
         enrolled: abc.Collection[objects.Json] | None = None) -> list[Row]:
    """Read the state of nodes, by one list for each kind.

    :param cluster: name of a cluster; None for all
    :param enrolled: all nodes of Ironic; None without Ironic
    :returns: in the order of clusters and nodes
    :raises: `errors.MachineError`
    """
    selector = stamp.selector(cluster) if cluster else stored_names.CLUSTER
    vms = api_server.listed(client, api_resources.VM, namespace, selector)
    bmcs = api_server.listed(client, kinds.BMC, namespace, selector)
    vmis = api_server.listed(client, api_resources.VMI, namespace, selector)
    by_name = {_EnrolledKey(nodes.record_of(node).get('cluster'),
                            node['name']): node for node in enrolled or ()}
    # Bifrost enrols nodes so, without a record.
    by_vm = {node['uuid']: node for node in enrolled or ()
             if not nodes.record_of(node)}
    uid = api_server.uid(client, namespace) if by_name else ''
    states = []
    for name, live in {**bmcs, **vms}.items():
        owner = stamp.cluster_of(live) or ''
        vm = vms.get(name)
        node = by_name.get(
            _EnrolledKey(identity.owner(namespace, owner, uid), name),
            by_vm.get(vm['metadata']['uid'], {}) if vm else {})
        bmc, problem = _bmc(bmcs.get(name))
        if vm:
            problem = readiness.vm_problem(vm) or problem
        states.append(Row(
            owner, name, _vm(vm), bmc, _ironic(node),
            node.get('instance_uuid'),
            _status(vmis.get(name)).get('nodeName'),
            problem or node.get('maintenance_reason')
            or node.get('last_error')))
    return sorted(states, key=lambda row: (
        row.cluster, identity.order(row.node)))


def _status(obj: abc.Mapping[str, typing.Any] | None) -> typing.Any:
    return (obj or {}).get('status') or {}


def _vm(vm: objects.VirtualMachine | None) -> str | None:
    return None if vm is None else (
        _status(vm).get('printableStatus') or 'Unknown')


def _bmc(bmc: objects.VirtualMachineBMC | None
         ) -> tuple[str | None, str | None]:
    if bmc is None:
        return None, None
    ready = readiness.conditions(bmc).get('Ready')
    if ready is None:
        return 'Unknown', None
    if ready['status'] == 'True':
        return 'Ready', None
    return ready['reason'], ready.get('message')


def _ironic(node: objects.Json) -> str | None:
    state = node.get('provision_state')
    return f'{state}, maintenance' if node.get('maintenance') else state
