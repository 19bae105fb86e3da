# SPDX-License-Identifier: Apache-2.0
"""Options of the kubevirt driver in sushy-emulator's config file.

Reads and checks them. Every invalid or unknown option is reported at startup
with its name and value.
"""

from __future__ import annotations

from collections import abc
import ipaddress
import re
import typing
from urllib import parse
import uuid

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import options
from sushy_kubevirt.redfish.services.events import event_options
from sushy_kubevirt.redfish.services import settings

#: Takes the value in the config file and returns that of the field, or raises
#: ValueError.
_Check: typing.TypeAlias = abc.Callable[[typing.Any], object]

PREFIX = 'SUSHY_EMULATOR_KUBEVIRT_'

#: Upstream's option that lists the systems that clients may access.
ALLOWED = 'SUSHY_EMULATOR_ALLOWED_INSTANCES'

#: Upstream's option that disables switching systems off.
DISABLE_POWER_OFF = 'SUSHY_EMULATOR_DISABLE_POWER_OFF'

#: Upstream's option that names a file of users and digests.
AUTH_FILE = 'SUSHY_EMULATOR_AUTH_FILE'

#: Protocols of `Settings.service_ports`.
PROTOCOLS = ('HTTP', 'HTTPS', 'IPMI')

#: Value of the option NAMESPACES for all namespaces.
ALL = '*'

_DAY = 86400

_LABEL = re.compile(r'[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?')
_NAME = re.compile(r'(?=.{1,253}\Z)[a-z0-9]([-.a-z0-9]*[a-z0-9])?')


class InvalidSettings(Exception):
    """The config file has invalid options; the message has one line for each.
    """


def is_vm(value: object) -> bool:
    """Return whether a value is a VM's qualified name, 'namespace/name'."""
    if not isinstance(value, str):
        return False
    namespace, slash, name = value.partition('/')
    return bool(slash and _LABEL.fullmatch(namespace)
                and _NAME.fullmatch(name))


# Checks

def _checked(valid: abc.Callable[[typing.Any], object], must: str,
             convert: _Check = lambda value: value) -> _Check:
    """Build a check.

    :param valid: tells whether a value is valid
    :param must: message about one that is not
    """
    def check(value: typing.Any) -> object:
        if not valid(value):
            raise ValueError(must)
        return convert(value)

    return check


