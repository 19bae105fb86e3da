# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-bmc``: the process of a pod with one BMC, or with many.

One BMC has Redfish, IPMI or both. ``sushy-kubevirt-redfish`` and
``sushy-kubevirt-ipmi`` are the same program with one protocol.
"""

from __future__ import annotations

from collections import abc
import gc
import os
import re
import sys
import typing

from sushy_kubevirt.pod import options_file
from sushy_kubevirt.pod import rare_modules

if typing.TYPE_CHECKING:
    from sushy_kubevirt.pod import redfish_service
    from vbmc_kubevirt import bmc_pod
    from vbmc_kubevirt import ipmi_service
    from vbmc_kubevirt import shared_pod

_REDFISH = """\
  SUSHY_EMULATOR_CONFIG
                        path of a config file of sushy-emulator, which is
                        Python; or
  VIRTBMC_OPTIONS       path of a JSON file with options of a BMC, which the
                        operator writes
  VIRTBMC_HTTP_PORT     TCP port of HTTP beside HTTPS (default: none)
"""

_IPMI = """\
  VIRTBMC_VM            the VM, as namespace/name
  VIRTBMC_AUTH_FOLDER   directory with the files username, password and
                        optionally role (Administrator, Operator or
                        ReadOnly), such as a mounted Secret; changes apply
                        at once
  VIRTBMC_PORT          UDP port{default}
  VIRTBMC_SERVICE_PORT  UDP port that clients use, as IPMI reports it
                        (default: VIRTBMC_PORT)
  VIRTBMC_RUN_STRATEGY  run strategy to start a Halted VM with{beside}
  VIRTBMC_ACCOUNT_MANAGEMENT
                        true or false: whether administrators may create
                        accounts (default: true)
"""

_COMMON = """\
  POD_IP                address to listen on (default: all{listen})
  VIRTBMC_HEALTH_PORT   TCP port of /livez, /readyz and /metrics
                        (default: 8081)
"""

_SHARED = """
Many BMCs are served instead of one if this is set:

  VIRTBMC_SHARED        the ConfigMap with the list of BMCs that the operator
                        writes, as namespace/name
  VIRTBMC_OPTIONS_FOLDER
                        directory with the files that the operator writes for
                        all of them (default: /etc/virtbmc/config)
