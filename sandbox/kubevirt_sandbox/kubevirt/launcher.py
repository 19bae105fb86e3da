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
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt import paths

FAIL_START = 'sandbox.sushy-kubevirt/fail-start'
"""Annotation of a VMI: 'true' makes its launcher die before it runs."""

MISSING_IMAGE = 'example.test/missing'
"""Container images below this name cannot be pulled."""

SCHEDULABLE = 'kubevirt.io/schedulable'

_NODE_MEMORY = '512Gi'
_PODS = ipaddress.IPv4Network('10.244.0.0/16')


@dataclasses.dataclass
class Pod:
    """A launcher pod, alive from Scheduling to the end of the VMI.

    ``selector`` is the VMI's ``nodeSelector`` when the pod was made: one that
    is changed later reaches the VMI, but no pod that is there.
    """

    name: str
    uid: str
    node: str | None
    ip: str
    moved: float
    selector: dict


class Launchers:
    """The pods of all VMIs, by the VMI's uid.

    :param store: the store, to look for nodes and names of images.
    :param clock: function that returns seconds, e.g. ``loop.time``.
    """

    def __init__(self, store, clock):
        self._store = store
        self._clock = clock
        self._pods = {}
        self._numbers = itertools.cycle(range(2, _PODS.num_addresses - 1))

    def get(self, vmi):
        """Return the pod of a VMI, or None."""
        return self._pods.get(vmi['metadata']['uid'])

    def create(self, vmi):
        """Make a pod, not yet on a node."""
        meta, now = vmi['metadata'], self._clock()
        pod = self._pods[meta['uid']] = Pod(
            metadata.generate(f'virt-launcher-{meta["name"]}-'),
            str(uuid.uuid4()), None, str(_PODS[next(self._numbers)]), now,
            dict(vmi['spec'].get('nodeSelector') or {}))
        return pod

    def remove(self, uid):
        """Forget a pod."""
        return self._pods.pop(uid, None)

    def place(self, vmi, pod):
        """Find a node.

        :returns: '' when the pod has a node now, or why there is none.
        """
        nodes = self._store.list(core.NODE)
        memory = quantity.value(paths.at(
            vmi, 'spec', 'domain', 'memory', 'guest'))
        selected = [n for n in nodes if pod.selector.items() <= (
            n['metadata'].get('labels') or {}).items()]
        fitting = [n for n in selected if memory <= quantity.value(
            paths.at(n, 'status', 'allocatable', 'memory') or _NODE_MEMORY)
            and not paths.at(n, 'spec', 'unschedulable')]
        if fitting:
            # spread as a scheduler would, yet the same for the same machine
            number = sum(vmi['metadata']['name'].encode())
            pod.node = fitting[number % len(fitting)]['metadata']['name']
            pod.moved = self._clock()
            return ''
        reasons = []
        if len(selected) > len(fitting):
            reasons.append(f'{len(selected) - len(fitting)} Insufficient '
                           'memory')
        if len(nodes) > len(selected):
            reasons.append(f"{len(nodes) - len(selected)} node(s) didn't "
                           "match Pod's node affinity/selector")
        return (f'0/{len(nodes)} nodes are available: '
                f'{", ".join(reasons)}. preemption: 0/{len(nodes)} nodes are '
                f'available: {len(nodes)} Preemption is not helpful for '
                'scheduling.')


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


def label_nodes(store):
    """Label the nodes for KubeVirt and set their capacity."""
    for node in store.list(core.NODE):
        name = node['metadata']['name']
        size = {'cpu': '64', 'memory': _NODE_MEMORY, 'pods': '2000',
                'devices.kubevirt.io/kvm': '1k'}
        store.change(core.NODE, None, name, lambda new: new['metadata']
                     .setdefault('labels', {}).update({
                         SCHEDULABLE: 'true', 'kubernetes.io/arch': 'amd64',
                         'kubernetes.io/os': 'linux',
                         'kubernetes.io/hostname': name}))
        store.change(core.NODE, None, name, lambda new: new.setdefault(
            'status', {}).update(capacity=size, allocatable=size),
            subresource='status')
