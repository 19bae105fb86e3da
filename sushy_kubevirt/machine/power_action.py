# SPDX-License-Identifier: Apache-2.0
"""How an action on a machine's power is carried out.

An action is a step, repeated through bad moments (`retry`), that looks at the
VM and its VMI first and makes at most a few requests. Where KubeVirt has to
finish one thing before the next can be asked for, the step says what to wait
for, and is repeated when that has come.
"""

import logging
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import run_strategy

LOG = logging.getLogger(__name__)


class WaitCondition:
    """Something KubeVirt has to finish first.

    :param what: its name
    :param met: function of (vm, vmi)
    """

    def __init__(self, what, met):
        self.what = what
        self.met = met


def vmi_ended(vmi):
    """:returns: the `WaitCondition` end of a VMI"""
    uid = vmi['metadata']['uid']
    return WaitCondition('the VMI to end', lambda vm, now: (
        now is None or now['metadata']['uid'] != uid))


def vmi_seen():
    """:returns: what to await before a VMI is asked to stop, so that the
    request counts (see `run_strategy.vmi_seen`)
    """
    return WaitCondition('KubeVirt to notice the VMI', lambda vm, vmi: (
        vmi is None or run_strategy.vmi_seen(vm)))


def run(machine, step):
    """Repeat a step until it has nothing left to wait for.

    :param machine: a `machine.Machine`
    :param step: function of (vm, vmi), see `machine.Machine.write`; returns
        an `WaitCondition`, or None when it is done
    :raises: `errors.Unavailable` if that does not come within the deadline
    """
    def reconcile_first(vm, vmi):
        # The next VMI is not to have an override that is used up, only
        # because the keeper is slow today.
        edited = one_time_boot.desired_vm(vm, vmi)
        if edited is not None:
            try:
                vm = json_patch.send(machine, vm, edited)
            except errors.Rejected as e:
                # Its plug can be pulled all the same.
                LOG.warning('%s could not be put right: %s',
                            machine.qualified_name, e)
        return step(vm, vmi)

    deadline = time.monotonic() + machine.options.write_deadline
    while True:
        awaited = machine.write(reconcile_first)
        if awaited is None:
            return
        left = deadline - time.monotonic()
        if left <= 0 or not machine.wait(awaited.met, left):
            raise errors.Unavailable(
                '%s still waits for %s; try again later'
                % (machine.qualified_name, awaited.what), retry_after=5)


def migration_target_error(machine):
    """:returns: the refusal for a VM that is being received"""
    return errors.WrongState(
        '%s is the target of a migration; its power is decided at the source'
        % machine.qualified_name)
