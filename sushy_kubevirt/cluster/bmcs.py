# SPDX-License-Identifier: Apache-2.0
"""Addresses and credentials of BMCs, from the objects of the operator.

The status of a VirtualMachineBMC has the addresses, and names the Secret with
the credentials and the ConfigMap with the certificate of its authority.
"""

from __future__ import annotations

from collections import abc
import functools
import typing
import urllib.parse

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import readiness
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects

_Listed: typing.TypeAlias = dict['kinds.AnyResource',
                                 dict[str, 'objects.Json']]


def of_cluster(client: client.Client, namespace: str, cluster: str
               ) -> dict[str, nodes.Bmc | problems.BmcUnavailable]:
    """Read all BMCs of a cluster, by one list for each kind.

    :returns: by name of the node
    :raises: `errors.MachineError`
    """
    existing = api_server.listed(
        client, kinds.BMC, namespace, stamp.selector(cluster))
    if not existing:
        return {}
    find = functools.partial(_referenced, client, namespace, {
        api_resources.SECRET: api_server.listed(
            client, api_resources.SECRET, namespace,
            stamp.selector(cluster)),
        api_resources.CONFIG_MAP: api_server.listed(
            client, api_resources.CONFIG_MAP, namespace, naming.OURS)})
    bmcs: dict[str, nodes.Bmc | problems.BmcUnavailable] = {}
    for name, live in existing.items():
        try:
            bmcs[name] = _bmc(live, find)
        except problems.BmcUnavailable as error:
            bmcs[name] = error
    return bmcs


def of_node(client: client.Client, namespace: str, name: str) -> nodes.Bmc:
    """Read one BMC.

    :param name: of the VirtualMachineBMC, which is that of its node
    :raises: `problems.BmcUnavailable`; `errors.MachineError`
    """
    try:
        live = client.get(kinds.BMC, namespace, name)
    except errors.ObjectNotFound as error:
        raise problems.BmcUnavailable(
            name, f'there is no VirtualMachineBMC {namespace}/{name}. "show" '
            'lists the nodes; --namespace chooses a namespace') from error
    return _bmc(live, functools.partial(_referenced, client, namespace, {}))


def require(node: str, bmc: nodes.Bmc, protocol: str) -> nodes.Bmc:
    """Make sure that a BMC serves a protocol.

    :param protocol: ``redfish`` or ``ipmi``
    :raises: `problems.BmcUnavailable`
    """
    if getattr(bmc, f'{protocol}_port') is None:
        what, keys = {
            'redfish': ('Redfish over HTTPS', '"plainHTTP" or "enabled"'),
            'ipmi': ('IPMI', '"enabled"')}[protocol]
        raise problems.BmcUnavailable(
            node, f'does not serve {what}. Remove {keys} from "{protocol}" in '
            '"bmc" of its node type, and run "apply"')
    return bmc


def _referenced(client: client.Client, namespace: str, listed: _Listed,
                resource: kinds.AnyResource, name: str,
                node: str) -> objects.Json:
    """Return an object that a BMC refers to, listed or read now."""
    obj = listed.get(resource, {}).get(name)
    if obj is None:
        try:
            obj = client.get(resource, namespace, name)
        except errors.ObjectNotFound as error:
            raise problems.BmcUnavailable(
                node, f'{resource.kind} {namespace}/{name} does not '
                'exist') from error
    return obj


def _bmc(live: objects.VirtualMachineBMC, find: abc.Callable[
        [kinds.AnyResource, str, str], objects.Json]) -> nodes.Bmc:
    node, status = live['metadata']['name'], live.get('status') or {}
    endpoints = status.get('endpoints') or {}
    if not endpoints.get('redfish') and not endpoints.get('ipmi'):
        raise problems.BmcUnavailable(node, _reason(live))
    if not status.get('authSecret'):
        raise problems.BmcUnavailable(node, 'has no Secret with credentials')
    secret = find(api_resources.SECRET, status['authSecret'], node)
    for key in credentials.missing(secret):
        raise problems.BmcUnavailable(
            node, f"Secret {status['authSecret']} has no usable {key}")
    redfish, ipmi = endpoints.get('redfish'), endpoints.get('ipmi') or {}
    host, redfish_port, authority = ipmi.get('host') or '', None, None
    if redfish:
        url = urllib.parse.urlsplit(redfish['url'])
        host = url.hostname or host
        if url.scheme == 'https':
            redfish_port = url.port or 443
        authority = redfish.get('certificateAuthority')
    ca = None
    if authority:
        ca = find(
            api_resources.CONFIG_MAP, authority['configMap'],
            node).get('data', {}).get(authority['key'])
    metadata = secret['metadata']
    return nodes.Bmc(
        host, redfish_port=redfish_port, ipmi_port=ipmi.get('port'),
        username=credentials.text(secret['data'][credentials.USERNAME]),
        password=credentials.text(secret['data'][credentials.PASSWORD]), ca=ca,
        revision=f"{metadata['uid']}/{metadata['resourceVersion']}",
        secret=metadata['name'],
        authority=authority['configMap'] if authority else '')


def _reason(live: objects.VirtualMachineBMC) -> str:
    condition = readiness.conditions(live).get('Ready')
    if condition and condition['status'] != 'True':
        return ': '.join(filter(None, (
            condition.get('reason'), condition.get('message'))))
    return 'the operator has not given it an address yet'
