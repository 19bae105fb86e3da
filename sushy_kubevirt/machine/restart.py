# SPDX-License-Identifier: Apache-2.0
"""The power actions that restart a machine.

A restart replaces one VMI, identified by its uid. It is complete when that
VMI is gone or its successor is starting, even if the response was lost.

A VMI that ends before its guest ran is a failed start for KubeVirt: under
``Always``, ``RerunOnFailure`` and ``Once`` it delays the next start
(syncStartFailureStatus in pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9).
Under ``Manual`` it does not, and so a machine that is still starting is
restarted under ``Manual``. The one-time boot reconciler restores the run
strategy when the next VMI exists.

A forced restart of a guest that is shutting down, or paused (from KubeVirt
1.9 on), is a `vmi_replacement`.
"""

from __future__ import annotations

import copy
import typing

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import power_on_off
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.machine import vmi_replacement

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

#: Grace period, in seconds, that virt-api sets before a forced restart.
_FORCED_GRACE_SECONDS = 1

#: First version of KubeVirt that ends the guest by this grace period.
_GRACE_VERSION = (1, 9)

#: Longest wait, in seconds, for the VMI of a start that was requested before.
_COMING_SECONDS = 2.0


def restart(machine: protocols.Machine, force: bool, power_on: bool) -> None:
    """Restart a machine.

    :param force: True to restart at once, with grace period 0; False after
        the guest shut down within its grace period
    :param power_on: whether a machine that is off is powered on
    :raises: `errors.WrongState` for the target of a migration and while its
        volumes are migrated; unless `power_on`, if it is off; unless `force`,
        if it is shutting down
    """
    restart = _Restart(machine, force, power_on)
    power_action.run(machine, restart.step)
    if restart.power_on:
        power_on_off.on(machine)
    elif restart.one_time_boot:
        machine.write(
            lambda state: _run_restarted_under_always(machine, state))


