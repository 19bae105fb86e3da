# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-ipmi``: IPMI container of a BMC pod, for one VM."""

import asyncio
import logging
import os
import re
import sys

from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import run_strategy
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt import ipmi_container

USAGE = """\
usage: sushy-kubevirt-ipmi [--help] [--version]

Serve IPMI for one KubeVirt VM until SIGTERM. Settings are environment
variables:

  VIRTBMC_VM            the VM, as namespace/name
  VIRTBMC_AUTH_FOLDER   directory with the files username, password and
                        optionally role (Administrator, Operator or
                        ReadOnly), such as a mounted Secret; changes apply
                        at once
  POD_IP                address to listen on (default: all)
  VIRTBMC_PORT          UDP port (default: 6230)
  VIRTBMC_SERVICE_PORT  UDP port that clients use, as IPMI reports it
                        (default: VIRTBMC_PORT)
  VIRTBMC_HEALTH_PORT   TCP port of /livez, /readyz and /metrics
                        (default: 8082)
  VIRTBMC_RUN_STRATEGY  run strategy to start a Halted VM with
  VIRTBMC_ACCOUNT_MANAGEMENT
                        true or false: whether administrators may create
                        accounts (default: true)

Kubernetes is accessed with the kubeconfig in $KUBECONFIG if set, otherwise
with the pod's service account.
"""

#: Seconds until a watch is renewed. Renewal is an API call, and there may be
#: thousands of pods. TCP detects a lost connection within half a minute.
WATCH_SECONDS = 300.0

# Approximation of Kubernetes' object names.
_NAME = r'[a-z0-9]([-.a-z0-9]*[a-z0-9])?'
_VM = re.compile(f'{_NAME}/{_NAME}')


class Invalid(ValueError):
    """An environment variable is missing or has an invalid value."""


def read(environ):
    """Read the settings from the environment.

    :param environ: dict
    :returns: `ipmi_container.Settings`
    :raises: `Invalid` with the variable's name
    """
    values = dict(constants.CLUSTER_DEADLINES, watch_seconds=WATCH_SECONDS)
    strategy = environ.get('VIRTBMC_RUN_STRATEGY')
    if strategy:
        if strategy not in run_strategy.STARTABLE:
            raise Invalid(
                'VIRTBMC_RUN_STRATEGY must be one of '
                f"{', '.join(run_strategy.STARTABLE)}, not {strategy!r}")
        values['run_strategy'] = strategy
    vm = environ.get('VIRTBMC_VM', '')
    if not _VM.fullmatch(vm):
        raise Invalid(
            f'VIRTBMC_VM must be namespace/name of a VM, not {vm!r}')
    folder = environ.get('VIRTBMC_AUTH_FOLDER')
    if not folder:
        raise Invalid('VIRTBMC_AUTH_FOLDER must be the path of a directory')
    management = environ.get('VIRTBMC_ACCOUNT_MANAGEMENT') or 'true'
    if management not in ('true', 'false'):
        raise Invalid('VIRTBMC_ACCOUNT_MANAGEMENT must be true or false, not '
                      f'{management!r}')
    return ipmi_container.Settings(
        vm=vm, folder=folder, address=environ.get('POD_IP') or '::',
        port=_port(environ, 'VIRTBMC_PORT', 6230),
        client_port=_port(environ, 'VIRTBMC_SERVICE_PORT', 0),
        health_port=_port(environ, 'VIRTBMC_HEALTH_PORT', 8082),
        machine_options=options.Options(**values),
        account_management=management == 'true')


def _port(environ, name, default):
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) > 65535:
        raise Invalid(f'{name} must be a port number, not {text!r}')
    return int(text)


def main(argv=None):
    """Serve until SIGTERM or SIGINT, then end the process.

    :param argv: list of arguments without the program's name
    :returns: exit code after ``--help``, ``--version`` or an error
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv == ['--version']:
        from importlib import metadata
        print('sushy-kubevirt-ipmi', metadata.version('sushy-kubevirt'))
        return 0
    if argv:
        help_requested = argv in (['-h'], ['--help'])
        (sys.stdout if help_requested else sys.stderr).write(USAGE)
        return 0 if help_requested else 2
    logging.basicConfig(
        level=logging.INFO,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    try:
        asyncio.run(ipmi_container.IpmiContainer(read(os.environ)).serve())
    except (Invalid, OSError) as exc:
        sys.stderr.write(f'sushy-kubevirt-ipmi: {exc}\n')
        return 2
    logging.shutdown()
    # Do not wait for executor threads that still wait for the API: the grace
    # period of their commands is over.
    os._exit(0)


if __name__ == '__main__':
    sys.exit(main())
