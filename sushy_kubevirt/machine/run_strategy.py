# SPDX-License-Identifier: Apache-2.0
"""Run strategies of VMs, and what a BMC records to restore them.

The run strategy determines what starts VMIs: KubeVirt (``Always``, ``Once``,
``RerunOnFailure`` after a failure) or a request (``Manual``). `vm_state`
predicts what KubeVirt does because of it. A BMC saves a strategy that it
replaces, and records a restart under ``Manual`` until it is complete:
`restart` begins restarts, `one_time_boot` restores the run strategy.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

ALWAYS = 'Always'
RERUN_ON_FAILURE = 'RerunOnFailure'
MANUAL = 'Manual'
HALTED = 'Halted'
ONCE = 'Once'
WAIT_AS_RECEIVER = 'WaitAsReceiver'

#: Annotation of a VM: the run strategy under which Harvester starts it.
HARVESTER = 'harvesterhci.io/vmRunStrategy'

#: Strategies that may replace Halted at power-on.
STARTABLE = (RERUN_ON_FAILURE, ALWAYS, MANUAL)

#: Strategies that KubeVirt's ``stop`` replaces by ``Halted``.
LOST_BY_STOP = (ALWAYS, ONCE)

#: Strategies under which a guest that shuts itself down stays off.
OFF_AFTER_SHUTDOWN = (RERUN_ON_FAILURE, MANUAL)


class SavedStrategy(typing.NamedTuple):
    """A run strategy to restore; of None if none is saved."""

    strategy: str | None
    #: uid of the VMI that it was saved for.
    vmi_uid: str | None


def of(vm: objects.VirtualMachine) -> str:
    """Return the VM's run strategy.

    The deprecated field ``running`` counts as ``Always`` or ``Halted``.
    """
    spec = vm['spec']
    if spec.get('runStrategy'):
        return spec['runStrategy']
    return ALWAYS if spec.get('running') else HALTED


def uses_running_field(vm: objects.VirtualMachine) -> bool:
    """Return True for a VM that has ``running`` and no run strategy."""
    spec = vm['spec']
    return not spec.get('runStrategy') and spec.get('running') is not None


def saved(vm: objects.VirtualMachine) -> SavedStrategy:
    """Return the run strategy to restore, see `bmc_annotations`."""
    record = bmc_annotations.read(vm, stored_names.RUN_STRATEGY)
    strategy = record.get('runStrategy')
    if strategy in STARTABLE + (ONCE,):
        return SavedStrategy(strategy, record.get('vmi'))
    return SavedStrategy(None, None)


def save(vm: objects.VirtualMachine, strategy: str,
         vmi_uid: str | None = None) -> None:
    """Save a run strategy to restore in an annotation of the VM.

    :param vm: a copy of the VM, changed in place
    :param vmi_uid: uid of the VMI that it is saved for
    """
    bmc_annotations.write(vm, stored_names.RUN_STRATEGY,
                          {'runStrategy': strategy, 'vmi': vmi_uid})


def clear_saved(vm: objects.VirtualMachine) -> None:
    """Remove the saved run strategy.

    :param vm: a copy of the VM, changed in place
    """
    bmc_annotations.write(vm, stored_names.RUN_STRATEGY, {})


def of_next_start(vm: objects.VirtualMachine, default: str) -> str:
    """Return the run strategy with which a power-on replaces ``Halted``.

    :param default: the strategy of a VM for which none is known
    """
    harvesters = bmc_annotations.text(vm, HARVESTER)
    return saved(vm).strategy or (
        harvesters if harvesters in STARTABLE + (ONCE,) else default)


def tell_harvester(vm: objects.VirtualMachine, edited: objects.VirtualMachine
                   ) -> None:
    """Keep Harvester from replacing a run strategy by another one.

    When ``Halted`` is replaced, Harvester's webhook sets the strategy in its
    own annotation instead of the requested one, ``RerunOnFailure`` without
    that annotation; so ``Manual`` would become a start. A controller writes
    each strategy but ``Halted`` into the annotation, and a start in the user
    interface uses it (patchRunStrategy in
    pkg/webhook/resources/virtualmachine/mutator.go, StoreRunStrategy in
    pkg/controller/master/virtualmachine/vm_controller.go of Harvester 1.9).

    Call it for each change that may set or replace ``Halted``. It changes
    nothing for VMs without annotations and labels of Harvester.

    :param edited: a copy of the VM, changed in place
    """
    strategy: str | None = of(edited)
    if HALTED not in (of(vm), strategy) or uses_running_field(edited):
        return
    if strategy == HALTED:
        strategy = saved(edited).strategy
    if strategy and any(
            name.partition('/')[0].endswith('harvesterhci.io')
            for name in (*(edited['metadata'].get('annotations') or ()),
                         *(edited['metadata'].get('labels') or ()))):
        bmc_annotations.set_text(edited, HARVESTER, strategy)


def halt(vm: objects.VirtualMachine) -> None:
    """Set ``Halted``, or ``running: false``.

    :param vm: a copy of the VM, changed in place
    """
    if uses_running_field(vm):
        vm['spec']['running'] = False
    else:
        vm['spec']['runStrategy'] = HALTED


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
    if (of(vm) != MANUAL
            or record.get('runStrategy') not in (
                None, *STARTABLE, ONCE)):
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
    vm['spec']['runStrategy'] = MANUAL