def _is_number(value: object, *types: type) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def _is_list(value: object, valid: abc.Callable[[str], object]) -> bool:
    """Return whether a value is a list of valid texts."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(item, str) and valid(item) for item in value)


def _listed(value: typing.Any) -> typing.Any:
    """Return a list where a single text is allowed instead of it."""
    return [value] if isinstance(value, str) else value


def _choice(*choices: str) -> _Check:
    return _checked(lambda value: value in choices,
                    f"must be one of {', '.join(choices)}")


def _file(use: abc.Callable[[str], object]) -> _Check:
    """Build the check of a file's path.

    :param use: raises `errors.ConfigError` if the file cannot be used
    """
    def check(value: typing.Any) -> object:
        try:
            use(value)
        except errors.ConfigError as exc:
            raise ValueError(f'cannot be used: {exc}') from None
        return value

    return _checked(lambda value: isinstance(value, str) and value,
                    'must be the path of a file', check)


_text = _checked(lambda value: isinstance(value, str) and value,
                 'must be a non-empty string')
_true_or_false = _checked(lambda value: isinstance(value, bool),
                          'must be True or False')
_number = _checked(
    lambda value: _is_number(value, int) and 0 <= value <= 1000,
    'must be a number from 0 to 1000')
_percent = _checked(
    lambda value: _is_number(value, int) and value in options.SIZE_MARGINS,
    f'must be a number of per cent from 0 to {options.SIZE_MARGINS[-1]}')
_session_timeout = _checked(
    lambda value: _is_number(value, int) and 30 <= value <= _DAY,
    'must be a number of seconds from 30 to 86400')
_seconds = _checked(
    lambda value: _is_number(value, int, float) and 0 < value < _DAY,
    'must be a number of seconds above 0', float)
_paths = _checked(
    lambda value: value and _is_list(_listed(value), bool),
    'must be the path of a file or folder, or a list of them',
    lambda value: tuple(dict.fromkeys(_listed(value))))
_host_names = _checked(
    lambda value: _is_list(value, lambda name: name == ALL
                           or _NAME.fullmatch(name.removeprefix('*.'))),
    "must be a list of names in lower case and '*.domain', or ['*'] for all",
    tuple)
_service_ports = _checked(
    lambda value: isinstance(value, dict) and all(
        name in PROTOCOLS and _is_number(port, int) and 0 < port < 65536
        for name, port in value.items()),
    f"must be a dict of {', '.join(PROTOCOLS)} to ports",
    lambda value: tuple(sorted(value.items())))
_option_names = _checked(
    # A newer operator may name options that do not exist yet.
    lambda value: isinstance(value, dict) and all(
        isinstance(name, str) and name for name in value.values()),
    f'must be a dict of options, without {PREFIX}, to their names in '
    'messages')


def _namespaces(value: typing.Any) -> tuple[str, ...]:
    if value == ALL:
        return ()
    if not value or not _is_list(_listed(value), _LABEL.fullmatch):
        raise ValueError(
            f'must be a namespace, a list of them, or {ALL!r} for all')
    return tuple(dict.fromkeys(_listed(value)))


def _allowed(value: typing.Any) -> frozenset[str]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueError('must be a list')
    allowed = set()
    for item in value:
        try:
            allowed.add(str(uuid.UUID(item)))
            continue
        except (AttributeError, TypeError, ValueError):
            pass
        if not isinstance(item, str) or not (
                is_vm(item) or _NAME.fullmatch(item)):
            raise ValueError(
                f"must contain UUIDs, 'namespace/name' or names, not {item!r}")
        allowed.add(item)
    return frozenset(allowed)


def _networks(value: typing.Any) -> tuple[settings.Network, ...]:
    if not isinstance(_listed(value), (list, tuple)):
        raise ValueError('must be a list of addresses or networks')
    try:
        return tuple(map(ipaddress.ip_network, _listed(value)))
    except ValueError as exc:
        raise ValueError(
            f'must contain addresses or networks: {exc}') from None


def _wait(value: typing.Any) -> float:
    """Check whether and how long an insert waits; return seconds."""
    if value is True:
        return options.MediaOptions.wait_seconds
    if not isinstance(value, (int, float)) or not 0 <= value < _DAY:
        raise ValueError('must be True, False or a number of seconds')
    return float(value)


def _hosts(value: typing.Any) -> tuple[str, ...]:
    """Check a list of hosts and networks."""
    if not _is_list(value, lambda item: True):
        raise ValueError('must be a list of names, *.domains, addresses and '
                         'networks')
    for item in value:
        url_policy.network(item)
    return tuple(value)


def _denied_hosts(value: typing.Any) -> tuple[str, ...]:
    """Check a list of hosts, networks, and addresses with a port."""
    if isinstance(value, (list, tuple)):
        _hosts([item for item in value if not isinstance(item, str)
                or url_policy.address_and_port(item) is None])
        return tuple(value)
    return _hosts(value)


def _size(value: typing.Any) -> int:
    """Check a size in bytes or as a Kubernetes quantity; return bytes."""
    number = None if isinstance(value, bool) else quantity.to_int(value)
    if not number or number < 0:
        raise ValueError("must be bytes, such as 4294967296 or '4Gi'")
    return number


def _is_url(value: typing.Any) -> bool:
    try:
        parts = parse.urlsplit(value)
        return bool(parts.scheme in ('http', 'https') and parts.hostname
                    and parts.port != 0 and not parts.query
                    and parts.username is None)
    except (AttributeError, TypeError, ValueError):
        return False


_certificates = _file(lambda path: tls.context(True, tls.bundle(
    options.MediaOptions(ca_file=path))))

# Option without prefix: (field, check).
_Table: typing.TypeAlias = dict[str, tuple[str, _Check]]

_SERVICE: _Table = {
    'KUBECONFIG': ('kubeconfig', _text),
    'CONTEXT': ('context', _text),
    'NAMESPACES': ('namespaces', _namespaces),
    'LABEL_SELECTOR': ('label_selector', _text),
    'VM': ('vm', _checked(is_vm, "must be one VM as 'namespace/name'")),
    'STATE_SECRET': ('state_secret', _checked(
        is_vm, "must be one Secret as 'namespace/name'")),
    'ACCOUNTS': ('accounts', _paths),
    'ACCOUNT_MANAGEMENT': ('account_management', _true_or_false),
    'SESSION_TIMEOUT': ('session_timeout', _session_timeout),
    'TRUSTED_PROXIES': ('trusted_proxies', _networks),
    'HOST_NAMES': ('host_names', _host_names),
    'SERVICE_PORTS': ('service_ports', _service_ports),
    'WEB_PAGE': ('web_page', _true_or_false),
    'WEB_MODULES': ('web_modules', _text),
}
# Of `options.UrlOptions`, with the prefixes EVENT_ and MEDIA_.
_URLS: _Table = {
    'ALLOWED_HOSTS': ('allowed_hosts', _hosts),
    'DENIED_HOSTS': ('denied_hosts', _denied_hosts),
    'DENIED_HOSTS_FILE': ('denied_hosts_file', _file(
        lambda path: _denied_hosts(url_policy.read_hosts(path)))),
    'DENIED_EXCEPT': ('denied_except', _hosts),
    'ALLOW_LOOPBACK': ('allow_loopback', _true_or_false),
    'ALLOW_LINK_LOCAL': ('allow_link_local', _true_or_false),
}
_EVENTS: _Table = {
    **{'EVENT_' + name: row for name, row in _URLS.items()},
    'EVENT_SUBSCRIPTIONS': ('subscriptions', _number),
    'EVENT_STREAMS': ('streams', _number),
    'EVENT_LOG': ('log', _true_or_false),
}
_MACHINE: _Table = {
    'RUN_STRATEGY': ('run_strategy', _choice(
        'RerunOnFailure', 'Always', 'Manual')),
    'REBOOT_POLICY': ('reboot_policy', _true_or_false),
    'WRITE_DEADLINE': ('write_deadline', _seconds),
    'READ_DEADLINE': ('read_deadline', _seconds),
    'STALE_SECONDS': ('stale_seconds', _seconds),
    'WATCH_SECONDS': ('watch_seconds', _seconds),
}
_MEDIA: _Table = {
    'MEDIA_STORAGE_CLASS': ('storage_class', _text),
    'MEDIA_ACCESS_MODE': ('access_mode', _text),
    'MEDIA_VOLUME_MODE': ('volume_mode', _choice('Filesystem', 'Block')),
    'MEDIA_SIZE_MARGIN': ('size_margin', _percent),
    'MEDIA_MINIMUM_SIZE': ('minimum_size', _size),
    'MEDIA_DEFAULT_SIZE': ('default_size', _size),
    'MEDIA_MODE': ('mode', _choice('auto', 'import', 'upload')),
    'MEDIA_WAIT': ('wait_seconds', _wait),
    'MEDIA_PROBE_SECONDS': ('probe_seconds', _seconds),
    **{'MEDIA_' + name: row for name, row in _URLS.items()},
    'MEDIA_CA_FILE': ('ca_file', _certificates),
    'MEDIA_CA_CONFIG_MAP': ('ca_config_map', _checked(
        lambda value: isinstance(value, str) and _NAME.fullmatch(value),
        'must be the name of a ConfigMap')),
    'MEDIA_VERIFY': ('verify', _true_or_false),
    'MEDIA_UPLOAD_PROXY_URL': ('upload_proxy_url', _checked(
        _is_url, 'must be a URL such as https://cdi-uploadproxy.cdi.svc')),
    'MEDIA_UPLOAD_PROXY_CA': ('upload_proxy_ca', _certificates),
}

_OPTION_NAMES = 'OPTION_NAMES'

#: Names of all options of this driver.
OPTIONS: tuple[str, ...] = tuple(PREFIX + name for name in (
    *_SERVICE, *_EVENTS, *_MACHINE, *_MEDIA, _OPTION_NAMES))


def _names(table: _Table, names: dict[str, str] | None) -> dict[str, str]:
    """Name the options of a table in messages.

    :param table: `_MEDIA` or `_EVENTS`
    :param names: value of OPTION_NAMES; None for the options' own names
    :returns: by field
    """
    return {field: PREFIX + option if names is None else names[option]
            for option, (field, _check) in table.items()
            if names is None or option in names}


def read(config: abc.Mapping[str, typing.Any]) -> settings.Settings:
    """Check the options.

    :param config: all options in sushy-emulator's config file
    :raises: `InvalidSettings` that names every invalid option
    """
    problems: list[str] = []

    def take(name: str, check: _Check) -> typing.Any:
        value = config.get(name)
        if value is None:
            return None
        try:
            return check(value)
        except ValueError as exc:
            problems.append(f'{name} {exc}; it is {value!r}')

    def given(table: _Table) -> dict[str, typing.Any]:
        return {field: value for name, (field, check) in table.items()
                if (value := take(PREFIX + name, check)) is not None}

    fields, machine = given(_SERVICE), given(_MACHINE)
    media, events = given(_MEDIA), given(_EVENTS)
    if seconds := media.pop('wait_seconds', 0):
        media.update(wait=True, wait_seconds=seconds)
    names = take(PREFIX + _OPTION_NAMES, _option_names)
    fields['allowed'] = take(ALLOWED, _allowed)
    auth_file = take(AUTH_FILE, _text)
    if auth_file:
        fields['accounts'] = tuple(dict.fromkeys(
            (auth_file, *fields.get('accounts', ()))))
    power_off_disabled = take(DISABLE_POWER_OFF, _true_or_false)
    problems += _conflicts(config, fields)
    if problems:
        raise InvalidSettings('\n'.join(problems))
    return settings.Settings(
        **fields, power_off=not power_off_disabled,
        events=event_options.EventOptions(
            **events, names=_names(_EVENTS, names)),
        machine=options.Options(**machine, media=options.MediaOptions(
            **media, names=_names(_MEDIA, names))))


def _conflicts(config: abc.Mapping[str, typing.Any],
               fields: dict[str, typing.Any]) -> abc.Iterator[str]:
    """Yield what is wrong with options that are valid by themselves.

    :param fields: those of `Settings` that are given
    """
    for name in sorted(config):
        if name.startswith(PREFIX) and name not in OPTIONS:
            yield (f'{name} is not an option; the options are '
                   + ', '.join(OPTIONS))
    namespaces = fields.get('namespaces')
    if namespaces is None:
        return
    if 'vm' in fields:
        yield (f'{PREFIX}VM includes the namespace; remove '
               f'{PREFIX}NAMESPACES')
    # A VM of that name in another namespace would be accessible too.
    names = sorted(item for item in fields['allowed'] or ()
                   if not settings.is_uuid(item) and not is_vm(item))
    if names and len(namespaces) != 1:
        yield (f"{ALLOWED}: with more than one namespace, {', '.join(names)} "
               "must be given as 'namespace/name'")
