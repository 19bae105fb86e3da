# SPDX-License-Identifier: Apache-2.0
"""One-time boot reconciler: restores what a one-time boot changed.

KubeVirt has no one-time boot. An override is written into the VM's template
and a VMI is created from it. After that the template can get its previous
order back, because the VMI keeps the order it was created with. Every BMC
process watches for that moment. It does not matter which client set the
override, which one started the VM, or which process was running then: the
annotations of the VM (`bmc_annotations`) hold all the state, and the change
is one guarded patch. If several reconcilers try, one patch succeeds and the
others find nothing left to do.

A guest that reboots keeps its VMI, and so the override. If the cluster has
the feature gate RebootPolicy, the override therefore also makes the VMI end
at a reboot, and the next VMI has the restored order. To get a next VMI, the
VM has to run under ``Always`` for that boot: an ended VMI does not show
whether its guest rebooted or shut down, and under ``RerunOnFailure`` or
``Manual`` the VM would stay off. The run strategy is restored when the next
VMI exists, or when a BMC switches the VM off. The cost: a guest that shuts
itself down in its one-time boot is started again, with the restored order.

The reconciler also completes the restart of a machine that was starting, see
`restart`: it restores the run strategy, and requests the restart if the
process that began it has ended before. It ends the back-off of a VM that was
stopped before its guest ran.

After the template was restored during a one-time boot, KubeVirt does not
update ``observedGeneration`` of the VM until the VMI ends: it copies it from
an annotation of the VMI, which it updates only while the template is the one
that the VMI was created from (conditionallyBumpGenerationAnnotationOnVmi and
syncGenerationInfo in pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9). Then
``kubectl wait --for=condition=Ready vm/NAME`` does not succeed, and tools that
compare the two wait as well. So the reconciler updates the annotation.
virt-api lets others than KubeVirt change a VMI's annotations, but not its spec
(VMIUpdateAdmitter in
pkg/virt-api/webhooks/validating-webhook/admitters/vmi-update-admitter.go).
"""

from __future__ import annotations

import logging
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reconcile_loop
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.machine import vmi_replacement

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import delaying_queue
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

LOG = logging.getLogger(__name__)

_GENERATION_PATH = '/metadata/annotations/' + (
    vm_state.VM_GENERATION.replace('/', '~1'))


def patch(vm: objects.VirtualMachine, edited: objects.VirtualMachine
          ) -> objects.JsonPatch:
    """Return the JSON patch from a VM to what `desired_vm` returned for it.

    See `json_patch.guarded_diff`.
    """
    # A VM without a VMI and requests is halted only if no restart has been
    # requested since it was read.
    return json_patch.guarded_diff(vm, edited,
                                   strict=bool(run_strategy.restarting(vm)))


def desired_vm(state: vm_state.VmState) -> objects.VirtualMachine | None:
    """Return the VM with everything restored that is due.

    :returns: an edited copy of the VM; None if nothing has to change
    """
    vm = state.vm
    vm_annotations = vm['metadata'].get('annotations') or {}
    if vm_state.is_deleting(vm) or vm_annotations.keys().isdisjoint(
            (stored_names.BOOT, stored_names.RUN_STRATEGY,
             stored_names.RESTART)):
        return None
    booted = (boot_overrides.once(vm)
              if boot_overrides.boot_started(state) else None)
    if booted is None and vm_annotations.keys().isdisjoint(
            (stored_names.RUN_STRATEGY, stored_names.RESTART)):
        return None
    edited_state = state.copy_vm()
    edited = edited_state.vm
    _end_restart(edited_state)
    if run_strategy.restarting(edited):
        return None if edited == vm else edited
    if booted is not None:
        _remove_once(edited_state, booted)
    _restore_run_strategy(edited_state)
    run_strategy.tell_harvester(vm, edited)
    return None if edited == vm else edited


