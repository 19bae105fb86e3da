# SPDX-License-Identifier: Apache-2.0
"""Addresses of a BMC, taken from its Service, for its status."""

from __future__ import annotations

import ipaddress
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import routes

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec

#: Key of the ConfigMap with the CA certificate.
AUTHORITY_KEY = 'ca.crt'

#: Path of the system in a pod with one VM. Unlike the path with the UUID it
#: stays the same when a VM is deleted and created again.
SYSTEM = '/redfish/v1/Systems/1'

_DEFAULT_PORTS = {'https': 443, 'http': 80}


def host(bmc: spec.Bmc, service: objects.Json) -> str | None:
    """Find the address for clients.

    :param service: as the cluster has it
    :returns: address or host name; None while there is none
    """
    if bmc.service.type == network.LOAD_BALANCER:
        return next(iter(_balancers(service)), None)
    return cluster_ip(service)


def cluster_ip(service: objects.Json) -> str | None:
    """Return the address of a Service within the cluster."""
    address = service['spec'].get('clusterIP')
    return address if address and address != 'None' else None


def names(bmc: spec.Bmc, service: objects.Json, second: str | None = None,
          route: objects.Json | None = None) -> tuple[str, ...]:
    """List the subject alternative names of a BMC's certificate.

    :param service: as the cluster has it
    :param second: name of its second Service
    :param route: as the cluster has it
    :returns: names and addresses
    """
    result: list[str] = []
    for name in filter(None, (naming.base(bmc.name), second)):
        inner = f'{name}.{bmc.namespace}'
        result += inner + '.svc', name, inner, inner + '.svc.cluster.local'
    result += filter(None, [cluster_ip(service)])
    if bmc.service.type == network.LOAD_BALANCER:
        # Some load balancer controllers read the name from an annotation that
        # users set: exclude names of other Services.
        result += [name for name in _balancers(service)
                   if not _is_of_the_cluster(name)]
    if bmc.route and bmc.route.termination == routes.PASSTHROUGH:
        result += [name for name in routes.generated_hosts(bmc, route)
                   if not _is_of_the_cluster(name)]
    return tuple(dict.fromkeys(result))


def _is_of_the_cluster(name: str) -> bool:
    parts = name.lower().rstrip('.').split('.')
    return 'svc' in parts or len(parts) == 1 and ':' not in name


def status(bmc: spec.Bmc, service: objects.Json | None,
           route: objects.Json | None = None
           ) -> objects.VirtualMachineBMCStatus:
    """Make the part of the status with the BMC's addresses.

    :param service: as the cluster has it
    :param route: as the cluster has it
    :returns: ``serviceIP``, ``clusterIP``, ``loadBalancerIP`` and
        ``endpoints`` as far as they are known
    """
    addresses: objects.VirtualMachineBMCStatus = {}
    if service is None:
        return addresses
    internal = cluster_ip(service)
    if internal:
        addresses['serviceIP'] = addresses['clusterIP'] = internal
    balancer = next((entry['ip'] for entry in _ingress(service)
                     if entry.get('ip')), None)
    if bmc.service.type == network.LOAD_BALANCER and balancer:
        addresses['loadBalancerIP'] = balancer
    urls: objects.Json = {}
    address = host(bmc, service)
    ports = {port['name']: port['port'] for port in service['spec']['ports']}
    if address and deployments.REDFISH in ports and bmc.redfish.enabled:
        urls['redfish'] = _redfish(bmc, address, ports[deployments.REDFISH])
    if address and deployments.IPMI in ports and bmc.ipmi:
        port = ports[deployments.IPMI]
        urls['ipmi'] = {'address': f'{bracketed(address)}:{port}',
                        'host': address, 'port': port}
    if bmc.route and routes.hosts(route):
        # Without the address of a load balancer too.
        name = routes.hosts(route)[0]
        urls['route'] = {'host': name, 'url': f'https://{name}{SYSTEM}'}
    if urls:
        addresses['endpoints'] = urls
    return addresses


def authority(bmc: spec.Bmc, bundle: str) -> objects.Json:
    """Make the ConfigMap with the CA certificates for clients.

    :param bundle: PEM text
    """
    return {'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': naming.metadata(bmc, naming.authority(bmc.name)),
            'data': {AUTHORITY_KEY: bundle}}


def _redfish(bmc: spec.Bmc, address: str, port: int) -> objects.Json:
    scheme = 'http' if bmc.redfish.plain else 'https'
    location = bracketed(address)
    if port != _DEFAULT_PORTS[scheme]:
        location = f'{location}:{port}'
    endpoint: objects.Json = {'url': f'{scheme}://{location}{SYSTEM}'}
    if not bmc.redfish.plain and not bmc.redfish.secret:
        endpoint['certificateAuthority'] = {
            'configMap': naming.authority(bmc.name), 'key': AUTHORITY_KEY}
    return endpoint


def _balancers(service: objects.Json) -> list[str]:
    return [entry.get('ip') or entry.get('hostname')
            for entry in _ingress(service)
            if entry.get('ip') or entry.get('hostname')]


def _ingress(service: objects.Json) -> list[typing.Any]:
    return ((service.get('status') or {}).get('loadBalancer') or {}).get(
        'ingress') or []


def bracketed(host: str) -> str:
    """Write a host as in a URL, an IPv6 address in brackets."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f'[{host}]' if address.version == 6 else host
