# SPDX-License-Identifier: Apache-2.0
"""The kinds of Kubernetes itself that clients touch."""
from sushy_kubevirt.sandbox.api import kinds


def _kind(group, version, kind, plural, **more):
    return kinds.Kind(group, version, kind, plural, kind.lower(),
                      unconditional_update=True,
                      **{'generation': False, **more})


NAMESPACE = _kind('', 'v1', 'Namespace', 'namespaces', namespaced=False,
                  short_names=('ns',), status=True)
SECRET = _kind('', 'v1', 'Secret', 'secrets')
CONFIG_MAP = _kind('', 'v1', 'ConfigMap', 'configmaps', short_names=('cm',))
NODE = _kind('', 'v1', 'Node', 'nodes', namespaced=False, status=True,
             short_names=('no',))
EVENT = _kind('', 'v1', 'Event', 'events', short_names=('ev',))
CLAIM = _kind('', 'v1', 'PersistentVolumeClaim', 'persistentvolumeclaims',
              short_names=('pvc',), status=True)


def install(server):
    """Serve them, with the objects that every cluster has."""
    for kind in (NAMESPACE, SECRET, CONFIG_MAP, NODE, EVENT, CLAIM):
        server.register_kind(kind)
    for name in ('default', 'kube-system'):
        server.store.create(NAMESPACE, {'metadata': {'name': name}})
    server.store.create(NODE, {'metadata': {'name': 'node-0'}})
