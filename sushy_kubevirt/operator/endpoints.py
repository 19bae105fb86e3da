# SPDX-License-Identifier: Apache-2.0
"""Addresses of a BMC, taken from its Service, for its status."""

from __future__ import annotations

import ipaddress

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import routes

#: Key of the ConfigMap with the CA certificate.
AUTHORITY_KEY = 'ca.crt'

#: Path of the system in a pod with one VM. Unlike the path with the UUID it
#: stays the same when a VM is deleted and created again.
SYSTEM = '/redfish/v1/Systems/1'

_DEFAULT_PORTS = {'https': 443, 'http': 80}


def host(bmc, service):
    """Find the address for clients.

    :param bmc: a `spec.Bmc`
    :param service: dict, the Service as the cluster has it
    :returns: address or host name; None while there is none
    """
    if bmc.service.type == network.LOAD_BALANCER:
        return next(iter(_balancers(service)), None)
    return cluster_ip(service)


def cluster_ip(service):
    """:returns: address of a Service within the cluster, or None"""
    found = service['spec'].get('clusterIP')
    return found if found and found != 'None' else None


def names(bmc, service, second=None, route=None):
    """List the subject alternative names of a BMC's certificate.

    :param bmc: a `spec.Bmc`
    :param service: dict, the Service as the cluster has it
    :param second: name of its second Service, or None
    :param route: dict, the Route as the cluster has it, or None
    :returns: tuple of names and addresses
    """
    found = []
    for name in filter(None, (naming.base(bmc.name), second)):
        inner = f'{name}.{bmc.namespace}'
        found += inner + '.svc', name, inner, inner + '.svc.cluster.local'
    found += filter(None, [cluster_ip(service)])
    if bmc.service.type == network.LOAD_BALANCER:
        # Some load balancer controllers read the name from an annotation that
        # users set: exclude names of other Services.
        found += [one for one in _balancers(service)
                  if not _is_of_the_cluster(one)]
    if bmc.route and bmc.route.termination == routes.PASSTHROUGH:
        found += [one for one in routes.generated_hosts(bmc, route)
                  if not _is_of_the_cluster(one)]
    return tuple(dict.fromkeys(found))


def _is_of_the_cluster(name):
    parts = name.lower().rstrip('.').split('.')
    return 'svc' in parts or len(parts) == 1 and ':' not in name


def status(bmc, service, route=None):
    """Make the part of the status with the BMC's addresses.

    :param bmc: a `spec.Bmc`
    :param service: dict, the Service as the cluster has it; None if there
        is none
    :param route: dict, the Route as the cluster has it; None if there is none
    :returns: dict of ``serviceIP``, ``clusterIP`` and ``endpoints``, each
        of them None when it is not known
    """
    found = {'serviceIP': None, 'clusterIP': None, 'endpoints': None}
    if service is None:
        return found
    found['serviceIP'] = found['clusterIP'] = cluster_ip(service)
    made, at = {}, host(bmc, service)
    ports = {port['name']: port['port'] for port in service['spec']['ports']}
    if at and deployments.REDFISH in ports and bmc.redfish.enabled:
        made['redfish'] = _redfish(bmc, at, ports[deployments.REDFISH])
    if at and deployments.IPMI in ports and bmc.ipmi:
        port = ports[deployments.IPMI]
        made['ipmi'] = {'address': f'{bracketed(at)}:{port}',
                        'host': at, 'port': port}
    if bmc.route and routes.hosts(route):
        # Without the address of a load balancer too.
        name = routes.hosts(route)[0]
        made['route'] = {'host': name, 'url': f'https://{name}{SYSTEM}'}
    found['endpoints'] = made or None
    return found


def authority(bmc, bundle):
    """Make the ConfigMap with the CA certificates for clients.

    :param bmc: a `spec.Bmc`
    :param bundle: PEM text
    """
    return {'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': naming.metadata(bmc, naming.authority(bmc.name)),
            'data': {AUTHORITY_KEY: bundle}}


def _redfish(bmc, at, port):
    scheme = 'http' if bmc.redfish.plain else 'https'
    where = bracketed(at)
    if port != _DEFAULT_PORTS[scheme]:
        where = f'{where}:{port}'
    found = {'url': f'{scheme}://{where}{SYSTEM}'}
    if not bmc.redfish.plain and not bmc.redfish.secret:
        found['certificateAuthority'] = {
            'configMap': naming.authority(bmc.name), 'key': AUTHORITY_KEY}
    return found


def _balancers(service):
    ingress = ((service.get('status') or {}).get('loadBalancer') or {}).get(
        'ingress') or ()
    return [entry.get('ip') or entry.get('hostname') for entry in ingress
            if entry.get('ip') or entry.get('hostname')]


def bracketed(at):
    """:returns: a host as in a URL, an IPv6 address in brackets"""
    try:
        return f'[{at}]' if ipaddress.ip_address(at).version == 6 else at
    except ValueError:
        return at
