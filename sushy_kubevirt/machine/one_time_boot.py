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
import random
import threading

from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy

LOG = logging.getLogger(__name__)

#: Seconds after which a VM that could not be put right is tried again: at
#: first, twice as many each time, and at most; and after a refusal.
_AGAIN = 0.05
_AGAIN_AT_MOST = 5.0
_AGAIN_REFUSED = 60.0


def put_right(vm, vmi):
    """Say what a VM should be like.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: an edited copy of the VM; None if it is right as it is
    """
    kept = vm['metadata'].get('annotations') or {}
    if run_strategy.deleted(vm) or not (
            annotations.BOOT in kept or annotations.RUN_STRATEGY in kept):
        return None
    once = boot_overrides.once(vm)
    over = once is not None and boot_overrides.begun(vm, vmi)
    if not over and annotations.RUN_STRATEGY not in kept:
        return None
    edited = copy.deepcopy(vm)
    if over:
        boot_overrides.take_off_once(edited)
        if once.get('target') == boot_order.Class.HTTP.value:
            boot_overrides.drop_http_drive(edited)
        if vmi is not None and annotations.mark(vmi) == once['id']:
            _keep_up(edited, vmi)
    _bring_strategy_back(edited, vmi)
    return None if edited == vm else edited


def retire(vm, vmi):
    """Say what a VM should be like that is no BMC's any more.

    A boot that has not come is not waited for, unless the machine has been
    told to start: that was the last wish of its BMC's. Lasting settings stay,
    as those of a machine whose BMC is taken out.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: (an edited copy of the VM, or None if it is right as it is;
        whether that is all: if not, its next VMI has to be waited for)
    """
    if run_strategy.deleted(vm):
        return None, True
    once = boot_overrides.once(vm)
    if (once is not None and run_strategy.start_requested(vm)
            and not boot_overrides.begun(vm, vmi)):
        return None, False
    edited = copy.deepcopy(vm)
    if once is not None:
        boot_overrides.take_off_once(edited)
        if once.get('target') == boot_order.Class.HTTP.value:
            boot_overrides.drop_http_drive(edited)
        if vmi is not None and annotations.mark(vmi) == once['id']:
            _keep_up(edited, vmi)
    if run_strategy.of(edited) == run_strategy.HALTED:
        # It was for the power-on of a BMC.
        run_strategy.forget(edited)
    else:
        _bring_strategy_back(edited, vmi)
    kept = edited['metadata'].get('annotations') or {}
    return (None if edited == vm else edited,
            annotations.RUN_STRATEGY not in kept)


def _keep_up(vm, vmi):
    """Let another VMI follow when the guest's reboot ends this one."""
    if (vmi['spec'].get('domain', {}).get('rebootPolicy')
            != boot_overrides.TERMINATE or not run_strategy.living(vmi)
            or run_strategy.stopping(vm, vmi)):
        return
    strategy = run_strategy.of(vm)
    remembered, _ = run_strategy.remembered(vm)
    uid = vmi['metadata']['uid']
    if strategy in run_strategy.STAYS_DOWN:
        vm['spec']['runStrategy'] = run_strategy.ALWAYS
        run_strategy.remember(vm, strategy, uid)
    elif (strategy == run_strategy.ALWAYS
            and remembered not in (None, run_strategy.ALWAYS)):
        run_strategy.remember(vm, remembered, uid)


def _bring_strategy_back(vm, vmi):
    """Give a VM its run strategy back when its time has come, and forget
    one that somebody has decided about since.
    """
    remembered, about = run_strategy.remembered(vm)
    strategy = run_strategy.of(vm)
    uid = vmi['metadata']['uid'] if vmi is not None else None
    if remembered is None:
        run_strategy.forget(vm)
    elif strategy == run_strategy.HALTED:
        # For the next power-on. Only Manual starts nothing by coming back.
        if (remembered == run_strategy.MANUAL and vmi is None
                and not run_strategy.requests(vm)):
            vm['spec']['runStrategy'] = remembered
            run_strategy.forget(vm)
    elif strategy == remembered:
        # Remembered about this VMI, it is about to be stopped.
        if strategy in run_strategy.STAYS_DOWN or uid not in (None, about):
            run_strategy.forget(vm)
    elif strategy == run_strategy.ALWAYS:
        waits = about is None and boot_overrides.once(vm) is not None
        if uid not in (None, about) and not waits:
            vm['spec']['runStrategy'] = remembered
            run_strategy.forget(vm)
    else:
        run_strategy.forget(vm)


class Keeper:
    """Watches all machines of a cluster and puts them right.

    :param cluster: a `cluster.Cluster`
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self._agenda = delaying_queue.Agenda()
        self._problems = {}
        self._pauses = {}           # key: seconds before its next try

    def start(self):
        """Begin, in a thread."""
        self._cluster.subscribe(self._changed)
        threading.Thread(target=self._run, daemon=True,
                         name='keeper').start()

    def close(self):
        self._agenda.close()

    def look(self, machine):
        """Look at a machine now, whether or not it has changed."""
        self._put_off(machine, 0)

    def _changed(self, machine, vm, vmi):
        """Called in the watch's thread: looks, and leaves the writing."""
        if vm is None:
            self._problems.pop(machine.uid, None)
            self._pauses.pop(machine.uid, None)
            return
        self._tell_problem(machine, vm, vmi)
        if put_right(vm, vmi) is not None:
            self._put_off(machine, 0)

    def _tell_problem(self, machine, vm, vmi):
        problem = power_state.problem(vm, vmi)
        if problem == self._problems.get(machine.uid):
            return
        if problem is None:
            del self._problems[machine.uid]
            return
        self._problems[machine.uid] = problem
        LOG.warning('%s was told to start and cannot (%s): %s',
                    machine.qualified_name, problem.reason, problem.message)

    def _put_off(self, machine, seconds):
        self._agenda.put(machine.uid, machine, seconds)

    def _run(self):
        while True:
            machine = self._agenda.next()
            if machine is None:
                return
            # One try a turn: a VM that somebody changes all the time may not
            # keep the others waiting.
            pause = self._pauses.pop(machine.uid, _AGAIN)
            try:
                self._keep(machine, *machine.fetch())
            except errors.MachineNotFound:
                pass
            except errors.Unavailable as e:
                LOG.info('%s is put right later: %s',
                         machine.qualified_name, e)
                self._pauses[machine.uid] = min(pause * 2, _AGAIN_AT_MOST)
                self._put_off(machine, max(pause * random.uniform(0.5, 1.0),
                                           e.retry_after or 0))
            except Exception as e:
                LOG.warning('%s could not be put right: %s',
                            machine.qualified_name, e,
                            exc_info=not isinstance(e, errors.MachineError))
                self._put_off(machine, _AGAIN_REFUSED)

    def _keep(self, machine, vm, vmi):
        edited = put_right(vm, vmi)
        if edited is None:
            return
        json_patch.send(machine, vm, edited)
        LOG.info('%s has its own boot settings and run strategy back, as '
                 'far as they are due', machine.qualified_name)
