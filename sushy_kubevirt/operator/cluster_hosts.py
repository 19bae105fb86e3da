# SPDX-License-Identifier: Apache-2.0
"""The hosts of a cluster that BMCs may not reach: API server and Services.

A client of a BMC chooses URLs of images and of subscribers to events, which
the BMC or CDI then request from inside of the cluster.
"""

from __future__ import annotations

from collections import abc
import ipaddress
import os
import typing
import urllib.parse

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import endpoints

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api

#: Networks of Services; served from Kubernetes 1.33 on.
SERVICE_CIDR: api_resources.Resource[objects.Json] = api_resources.Resource(
    'networking.k8s.io', 'v1', 'servicecidrs', 'ServiceCIDR')
ENDPOINT_SLICE: api_resources.Resource[objects.Json] = api_resources.Resource(
    'discovery.k8s.io', 'v1', 'endpointslices', 'EndpointSlice')

#: Names of Services. Shorter ones are known by their canonical name.
NAMES = '*.svc', '*.cluster.local'

#: Why there are no networks of Services.
UNSERVED = 'the cluster has no ServiceCIDRs, as before Kubernetes 1.33'

# Namespace and name of the API server's Service, and of its EndpointSlice.
_SERVER = 'default', 'kubernetes'


async def find(client: api.Api, server: str,
               environ: abc.Mapping[str, str] = os.environ
               ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Find the hosts that are denied by default.

    :param server: URL of the API server as the operator reaches it
    :param environ: in a pod, has the address of the API server's Service
    :returns: entries as `url_policy` reads them, sorted; and sentences about
        what could not be found
    :raises: `errors.Unavailable` if the API server does not answer
    """
    parts = urllib.parse.urlsplit(server)
    hosts = {*NAMES, *filter(None, (
        _endpoint(environ.get('KUBERNETES_SERVICE_HOST', ''),
                  environ.get('KUBERNETES_SERVICE_PORT', '443')),
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


async def _networks(client: api.Api) -> set[str]:
    """List the networks of Services."""
    if not await client.serves(SERVICE_CIDR):
        raise errors.ObjectNotFound(UNSERVED)
    return {cidr for service_cidr in await client.list(SERVICE_CIDR)
            for cidr in service_cidr['spec'].get('cidrs') or ()}


async def _endpoints(client: api.Api) -> set[str]:
    """List ADDRESS:PORT of the API server's EndpointSlice."""
    endpoint_slice = await client.get(ENDPOINT_SLICE, *_SERVER)
    return {_endpoint(address, port['port']) or address
            for endpoint in endpoint_slice.get('endpoints') or ()
            for address in endpoint.get('addresses') or ()
            for port in endpoint_slice.get('ports') or () if port.get('port')}


def _endpoint(host: str, port: int | str) -> str | None:
    """Write ADDRESS:PORT; None for a name, which has other servers, too."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return f'{endpoints.bracketed(str(address))}:{port}'
