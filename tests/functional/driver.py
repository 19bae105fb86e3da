# SPDX-License-Identifier: Apache-2.0
"""A BMC process in small, which can be told to die.

    python -m tests.functional.driver KUBECONFIG NAME WRITES ACTION [VALUE…]

does one thing to a machine. After WRITES writes to the API it kills itself,
as by ``kill -9`` or a power cut, before it hears the answer; -1: never. Its
keeper does not run, so that nothing is put right by it afterwards.

WRITES may end in ``!``: it is a BMC for this machine alone, as that of a
pod.

Actions: ``reset TYPE``; ``boot TARGET ENABLED [MODE]``; ``keep``: put right
what is to be put right; ``insert DEVICE URL [USER PASSWORD]``;
``eject DEVICE``.
"""

import os
import signal
import sys

from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state


def _die_after(writes):
    left = [writes]

    def counted(method):
        def call(*args, **kwargs):
            answer = method(*args, **kwargs)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer
        return call

    for name in ('create', 'patch', 'action', 'delete'):
        setattr(client.Client, name, counted(getattr(client.Client, name)))


def _keep(machine, vm, vmi):
    edited = one_time_boot.put_right(vm, vmi)
    if edited is not None:
        json_patch.send(machine, vm, edited)


def main(kubeconfig, name, writes, action, *values):
    _die_after(int(writes.rstrip('!')))
    alone = writes.endswith('!')
    with_none = cluster.Cluster(
        connection.Connection.from_options(kubeconfig),
        () if alone else ('default',),
        vm='default/' + name if alone else None,
        options=options.Options(keeper=False, media=options.MediaOptions(
            allow_loopback=True)))
    machine = with_none.machine(name)
    if action == 'reset':
        machine.reset(power_state.ResetType(values[0]))
    elif action == 'boot':
        machine.set_boot(boot.Target(values[0]), boot.Enabled(values[1]),
                         *[boot.Mode(value) for value in values[2:]])
    elif action == 'order':
        if values:
            machine.set_boot(order=values)
        else:
            machine.set_default_boot_order()
    elif action == 'policy':
        machine.set_power_restore_policy(
            power_restore_policy.Policy(values[0]))
    elif action == 'keep':
        machine.write(lambda vm, vmi: _keep(machine, vm, vmi))
    elif action == 'insert':
        machine.insert_media(values[0], media.Source(*values[1:]))
    elif action == 'eject':
        machine.eject_media(*values)
    with_none.close()


if __name__ == '__main__':
    main(*sys.argv[1:])
