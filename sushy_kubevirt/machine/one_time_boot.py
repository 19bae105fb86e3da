# SPDX-License-Identifier: Apache-2.0
"""Puts back what a one-time boot changed.

KubeVirt has no one-time boot. An override is written into the VM's template,
a VMI is made from it, and from then on the template may have its own order
back: the VMI keeps the one it was made with. That is what every BMC process
watches for. It does not matter who set the override, who started the VM, or
which process was alive then: the annotations on the VM (`annotations`) say
all that is needed, the change is one guarded patch, and of several keepers
one wins and the others find it done.

A guest that reboots keeps its VMI, and so the override. Where the cluster has
RebootPolicy, the override therefore has the VMI end at a reboot, and the next
one has the order that was put back. For a next one to come, the VM has to
run under ``Always`` for that boot: an ended VMI does not tell a reboot from a
shutdown, and under ``RerunOnFailure`` or ``Manual`` it would stay off. The
strategy comes back with the next VMI, or when a BMC switches the VM off. The
price: a guest that shuts itself down in that one boot comes up again, on its
own order.
"""

import copy
import logging

from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reconcile_loop
from sushy_kubevirt.machine import run_strategy

LOG = logging.getLogger(__name__)


def desired_vm(vm, vmi):
    """Say what a VM should be like.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: an edited copy of the VM; None if it is right as it is
    """
    kept = vm['metadata'].get('annotations') or {}
    if run_strategy.is_deleting(vm) or not (
            annotations.BOOT in kept or annotations.RUN_STRATEGY in kept):
        return None
    once = boot_overrides.once(vm)
    over = once is not None and boot_overrides.boot_started(vm, vmi)
    if not over and annotations.RUN_STRATEGY not in kept:
        return None
    edited = copy.deepcopy(vm)
    if over:
        boot_overrides.remove_once(edited)
        if once.get('target') == boot_order.Class.HTTP.value:
            boot_overrides.remove_unused_http_drive(edited)
        if vmi is not None and annotations.boot_once_id(vmi) == once['id']:
            _run_under_always(edited, vmi)
    _restore_run_strategy(edited, vmi)
    return None if edited == vm else edited


def desired_vm_on_removal(vm, vmi):
    """Say what a VM should be like that is no BMC's any more.

    A boot that has not come is not waited for, unless the machine has been
    told to start: that was the last wish of its BMC's. Lasting settings stay,
    as those of a machine whose BMC is taken out.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: (an edited copy of the VM, or None if it is right as it is;
        whether that is all: if not, its next VMI has to be waited for)
    """
    if run_strategy.is_deleting(vm):
        return None, True
    once = boot_overrides.once(vm)
    if (once is not None and run_strategy.start_requested(vm)
            and not boot_overrides.boot_started(vm, vmi)):
        return None, False
    edited = copy.deepcopy(vm)
    if once is not None:
        boot_overrides.remove_once(edited)
        if once.get('target') == boot_order.Class.HTTP.value:
            boot_overrides.remove_unused_http_drive(edited)
        if vmi is not None and annotations.boot_once_id(vmi) == once['id']:
            _run_under_always(edited, vmi)
    if run_strategy.of(edited) == run_strategy.HALTED:
        # It was for the power-on of a BMC.
        run_strategy.clear_saved(edited)
    else:
        _restore_run_strategy(edited, vmi)
    kept = edited['metadata'].get('annotations') or {}
    return (None if edited == vm else edited,
            annotations.RUN_STRATEGY not in kept)


def _run_under_always(vm, vmi):
    """Let another VMI follow when the guest's reboot ends this one."""
    if (vmi['spec'].get('domain', {}).get('rebootPolicy')
            != boot_overrides.TERMINATE or not run_strategy.is_active(vmi)
            or run_strategy.stopping(vm, vmi)):
        return
    strategy = run_strategy.of(vm)
    remembered, _ = run_strategy.saved(vm)
    uid = vmi['metadata']['uid']
    if strategy in run_strategy.OFF_AFTER_SHUTDOWN:
        vm['spec']['runStrategy'] = run_strategy.ALWAYS
        run_strategy.save(vm, strategy, uid)
    elif (strategy == run_strategy.ALWAYS
            and remembered not in (None, run_strategy.ALWAYS)):
        run_strategy.save(vm, remembered, uid)


def _restore_run_strategy(vm, vmi):
    """Give a VM its run strategy back when its time has come, and forget
    one that somebody has decided about since.
    """
    remembered, about = run_strategy.saved(vm)
    strategy = run_strategy.of(vm)
    uid = vmi['metadata']['uid'] if vmi is not None else None
    if remembered is None:
        run_strategy.clear_saved(vm)
    elif strategy == run_strategy.HALTED:
        # For the next power-on. Only Manual starts nothing by coming back.
        if (remembered == run_strategy.MANUAL and vmi is None
                and not run_strategy.requests(vm)):
            vm['spec']['runStrategy'] = remembered
            run_strategy.clear_saved(vm)
    elif strategy == remembered:
        # Remembered about this VMI, it is about to be stopped.
        if strategy in run_strategy.OFF_AFTER_SHUTDOWN or uid not in (
                None, about):
            run_strategy.clear_saved(vm)
    elif strategy == run_strategy.ALWAYS:
        waits = about is None and boot_overrides.once(vm) is not None
        if uid not in (None, about) and not waits:
            vm['spec']['runStrategy'] = remembered
            run_strategy.clear_saved(vm)
    else:
        run_strategy.clear_saved(vm)


class OneTimeBootReconciler:
    """Restores the boot settings of all machines of a cluster.

    Also logs once why a VM that was requested to start cannot.

    :param cluster: a `cluster.Cluster`
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self._loop = reconcile_loop.ReconcileLoop(
            'one-time-boot', 'one-time boot', self._reconcile)
        self._problems = {}         # VM's uid: the problem logged last

    def start(self):
        """Subscribe to the cluster and start the thread."""
        self._cluster.subscribe(self._changed)
        self._loop.start()

    def close(self):
        """Stop the thread."""
        self._loop.close()

    def enqueue(self, machine):
        """Reconcile a machine now, whether or not it has changed."""
        self._loop.add(machine)

    def _changed(self, machine, vm, vmi):
        """Queue a machine that needs a change.

        Runs in the watch's thread, so it must not call the API.
        """
        if vm is None:
            self._problems.pop(machine.uid, None)
            self._loop.discard(machine.uid)
            return
        self._log_problem(machine, vm, vmi)
        if desired_vm(vm, vmi) is not None:
            self._loop.add(machine)

    def _log_problem(self, machine, vm, vmi):
        problem = power_state.problem(vm, vmi)
        if problem == self._problems.get(machine.uid):
            return
        if problem is None:
            del self._problems[machine.uid]
            return
        self._problems[machine.uid] = problem
        LOG.warning('%s was requested to start but cannot (%s): %s',
                    machine.qualified_name, problem.reason, problem.message)

    def _reconcile(self, machine, vm, vmi):
        edited = desired_vm(vm, vmi)
        if edited is None:
            return
        json_patch.send(machine, vm, edited)
        LOG.info('%s: restored the boot settings and run strategy that were '
                 'due', machine.qualified_name)
