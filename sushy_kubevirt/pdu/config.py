# SPDX-License-Identifier: Apache-2.0
"""The INI file of virtualpdu, checked before virtualpdu reads it.

Section ``[global]`` has this project's options; every other one is a PDU.
Messages have neither communities nor keys.
"""

from __future__ import annotations

from collections import abc
import configparser
import re

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import run_strategy

#: Outlets of virtualpdu's APC rack PDU: 1 to this number.
OUTLETS = 24

_OPTIONS = ('kubevirt_namespace', 'kubevirt_kubeconfig', 'kubevirt_context',
            'kubevirt_run_strategy')

# Approximation of Kubernetes' object names.
_NAME = re.compile(r'[a-z0-9]([-.a-z0-9]*[a-z0-9])?')


def read(path: str) -> tuple[abc.Mapping[str, str], list[str]]:
    """Read and check a file.

    :returns: section ``[global]``, and the names of the VMs
    :raises: `errors.ConfigError` that names section and option
    """
    parser = configparser.RawConfigParser()
    section = 'global'
    try:
        with open(path) as stream:
            parser.read_file(stream)
        if section not in parser:
            raise errors.ConfigError('the section is missing')
        _check_global(parser[section])
        vms: list[str] = []
        for section in parser.sections():
            if section != 'global':
                vms += _check_pdu(parser[section])
    except configparser.ParsingError as exc:
        # Its text quotes the line, which may have a community.
        line = getattr(exc, 'lineno', None) or exc.errors[0][0]
        raise errors.ConfigError(
            f'{path}: line {line} is not "option = value"') from None
    except (OSError, UnicodeDecodeError, configparser.Error) as exc:
        raise errors.ConfigError(f'{path}: {exc}') from None
    except errors.ConfigError as exc:
        raise errors.ConfigError(f'{path}: [{section}]: {exc}') from None
    if not vms:
        raise errors.ConfigError(f'{path}: there is no section of a PDU')
    return parser['global'], vms


def _check_global(options: abc.Mapping[str, str]) -> None:
    for name in options:
        if name.startswith('kubevirt_') and name not in _OPTIONS:
            raise errors.ConfigError(f'unknown option {name}; supported: '
                                     + ', '.join(_OPTIONS))
    strategy = options.get('kubevirt_run_strategy',
                           run_strategy.RERUN_ON_FAILURE)
    if strategy not in run_strategy.STARTABLE:
        raise errors.ConfigError(
            'kubevirt_run_strategy must be one of '
            f"{', '.join(run_strategy.STARTABLE)}, not {strategy!r}")
    if options.get('debug_snmp', 'no') in ('yes', 'true', '1'):
        raise errors.ConfigError(
            'debug_snmp is not supported, as it logs communities and keys')


def _check_pdu(options: abc.Mapping[str, str]) -> abc.Iterator[str]:
    """Yield the VMs of a PDU."""
    port = options.get('listen_port', '')
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise errors.ConfigError(f'listen_port cannot be {port!r}')
    versions = {version.strip() for version in options.get(
        'snmp_versions', '1,2c').split(',')}
    if not versions <= {'1', '2c', '3'}:
        raise errors.ConfigError('snmp_versions must be a list of 1, 2c, 3')
    for name, is_needed in (('listen_address', True), ('ports', True),
                            ('community', versions != {'3'}),
                            ('user', '3' in versions)):
        if is_needed and not options.get(name):
            raise errors.ConfigError(f'{name} is missing')
    for kind in 'auth', 'priv':
        if (options.get(f'{kind}_protocol', 'NONE') == 'NONE') == bool(
                options.get(f'{kind}_key')):
            raise errors.ConfigError(
                f'{kind}_protocol and {kind}_key need each other')
    seen = set()
    for item in options['ports'].split(','):
        number, _, vm = item.partition(':')
        if not (number.isdecimal() and 1 <= int(number) <= OUTLETS
                and int(number) not in seen and _NAME.fullmatch(vm)):
            raise errors.ConfigError(
                f'ports cannot have {item!r}; it is a list, such as '
                f'1:node-0,2:node-1, of outlets from 1 to {OUTLETS} and VMs')
        seen.add(int(number))
        yield vm
