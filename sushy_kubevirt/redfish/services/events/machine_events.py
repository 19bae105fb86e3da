# SPDX-License-Identifier: Apache-2.0
"""What happens to machines, seen by the watch.

It does not matter who did it: each state of a VM is compared with the one
before, so a state that is told again (by a list, by a watch that was renewed)
is no event, nor is what there is at first.
"""

import dataclasses
import time

from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import messages

_SYSTEM = 'ComputerSystem'

#: A one-time override that is gone from a VM was used if a VMI made with it
#: is there. The watches of VMs and VMIs are two, so such a VMI may be heard
#: of a moment later.
DOUBT_SECONDS = 1.0

_POWER = {
    power_state.PowerState.ON: messages.POWERED_ON,
    power_state.PowerState.OFF: messages.POWERED_OFF,
    power_state.PowerState.POWERING_ON: messages.POWERING_ON,
    power_state.PowerState.POWERING_OFF: messages.POWERING_OFF,
    power_state.PowerState.PAUSED: messages.PAUSED,
}


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What was seen of a machine last."""

    machine: object
    power: power_state.PowerState
    problem: power_state.Problem | None
    boot: boot.BootState
    once: str | None    # id of the one-time override
    begun: bool         # its boot has begun with a VMI that was not seen
    vmi: str | None     # uid


def system_path(machine):
    """The path of a machine as a system."""
    return f'{event_record.SYSTEMS}/{machine.uuid}'


def _boot(vm, vmi, before):
    """What a machine boots next, told more steadily than `boot.state` does.

    Of a VMI that is made, KubeVirt's count in the VM tells first, and then
    the VMI that it is not handed to a node yet. An override counts as used
    when its VMI has come so far, or when it is gone with that count.

    :param before: `_Seen` or None
    :returns: (`boot.BootState`, id of the one-time override or None, whether
        the count says that its boot has begun)
    """
    state = boot.state(vm, vmi)
    once = boot_overrides.once(vm)
    if once is None:
        return state, None, False
    id_ = once['id']
    carried = vmi is not None and annotations.boot_once_id(vmi) == id_
    if state.enabled is boot.Enabled.ONCE or carried:
        return state, id_, False
    if (before is not None and before.once == id_
            and before.boot.enabled is not boot.Enabled.ONCE):
        return state, id_, False    # that it was used has been told
    return boot.BootState(boot.Target(once.get('target', 'None')),
                          boot.Enabled.ONCE, state.mode), id_, True


class MachineEvents:
    """Compares, and hands on what happened.

    :param cluster: a `cluster.Cluster`
    :param allows: function of a machine: whether clients may know of it
    :param tell: function of a `event_record.Record`; must not block
    :param wake: function that makes `doubt` be called
    """

    def __init__(self, cluster, allows, tell, wake):
        self._cluster = cluster
        self._allows = allows
        self._tell = tell
        self._wake = wake
        self._seen = {}         # (namespace, name): _Seen
        self._doubts = {}       # key: (time, override's id, target, seed)
        self._first = set()     # uids of those there are at first

    def begin(self):
        """Take in what there is, and compare from then on.

        To be called once everything was listed.
        """
        self._first = {machine.uid for machine in self._cluster.machines()}
        self._cluster.subscribe(self._changed)
        media.subscribe(self._cluster, self._media)

    def doubt(self):
        """Decide about overrides that are gone.

        :returns: seconds until this is to be called again, or None
        """
        now = time.monotonic()
        due = [key for key, doubt in tuple(self._doubts.items())
               if doubt[0] <= now]
        for key in due:
            doubt = self._doubts.pop(key, None)
            seen = self._seen.get(key)
            if doubt is not None and seen is not None:
                self._boot(seen.machine, messages.BOOT_REMOVED, doubt[3],
                           doubt[2].value)
        waiting = [doubt[0] for doubt in tuple(self._doubts.values())]
        return max(0.01, min(waiting) - now) if waiting else None

    # Machines

    def _changed(self, machine, vm, vmi):
        """Told by the watch, see `cluster.Cluster.subscribe`."""
        key = (machine.namespace, machine.name)
        before = self._seen.get(key)
        if vm is None:
            if before is not None and before.machine.uid == machine.uid:
                self._gone(key, before)
            return
        if not self._allows(machine):
            return
        now = _Seen(
            machine,
            power_state.state(vm, vmi),
            power_state.problem(vm, vmi),
            *_boot(vm, vmi, before),
            vmi and vmi['metadata']['uid']
        )
        seed = tuple(obj['metadata'].get('resourceVersion', '')
                     for obj in (vm, vmi) if obj is not None)
        if before is not None and before.machine.uid != machine.uid:
            # Made anew under its old name while nobody watched.
            self._gone(key, before)
            before = None
        self._seen[key] = now
        if before is None:
            if machine.uid not in self._first:
                self._record(machine, messages.CREATED, event_record.ADDED, (),
                             (machine.uid,))
            self._first.discard(machine.uid)
            return
        if before.power is not now.power:
            self._compare_power(before, now, vmi, seed)
        self._compare_problem(before, now, seed)
        self._compare_boot(key, before, now, vmi, seed)

    def _gone(self, key, seen):
        del self._seen[key]
        self._doubts.pop(key, None)
        self._record(seen.machine, messages.REMOVED, event_record.REMOVED, (),
                     (seen.machine.uid,))

    def _compare_power(self, before, now, vmi, seed):
        message = _POWER[now.power]
        stable = True
        if now.power in (power_state.PowerState.ON,
                         power_state.PowerState.PAUSED):
            # The VMI tells that, whichever watch is the faster.
            seed = now.vmi, vmi['metadata'].get('resourceVersion', '')
        elif now.power is power_state.PowerState.OFF and (
            now.vmi or before.vmi
        ):
            seed = now.vmi or before.vmi, 'off'
        else:
            stable = False
        self._record(now.machine, message, event_record.STATUS,
                     (now.machine.qualified_name,), seed, stable=stable)

    def _compare_problem(self, before, now, seed):
        machine = now.machine
        if now.problem is None and before.problem is not None:
            self._record(machine, messages.HEALTH_OK, event_record.STATUS,
                         (machine.qualified_name, 'OK'), seed, stable=False)
        elif now.problem is not None and (
                before.problem is None
                or before.problem.reason != now.problem.reason):
            self._record(machine, messages.START_FAILED, event_record.ALERT,
                         (machine.qualified_name, now.problem.reason,
                          now.problem.message), seed, stable=False)

    def _compare_boot(self, key, before, now, vmi, seed):
        machine = now.machine
        seed = (now.once or before.once or seed[0],)
        mark = annotations.boot_once_id(vmi) if vmi is not None else None
        doubt = self._doubts.get(key)
        if doubt is not None and mark == doubt[1]:
            del self._doubts[key]
            self._boot(machine, messages.BOOT_CONSUMED, (doubt[1],),
                       doubt[2].value)
        was, is_ = before.boot, now.boot
        if (was.target, was.enabled) == (is_.target, is_.enabled):
            return
        if was.enabled is boot.Enabled.ONCE and is_.enabled is not (
                boot.Enabled.ONCE):
            if mark == before.once or before.begun:
                self._boot(machine, messages.BOOT_CONSUMED, seed,
                           was.target.value)
                return
            if is_.enabled is boot.Enabled.DISABLED:
                self._doubts[key] = (time.monotonic() + DOUBT_SECONDS,
                                     before.once, was.target, seed)
                self._wake()
                return
        if is_.enabled is boot.Enabled.DISABLED:
            self._boot(machine, messages.BOOT_REMOVED, seed,
                       was.target.value)
        else:
            self._boot(machine, messages.BOOT_SET, seed, is_.target.value,
                       is_.enabled.value, is_.mode.value)

    def _boot(self, machine, message, seed, *args):
        self._record(machine, message, event_record.UPDATED,
                     (machine.qualified_name, *args), seed)

    def _record(self, machine, message, type_, args, seed, origin='',
                resource_type=_SYSTEM, stable=True):
        self._tell(event_record.make(
            message, type_, args, origin or system_path(machine),
            resource_type, machine, seed, stable))

    # Media

    def _media(self, machine, device, old, new):
        """Told by the watch, see `media.subscribe`."""
        if not self._allows(machine) or old == new:
            return
        again = old is not None and new is not None and (
            (old.url, old.since) == (new.url, new.since))
        if old is not None and not again:
            self._medium(machine, device, messages.MEDIA_EJECTED, old)
        if new is None:
            return
        if not again:
            self._medium(machine, device, messages.MEDIA_INSERTED, new)
            self._task(machine, messages.TASK_STARTED, new)
            old = None
        state = new.state
        if old is not None and (old.state, old.reason) == (state, new.reason):
            return
        if state is media.State.READY and (
                old is None or old.state is not state):
            self._medium(machine, device, messages.MEDIA_READY, new)
            self._task(machine, messages.TASK_COMPLETED, new)
        elif state is media.State.FAILED:
            self._medium(machine, device, messages.MEDIA_FAILED, new,
                         new.reason or 'Error', new.message)
            self._task(machine, messages.TASK_ABORTED, new)

    def _medium(self, machine, device, message, medium, *more):
        # The drive of HTTP boot is none of the devices that clients see.
        about = {} if device == media.HTTP_BOOT.id else {
            'origin': f'{system_path(machine)}/VirtualMedia/{device}',
            'resource_type': 'VirtualMedia'}
        self._record(
            machine, message, event_record.ALERT
            if message is messages.MEDIA_FAILED else event_record.UPDATED,
            # Without the query, where signatures stand.
            (machine.qualified_name, medium.url.partition('?')[0], device,
             *more),
            (medium.since, medium.task, medium.data_volume), **about)

    def _task(self, machine, message, medium):
        if medium.task:
            self._record(machine, message, event_record.STATUS, (medium.task,),
                         (medium.task,),
                         f'{event_record.TASKS}/{medium.task}', 'Task')
