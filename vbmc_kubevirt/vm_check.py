# SPDX-License-Identifier: Apache-2.0
"""Check in a child process that a VM exists, within a timeout.

``vbmc`` waits a few seconds for the daemon, the cluster may take longer. The
child is killed on timeout, and the daemon keeps none of the threads and
connections that the check needs.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import connection as pipes
import os
import signal
import typing

from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import options


def find(kubeconfig: str | None, context: str | None, namespace: str | None,
         name: str, options: options.Options, seconds: float) -> str:
    """Look up a VM.

    :param kubeconfig: path
    :param context: context name
    :param namespace: None for the context's namespace, or else 'default'
    :param name: name of the VM
    :param seconds: timeout
    :returns: namespace of the VM
    :raises: `errors.MachineError`
    """
    fork = multiprocessing.get_context('fork')
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(
        target=_ask, daemon=True,
        args=(sender, kubeconfig, context, namespace, name, options))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise errors.Unavailable(
                f'The cluster did not answer within {seconds:.3g} s; '
                'increase the option server_response_timeout')
        exists, text = receiver.recv()
    except EOFError:
        raise errors.Unavailable('The check of the VM failed unexpectedly; '
                                 'see the log') from None
    finally:
        receiver.close()
        _kill(process)
    if not exists:
        raise errors.MachineError(text)
    return text


def _ask(pipe: pipes.Connection, kubeconfig: str | None, context: str | None,
         namespace: str | None, name: str,
         options: options.Options) -> None:
    # Own process group, so that credential plugins of the kubeconfig are
    # killed with this process.
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Imported here to keep the daemon small.
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


def _kill(process: multiprocessing.process.BaseProcess) -> None:
    assert process.pid is not None      # it was started
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # Not a group leader yet, or already ended.
        process.kill()
    process.join()