"""

_END = """
Kubernetes is accessed with the kubeconfig in $KUBECONFIG if set, otherwise
with the pod's service account.
"""

#: Default ports.
IPMI_PORT, HEALTH_PORT = 6230, 8081

#: Seconds until a watch is renewed. Renewal is an API call, and there may be
#: thousands of pods. TCP detects a lost connection within half a minute.
WATCH_SECONDS = 300.0

#: Seconds for which a thread may keep others from running, such as the watches
#: the response to the action whose effects they receive, or one BMC the event
#: loop of all. CPython's default is ten times that.
SWITCH_SECONDS = 0.0005

# Approximation of Kubernetes' object names.
_NAME = r'[a-z0-9]([-.a-z0-9]*[a-z0-9])?'
_VM = f'{_NAME}/{_NAME}'


#: Environment variables with the path of Redfish's options.
_CONFIGS = 'SUSHY_EMULATOR_CONFIG', options_file.VARIABLE

#: Config file of sushy-emulator that reads the second.
EMULATOR_CONFIG = os.path.join(
    os.path.dirname(os.path.dirname(__file__)), 'emulator_config.py')


#: An int or None.
Default = typing.TypeVar('Default', int, None)


class Invalid(ValueError):
    """An environment variable is missing or has an invalid value."""


def main(argv: list[str] | None = None) -> int:
    """Run ``sushy-kubevirt-bmc``.

    :param argv: arguments without the program's name
    :returns: exit code after ``--help``, ``--version`` or an error
    """
    return _main(
        'sushy-kubevirt-bmc', 'Serve Redfish, IPMI or both for one KubeVirt '
        'VM until SIGTERM.', 'Redfish is served if one of the first two is '
        'set:\n\n' + _REDFISH + '\nIPMI is served if VIRTBMC_PORT is set:\n\n'
        + _IPMI.format(default='', beside=',\n' + ' ' * 24
                       + 'unless Redfish is served, whose config file has it')
        + '\nFor both:\n\n'
        + _COMMON.format(listen='; Redfish has\n' + ' ' * 24
                         + 'its own in its config file')
        + _SHARED,
        argv, lambda environ: (
            any(map(environ.get, _CONFIGS)),
            bool(environ.get('VIRTBMC_PORT'))))


def redfish(argv: list[str] | None = None) -> int:
    """Run ``sushy-kubevirt-redfish``, see `main`."""
    return _main(
        'sushy-kubevirt-redfish', 'Serve Redfish for the KubeVirt VMs that a '
        'config file names, until SIGTERM.', _REDFISH + _COMMON.format(
            listen='; its config\n' + ' ' * 24 + 'file has that of Redfish'),
        argv, lambda environ: (True, False))


def ipmi(argv: list[str] | None = None) -> int:
    """Run ``sushy-kubevirt-ipmi``, see `main`."""
    return _main(
        'sushy-kubevirt-ipmi', 'Serve IPMI for one KubeVirt VM until '
        'SIGTERM.', _IPMI.format(default=f' (default: {IPMI_PORT})', beside='')
        + _COMMON.format(listen=''), argv, lambda environ: (False, True))


def read(environ: abc.Mapping[str, str]) -> ipmi_service.Settings:
    """Read the settings of IPMI from the environment.

    :raises: `Invalid` with the variable's name
    """
    from sushy_kubevirt.machine import options
    from sushy_kubevirt.machine import run_strategy
    from vbmc_kubevirt.ipmi import constants
    from vbmc_kubevirt import ipmi_service

    values: dict[str, typing.Any] = dict(
        constants.CLUSTER_DEADLINES, watch_seconds=WATCH_SECONDS)
    strategy = environ.get('VIRTBMC_RUN_STRATEGY')
    if strategy:
        if strategy not in run_strategy.STARTABLE:
            raise Invalid(
                'VIRTBMC_RUN_STRATEGY must be one of '
                f"{', '.join(run_strategy.STARTABLE)}, not {strategy!r}")
        values['run_strategy'] = strategy
    vm = environ.get('VIRTBMC_VM', '')
    if not re.fullmatch(_VM, vm):
        raise Invalid(
            f'VIRTBMC_VM must be namespace/name of a VM, not {vm!r}')
    folder = environ.get('VIRTBMC_AUTH_FOLDER')
    if not folder:
        raise Invalid('VIRTBMC_AUTH_FOLDER must be the path of a directory')
    management = environ.get('VIRTBMC_ACCOUNT_MANAGEMENT') or 'true'
    if management not in ('true', 'false'):
        raise Invalid('VIRTBMC_ACCOUNT_MANAGEMENT must be true or false, not '
                      f'{management!r}')
    return ipmi_service.Settings(
        vm=vm, folder=folder, address=environ.get('POD_IP') or '::',
        port=port(environ, 'VIRTBMC_PORT', IPMI_PORT),
        client_port=port(environ, 'VIRTBMC_SERVICE_PORT', 0),
        machine_options=options.Options(**values),
        account_management=management == 'true')


def port(environ: abc.Mapping[str, str], name: str, default: Default
         ) -> int | Default:
    """Read a port number.

    :param name: of the variable
    :param default: if it is not set
    :raises: `Invalid`
    """
    text = environ.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) > 65535:
        raise Invalid(f'{name} must be a port number, not {text!r}')
    return int(text)


def _main(program: str, purpose: str, variables: str, argv: list[str] | None,
          protocols: abc.Callable[[abc.Mapping[str, str]], tuple[bool, bool]]
          ) -> int:
    """Answer ``--help`` and ``--version``, or serve.

    :param purpose: first sentence of the help
    :param variables: the rest of the help
    :param protocols: returns whether the environment serves Redfish and IPMI
    :returns: see `main`
    """
    argv = sys.argv[1:] if argv is None else argv
    if argv == ['--version']:
        from importlib import metadata
        print(program, metadata.version('sushy-kubevirt'))
        return 0
    if argv:
        help_requested = argv in (['-h'], ['--help'])
        (sys.stdout if help_requested else sys.stderr).write(
            f'usage: {program} [--help] [--version]\n\n{purpose}\n'
            f'Settings are environment variables.\n\n{variables}{_END}')
        return 0 if help_requested else 2
    return _serve(program, protocols)


def _serve(program: str,
           protocols: abc.Callable[[abc.Mapping[str, str]], tuple[bool, bool]]
           ) -> int:
    """Serve until SIGTERM or SIGINT, then end the process.

    :returns: exit code after an error
    """
    # Hardly anything of what a start makes is garbage, and a twentieth of its
    # time would be spent looking for it.
    gc.disable()
    rare_modules.defer()
    # What is imported from here on is loaded when it is needed.
    import asyncio
    import logging

    from sushy_kubevirt.kube import errors

    # Before Flask's application is created, which else adds a handler.
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    # What no line has costs as much as formatting it ("Optimization" in
    # Python's Logging HOWTO).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = False
    logging.logMultiprocessing = False
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        shared = program == 'sushy-kubevirt-bmc' and os.environ.get(
            'VIRTBMC_SHARED')
        pod = _shared_pod(os.environ, shared) if shared else _pod(
            os.environ, *protocols(os.environ))
        gc.freeze()
        gc.enable()
        asyncio.run(pod.serve())
    except (Invalid, OSError, errors.ConfigError) as exc:
        sys.stderr.write(f'{program}: {exc}\n')
        return 2
    logging.shutdown()
    # Do not wait for executor threads that still wait for the API: the grace
    # period of their commands is over.
    os._exit(0)


def _pod(environ: abc.MutableMapping[str, str], with_redfish: bool,
         with_ipmi: bool) -> bmc_pod.BmcPod:
    """Create the BMC.

    :raises: `Invalid`, OSError
    """
    if not with_redfish and not with_ipmi:
        raise Invalid(f"set {' or '.join(_CONFIGS)} to serve Redfish, "
                      'VIRTBMC_PORT to serve IPMI, or both')
    health_port = port(environ, 'VIRTBMC_HEALTH_PORT', HEALTH_PORT)
    settings = read(environ) if with_ipmi else None
    from vbmc_kubevirt import bmc_pod
    served = None
    address = environ.get('POD_IP') or '::'
    if with_redfish:
        served = _redfish(environ)
        address = environ.get('POD_IP') or served.address
        if settings is not None and served.settings.vm != settings.vm:
            raise Invalid(
                f'VIRTBMC_VM is {settings.vm!r}, but the VM in '
                f'{next(filter(None, map(environ.get, _CONFIGS)))} is '
                f'{served.settings.vm!r}')
    return bmc_pod.BmcPod(served, settings, address, health_port)


def _shared_pod(environ: abc.Mapping[str, str],
                where: str) -> shared_pod.SharedPod:
    """Create the BMCs of a shared pod.

    :param where: 'namespace/name' of the ConfigMap
    :raises: `Invalid`, `errors.ConfigError`
    """
    if not re.fullmatch(_VM, where):
        raise Invalid('VIRTBMC_SHARED must be namespace/name of a ConfigMap, '
                      f'not {where!r}')
    health_port = port(environ, 'VIRTBMC_HEALTH_PORT', HEALTH_PORT)
    from sushy_kubevirt.kube import objects
    from vbmc_kubevirt import shared_pod
    return shared_pod.SharedPod(objects.ObjectKey(*where.split('/')),
                                environ.get('POD_IP') or '0.0.0.0',
                                health_port)


def _redfish(environ: abc.MutableMapping[str, str]
             ) -> redfish_service.RedfishService:
    """Create the service of Redfish.

    :raises: `Invalid`
    """
    if not any(map(environ.get, _CONFIGS)):
        raise Invalid(f"{' or '.join(_CONFIGS)} has to name a config file")
    http_port = port(environ, 'VIRTBMC_HTTP_PORT', None)
    if not environ.get('SUSHY_EMULATOR_CONFIG'):
        environ['SUSHY_EMULATOR_CONFIG'] = EMULATOR_CONFIG
    # The import reads the config file and starts the watches.
    from sushy_tools.emulator import main as emulator

    if getattr(emulator.app, 'sushy_kubevirt', None) is None or (
            emulator.app.sushy_kubevirt.services is None):
        raise Invalid(
            f"{environ['SUSHY_EMULATOR_CONFIG']} does not enable the driver "
            'kubevirt: see etc/sushy-emulator/kubevirt.conf; other drivers '
            'need sushy-emulator')
    from sushy_kubevirt.pod import redfish_service
    return redfish_service.RedfishService(emulator.app, http_port)


if __name__ == '__main__':
    sys.exit(main())
