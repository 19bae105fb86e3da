# SPDX-License-Identifier: Apache-2.0
"""Run strategy and state change requests of a VirtualMachine.

Source: staging/src/kubevirt.io/api/core/v1/types.go, pkg/virt-controller/
watch/vm/vm.go (KubeVirt 1.9).
"""

import uuid

from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import workqueue

ALWAYS, RERUN, MANUAL, HALTED, ONCE = (
    'Always', 'RerunOnFailure', 'Manual', 'Halted', 'Once')
START, STOP = 'Start', 'Stop'
RESTART_REQUIRED = 'RestartRequired'
COMPONENT = 'virtualmachine-controller'

_FIRMWARE_NAMESPACE = uuid.UUID('6a1a24a1-4061-4607-8bf4-a3963d0c5895')


class SyncError(workqueue.Again):
    """What the VM's condition Failure shall say, until it goes well.

    :param reason: one word.
    :param message: a sentence.
    """

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


class BothError(ValueError):
    """Both ``running`` and ``runStrategy`` are set."""


def run_strategy(vm):
    """The run strategy of a VM, also of one that has ``running``.

    :raises: BothError
    """
    spec = vm['spec']
    running, strategy = spec.get('running'), spec.get('runStrategy')
    if running is not None and strategy is not None:
        raise BothError('Running and RunStrategy are mutually exclusive. '
                        'Note that Running is deprecated, please use '
                        'RunStrategy instead')
    if strategy is not None:
        return strategy
    return ALWAYS if running else HALTED


def requests(vm):
    """The starts and stops that are still to be done."""
    return paths.at(vm, 'status', 'stateChangeRequests') or []


def wants_start(vm):
    """Whether the next thing to do is a start."""
    return bool(requests(vm)) and requests(vm)[0]['action'] == START


def wants_paused_start(vm):
    """Whether the next thing to do is a start with the CPUs stopped."""
    return wants_start(vm) and paths.at(
        requests(vm)[0], 'data', 'paused') == 'true'


def wants_stop(vm, vmi):
    """Whether the next thing to do is to stop this VMI."""
    first = requests(vm)[0] if requests(vm) else {}
    return (first.get('action') == STOP
            and first.get('uid') == vmi['metadata']['uid'])


def reruns(vm, strategy):
    """Whether a VM with RerunOnFailure and no VMI shall have one.

    It was asked for, or the strategy is a new one.
    """
    return wants_start(vm) or paths.at(
        vm, 'status', 'runStrategy') != strategy


def legacy_uuid(name):
    """The firmware UUID of a VM that lost its own."""
    return str(uuid.uuid5(_FIRMWARE_NAMESPACE, name))


def same(one, other):
    """Whether two specs mean the same, however they are written."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same(one.get(k), other.get(k))
                   for k in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (not one and not other and [] in (one, other))


def same_amount(one, other):
    """Whether two quantities are equal."""
    return quantity.value(one) == quantity.value(other)


def reference(vm):
    """The owner reference to a VM, its controller."""
    return {'apiVersion': vm['apiVersion'], 'kind': 'VirtualMachine',
            'name': vm['metadata']['name'], 'uid': vm['metadata']['uid'],
            'controller': True, 'blockOwnerDeletion': True}
