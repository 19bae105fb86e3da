# SPDX-License-Identifier: Apache-2.0
"""Detects changes of machines and creates events for them.

Each state of a VM that the watch delivers is compared with the previous one,
regardless of the origin of the change. States found at startup, and states
delivered again after a list or a new watch, create no events.
"""

from __future__ import annotations

from collections import abc
import time
import typing

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import cluster as cluster_
    from sushy_kubevirt.machine import machine as machine_

_SYSTEM = 'ComputerSystem'

#: Seconds to wait for a VMI after a one-time override disappeared from a VM.
#: The override was used if a VMI was created with it, but the VMI's watch may
#: deliver later than the VM's.
VMI_WAIT_SECONDS = 1.0

_POWER = {
    power_state.PowerState.ON: event_registry.POWERED_ON,
    power_state.PowerState.OFF: event_registry.POWERED_OFF,
    power_state.PowerState.POWERING_ON: event_registry.POWERING_ON,
    power_state.PowerState.POWERING_OFF: event_registry.POWERING_OFF,
    power_state.PowerState.PAUSED: event_registry.PAUSED,
}


class _Seen(typing.NamedTuple):
    """The last observed state of a machine."""

    machine: machine_.Machine
    power: power_state.PowerState
    problem: power_state.Problem | None
    impairment: power_state.Problem | None
    boot: boot.BootState
    once: str | None    # id of the one-time override
    begun: bool         # its boot has begun, with a VMI not yet observed
    vmi: str | None     # uid


class _RemovedOverride(typing.NamedTuple):
    """A one-time override that disappeared before a VMI was observed."""

    due: float          # when to report it as removed (time.monotonic)
    id: str | None
    target: boot.Target
    seed: tuple[object, ...]   # see `event_record.make`


def _boot(state: vm_state.VmState, before: _Seen | None
          ) -> tuple[boot.BootState, str | None, bool]:
    """Return a machine's boot override without the steps of a VM's start.

    `boot.settings` shows an override as used as soon as KubeVirt counts the
    VM's generation as observed, and then as pending again while the new VMI is
    not handed to a node. Here it counts as used once the VMI is handed to a
    node, or once the override is gone and the generation is counted.

    :returns: (settings, id of the one-time override or None, whether its boot
        has begun according to the observed generation alone)
    """
    settings = boot.settings(state)
    once = boot_overrides.once(state.vm)
    if once is None:
        return settings, None, False
    id_ = once['id']
    carried = (state.vmi is not None
               and bmc_annotations.boot_once_id(state.vmi) == id_)
    if settings.enabled is boot.Enabled.ONCE or carried:
        return settings, id_, False
    if (before is not None and before.once == id_
            and before.boot.enabled is not boot.Enabled.ONCE):
        return settings, id_, False     # its use was reported already
    return boot.BootState(boot.Target(once.get('target', 'None')),
                          boot.Enabled.ONCE, settings.mode), id_, True


def _power_state(state: vm_state.VmState, before: _Seen | None
                 ) -> power_state.PowerState:
    """Return the power state, without what a watch that is behind shows.

    KubeVirt removes the request to stop a VMI when it is gone. If only
    the VM without the request was delivered yet, the machine seems to be
    on again. If only the VMI's end was, the VM's status may still be that
    of its start.
    """
    power = power_state.of(state)
    if (before is None
            or before.power is not power_state.PowerState.POWERING_OFF):
        return power
    vmi = state.vmi
    on_again = (power in (power_state.PowerState.ON,
                          power_state.PowerState.PAUSED)
                and vmi is not None and before.vmi == vmi['metadata']['uid']
                and not vm_state.vmi_seen(state.vm))
    starting_again = (power is power_state.PowerState.POWERING_ON
                      and not vm_state.is_active(vmi)
                      and not state.starting())
    return before.power if on_again or starting_again else power