def desired_vm_on_removal(state: vm_state.VmState
                          ) -> tuple[objects.VirtualMachine | None, bool]:
    """Return the VM with its one-time settings removed, for a VM whose last
    BMC has been deleted.

    A one-time override whose boot has not started is removed, unless a start
    of the VM is requested: then its boot still takes place. Continuous
    overrides and other permanent settings stay, as in a real machine whose
    BMC is taken out.

    :returns: (an edited copy of the VM, or None if nothing has to change;
        whether that completes the removal: False if it has to be called again
        when the next VMI exists)
    """
    vm = state.vm
    if vm_state.is_deleting(vm):
        return None, True
    once = boot_overrides.once(vm)
    if (once is not None and vm_state.start_requested(vm)
            and not boot_overrides.boot_started(state)):
        return None, False
    edited_state = state.copy_vm()
    edited = edited_state.vm
    _end_restart(edited_state, abandon=True)
    if run_strategy.restarting(edited):
        return None, False
    if once is not None:
        _remove_once(edited_state, once)
    if run_strategy.of(edited) == run_strategy.HALTED:
        # It was saved for a power-on by a BMC.
        run_strategy.clear_saved(edited)
    else:
        _restore_run_strategy(edited_state)
    vm_annotations = edited['metadata'].get('annotations') or {}
    return (None if edited == vm else edited,
            stored_names.RUN_STRATEGY not in vm_annotations)


def _remove_once(state: vm_state.VmState, layer: boot_overrides.Layer
                 ) -> None:
    """Remove a one-time override.

    If its VMI runs, and ends when the guest reboots, set ``Always`` so that
    KubeVirt creates another one then, and save the present run strategy.

    :param state: its VM is changed
    :param layer: the override
    """
    vm, vmi = state.vm, state.vmi
    had_http = boot_overrides.has_http(vm)
    boot_overrides.remove(vm, 'once')
    boot_overrides.remove_unused_devices(vm, had_http)
    if (not vm_state.is_active(vmi) or state.stopping()
            or bmc_annotations.boot_once_id(vmi) != layer['id']
            or vmi['spec'].get('domain', {}).get('rebootPolicy')
            != boot_overrides.TERMINATE):
        return
    strategy = run_strategy.of(vm)
    saved_strategy = run_strategy.saved(vm).strategy
    uid = vmi['metadata']['uid']
    if strategy in run_strategy.OFF_AFTER_SHUTDOWN:
        vm['spec']['runStrategy'] = run_strategy.ALWAYS
        run_strategy.save(vm, strategy, uid)
    elif (strategy == run_strategy.ALWAYS
            and saved_strategy not in (None, run_strategy.ALWAYS)):
        run_strategy.save(vm, saved_strategy, uid)


def _restore_run_strategy(state: vm_state.VmState) -> None:
    """Restore the saved run strategy of a VM if that is due; discard it if
    another client has changed the run strategy since.

    :param state: its VM is changed
    """
    vm, vmi = state.vm, state.vmi
    saved_strategy, saved_for_uid = run_strategy.saved(vm)
    strategy = run_strategy.of(vm)
    uid = vmi['metadata']['uid'] if vmi is not None else None
    if saved_strategy is None:
        run_strategy.clear_saved(vm)
    elif strategy == run_strategy.HALTED:
        # The next power-on restores it. Only Manual can be restored now,
        # because it does not start the VM.
        if (saved_strategy == run_strategy.MANUAL and vmi is None
                and not vm_state.requests(vm)):
            vm['spec']['runStrategy'] = saved_strategy
            run_strategy.clear_saved(vm)
    elif strategy == saved_strategy:
        # Always or Once saved for this VMI: a BMC is about to stop it.
        if strategy in run_strategy.OFF_AFTER_SHUTDOWN or uid not in (
                None, saved_for_uid):
            run_strategy.clear_saved(vm)
    elif strategy == run_strategy.ALWAYS:
        waits = saved_for_uid is None and boot_overrides.once(vm) is not None
        if uid not in (None, saved_for_uid) and not waits:
            vm['spec']['runStrategy'] = saved_strategy
            run_strategy.clear_saved(vm)
    else:
        run_strategy.clear_saved(vm)


