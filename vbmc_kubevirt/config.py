# SPDX-License-Identifier: Apache-2.0
"""The section ``[kubevirt]`` of the daemon's config file."""

import dataclasses

from sushy_kubevirt.machine import options as options_
from sushy_kubevirt.machine import run_strategy
from vbmc_kubevirt import timeouts
from vbmc_kubevirt import upstream

SECTION = 'kubevirt'

#: A day in seconds. NaN and infinity are numbers, too.
_MOST = 86400

_BOOLEANS = {'true': True, 'false': False}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What holds for all entries unless they say otherwise.

    :ivar kubeconfig: path; None for the usual places
    :ivar context: name of a context in it; None for the current one
    :ivar namespace: of VMs whose entry names none; None for the context's
    :ivar options: `options.Options` of the machines
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    options: options_.Options = options_.Options(**timeouts.PATIENCE)


def load():
    """Read the section.

    :returns: `Settings`
    :raises: `upstream.VirtualBMCError`, naming the option and the value
    """
    own = {'kubeconfig': None, 'context': None, 'namespace': None}
    values = dict(timeouts.PATIENCE)
    fields = {field.name: field.type
              for field in dataclasses.fields(options_.Options)
              if field.name != 'media'}     # IPMI has none
    for name, text in upstream.section(SECTION).items():
        if name in own:
            own[name] = text or None
        elif name in fields:
            values[name] = _value(name, text, fields[name])
        else:
            raise upstream.VirtualBMCError(
                'There is no option %s in section [%s]; there are: %s'
                % (name, SECTION, ', '.join([*own, *fields])))
    return Settings(options=options_.Options(**values), **own)


def _value(name, text, kind):
    try:
        if kind is bool:
            return _BOOLEANS[text.lower()]
        value = kind(text)
        # The texts are run strategies, the numbers seconds and sizes.
        if not (value in run_strategy.STARTABLE if kind is str
                else 0 < value < _MOST):
            raise ValueError()
        return value
    except (KeyError, ValueError):
        raise upstream.VirtualBMCError(
            f'Option {name} in section [{SECTION}] cannot be {text!r}')
