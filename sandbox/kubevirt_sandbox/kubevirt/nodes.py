# SPDX-License-Identifier: Apache-2.0
"""Labels and devices of nodes, which virt-handler adds.

Every node gets them when it is created; what it has already is kept.

Source: pkg/virt-handler/heartbeat and device-manager (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.kubevirt import launcher_pod

_DEVICES = {f'devices.kubevirt.io/{name}': '20k'
            for name in ('kvm', 'tun', 'vhost-net')}


class Nodes:
    """Completes the nodes for KubeVirt.

    :param store: the store.
    """

    def __init__(self, store):
        self._store = store
        self._end = store.subscribe(core.NODE, self._on_node)
        for node in store.list(core.NODE):
            self._complete(node)

    def close(self):
        """Stop completing nodes."""
        self._end()

    def _on_node(self, type_, node, old):
        if type_ == 'ADDED':
            self._complete(node)

    def _complete(self, node):
        name = node['metadata']['name']

        def label(new):
            has = new['metadata'].setdefault('labels', {})
            has.setdefault(launcher_pod.SCHEDULABLE, 'true')

        def offer(new):
            status = new.setdefault('status', {})
            for key in ('capacity', 'allocatable'):
                status[key] = {**_DEVICES, **(status.get(key) or {})}
        self._store.change(core.NODE, None, name, label,
                           manager='virt-handler')
        self._store.change(core.NODE, None, name, offer,
                           subresource='status', manager='virt-handler')