def has_needless_back_off(state: vm_state.VmState) -> bool:
    """Return whether a VM that is off would be started later than requested.

    KubeVirt counts a VMI that was stopped before its guest ran as a failed
    start, and delays the next one (syncStartFailureStatus in
    pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9). It keeps that record
    under ``RerunOnFailure`` although nothing starts the VM again.
    """
    vm = state.vm
    status: objects.VirtualMachineStatus = {**(vm.get('status') or {})}
    if (not status.pop('startFailure', None) or state.vmi is not None
            or vm_state.is_deleting(vm) or state.starting()):
        return False
    # The record also shows that a one-time boot has not started.
    return not boot_overrides.boot_started(
        state.with_vm({**vm, 'status': status}))


class OneTimeBootReconciler:
    """Restores boot settings and run strategies of a cluster's machines.

    Also logs, once for each reason, why a VM that was requested to start
    cannot start.

    :param worker: in whose thread
    """

    def __init__(self, cluster: protocols.Cluster,
                 worker: delaying_queue.Worker) -> None:
        self._cluster = cluster
        # By the VM's uid: `time.monotonic` when its restart was seen.
        self._restarts: dict[str, float] = {}
        # By the VM's uid: uid of the VMI that may not be patched.
        self._denied: dict[str, str] = {}
        self._loop = reconcile_loop.ReconcileLoop(
            'one-time boot', self._reconcile, worker)
        # By the VM's uid: the problem logged last.
        self._problems: dict[str, power_state.Problem] = {}

    def start(self) -> None:
        """Subscribe to the cluster."""
        self._cluster.subscribe(self._changed)

    def close(self) -> None:
        """Begin no further turn."""
        self._loop.close()

    def enqueue(self, machine: protocols.Machine) -> None:
        """Reconcile a machine now, whether or not it has changed."""
        self._loop.add(machine)

    def _changed(self, machine: protocols.Machine,
                 state: vm_state.VmState | None) -> None:
        """Queue a machine if it needs a change.

        Called by the cluster for each change of a VM or its VMI. Runs in the
        thread of the cache's notifications, so it must not call the API.
        """
        if state is None:
            self._problems.pop(machine.uid, None)
            self._restarts.pop(machine.uid, None)
            self._denied.pop(machine.uid, None)
            self._loop.discard(machine.uid)
            return
        self._log_problem(machine, state)
        if (desired_vm(state) is not None
                or run_strategy.restarting(state.vm)
                or has_needless_back_off(state)
                or self._generation_lags(machine, state)):
            self._loop.add(machine)

    def _log_problem(self, machine: protocols.Machine,
                     state: vm_state.VmState) -> None:
        problem = power_state.problem(state)
        if problem == self._problems.get(machine.uid):
            return
        if problem is None:
            del self._problems[machine.uid]
            return
        self._problems[machine.uid] = problem
        LOG.warning('%s was requested to start but cannot (%s): %s',
                    machine.qualified_name, problem.reason, problem.message)

    def _reconcile(self, machine: protocols.Machine,
                   state: vm_state.VmState) -> None:
        edited = desired_vm(state)
        if edited is not None:
            state = state.with_vm(machine.patch(patch(state.vm, edited)))
            if not run_strategy.restarting(state.vm):
                LOG.info('%s: boot settings and run strategy restored',
                         machine.qualified_name)
        if has_needless_back_off(state):
            state = state.with_vm(machine.patch_status([
                {'op': 'remove', 'path': '/status/startFailure'}], state.vm))
        if self._generation_lags(machine, state):
            self._update_generation(machine, state)
        self._finish_restart(machine, state)

    def _generation_lags(self, machine: protocols.Machine,
                         state: vm_state.VmState) -> bool:
        """Return whether the VMI's annotation has to be updated.

        :returns: True for a VMI in its one-time boot, of a VM whose settings
            have been restored. While another one-time boot is pending,
            ``observedGeneration`` tells whether a VMI was created with it.
        """
        vmi = state.vmi
        return (vm_state.is_active(vmi)
                and bmc_annotations.boot_once_id(vmi) is not None
                and boot_overrides.once(state.vm) is None
                and vm_state.created_from(vmi) is not None
                and not vm_state.is_latest(state.vm, vmi)
                and self._denied.get(machine.uid) != vmi['metadata']['uid'])

    def _update_generation(self, machine: protocols.Machine,
                           state: vm_state.VmState) -> None:
        vmi = state.vmi
        assert vmi is not None
        try:
            machine.patch_vmi(vmi, [
                {'op': 'test', 'path': _GENERATION_PATH,
                 'value': vm_state.created_from(vmi)},
                {'op': 'replace', 'path': _GENERATION_PATH,
                 'value': str(state.vm['metadata']['generation'])}])
        except (errors.AccessDenied, errors.Rejected) as e:
            # No other function depends on it.
            self._denied[machine.uid] = vmi['metadata']['uid']
            LOG.info('%s: status.observedGeneration stays behind until the '
                     'VMI ends: %s', machine.qualified_name, e)

    def _finish_restart(self, machine: protocols.Machine,
                        state: vm_state.VmState) -> None:
        """Request a restart that a killed BMC process has not requested."""
        pending = run_strategy.restarting(state.vm)
        start_pending = run_strategy.start_pending(state.vm)
        if not pending or vm_state.requests(state.vm) and not start_pending:
            self._restarts.pop(machine.uid, None)
            return
        since = self._restarts.setdefault(machine.uid, time.monotonic())
        left = since + machine.options.write_deadline - time.monotonic()
        if left > 0:
            # The process that began it may be about to request it.
            self._loop.add(machine, left)
            return
        if not start_pending:
            machine.call('restart',
                         run_strategy.restart_options(pending.get('force')))
        elif not vmi_replacement.carry_on(machine, state):
            return      # the next change of the VMI queues it again
        LOG.info('%s: restart of an earlier BMC process requested',
                 machine.qualified_name)


