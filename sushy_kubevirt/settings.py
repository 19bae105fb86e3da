# SPDX-License-Identifier: Apache-2.0
"""The kubevirt driver's options in sushy-emulator's config file.

Reads and checks them; what they do is in the rooms that use them. An option
that is wrong is told at the start, with its name and value, since nobody
looks for a misspelt option at three in the morning.
"""

import dataclasses
import re
import uuid

from sushy_kubevirt.kubevirt import options

PREFIX = 'SUSHY_EMULATOR_KUBEVIRT_'

#: Upstream's option that lists the systems that may be reached.
ALLOWED = 'SUSHY_EMULATOR_ALLOWED_INSTANCES'

#: Upstream's option that refuses to switch systems off.
DISABLE_POWER_OFF = 'SUSHY_EMULATOR_DISABLE_POWER_OFF'

RUN_STRATEGIES = ('RerunOnFailure', 'Always', 'Manual')

#: In place of a list of namespaces: all of them.
ALL = '*'

_LABEL = re.compile(r'[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?')
_NAME = re.compile(r'(?=.{1,253}\Z)[a-z0-9]([-.a-z0-9]*[a-z0-9])?')


class InvalidSettings(Exception):
    """The config file holds options that cannot be used."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options, checked.

    :param kubeconfig: path of a kubeconfig; None: $KUBECONFIG, the account
        of the pod, ~/.kube/config
    :param context: name of a context in it; None for its current one
    :param namespaces: tuple of names; () for all; None for the one the
        kubeconfig or the account names
    :param label_selector: text
    :param vm: 'namespace/name' of the only VM there is, or None
    :param allowed: frozenset of UUIDs, 'namespace/name' and, with a single
        namespace, names; None for all
    :param power_off: whether systems may be switched off
    :param machine: `options.Options`
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple | None = None
    label_selector: str = ''
    vm: str | None = None
    allowed: frozenset | None = None
    power_off: bool = True
    machine: options.Options = options.Options()


def is_vm(text):
    """Whether this is the qualified name of a VM: namespace/name."""
    namespace, slash, name = text.partition('/')
    return bool(slash and _LABEL.fullmatch(namespace)
                and _NAME.fullmatch(name))


def is_uuid(text):
    """Whether this is a UUID, in whichever notation."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _text(value):
    if not isinstance(value, str) or not value:
        raise ValueError('must be a text that is not empty')
    return value


def _namespaces(value):
    if value == ALL:
        return ()
    if isinstance(value, str):
        value = [value]
    if (not isinstance(value, (list, tuple)) or not value
            or not all(isinstance(item, str) and _LABEL.fullmatch(item)
                       for item in value)):
        raise ValueError('must be a namespace, a list of them, or %r for all'
                         % ALL)
    return tuple(dict.fromkeys(value))


def _vm(value):
    if not isinstance(value, str) or not is_vm(value):
        raise ValueError("must be one VM as 'namespace/name'")
    return value


def _run_strategy(value):
    if value not in RUN_STRATEGIES:
        raise ValueError('must be one of %s' % ', '.join(RUN_STRATEGIES))
    return value


def _seconds(value):
    if (isinstance(value, bool) or not isinstance(value, (int, float))
            or not 0 < value < 86400):
        raise ValueError('must be a number of seconds above 0')
    return float(value)


def _allowed(value):
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueError('must be a list')
    found = set()
    for item in value:
        try:
            found.add(str(uuid.UUID(item)))
            continue
        except (AttributeError, TypeError, ValueError):
            pass
        if not isinstance(item, str) or not (
                is_vm(item) or _NAME.fullmatch(item)):
            raise ValueError(
                "must hold UUIDs, 'namespace/name' or names, not %r"
                % (item,))
        found.add(item)
    return frozenset(found)


def _true_or_false(value):
    if not isinstance(value, bool):
        raise ValueError('must be True or False')
    return value


# Option (without prefix): its field, and what checks it.
_SCOPE = {
    'KUBECONFIG': ('kubeconfig', _text),
    'CONTEXT': ('context', _text),
    'NAMESPACES': ('namespaces', _namespaces),
    'LABEL_SELECTOR': ('label_selector', _text),
    'VM': ('vm', _vm),
}
_MACHINE = {
    'RUN_STRATEGY': ('run_strategy', _run_strategy),
    'REBOOT_POLICY': ('reboot_policy', _true_or_false),
    'WRITE_DEADLINE': ('write_deadline', _seconds),
    'READ_DEADLINE': ('read_deadline', _seconds),
    'STALE_SECONDS': ('stale_seconds', _seconds),
}

#: Names of all options of this driver.
OPTIONS = tuple(PREFIX + name for name in (*_SCOPE, *_MACHINE))


def read(config):
    """Check the options and put them together.

    :param config: mapping with all that sushy-emulator's config file set
    :returns: `Settings`
    :raises: `InvalidSettings` that names every option that is wrong
    """
    problems = []

    def take(name, check):
        value = config.get(name)
        if value is None:
            return None
        try:
            return check(value)
        except ValueError as exc:
            problems.append('%s %s; it is %r' % (name, exc, value))

    fields = {field: take(PREFIX + name, check)
              for name, (field, check) in _SCOPE.items()}
    machine = {field: take(PREFIX + name, check)
               for name, (field, check) in _MACHINE.items()}
    fields['allowed'] = take(ALLOWED, _allowed)
    power_off_disabled = take(DISABLE_POWER_OFF, _true_or_false)

    for name in sorted(config):
        if name.startswith(PREFIX) and name not in OPTIONS:
            problems.append('%s is no option; there are %s'
                            % (name, ', '.join(OPTIONS)))
    if fields['vm'] and fields['namespaces'] is not None:
        problems.append('%sVM already says which namespace; leave out '
                        '%sNAMESPACES' % (PREFIX, PREFIX))
    if fields['namespaces'] is not None and len(fields['namespaces']) != 1:
        # It would let in whoever makes a VM of that name in another one.
        names = sorted(item for item in fields['allowed'] or ()
                       if not is_uuid(item) and not is_vm(item))
        if names:
            problems.append(
                "%s: with more than one namespace, %s must be given as "
                "'namespace/name'" % (ALLOWED, ', '.join(names)))
    if problems:
        raise InvalidSettings('\n'.join(problems))

    def given(values):
        return {field: value for field, value in values.items()
                if value is not None}

    return Settings(**given(fields), power_off=not power_off_disabled,
                    machine=options.Options(**given(machine)))
