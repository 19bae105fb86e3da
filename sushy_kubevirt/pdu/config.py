# SPDX-License-Identifier: Apache-2.0
"""The INI file of virtualpdu, with this project's options in ``[global]``.

Every other section is a PDU. Messages have no values: some are secret.
"""

from __future__ import annotations

from collections import abc
import configparser
import re

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import run_strategy

#: Outlets of virtualpdu's APC rack PDU: 1 to this number.
OUTLETS = 24

_TEXT = '[ -~]+'
_ENGINE = '(0x)?([0-9A-Fa-f]{2}){5,32}'
_OUTLET = r'([1-9]|1\d|2[0-4]):[a-z0-9][-.a-z0-9]*'

#: Patterns of values, by option.
_GLOBAL = {
    'kubevirt_namespace': '[-a-z0-9]+', 'kubevirt_kubeconfig': _TEXT,
    'kubevirt_context': _TEXT,
    'kubevirt_run_strategy': '|'.join(run_strategy.STARTABLE),
    'outlet_default_state': 'ON|OFF'}
_PDU = {
    'listen_address': _TEXT, 'listen_port': r'[1-9]\d{0,4}',
    'ports': f'{_OUTLET}(,{_OUTLET})*',
    'snmp_versions': r'(1|2c|3)(\s*,\s*(1|2c|3))*',
    'community': _TEXT, 'user': _TEXT,
    'auth_protocol': 'NONE|MD5|SHA(224|256|384|512)?', 'auth_key': _TEXT,
    'priv_protocol': 'NONE|3?DES|AES(128|(192|256)(BLMT)?)?',
    'priv_key': _TEXT, 'engine_id': _ENGINE, 'context_engine_id': _ENGINE}


def read(path: str) -> tuple[configparser.RawConfigParser,
                             dict[tuple[str, int], str]]:
    """Read and check a file.

    :returns: its options, and VMs by PDU and outlet
    :raises: `errors.ConfigError` that names section and option
    """
    parser = configparser.RawConfigParser({'snmp_versions': '1,2c'})
    parser.add_section('global')
    mapping: dict[tuple[str, int], str] = {}
    try:
        with open(path) as stream:
            parser.read_file(stream)
        for name in parser.sections():
            if name != 'global':
                mapping.update(_outlets(parser[name]))
        _check(parser['global'], _GLOBAL)
    except configparser.ParsingError as exc:
        # Its text quotes the line.
        line = getattr(exc, 'lineno', None) or exc.errors[0][0]
        raise errors.ConfigError(
            f'{path}: line {line} is not "option = value"') from None
    except (OSError, ValueError, configparser.Error) as exc:
        raise errors.ConfigError(f'{path}: {exc}') from None
    if not mapping:
        raise errors.ConfigError(f'{path}: there is no section of a PDU')
    return parser, mapping


def _check(section: configparser.SectionProxy,
           patterns: abc.Mapping[str, str],
           required: abc.Collection[str] = ()) -> None:
    for name in {**patterns, **section}:
        value = section.get(name, '')
        if name not in patterns and name.startswith('kubevirt_'):
            raise ValueError(f'[{section.name}]: unknown option {name}')
        if not re.fullmatch(patterns.get(name, '.*'), value) and (
                value or name in required):
            raise ValueError(f'[{section.name}]: {name} is '
                             + ('wrong' if value else 'missing'))


def _outlets(section: configparser.SectionProxy
             ) -> dict[tuple[str, int], str]:
    versions = section['snmp_versions']
    required = {'listen_address', 'listen_port', 'ports', 'snmp_versions'}
    if '3' in versions:
        required.add('user')
    if versions.strip('3, '):
        required.add('community')
    for kind in 'auth', 'priv':
        # Upstream would ignore a key without a protocol.
        if section.get(f'{kind}_protocol', 'NONE') != 'NONE' or section.get(
                f'{kind}_key'):
            required |= {f'{kind}_protocol', f'{kind}_key'}
    _check(section, _PDU, required)
    items = [item.split(':') for item in section['ports'].split(',')]
    mapping = {(section.name, int(number)): vm for number, vm in items}
    if len(mapping) < len(items):
        raise ValueError(f'[{section.name}]: ports has an outlet twice')
    return mapping
