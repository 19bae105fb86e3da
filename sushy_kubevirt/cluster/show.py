# SPDX-License-Identifier: Apache-2.0
"""The state of nodes in Kubernetes, KubeVirt and Ironic."""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster import readiness
from sushy_kubevirt.kube import api_resources


@dataclasses.dataclass(frozen=True)
class Row:
    """A node.

    :param cluster: its name
    :param node: its name
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


def rows(client, namespace, cluster=None, enrolled=None):
    """Read the state of nodes, by one list for each kind.

    :param client: a `client.Client`
    :param namespace: of the clusters
    :param cluster: name of a cluster; None for all
    :param enrolled: dicts of all nodes of Ironic; None without Ironic
    :returns: list of `Row`, in the order of clusters and nodes
    :raises: `errors.MachineError`
    """
    selector = stamp.selector(cluster) if cluster else identity.CLUSTER
    vms, bmcs, vmis = (
        {one['metadata']['name']: one
         for items, _ in client.pages(resource, namespace, selector)
         for one in items}
        for resource in (api_resources.VM, kinds.BMC, api_resources.VMI))
    by_name = {(nodes.record_of(one).get('cluster'), one['name']): one
               for one in enrolled or ()}
    # Bifrost enrols nodes so, without a record.
    by_vm = {one['uuid']: one for one in enrolled or ()
             if not nodes.record_of(one)}
    uid = api_server.uid(client, namespace) if by_name else None
    found = []
    for name, live in {**bmcs, **vms}.items():
        owner = stamp.cluster_of(live)
        vm = vms.get(name)
        node = (by_name.get((identity.owner(namespace, owner, uid), name))
                or vm and by_vm.get(vm['metadata']['uid']) or {})
        bmc, problem = _bmc(bmcs.get(name))
        if vm:
            # Items of a list have no kind.
            problem = readiness.vm_problem(
                {**vm, 'kind': api_resources.VM.kind}) or problem
        found.append(Row(
            owner, name, _vm(vm), bmc, _ironic(node),
            node.get('instance_uuid'),
            _status(vmis.get(name)).get('nodeName'),
            problem or node.get('maintenance_reason')
            or node.get('last_error')))
    return sorted(found, key=lambda one: (
        one.cluster, identity.order(one.node)))


def _status(obj):
    return (obj or {}).get('status') or {}


def _vm(vm):
    return vm and (_status(vm).get('printableStatus') or 'Unknown')


def _bmc(bmc):
    for one in _status(bmc).get('conditions') or ():
        if one['type'] == 'Ready':
            if one['status'] == 'True':
                return 'Ready', None
            return one['reason'], one.get('message')
    return bmc and 'Unknown', None


def _ironic(node):
    state = node.get('provision_state')
    return f'{state}, maintenance' if node.get('maintenance') else state