class _Restart:
    """The restart of the VMI that exists at the first read.

    The VM and its VMI are read one after the other, and another client's
    restart may change one of them in between. So a state that requires a
    refusal is read a second time before the refusal.
    """

    def __init__(self, machine: protocols.Machine, force: bool, power_on: bool
                 ) -> None:
        self._machine = machine
        self._force = force
        self._power_on = power_on
        self._uid: str | None = None
        self._awaited_vmi = False
        self._refused_once = False
        self._replacing = False
        #: True if a start is needed instead.
        self.power_on = False
        #: True if a one-time boot starts that ends with the guest's reboot.
        self.one_time_boot = False

    def step(self, state: vm_state.VmState
             ) -> power_action.WaitCondition | None:
        vm, vmi = state.vm, state.vmi
        uid = vmi['metadata']['uid'] if vm_state.is_active(vmi) else None
        coming = uid is None and state.starting()
        if (self._force and run_strategy.start_pending(vm) and uid in (
                None, run_strategy.restarting(vm).get('vmi'))):
            # Begun here, or by a request that was not completed.
            return self._continue_replacement(state)
        if self._replacing and uid in (None, self._uid):
            return None     # complete, or cancelled by a stop
        if self._uid not in (None, uid) and (uid or coming):
            return None     # already restarted
        if (vmi is not None and uid and self._uid == uid
                and state.stopping() and state.starting()):
            # Requested here, or by another client.
            return self._restart_stopping(state, vmi)
        # What follows remembers what it was called with.
        blocking.check()
        problem = power_state.problem(state)
        if vmi is None or uid is None:
            if coming and not problem:
                return self._await_vmi()
            self._restart_off(vm)
            return None
        if self._awaited_vmi and vm_state.is_latest(vm, vmi):
            return None
        if problem and not self._power_on:
            self._restart_off(vm)
            return None
        if run_strategy.of(vm) == run_strategy.WAIT_AS_RECEIVER:
            raise power_action.migration_target_error(self._machine)
        if power_state.migrates_volumes(vm):
            raise errors.WrongState(
                f'{self._machine.qualified_name} cannot be restarted while '
                'its volumes are migrated')
        if state.stopping():
            return self._restart_stopping(state, vmi)
        if not vm_state.vmi_seen(vm):
            return power_action.vmi_seen()
        if (self._force and power_state.paused(vmi)
                and not _ends_paused_guests(self._machine)):
            return self._replace(state, vmi)
        self._uid = uid
        self._restart(vm, vmi)
        return None

    def _restart_off(self, vm: objects.VirtualMachine) -> None:
        if self._power_on and not vm_state.is_deleting(vm):
            self.power_on = True
        else:
            self._refuse(_vm_off_error(self._machine, vm))

    def _await_vmi(self) -> power_action.WaitCondition | None:
        # KubeVirt may create it from an earlier state of the VM, which its
        # controller read before the last change.
        if self._awaited_vmi:
            return None
        self._awaited_vmi = True
        return power_action.WaitCondition(
            'the VMI to be created',
            lambda state: (vm_state.is_active(state.vmi)
                           or not state.starting()),
            _COMING_SECONDS)

    def _restart_stopping(self, state: vm_state.VmState,
                          vmi: objects.VirtualMachineInstance
                          ) -> power_action.WaitCondition | None:
        """Restart a machine whose VMI is being stopped."""
        if state.starting():
            # A restart is in progress. If it hangs it may be forced.
            grace = vm_state.grace_period(vmi)
            hangs = (grace is None or grace > _FORCED_GRACE_SECONDS
                     or grace > 0 and power_state.paused(vmi))
            if (self._force and self._uid is None
                    and vm_state.has_run(vmi) and hangs):
                return self._replace(state, vmi)
            if not self._force:
                power_on_off.resume(self._machine, vmi)
        elif (self._force and self._uid is None
                and not vm_state.is_deleting(state.vm)):
            # A forced restart of a machine that hangs while shutting down.
            return self._replace(state, vmi)
        else:
            self._refuse(errors.WrongState(
                f'{self._machine.qualified_name} is shutting down and cannot '
                'be restarted'))
        return None

    def _restart(self, vm: objects.VirtualMachine,
                 vmi: objects.VirtualMachineInstance) -> None:
        strategy = run_strategy.of(vm)
        edited = copy.deepcopy(vm)
        boot_overrides.preserve_once(edited, vmi)
        if strategy == run_strategy.ONCE or (
                strategy != run_strategy.MANUAL
                and not vm_state.has_run(vmi)):
            run_strategy.begin_restart(edited, vmi['metadata']['uid'],
                                       self._force)
        vm = json_patch.send(self._machine, vm, edited)
        self.one_time_boot = (boot_overrides.ends_at_reboot(vm)
                              and not run_strategy.restarting(vm))
        self._machine.call('restart',
                           run_strategy.restart_options(self._force))
        if not self._force:
            power_on_off.resume(self._machine, vmi)

    def _replace(self, state: vm_state.VmState,
                 vmi: objects.VirtualMachineInstance
                 ) -> power_action.WaitCondition | None:
        vm = state.vm
        edited = copy.deepcopy(vm)
        boot_overrides.preserve_once(edited, vmi)
        if (run_strategy.of(vm) == run_strategy.HALTED
                and not run_strategy.uses_running_field(vm)):
            # The VMI was stopped under Always or Once.
            edited['spec']['runStrategy'] = run_strategy.of_next_start(
                vm, self._machine.options.run_strategy)
            run_strategy.clear_saved(edited)
        run_strategy.begin_restart(edited, vmi['metadata']['uid'], True,
                                   start_pending=True)
        run_strategy.tell_harvester(vm, edited)
        return self._continue_replacement(state.with_vm(
            json_patch.send(self._machine, vm, edited)))

    def _continue_replacement(self, state: vm_state.VmState
                              ) -> power_action.WaitCondition | None:
        self._replacing = True
        self._uid = run_strategy.restarting(state.vm).get('vmi')
        if vmi_replacement.carry_on(self._machine, state):
            return None
        return power_action.WaitCondition(
            'KubeVirt to stop the VMI', vmi_replacement.is_ending)

    def _refuse(self, error: errors.MachineError) -> typing.NoReturn:
        if self._refused_once:
            raise error
        self._refused_once = True
        raise errors.Conflict(str(error))


def _run_restarted_under_always(machine: protocols.Machine,
                                state: vm_state.VmState) -> None:
    # After the restart and not before it: if the restart failed, a VM under
    # Always would start again after its guest shut down. If this process ends
    # before this step, the one-time boot reconciler does it.
    strategy = run_strategy.of(state.vm)
    if (strategy in run_strategy.OFF_AFTER_SHUTDOWN
            and boot_overrides.ends_at_reboot(state.vm)
            and state.starting()):
        power_on_off.run_under_always(machine, state.vm, strategy)


def _ends_paused_guests(machine: protocols.Machine) -> bool:
    """Return whether KubeVirt's forced restart ends a paused guest at once.

    Before 1.9 it deletes the pod with grace period 1
    (RestartVMRequestHandler in pkg/virt-api/rest/subresource.go of 1.5.0, in
    lifecycle.go of 1.8.4). A stop with grace period 0 would be slower in
    1.5.0 to 1.5.2 and in 1.6.0: their virt-handler uses the grace period that
    the guest was started with (hasGracePeriodExpired in
    pkg/virt-handler/vm.go).
    """
    version = feature_gates.number(machine.gates.version)
    return version is not None and version < _GRACE_VERSION


def _vm_off_error(machine: protocols.Machine, vm: objects.VirtualMachine
                  ) -> errors.WrongState:
    status = (vm.get('status') or {}).get('printableStatus') or 'unknown'
    return errors.WrongState(
        f'{machine.qualified_name} is off (printableStatus: {status}) and '
        'cannot be restarted; power it on')
