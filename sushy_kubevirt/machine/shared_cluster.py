# SPDX-License-Identifier: Apache-2.0
"""What the clusters of many single VMs in one process have in common.

BMCs that share a pod each have a `cluster.Cluster` of their VM, with options
of their own. Connections, the watches of a namespace's VMs and VMIs, the
threads of reconcilers, and what is known of KubeVirt and CDI are here, once.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.machine.media import cdi
from sushy_kubevirt.machine import vm_cache

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import connection
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import options


class SharedCluster:
    """Connections, caches and threads. Thread-safe.

    :param options: of the watches
    :param namespace: whose VMs are watched all together; VMs of other
        namespaces are watched one by one, by their names
    """

    def __init__(self, connection: connection.Connection,
                 options: options.Options, namespace: str) -> None:
        self.connection = connection
        self.options = options
        self.namespace = namespace
        self.client = client.Client(connection, options)
        self.gates = feature_gates.Gates(self.client, options)
        self.cdi = cdi.Cdi(self.client)
        #: Threads of the reconcilers.
        self.boot_worker = delaying_queue.Worker('one-time-boot')
        self.media_worker = delaying_queue.Worker('media')
        self.cache = vm_cache.VmCache(self.client, options, (namespace,))

    def start(self) -> None:
        """Start the watches and threads; call it once."""
        self.boot_worker.start()
        self.media_worker.start()
        self.cache.start()
        self.gates.refresh_in_background()
        self.cdi.check_in_background()

    def cache_of(self, vm: objects.ObjectKey) -> vm_cache.VmCache:
        """Return `cache`, or one of its own for a VM of another namespace."""
        if vm.namespace == self.namespace:
            return self.cache
        return vm_cache.VmCache(self.client, self.options, vm=vm)

    def close(self) -> None:
        """Stop the watches and threads."""
        self.boot_worker.close()
        self.media_worker.close()
        self.cache.close()
        self.client.close()
