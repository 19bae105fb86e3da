# SPDX-License-Identifier: Apache-2.0
"""Connection to the Kubernetes API with the account of a user."""

from __future__ import annotations

import typing

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.machine import options

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.kube import objects


#: Field manager of all writes.
FIELD_MANAGER = 'sushy-kubevirt-cluster'

#: Nodes that are worked on at the same time.
WORKERS = 16

#: Idle connections that are kept: of workers and of watches.
CONNECTIONS = WORKERS + 8

OPTIONS = options.Options(
    connect_timeout=10, request_timeout=30, write_deadline=60,
    watch_seconds=300, watch_backoff=5, page_size=500)


def connect(kubeconfig: str | None = None, context: str | None = None
            ) -> tuple[client.Client, str]:
    """Connect to the API server.

    :param kubeconfig: path of a kubeconfig; None for the first that
        `connection.Connection.from_options` finds
    :param context: name of a context in it; None for its current one
    :returns: the client, and the namespace of the context
    :raises: `errors.ConfigError`
    """
    server = connection.Connection.from_options(kubeconfig, context)
    return (client.Client(server, OPTIONS, FIELD_MANAGER, CONNECTIONS),
            server.namespace or 'default')


def uid(client: client.Client, namespace: str) -> str:
    """Return the UID of a namespace.

    :raises: `errors.MachineError`
    """
    return client.get(kinds.NAMESPACE, None, namespace, metadata_only=True)[
        'metadata']['uid']


def listed(client: client.Client,
           resource: api_resources.Resource[objects.ObjectT], namespace: str,
           selector: str, metadata_only: bool = False
           ) -> dict[str, objects.ObjectT]:
    """List objects by their names.

    :raises: `errors.MachineError`
    """
    return {obj['metadata']['name']: obj
            for items, _ in client.pages(
                resource, namespace, selector, metadata_only=metadata_only)
            for obj in items}


def owner(client: client.Client, namespace: str, cluster: str) -> str:
    """Name a cluster in OpenStack: `identity.owner` of its namespace."""
    return identity.owner(namespace, cluster, uid(client, namespace))
