# SPDX-License-Identifier: Apache-2.0
"""BMCs of a cluster's nodes: `remote.endpoint` reads each of them."""

from __future__ import annotations

import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import naming
from sushy_kubevirt.remote import endpoint

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client


def of_cluster(client: client.Client, namespace: str, cluster: str
               ) -> dict[str, endpoint.Bmc | endpoint.BmcUnavailable]:
    """Read all BMCs of a cluster, by one list for each kind.

    :returns: by name of the node
    :raises: `errors.MachineError`
    """
    existing = api_server.listed(
        client, kinds.BMC, namespace, stamp.selector(cluster))
    if not existing:
        return {}
    find = endpoint.finder(client, namespace, {
        api_resources.SECRET: api_server.listed(
            client, api_resources.SECRET, namespace,
            stamp.selector(cluster)),
        api_resources.CONFIG_MAP: api_server.listed(
            client, api_resources.CONFIG_MAP, namespace, naming.OURS)})
    by_node: dict[str, endpoint.Bmc | endpoint.BmcUnavailable] = {}
    for name, live in existing.items():
        try:
            by_node[name] = endpoint.read(live, find)
        except endpoint.BmcUnavailable as error:
            by_node[name] = error
    return by_node


def of_node(client: client.Client, namespace: str, name: str) -> endpoint.Bmc:
    """Read one BMC.

    :param name: of the VirtualMachineBMC, which is that of its node
    :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
    """
    try:
        live = client.get(kinds.BMC, namespace, name)
    except errors.ObjectNotFound as error:
        raise endpoint.BmcUnavailable(
            name, f'there is no VirtualMachineBMC {namespace}/{name}. "show" '
            'lists the nodes; --namespace chooses a namespace') from error
    return endpoint.read(live, endpoint.finder(client, namespace))


def require(node: str, bmc: endpoint.Bmc, protocol: str) -> endpoint.Bmc:
    """Make sure that a BMC serves a protocol.

    :param protocol: ``redfish`` or ``ipmi``
    :raises: `endpoint.BmcUnavailable`
    """
    if getattr(bmc, f'{protocol}_port') is None:
        what, keys = {
            'redfish': ('Redfish over HTTPS', '"plainHTTP" or "enabled"'),
            'ipmi': ('IPMI', '"enabled"')}[protocol]
        raise endpoint.BmcUnavailable(
            node, f'does not serve {what}. Remove {keys} from "{protocol}" in '
            '"bmc" of its node type, and run "apply"')
    return bmc