class MachineEvents:
    """Compares states of machines and emits events.

    :param allows: tells whether clients may see a machine
    :param emit: takes an event; must not block
    :param later: calls a function, after some seconds
    """

    def __init__(self, cluster: cluster_.Cluster,
                 allows: abc.Callable[[machine_.Machine], bool],
                 emit: abc.Callable[[event_record.Record], None],
                 later: abc.Callable[[abc.Callable[[], None], float], None]
                 ) -> None:
        self._cluster = cluster
        self._allows = allows
        self._emit = emit
        self._later = later
        self._seen: dict[objects.ObjectKey, _Seen] = {}
        self._removed: dict[objects.ObjectKey, _RemovedOverride] = {}
        # uids of the machines that were there at the start
        self._first: set[str] = set()

    def start(self) -> None:
        """Record the current states and emit events for changes of them.

        To be called once the caches are filled.
        """
        self._first = {machine.uid for machine in self._cluster.machines()}
        self._cluster.subscribe(self._changed)
        self._cluster.media.subscribe(self._media)

    def report_removed_overrides(self) -> None:
        """Emit events for one-time overrides that were removed unused."""
        now = time.monotonic()
        due = [key for key, removed in tuple(self._removed.items())
               if removed.due <= now]
        for key in due:
            removed = self._removed.pop(key, None)
            seen = self._seen.get(key)
            if removed is not None and seen is not None:
                self._boot(seen.machine, event_registry.BOOT_REMOVED,
                           removed.seed, removed.target.value)
        waiting = [removed.due for removed in tuple(self._removed.values())]
        if waiting:
            self._later(self.report_removed_overrides,
                        max(0.01, min(waiting) - now))

    # Machines

    def _changed(self, machine: machine_.Machine,
                 state: vm_state.VmState | None) -> None:
        """Process a changed VM or VMI, see `cluster.Cluster.subscribe`."""
        key = objects.ObjectKey(machine.namespace, machine.name)
        before = self._seen.get(key)
        if state is None:
            if before is not None and before.machine.uid == machine.uid:
                self._deleted(key, before)
            return
        if not self._allows(machine):
            return
        vmi = state.vmi
        now = _Seen(
            machine,
            _power_state(state, before),
            power_state.problem(state),
            power_state.impairment(vmi),
            *_boot(state, before),
            vmi['metadata']['uid'] if vmi else None,
        )
        seed = tuple(obj['metadata'].get('resourceVersion', '')
                     for obj in (state.vm, vmi) if obj is not None)
        if before is not None and before.machine.uid != machine.uid:
            # Deleted and created again while there was no watch.
            self._deleted(key, before)
            before = None
        self._seen[key] = now
        if before is None:
            if machine.uid not in self._first:
                self._record(machine, event_registry.CREATED,
                             event_record.ADDED, (), (machine.uid,))
            self._first.discard(machine.uid)
            return
        if before.power is not now.power:
            self._compare_power(before, now, vmi, seed)
        self._compare_problems(before, now, state.vm, seed)
        self._compare_boot(key, before, now, vmi, seed)

    def _deleted(self, key: objects.ObjectKey, seen: _Seen) -> None:
        del self._seen[key]
        self._removed.pop(key, None)
        self._record(seen.machine, event_registry.REMOVED,
                     event_record.REMOVED, (), (seen.machine.uid,))

    def _compare_power(self, before: _Seen, now: _Seen,
                       vmi: objects.VirtualMachineInstance | None,
                       seed: tuple[object, ...]) -> None:
        message = _POWER[now.power]
        if vmi is not None and now.power in (power_state.PowerState.ON,
                                             power_state.PowerState.PAUSED):
            # The VMI determines this state, so the seed is the same whichever
            # watch delivers first.
            seed = now.vmi, vmi['metadata'].get('resourceVersion', '')
        elif (now.power is power_state.PowerState.OFF and now.problem is None
                and (now.vmi or before.vmi)):
            seed = now.vmi or before.vmi, 'off'
        self._record(now.machine, message, event_record.STATUS,
                     (now.machine.qualified_name,), seed)

    def _compare_problems(self, before: _Seen, now: _Seen,
                          vm: objects.VirtualMachine,
                          seed: tuple[object, ...]) -> None:
        machine = now.machine
        for message, old, new in (
                (event_registry.START_FAILED, before.problem, now.problem),
                (event_registry.IMPAIRED, before.impairment, now.impairment)):
            if new is not None and (old is None or old.reason != new.reason):
                self._record(
                    machine, message, event_record.ALERT,
                    (machine.qualified_name, new.reason, new.message), seed)
        if (before.problem or before.impairment) and not (
                now.problem or now.impairment
                or power_state.reconcile_error(vm)):
            self._record(machine, event_registry.HEALTH_OK,
                         event_record.STATUS, (machine.qualified_name, 'OK'),
                         seed)

    def _compare_boot(self, key: objects.ObjectKey, before: _Seen, now: _Seen,
                      vmi: objects.VirtualMachineInstance | None,
                      seed: tuple[object, ...]) -> None:
        machine = now.machine
        seed = (now.once or before.once or seed[0],)
        mark = bmc_annotations.boot_once_id(vmi) if vmi is not None else None
        removed = self._removed.get(key)
        if (removed is not None and mark == removed.id
                and self._removed.pop(key, None) is not None):
            self._boot(machine, event_registry.BOOT_CONSUMED, (removed.id,),
                       removed.target.value)
        was, is_ = before.boot, now.boot
        if (was.target, was.enabled) == (is_.target, is_.enabled):
            return
        if was.enabled is boot.Enabled.ONCE and is_.enabled is not (
                boot.Enabled.ONCE):
            if mark == before.once or before.begun:
                self._boot(machine, event_registry.BOOT_CONSUMED, seed,
                           was.target.value)
                return
            if is_.enabled is boot.Enabled.DISABLED:
                self._removed[key] = _RemovedOverride(
                    time.monotonic() + VMI_WAIT_SECONDS, before.once,
                    was.target, seed)
                self._later(self.report_removed_overrides, VMI_WAIT_SECONDS)
                return
        if is_.enabled is boot.Enabled.DISABLED:
            self._boot(machine, event_registry.BOOT_REMOVED, seed,
                       was.target.value)
        else:
            self._boot(machine, event_registry.BOOT_SET, seed,
                       is_.target.value, is_.enabled.value, is_.mode.value)

    def _boot(self, machine: machine_.Machine, message: event_registry.Message,
              seed: abc.Iterable[object], *args: str) -> None:
        self._record(machine, message, event_record.UPDATED,
                     (machine.qualified_name, *args), seed)

    def _record(self, machine: machine_.Machine,
                message: event_registry.Message, type_: str,
                args: abc.Iterable[str], seed: abc.Iterable[object],
                origin: str = '', resource_type: str = _SYSTEM) -> None:
        self._emit(event_record.make(
            message, type_, args,
            origin or system_id.system_path(machine), resource_type,
            machine, seed))

    # Media

    def _media(self, machine: machine_.Machine, device: str,
               old: media.Medium | None, new: media.Medium | None) -> None:
        """Process a changed medium, see `manager.Manager`."""
        if not self._allows(machine) or old == new:
            return
        again = old is not None and new is not None and (
            (old.url, old.since) == (new.url, new.since))
        if old is not None and not again:
            self._medium(machine, device, event_registry.MEDIA_EJECTED, old)
        if new is None:
            return
        if not again:
            self._medium(machine, device, event_registry.MEDIA_INSERTED, new)
            self._task(machine, event_registry.TASK_STARTED, new)
            old = None
        state = new.state
        if old is not None and (old.state, old.reason) == (state, new.reason):
            return
        if state is media.State.READY and (
                old is None or old.state is not state):
            self._medium(machine, device, event_registry.MEDIA_READY, new)
            self._task(machine, event_registry.TASK_COMPLETED, new)
        elif state is media.State.FAILED:
            self._medium(machine, device, event_registry.MEDIA_FAILED, new,
                         new.reason or 'Error', new.message)
            self._task(machine, event_registry.TASK_ABORTED, new)

    def _medium(self, machine: machine_.Machine, device: str,
                message: event_registry.Message, medium: media.Medium,
                *more: str) -> None:
        # Clients do not see the drive of HTTP boot as a device.
        about = {} if device == media.HTTP_BOOT.id else {
            'origin':
                system_id.system_path(machine) + '/VirtualMedia/' + device,
            'resource_type': 'VirtualMedia'}
        self._record(
            machine, message,
            event_record.ALERT if message is event_registry.MEDIA_FAILED
            else event_record.UPDATED,
            # Without the query, which may contain a signature.
            (machine.qualified_name, medium.url.partition('?')[0], device,
             *more),
            (medium.since, medium.task, medium.data_volume), **about)

    def _task(self, machine: machine_.Machine,
              message: event_registry.Message, medium: media.Medium) -> None:
        if medium.task:
            self._record(machine, message, event_record.STATUS, (medium.task,),
                         (medium.task,),
                         f'{event_record.TASKS}/{medium.task}', 'Task')
