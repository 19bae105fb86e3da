# SPDX-License-Identifier: Apache-2.0
"""The power actions that restart a machine.

A restart replaces one VMI, identified by its uid. It is complete when that
VMI is gone or its successor is starting, even if the response was lost.
"""

import copy

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import power_on_off
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy

#: Grace period, in seconds, that virt-api sets before a forced restart.
_FORCED_GRACE_SECONDS = 1


def restart(machine):
    """Restart a machine at once, with grace period 0.

    :param machine: a `machine.Machine`
    :raises: `errors.WrongState` if it is off or the target of a migration
    """
    _run_restart(machine, True)


def restart_gracefully(machine):
    """Restart a machine after the guest shut down within its grace period.

    :param machine: a `machine.Machine`
    :raises: `errors.WrongState` if it is off, shutting down or the target of
        a migration
    """
    _run_restart(machine, False)


def _run_restart(machine, force):
    restart = _Restart(machine, force)
    power_action.run(machine, restart.step)
    if restart.power_cycle:
        power_on_off.force_off(machine)
        power_on_off.on(machine)
    elif restart.one_time_boot:
        machine.write(
            lambda vm, vmi: _run_restarted_under_always(machine, vm, vmi))


class _Restart:
    """The restart of the VMI that exists at the first read.

    The VM and its VMI are read one after the other, and another client's
    restart may change one of them in between. So a state that requires a
    refusal is read a second time before the refusal.
    """

    def __init__(self, machine, force):
        self._machine = machine
        self._force = force
        self._uid = None
        self._refused_once = False
        #: True if a forced stop and a start are needed instead.
        self.power_cycle = False
        #: True if a one-time boot starts that ends with the guest's reboot.
        self.one_time_boot = False

    def step(self, vm, vmi):
        uid = vmi['metadata']['uid'] if run_strategy.is_active(vmi) else None
        coming = uid is None and run_strategy.starting(vm, vmi)
        if self._uid not in (None, uid) and (uid or coming):
            return None     # already restarted
        if power_state.problem(vm, vmi) or uid is None and not coming:
            self._refuse(_vm_off_error(self._machine, vm))
        if coming:
            return None     # the VMI that is starting has all changes
        if run_strategy.of(vm) == run_strategy.WAIT_AS_RECEIVER:
            raise power_action.migration_target_error(self._machine)
        if run_strategy.stopping(vm, vmi):
            self._restart_stopping(vm, vmi)
            return None
        if not run_strategy.vmi_seen(vm):
            return power_action.vmi_seen()
        self._uid = uid
        self.one_time_boot = boot_overrides.ends_at_reboot(vm)
        self._restart(vm, vmi)
        return None

    def _restart_stopping(self, vm, vmi):
        """Restart a machine whose VMI is being stopped."""
        if run_strategy.starting(vm, vmi):
            # A restart is in progress. If it hangs it may be forced.
            grace = power_on_off.grace_period(vmi)
            self.power_cycle = (self._force and self._uid is None and (
                grace is None or grace > _FORCED_GRACE_SECONDS))
        elif self._force and self._uid is None:
            # A forced restart of a machine that hangs while shutting down.
            self.power_cycle = True
        else:
            self._refuse(errors.WrongState(
                f'{self._machine.qualified_name} is shutting down and cannot '
                'be restarted'))

    def _restart(self, vm, vmi):
        edited = copy.deepcopy(vm)
        boot_overrides.preserve_once(edited, vmi)
        if run_strategy.of(vm) == run_strategy.ONCE:
            # KubeVirt does not restart a VM under Once. The one-time boot
            # reconciler restores Once.
            run_strategy.save(edited, run_strategy.ONCE, self._uid)
            edited['spec']['runStrategy'] = run_strategy.ALWAYS
        json_patch.send(self._machine, vm, edited)
        self._machine.call(
            'restart', {'gracePeriodSeconds': 0} if self._force else None)

    def _refuse(self, error):
        if self._refused_once:
            raise error
        self._refused_once = True
        raise errors.Conflict(str(error))


def _run_restarted_under_always(machine, vm, vmi):
    # After the restart and not before it: if the restart failed, a VM under
    # Always would start again after its guest shut down. If this process ends
    # before this step, the one-time boot reconciler does it.
    strategy = run_strategy.of(vm)
    if (strategy in run_strategy.OFF_AFTER_SHUTDOWN
            and boot_overrides.ends_at_reboot(vm)
            and run_strategy.starting(vm, vmi)):
        power_on_off.run_under_always(machine, vm, strategy)


def _vm_off_error(machine, vm):
    status = (vm.get('status') or {}).get('printableStatus') or 'unknown'
    return errors.WrongState(
        f'{machine.qualified_name} is off (printableStatus: {status}) and '
        'cannot be restarted; power it on')
