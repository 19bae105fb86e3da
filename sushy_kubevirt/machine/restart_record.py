# SPDX-License-Identifier: Apache-2.0
"""The record of a restart under ``Manual`` that is not complete.

`restart` begins restarts, `one_time_boot` restores the run strategy.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import run_strategy

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


def restart_options(force: bool | None) -> objects.Json | None:
    """Return the body of KubeVirt's ``restart`` action; None for no body.

    :param force: whether with grace period 0
    """
    return {'gracePeriodSeconds': 0} if force else None


def restarting(vm: objects.VirtualMachine) -> objects.Json:
    """Return the restart that has not been completed, see `bmc_annotations`.

    :returns: ``vmi``, ``force``, ``runStrategy`` and, if it is true,
        ``startPending``; {} if there is none
    """
    record = bmc_annotations.read(vm, stored_names.RESTART)
    if (run_strategy.of(vm) != run_strategy.MANUAL
            or record.get('runStrategy') not in (
                None, *run_strategy.STARTABLE, run_strategy.ONCE)):
        return {}
    return record


def start_pending(vm: objects.VirtualMachine) -> bool:
    """Return True if a BMC stops the VMI for a restart and is about to
    request the next one, see `vmi_replacement`.
    """
    return bool(restarting(vm).get('startPending'))


def cancel_pending_start(vm: objects.VirtualMachine) -> None:
    """Keep the BMC that restarts a VM, or its successor, from starting it.

    :param vm: a copy of the VM, changed in place
    """
    record = restarting(vm)
    record.pop('startPending', None)
    bmc_annotations.write(vm, stored_names.RESTART, record)


def begin_restart(vm: objects.VirtualMachine, uid: str, force: bool,
                  start_pending: bool = False) -> None:
    """Set ``Manual`` for a restart and record the run strategy to restore:
    the present one, or that of a restart which is not complete.

    :param vm: a copy of the VM, changed in place
    :param uid: uid of the VMI to restart
    :param force: whether with grace period 0
    :param start_pending: see `start_pending`
    """
    bmc_annotations.write(vm, stored_names.RESTART, {
        'vmi': uid, 'force': force,
        'runStrategy': (restarting(vm) or vm['spec']).get('runStrategy'),
        **({'startPending': True} if start_pending else {})})
    vm['spec'].pop('running', None)
    vm['spec']['runStrategy'] = run_strategy.MANUAL
