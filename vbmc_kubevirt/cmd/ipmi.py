# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-ipmi``: IPMI for one VM, in a container of its own."""

import asyncio
import logging
import os
import re
import sys

from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import run_strategy
from vbmc_kubevirt import ipmi_container
from vbmc_kubevirt import timeouts

USAGE = """\
usage: sushy-kubevirt-ipmi [--help] [--version]

Serves IPMI for one KubeVirt VM until SIGTERM. The operator says in the
environment what is wanted:

  VIRTBMC_VM            the VM, as namespace/name
  VIRTBMC_AUTH_FOLDER   folder with the files username and password, such as
                        a mounted Secret; may change at any time
  POD_IP                address to listen on (default: all)
  VIRTBMC_PORT          UDP port (default: 6230)
  VIRTBMC_HEALTH_PORT   TCP port of /livez, /readyz and /metrics
                        (default: 8082)
  VIRTBMC_RUN_STRATEGY  run strategy that a Halted VM is switched on with
                        (default: RerunOnFailure)

The way to the cluster is that of the kubeconfig $KUBECONFIG, or else the
account of the pod.
"""

#: There may be thousands of pods, and each renewal is a call of the API. A
#: peer that is gone is noticed by TCP within half a minute all the same.
WATCH_SECONDS = 300.0

#: Names of Kubernetes' objects, near enough.
_NAME = r'[a-z0-9]([-.a-z0-9]*[a-z0-9])?'
_VM = re.compile(f'{_NAME}/{_NAME}')


class Invalid(ValueError):
    """What the environment says cannot be used."""


def read(environ):
    """Read the environment.

    :param environ: dict
    :returns: `ipmi_container.Settings`
    :raises: `Invalid`, naming the variable
    """
    values = dict(timeouts.PATIENCE, watch_seconds=WATCH_SECONDS)
    strategy = environ.get('VIRTBMC_RUN_STRATEGY')
    if strategy:
        if strategy not in run_strategy.STARTABLE:
            raise Invalid('VIRTBMC_RUN_STRATEGY has to be one of %s, not %r'
                          % (', '.join(run_strategy.STARTABLE), strategy))
        values['run_strategy'] = strategy
    vm = environ.get('VIRTBMC_VM', '')
    if not _VM.fullmatch(vm):
        raise Invalid('VIRTBMC_VM has to be namespace/name of a VM, not %r'
                      % vm)
    folder = environ.get('VIRTBMC_AUTH_FOLDER')
    if not folder:
        raise Invalid('VIRTBMC_AUTH_FOLDER has to be a folder')
    return ipmi_container.Settings(
        vm=vm, folder=folder, address=environ.get('POD_IP') or '::',
        port=_port(environ, 'VIRTBMC_PORT', 6230),
        health_port=_port(environ, 'VIRTBMC_HEALTH_PORT', 8082),
        options=options.Options(**values))


def _port(environ, name, default):
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) > 65535:
        raise Invalid(f'{name} has to be a port, not {text!r}')
    return int(text)


def main(argv=None):
    """Serve. Returns an exit code, or ends the process.

    :param argv: list of words, without the program's name
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv == ['--version']:
        from importlib import metadata
        print('sushy-kubevirt-ipmi', metadata.version('sushy-kubevirt'))
        return 0
    if argv:
        asked = argv in (['-h'], ['--help'])
        (sys.stdout if asked else sys.stderr).write(USAGE)
        return 0 if asked else 2
    logging.basicConfig(
        level=logging.INFO,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    try:
        asyncio.run(ipmi_container.Pod(read(os.environ)).serve())
    except (Invalid, OSError) as exc:
        sys.stderr.write(f'sushy-kubevirt-ipmi: {exc}\n')
        return 2
    logging.shutdown()
    # A thread may be waiting for the API still; what it was doing has been
    # given its time.
    os._exit(0)


if __name__ == '__main__':
    sys.exit(main())
