# SPDX-License-Identifier: Apache-2.0
"""The hosts of a cluster that BMCs may not reach: API server and Services.

A client of a BMC chooses URLs of images and of subscribers to events, which
the BMC or CDI then request from inside of the cluster.
"""

from __future__ import annotations

import ipaddress
import os
import urllib.parse

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors

#: Networks of Services; served from Kubernetes 1.33 on.
SERVICE_CIDR = api_resources.Resource(
    'networking.k8s.io', 'v1', 'servicecidrs', 'ServiceCIDR')
ENDPOINT_SLICE = api_resources.Resource(
    'discovery.k8s.io', 'v1', 'endpointslices', 'EndpointSlice')

#: Names of Services. Shorter ones are known by their canonical name.
NAMES = '*.svc', '*.cluster.local'

#: Why there are no networks of Services.
UNSERVED = 'the cluster has no ServiceCIDRs, as before Kubernetes 1.33'

# Namespace and name of the API server's Service, and of its EndpointSlice.
_SERVER = 'default', 'kubernetes'


async def find(client, server, environ=os.environ):
    """Find the hosts that are denied by default.

    :param client: an `api.Api`
    :param server: URL of the API server as the operator reaches it
    :param environ: in a pod, has the address of the API server's Service
    :returns: (tuple of entries as `url_policy` reads them, sorted; tuple of
        sentences about what could not be found)
    :raises: `errors.Unavailable` if the API server does not answer
    """
    parts = urllib.parse.urlsplit(server)
    hosts = {*NAMES, *filter(None, (
        _endpoint(environ.get('KUBERNETES_SERVICE_HOST', ''),
                  environ.get('KUBERNETES_SERVICE_PORT', 443)),
        _endpoint(parts.hostname or '', parts.port or 443)))}
    gaps = []
    for read, what in (
            (_networks, 'The networks of Services'),
            (_endpoints, 'The addresses of the API server')):
        try:
            hosts |= await read(client)
        except (errors.ObjectNotFound, errors.AccessDenied) as e:
            gaps.append(f'{what} are not denied to BMCs: {e}. Name them by '
                        '--denied-hosts')
    return tuple(sorted(hosts)), tuple(gaps)


async def _networks(client):
    """:returns: set of the networks of Services"""
    if not await client.serves(SERVICE_CIDR):
        raise errors.ObjectNotFound(UNSERVED)
    return {cidr for service_cidr in await client.list(SERVICE_CIDR)
            for cidr in service_cidr['spec'].get('cidrs') or ()}


async def _endpoints(client):
    """:returns: set of ADDRESS:PORT of the API server's EndpointSlice"""
    found = await client.get(ENDPOINT_SLICE, *_SERVER)
    return {_endpoint(address, port['port']) or address
            for one in found.get('endpoints') or ()
            for address in one.get('addresses') or ()
            for port in found.get('ports') or () if port.get('port')}


def _endpoint(host, port):
    """:returns: ADDRESS:PORT; None for a name, which has other servers, too"""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return f'[{address}]:{port}' if address.version == 6 else (
        f'{address}:{port}')
