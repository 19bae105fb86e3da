# SPDX-License-Identifier: Apache-2.0
"""``virtualpdu-kubevirt``: virtualpdu, whose outlets are KubeVirt VMs."""

from __future__ import annotations

import argparse
from collections import abc
import contextlib
from importlib import metadata
import logging
import signal
import sys
import threading

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from sushy_kubevirt.pdu import config


def main(arguments: abc.Sequence[str] | None = None) -> int:
    """Serve the PDUs of a file until SIGTERM or SIGINT.

    :param arguments: without the program's name; None for the process's
    :returns: exit status: 0 after a signal, 2 if the configuration is wrong,
        1 after another error
    """
    parser = argparse.ArgumentParser(
        'virtualpdu-kubevirt', description='Serve the power outlets of VMs by '
        "SNMP: OpenStack's virtualpdu with a driver for KubeVirt.")
    parser.add_argument('--version', action='version', version=(
        f"{parser.prog} {metadata.version('sushy-kubevirt')}"))
    parser.add_argument('config', metavar='CONFIG',
                        help="virtualpdu's INI file, whose section [global] "
                             'has the options kubevirt_*')
    path = parser.parse_args(arguments).config
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _serve(path)
        return 0
    except ImportError as exc:
        reason, status = (f'{exc}; run: pip install "sushy-kubevirt[pdu]"', 1)
    except errors.MachineError as exc:
        reason, status = str(exc), 1 + isinstance(exc, errors.ConfigError)
    print(f'{parser.prog}: {reason}', file=sys.stderr)
    return status


def _serve(path: str) -> None:
    parser, mapping = config.read(path)
    # It imports virtualpdu, which is optional.
    from sushy_kubevirt.pdu import driver
    settings = parser['global']
    access = connection.Connection.from_options(
        settings.get('kubevirt_kubeconfig'), settings.get('kubevirt_context'))
    namespace = settings.get('kubevirt_namespace') or (
        access.namespace or 'default')
    # BMCs restore what one-time boots have changed.
    machines = cluster.Cluster(access, [namespace], options=options.Options(
        settings.get('kubevirt_run_strategy')
        or options.Options().run_strategy,
        reconcile=False))
    outlets = driver.Outlets(
        driver.KubeVirtDriver(machines), mapping,
        f"POWER_{settings.get('outlet_default_state') or 'ON'}")
    machines.wait_ready()
    for name in {pdu: None for pdu, _ in mapping}:
        driver.serve(parser[name], outlets)
    # The interpreter's exit waits for the commands of the outlets.
    threading.Event().wait()


if __name__ == '__main__':
    sys.exit(main())
