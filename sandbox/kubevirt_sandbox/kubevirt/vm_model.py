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
RECOVERY_REQUIRED = 'ManualRecoveryRequired'
COMPONENT = 'virtualmachine-controller'

_FIRMWARE_NAMESPACE = uuid.UUID('6a1a24a1-4061-4607-8bf4-a3963d0c5895')


class SyncError(workqueue.Again):
    """The reason and message of a VM's condition Failure.

    :param reason: one word.
    :param message: a sentence.
    """

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


class BothError(ValueError):
    """Both ``running`` and ``runStrategy`` are set."""


def run_strategy(vm):
    """Return the run strategy of a VM, also from ``running``.

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
    """Return the pending start and stop requests."""
    return paths.at(vm, 'status', 'stateChangeRequests') or []


def wants_start(vm):
    """Tell whether the next request is a start."""
    return bool(requests(vm)) and requests(vm)[0]['action'] == START


def wants_paused_start(vm):
    """Tell whether the next request is a start with paused CPUs."""
    return wants_start(vm) and paths.at(
        requests(vm)[0], 'data', 'paused') == 'true'


def wants_stop(vm, vmi):
    """Tell whether the next request is to stop this VMI."""
    first = requests(vm)[0] if requests(vm) else {}
    return (first.get('action') == STOP
            and first.get('uid') == vmi['metadata']['uid'])


def reruns(vm, strategy):
    """Tell whether a VM with RerunOnFailure and no VMI needs one.

    It does after a start request or a change of the strategy.
    """
    return wants_start(vm) or paths.at(
        vm, 'status', 'runStrategy') != strategy


def legacy_uuid(name):
    """Return the firmware UUID of a VM that has none stored."""
    return str(uuid.uuid5(_FIRMWARE_NAMESPACE, name))


def same(one, other):
    """Tell whether two specs are equal, apart from notation."""
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same(one.get(k), other.get(k))
                   for k in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return not one and not other and [] in (one, other)


def same_amount(one, other):
    """Tell whether two quantities are equal."""
    return quantity.value(one) == quantity.value(other)


def reference(vm):
    """Return the controller reference to a VM."""
    return {'apiVersion': vm['apiVersion'], 'kind': 'VirtualMachine',
            'name': vm['metadata']['name'], 'uid': vm['metadata']['uid'],
            'controller': True, 'blockOwnerDeletion': True}
