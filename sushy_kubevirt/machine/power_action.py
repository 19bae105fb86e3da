# SPDX-License-Identifier: Apache-2.0
"""Execution of power actions as repeatable steps.

A step reads the VM and its VMI first and sends few requests; `retry` repeats
it after temporary errors. If KubeVirt has to finish an operation before it
accepts the next request, the step returns a `WaitCondition` and is called
again when that condition is met.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import typing

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class WaitCondition:
    """A state that KubeVirt has to reach before a step continues.

    :param what: the state, for messages
    :param met: returns True when it is reached
    :param seconds: time after which the step continues anyway; None for an
        error at the write deadline
    """

    what: str
    met: protocols.Step[bool]
    seconds: float | None = None


#: A step, which returns a condition if it has to be called again.
Step: typing.TypeAlias = 'protocols.Step[WaitCondition | None]'


def vmi_ended(vmi: objects.VirtualMachineInstance) -> WaitCondition:
    """Return the `WaitCondition` that a VMI has ended."""
    uid = vmi['metadata']['uid']
    what = 'the VMI to end'
    if power_state.node_lost(vmi):
        what += '; its node does not respond'
    return WaitCondition(what, lambda now: (
        now.vmi is None or now.vmi['metadata']['uid'] != uid))


def vmi_stopped(vmi: objects.VirtualMachineInstance) -> WaitCondition:
    """Return the `WaitCondition` that a VMI which is being stopped has ended.

    It is also met if the VMI is not being stopped: it is read after the VM,
    and another client may have started the VM in between.
    """
    ended = vmi_ended(vmi)
    return dataclasses.replace(ended, met=lambda now: (
        ended.met(now)
        or vm_state.is_active(now.vmi) and not now.stopping()))


def vmi_seen() -> WaitCondition:
    """Return the `WaitCondition` that KubeVirt has observed the VMI.

    KubeVirt drops a stop request before that, see `vm_state.vmi_seen`.
    """
    return WaitCondition('KubeVirt to observe the VMI', lambda state: (
        state.vmi is None or vm_state.vmi_seen(state.vm)))


def run(machine: protocols.Machine, step: Step,
        from_cache: protocols.Attempt[WaitCondition | None] | None = None
        ) -> None:
    """Repeat a step until it returns no wait condition.

    :param step: see `machine.Machine.write`
    :param from_cache: the first attempt, see `machine.Machine.write`
    :raises: `errors.Unavailable` if a condition is not met within
        Options.write_deadline
    """
    def reconcile_first(state: vm_state.VmState) -> WaitCondition | None:
        # Removes a used one-time override that the one-time boot reconciler
        # has not processed yet, so that the next VMI does not get it.
        edited = one_time_boot.desired_vm(state)
        if edited is not None:
            try:
                state = state.with_vm(machine.patch(
                    one_time_boot.patch(state.vm, edited)))
            except errors.Rejected as e:
                # The power action does not depend on it.
                LOG.warning('%s: settings of an earlier one-time boot could '
                            'not be restored before this power action: %s',
                            machine.qualified_name, e)
        awaited = step(state)
        if awaited is not None:
            # Not from the cache: the VMI in it may be newer than the VM, and
            # an action that starts the VM would await the end of its VMI.
            blocking.check()
        return awaited

    deadline = time.monotonic() + machine.options.write_deadline
    while True:
        awaited = machine.write(reconcile_first, from_cache)
        from_cache = None
        if awaited is None:
            return
        left = deadline - time.monotonic()
        if awaited.seconds is not None and awaited.seconds < left:
            machine.wait(awaited.met, awaited.seconds)
        elif left <= 0 or not machine.wait(awaited.met, left):
            raise errors.Unavailable(
                f'{machine.qualified_name} still waits for {awaited.what}; '
                'try again later', retry_after=5)


def migration_target_error(machine: protocols.Machine) -> errors.WrongState:
    """Return the error for a VM that is the target of a migration."""
    return errors.WrongState(
        f'{machine.qualified_name} is the target of a migration; change the '
        'power of the VM at the source instead')
