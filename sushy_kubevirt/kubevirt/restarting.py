# SPDX-License-Identifier: Apache-2.0
"""Off and on in one: restarts.

A restart is about one VMI, by its uid: when that one is gone or on its way
the restart is done, whoever's answer got lost.
"""

import copy

from sushy_kubevirt.kubevirt import changes
from sushy_kubevirt.kubevirt import errors
from sushy_kubevirt.kubevirt import overrides
from sushy_kubevirt.kubevirt import power
from sushy_kubevirt.kubevirt import runstrategy
from sushy_kubevirt.kubevirt import steps
from sushy_kubevirt.kubevirt import switching

#: virt-api shortens the grace period to this before a forced restart.
_RESTARTED_AT_ONCE = 1


def restart(machine):
    """Begin anew at once.

    :param machine: a `machine.Machine`
    :raises: `errors.WrongState` if it is off
    """
    _begin_anew(machine, True)


def restart_gracefully(machine):
    """Let the guest shut down within its own grace period, and start.

    :raises: `errors.WrongState` if it is off or shutting down
    """
    _begin_anew(machine, False)


def _begin_anew(machine, force):
    restart = _Restart(machine, force)
    steps.through(machine, restart.step)
    if restart.plug:
        switching.force_off(machine)
        switching.on(machine)
    elif restart.one_time:
        machine.write(lambda vm, vmi: _keep_up_restarted(machine, vm, vmi))


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
        self._doubted = False
        #: Whether it takes pulling the plug, and switching on again.
        self.plug = False
        #: Whether a one-time boot begins, which its guest's reboot ends.
        self.one_time = False

    def step(self, vm, vmi):
        uid = vmi['metadata']['uid'] if runstrategy.living(vmi) else None
        coming = uid is None and runstrategy.starting(vm, vmi)
        if self._uid not in (None, uid) and (uid or coming):
            return None     # it has been done
        if power.problem(vm, vmi) or uid is None and not coming:
            self._refuse(_off(self._machine, vm))
        if coming:
            return None     # the VMI on its way is as new as one could be
        if runstrategy.of(vm) == runstrategy.WAIT_AS_RECEIVER:
            raise steps.receiver(self._machine)
        if runstrategy.stopping(vm, vmi):
            self._hurry(vm, vmi)
            return None
        if not runstrategy.vmi_seen(vm):
            return steps.vmi_seen()
        self._uid = uid
        self.one_time = overrides.ends_at_reboot(vm)
        self._restart(vm, vmi)
        return None

    def _hurry(self, vm, vmi):
        """Restart what is on its way down."""
        if runstrategy.starting(vm, vmi):
            # A restart is under way. It may hang, and be forced.
            grace = switching.grace(vmi)
            self.plug = (self._force and self._uid is None and (
                grace is None or grace > _RESTARTED_AT_ONCE))
        elif self._force and self._uid is None:
            # The reset button of a machine that hangs on its way down.
            self.plug = True
        else:
            self._refuse(errors.WrongState(
                '%s is shutting down and cannot be restarted'
                % self._machine.qualified_name))

    def _restart(self, vm, vmi):
        edited = copy.deepcopy(vm)
        overrides.save(edited, vmi)
        if runstrategy.of(vm) == runstrategy.ONCE:
            # Which KubeVirt does not restart. The keeper brings Once back.
            runstrategy.remember(edited, runstrategy.ONCE, self._uid)
            edited['spec']['runStrategy'] = runstrategy.ALWAYS
        changes.send(self._machine, vm, edited)
        self._machine.call(
            'restart', {'gracePeriodSeconds': 0} if self._force else None)

    def _refuse(self, error):
        if self._doubted:
            raise error
        self._doubted = True
        raise errors.Conflict(str(error))


def _keep_up_restarted(machine, vm, vmi):
    # After the restart, not before it: a VM under Always whose restart never
    # came would come back after its guest shut down. Should this never
    # come, the keeper does it.
    strategy = runstrategy.of(vm)
    if (strategy in runstrategy.STAYS_DOWN and overrides.ends_at_reboot(vm)
            and runstrategy.starting(vm, vmi)):
        switching.keep_up(machine, vm, strategy)


def _off(machine, vm):
    said = (vm.get('status') or {}).get('printableStatus') or 'nothing'
    return errors.WrongState(
        '%s is off (KubeVirt says %s) and cannot be restarted; switch it on'
        % (machine.qualified_name, said))
