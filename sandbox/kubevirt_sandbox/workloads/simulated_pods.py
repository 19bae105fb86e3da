# SPDX-License-Identifier: Apache-2.0
"""Pods without processes that are Ready immediately.

For clusters with more pods than one machine can run: the API shows all of a
pod, nothing listens on its address, and it has no logs. (``kwok`` does this
for a real API server.)
"""

import contextlib

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.workloads import podstate

_MANAGER = 'kubelet'


class Pod:
    """A simulated pod; see :class:`pods.Pod`.

    :param node: the :class:`node.Node`.
    :param obj: the pod.
    """

    def __init__(self, node, obj):
        meta = obj['metadata']
        self.key = (meta['namespace'], meta['name'])
        self.uid = meta['uid']
        self.init = self.containers = ()
        self.address = node.addresses.take()
        self._node = node

    def uses(self, kind, name):
        """Return False: a simulated pod mounts nothing."""
        return False

    def on_change(self, obj):
        """Handle a change of the pod's object: report it running, or delete
        it.
        """
        if 'deletionTimestamp' in obj['metadata']:
            self.kill()
            with contextlib.suppress(errors.ApiError):
                self._node.store.delete(core.POD, *self.key, grace=0,
                                        uid=self.uid)
        elif (obj.get('status') or {}).get('phase') != 'Running':
            self._node.store.change(
                core.POD, *self.key, self._run, subresource='status',
                manager=_MANAGER)

    def kill(self):
        """Release the address of a removed pod."""
        self._node.addresses.release(self.address)
        self._node.forget(self)

    async def close(self):
        """Do nothing: there is no process to end."""

    def _run(self, pod):
        status, now = pod.setdefault('status', {}), metadata.now()
        host = self._node.host(pod)
        status.update(
            phase='Running', startTime=now, hostIP=host,
            hostIPs=[{'ip': host}], podIP=self.address,
            podIPs=[{'ip': self.address}], qosClass='BestEffort',
            containerStatuses=[{
                'name': one['name'], 'image': one.get('image', ''),
                'imageID': '', 'ready': True, 'started': True,
                'restartCount': 0, 'lastState': {},
                'state': {'running': {'startedAt': now}},
                'containerID': f'pretended://{self.uid}-{one["name"]}'}
                for one in pod['spec'].get('containers') or ()])
        for name in ('PodReadyToStartContainers', 'Initialized', 'Ready',
                     'ContainersReady'):
            podstate.put(pod, name, True)
