# SPDX-License-Identifier: Apache-2.0
"""Settings of the section ``[kubevirt]`` in the daemon's config file."""

from __future__ import annotations

import dataclasses
import re
import typing

from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import run_strategy
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt import upstream

SECTION = 'kubevirt'

#: Upper limit of numbers: a day in seconds. Excludes NaN and infinity.
_MOST = 86400

#: Former names of options, which are accepted as well.
_FORMER_NAMES = {'keeper': 'reconcile'}

# Approximation of Kubernetes' object names.
_SECRET = re.compile('[-a-z0-9]+/[-.a-z0-9]+')

_BOOLEANS = {'true': True, 'false': False}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Defaults of all KubeVirt entries.

    :ivar kubeconfig: path; None for KUBECONFIG or the usual files
    :ivar context: context name; None for the current context
    :ivar namespace: namespace of entries without one; None for the
        context's
    :ivar state_secret: 'namespace/name' of the Secret with the state of all
        BMCs, '' for that of an emulator with default options
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    state_secret: str = ''
    machine_options: options.Options = options.Options(
        **constants.CLUSTER_DEADLINES)


def load() -> Settings:
    """Read the section.

    :raises: `upstream.VirtualBMCError` that names the option and the value
    """
    own: dict[str, typing.Any] = {
        'kubeconfig': None, 'context': None, 'namespace': None,
        'state_secret': ''}
    values: dict[str, typing.Any] = dict(constants.CLUSTER_DEADLINES)
    fields = typing.get_type_hints(options.Options)
    del fields['media']     # not used by IPMI
    for name, text in upstream.section(SECTION).items():
        if name in own:
            own[name] = text or own[name]
        elif (field := _FORMER_NAMES.get(name, name)) in fields:
            values[field] = _value(name, text, fields[field])
        else:
            raise upstream.VirtualBMCError(
                f'Unknown option {name} in section [{SECTION}]; supported: '
                + ', '.join([*own, *fields]))
    if own['state_secret'] and not _SECRET.fullmatch(own['state_secret']):
        raise upstream.VirtualBMCError(
            'Option state_secret in section '
            f'[{SECTION}] must be namespace/name of a Secret, not '
            f"{own['state_secret']!r}")
    return Settings(machine_options=options.Options(**values), **own)


def _value(name: str, text: str,
           kind: type[bool | int | float | str]) -> bool | int | float | str:
    try:
        if kind is bool:
            return _BOOLEANS[text.lower()]
        value = kind(text)
        # Text options are run strategies, numbers are seconds or sizes.
        if not (value in run_strategy.STARTABLE if isinstance(value, str)
                else 0 < value < _MOST):
            raise ValueError()
        return value
    except (KeyError, ValueError):
        raise upstream.VirtualBMCError(
            f'Invalid value {text!r} of option {name} in section '
            f'[{SECTION}]')
