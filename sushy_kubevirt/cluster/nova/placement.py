# SPDX-License-Identifier: Apache-2.0
"""Wait until Placement offers nodes to Nova's scheduler.

nova-compute reports each Ironic node as a resource provider whose UUID is the
node's, with its resource class and traits, once in its
``update_resources_interval``. Before, a server on the node fails with "No
valid host was found".
"""

from __future__ import annotations

from collections import abc
import time
import typing

from sushy_kubevirt.cluster import cloud
from sushy_kubevirt.cluster.nova import flavors
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    import openstack.connection

    from sushy_kubevirt.kube import objects

#: Version of Placement's API in which ``required`` came (Rocky).
_MICROVERSION = '1.18'

_INTERVAL = 2


class _Demand(typing.NamedTuple):
    """What a server requires of a node."""

    resource_class: str
    traits: frozenset[str]


def wait(connection: openstack.connection.Connection,
         nodes: abc.Iterable[objects.Json], timeout: float = 600,
         report: abc.Callable[[list[str]], object] = lambda missing: None
         ) -> None:
    """Wait until Placement has the resource providers of nodes.

    :param nodes: of Ironic, with ``uuid``, ``name``, ``resource_class`` and
        ``traits``, which are available and have no instance
    :param timeout: seconds
    :param report: function of the sorted names of the nodes that are missing,
        called whenever these change
    :raises: `problems.ServiceError` at the end of the time
    """
    deadline = time.monotonic() + timeout
    missing = list(nodes)
    reported = None
    while True:
        offered = {demand: _offered(connection, demand)
                   for demand in set(map(_demand, missing))}
        missing = [node for node in missing
                   if node['uuid'] not in offered[_demand(node)]]
        names = sorted(node['name'] for node in missing)
        if not names:
            return
        if names != reported:
            reported = names
            report(names)
        if time.monotonic() >= deadline:
            raise problems.ServiceError(
                f'Placement does not offer {len(names)} nodes after '
                f"{timeout:g} s: {', '.join(names[:10])}"
                f"{', ...' if len(names) > 10 else ''}. See the log of "
                'nova-compute: it may lack access to Ironic, or have another '
                'shard or conductor group')
        time.sleep(min(_INTERVAL, max(0, deadline - time.monotonic())))


def _demand(node: objects.Json) -> _Demand:
    return _Demand(node['resource_class'], frozenset(node['traits'] or ()))


def _offered(connection: openstack.connection.Connection,
             demand: _Demand) -> set[str]:
    # UUIDs of the providers that have one of a resource class left.
    query = {'resources': f'{flavors.custom_name(demand.resource_class)}:1'}
    if demand.traits:
        query['required'] = ','.join(sorted(demand.traits))
    with cloud.errors('Placement does not answer: '):
        response = connection.placement.get(
            '/resource_providers', params=query, microversion=_MICROVERSION,
            skip_cache=True)
    if response.status_code == 400:
        # Placement does not know the resource class or a trait yet.
        return set()
    if response.status_code >= 400:
        raise problems.ServiceError(
            'Placement refuses to list resource providers: '
            f'{response.text[:200]} (HTTP {response.status_code})',
            response.status_code)
    return {provider['uuid']
            for provider in response.json()['resource_providers']}