def _end_restart(state: vm_state.VmState, abandon: bool = False) -> None:
    """Restore the run strategy of a VM whose restart is complete.

    It is complete when the next VMI exists or has ended, or none will come
    because another client has stopped the VM. A VM that was stopped, or that
    KubeVirt would not start again after its VMI has ended, is halted. A stop
    cannot be told from a deleted VMI.

    :param state: its VM is changed
    :param abandon: whether to restore it also if the restart has not been
        requested yet
    """
    vm, vmi = state.vm, state.vmi
    restart = run_strategy.restarting(vm)
    if not restart:
        # None was begun, or another client has set a run strategy since.
        bmc_annotations.write(vm, stored_names.RESTART, {})
        return
    off = not vm_state.is_active(vmi)
    other = (vm_state.is_active(vmi)
             and vmi['metadata']['uid'] != restart.get('vmi'))
    if run_strategy.start_pending(vm) and not (other or abandon):
        if vmi_replacement.is_requested(state):
            run_strategy.cancel_pending_start(vm)
        return
    due = off or other
    requests = vm_state.requests(vm)
    if off and requests or not (due or abandon and not requests):
        return
    strategy = restart['runStrategy']
    del vm['spec']['runStrategy']
    if strategy is None:
        vm['spec']['running'] = True
    else:
        vm['spec']['runStrategy'] = strategy
    if off and (vmi is None or vm_state.is_deleting(vmi)
                or not state.starting()):
        run_strategy.halt(vm)
        if strategy is not None and run_strategy.saved(vm).strategy is None:
            run_strategy.save(vm, strategy)
    bmc_annotations.write(vm, stored_names.RESTART, {})
