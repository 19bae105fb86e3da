# SPDX-License-Identifier: Apache-2.0
"""Off and on in one: restarts.

A restart is about one VMI, by its uid: when that one is gone or on its way
the restart is done, whoever's answer got lost.
"""

import copy

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import power_on_off
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy

#: virt-api shortens the grace period to this before a forced restart.
_FORCED_GRACE_SECONDS = 1


def restart(machine):
    """Begin anew at once.

    :param machine: a `machine.Machine`
    :raises: `errors.WrongState` if it is off
    """
    _run_restart(machine, True)


def restart_gracefully(machine):
    """Let the guest shut down within its own grace period, and start.

    :raises: `errors.WrongState` if it is off or shutting down
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
            lambda vm,
            vmi: _run_restarted_under_always(
                machine,
                vm,
                vmi))


class _Restart:
    """The restart of the VMI that is there when it is first looked at.

    A VM and its VMI are two objects, read one after the other; in between
    somebody else's restart may have taken one of them further. So what calls
    for a refusal is looked at twice.
    """

    def __init__(self, machine, force):
        self._machine = machine
        self._force = force
        self._uid = None
        self._refused_once = False
        #: Whether it takes pulling the power_cycle, and switching on again.
        self.power_cycle = False
        #: Whether a one-time boot begins, which its guest's reboot ends.
        self.one_time_boot = False

    def step(self, vm, vmi):
        uid = vmi['metadata']['uid'] if run_strategy.is_active(vmi) else None
        coming = uid is None and run_strategy.starting(vm, vmi)
        if self._uid not in (None, uid) and (uid or coming):
            return None     # it has been done
        if power_state.problem(vm, vmi) or uid is None and not coming:
            self._refuse(_off(self._machine, vm))
        if coming:
            return None     # the VMI on its way is as new as one could be
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
        """Restart what is on its way down."""
        if run_strategy.starting(vm, vmi):
            # A restart is under way. It may hang, and be forced.
            grace = power_on_off.grace_period(vmi)
            self.power_cycle = (self._force and self._uid is None and (
                grace is None or grace > _FORCED_GRACE_SECONDS))
        elif self._force and self._uid is None:
            # The reset button of a machine that hangs on its way down.
            self.power_cycle = True
        else:
            self._refuse(errors.WrongState(
                '%s is shutting down and cannot be restarted'
                % self._machine.qualified_name))

    def _restart(self, vm, vmi):
        edited = copy.deepcopy(vm)
        boot_overrides.preserve_once(edited, vmi)
        if run_strategy.of(vm) == run_strategy.ONCE:
            # Which KubeVirt does not restart. The keeper brings Once back.
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
    # After the restart, not before it: a VM under Always whose restart never
    # came would come back after its guest shut down. Should this never
    # come, the keeper does it.
    strategy = run_strategy.of(vm)
    if (
        strategy in run_strategy.OFF_AFTER_SHUTDOWN
        and boot_overrides.ends_at_reboot(vm)
        and run_strategy.starting(vm, vmi)
    ):
        power_on_off.run_under_always(machine, vm, strategy)


def _off(machine, vm):
    said = (vm.get('status') or {}).get('printableStatus') or 'nothing'
    return errors.WrongState(
        '%s is off (KubeVirt says %s) and cannot be restarted; switch it on'
        % (machine.qualified_name, said))
