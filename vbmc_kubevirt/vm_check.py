# SPDX-License-Identifier: Apache-2.0
"""Asks, in a process of its own, whether there is a VM to make a BMC of.

``vbmc`` waits a few seconds for the daemon's answer, and a cluster may let
one wait much longer. The daemon must also not keep the threads and the
connections that asking takes. So a process asks, and is ended when it is
late.
"""

import multiprocessing
import os
import signal

from sushy_kubevirt.kube import errors


def find(kubeconfig, context, namespace, name, options, seconds):
    """Look for a VM.

    :param namespace: None for the context's own, or else 'default'
    :param name: of the VM
    :param options: `options.Options`
    :param seconds: to wait for an answer
    :returns: the namespace
    :raises: `errors.MachineError`, with a reason for people
    """
    fork = multiprocessing.get_context('fork')
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(
        target=_ask, daemon=True,
        args=(there, kubeconfig, context, namespace, name, options))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            raise errors.Unavailable(
                'The cluster did not answer within %.3g s; option '
                'server_response_timeout allows it more' % seconds)
        found, text = here.recv()
    except EOFError:
        raise errors.Unavailable('The cluster could not be asked; see the '
                                 'log') from None
    finally:
        here.close()
        _end(process)
    if not found:
        raise errors.MachineError(text)
    return text


def _ask(pipe, kubeconfig, context, namespace, name, options):
    # What it starts, such as a kubeconfig's plugin, ends with it.
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Nor what it takes to ask: the daemon has no other use for it.
    from sushy_kubevirt.kube import connection
    from sushy_kubevirt.machine import cluster
    try:
        conn = connection.Connection.from_options(kubeconfig, context)
        namespace = namespace or conn.namespace or 'default'
        vm = f'{namespace}/{name}'
        machines = cluster.Cluster(conn, options=options, vm=vm)
        machines.wait_ready()
        machines.machine(vm)
        pipe.send((True, namespace))
    except errors.MachineError as exc:
        pipe.send((False, str(exc)))


def _end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # It has not become the leader of a group yet, or has ended.
        process.kill()
    process.join()
