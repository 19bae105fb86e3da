# SPDX-License-Identifier: Apache-2.0
"""The launcher pod of a VMI: scheduling and start failures.

The pods are not objects of the API; only the VMI's status shows them.
"""

import dataclasses
import ipaddress
import itertools
import uuid

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import launcher_pod
from kubevirt_sandbox.kubevirt import paths

FAIL_START = 'sandbox.sushy-kubevirt/fail-start'
"""Annotation of a VMI: 'true' makes its launcher die before it runs."""

MISSING_IMAGE = 'example.test/missing'
"""Container images below this name cannot be pulled."""

_DEFAULT_GRACE = 30     # seconds of a VMI that has none
_GRACE_PADDING = 15     # seconds that a launcher grants in addition

_PODS = ipaddress.IPv4Network('10.244.0.0/16')


@dataclasses.dataclass
class Pod:
    """A launcher pod, alive from Scheduling to the end of the VMI.

    ``manifest`` is made from the VMI when the pod is made: a node selector
    that is changed later reaches the VMI, but no pod that is there. ``grace``
    is how long the launcher waits for its guest to end, in seconds.
    """

    name: str
    uid: str
    node: str | None
    ip: str
    moved: float
    manifest: dict
    grace: int


class Launchers:
    """The pods of all VMIs, by the VMI's uid.

    :param scheduler: the :class:`scheduling.scheduler.Scheduler`.
    :param quotas: the :class:`api.quotas.Quotas`.
    :param clock: function that returns seconds, e.g. ``loop.time``.
    """

    def __init__(self, scheduler, quotas, clock):
        self._scheduler = scheduler
        self._quotas = quotas
        quotas.add_pods(core.POD, self._manifests)
        self._clock = clock
        self._pods = {}
        self._numbers = itertools.cycle(range(2, _PODS.num_addresses - 1))

    def get(self, vmi):
        """Return the pod of a VMI, or None."""
        return self._pods.get(vmi['metadata']['uid'])

    def create(self, vmi, network_resources):
        """Make a pod, not yet on a node.

        :param network_resources: see :func:`launcher_pod.render`.
        :raises errors.ApiError: a quota does not allow it.
        """
        meta = vmi['metadata']
        name, uid = metadata.generate(
            f'virt-launcher-{meta["name"]}-'), str(uuid.uuid4())
        manifest = launcher_pod.render(
            vmi, name, uid, network_resources,
            self._quotas.limits(meta['namespace'], 'limits.memory'))
        self._quotas.check(core.POD, manifest)
        pod = self._pods[meta['uid']] = Pod(
            name, uid, None, str(_PODS[next(self._numbers)]), self._clock(),
            manifest, grace(vmi) + _GRACE_PADDING)
        return pod

    def _manifests(self, namespace):
        return [pod.manifest for pod in self._pods.values()
                if pod.manifest['metadata']['namespace'] == namespace]

    def remove(self, uid):
        """Forget a pod."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._scheduler.forget(pod.uid)
        return pod

    def place(self, vmi, pod):
        """Find a node.

        :returns: '' when the pod has a node now, or why there is none.
        """
        node, why = self._scheduler.find(pod.manifest)
        if node:
            self._scheduler.assume(pod.manifest, node)
            pod.node = node
            pod.moved = self._clock()
        return why

    def release(self, pod):
        """Take a pod off its node, because its claims cannot be bound.

        :returns: the scheduler's message.
        """
        self._scheduler.forget(pod.uid, retry=False)
        pod.node = None
        return self._scheduler.no_node(
            'pod has unbound immediate PersistentVolumeClaims')


def grace(vmi):
    """Return the grace period of a VMI in seconds."""
    seconds = vmi['spec'].get('terminationGracePeriodSeconds')
    return _DEFAULT_GRACE if seconds is None else seconds


def missing_image(vmi):
    """Return the first image of a VMI that cannot be pulled, or None."""
    for volume in paths.volumes(vmi['spec']):
        image = paths.at(volume, 'containerDisk', 'image') or ''
        if image.startswith(MISSING_IMAGE):
            return image
    return None


def fails_to_start(vmi):
    """Tell whether the launcher of a VMI fails before the guest runs."""
    return (vmi['metadata'].get('annotations') or {}).get(
        FAIL_START) == 'true'
