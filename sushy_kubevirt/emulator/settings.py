# SPDX-License-Identifier: Apache-2.0
"""Options of the kubevirt driver in sushy-emulator's config file.

Reads and checks them. Every invalid or unknown option is reported at startup
with its name and value.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import ipaddress
import re
import sys
import typing
import uuid

from sushy_kubevirt.emulator import media_settings
from sushy_kubevirt.machine import options
from sushy_kubevirt.redfish.services.events import event_options

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine as machine_

_Network: typing.TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

PREFIX = 'SUSHY_EMULATOR_KUBEVIRT_'

#: Upstream's option that lists the systems that clients may access.
ALLOWED = 'SUSHY_EMULATOR_ALLOWED_INSTANCES'

#: Upstream's option that disables switching systems off.
DISABLE_POWER_OFF = 'SUSHY_EMULATOR_DISABLE_POWER_OFF'

#: Upstream's option that names a file of users and digests.
AUTH_FILE = 'SUSHY_EMULATOR_AUTH_FILE'

#: Protocols of `Settings.service_ports`.
PROTOCOLS = ('HTTP', 'HTTPS', 'IPMI')

RUN_STRATEGIES = ('RerunOnFailure', 'Always', 'Manual')

#: Value of the option NAMESPACES for all namespaces.
ALL = '*'

_LABEL = re.compile(r'[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?')
_NAME = re.compile(r'(?=.{1,253}\Z)[a-z0-9]([-.a-z0-9]*[a-z0-9])?')


class InvalidSettings(Exception):
    """The config file has invalid options; the message has one line for each.
    """


@dataclasses.dataclass(frozen=True)
class Settings:
    """The checked options.

    :param kubeconfig: path of a kubeconfig; None: $KUBECONFIG, the service
        account of the pod, ~/.kube/config
    :param context: name of a context in it; None for its current one
    :param namespaces: () for all; None for that of the kubeconfig's context
        or the service account
    :param label_selector: Kubernetes label selector
    :param vm: 'namespace/name' of the only VM that is served, or None
    :param allowed: UUIDs, 'namespace/name' and, with a single namespace,
        names; None for all
    :param power_off: whether systems may be switched off
    :param accounts: paths of files and folders with accounts; empty for
        access without authentication
    :param account_management: whether clients may create accounts
    :param session_timeout: seconds
    :param host_names: see `served_hosts.serves`
    :param state_secret: 'namespace/name' of the Secret that stores
        subscriptions and the services' settings; None for the default name
    :param service_ports: (protocol, port), as clients use them; empty for
        what the request shows
    :param web_page: whether the web page is served
    :param web_modules: path of the folder with xterm.js and noVNC
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] | None = None
    label_selector: str = ''
    vm: str | None = None
    allowed: frozenset[str] | None = None
    power_off: bool = True
    accounts: tuple[str, ...] = ()
    account_management: bool = True
    session_timeout: int = 1800
    trusted_proxies: tuple[_Network, ...] = ()
    host_names: tuple[str, ...] = ()
    state_secret: str | None = None
    service_ports: tuple[tuple[str, int], ...] = ()
    web_page: bool = True
    web_modules: str = sys.prefix + '/share/sushy-kubevirt/web'
    events: event_options.EventOptions = event_options.EventOptions()
    machine: options.Options = options.Options()

    def allows(self, machine: machine_.Machine) -> bool:
        """Return whether clients may access a system and get its events."""
        if (self.allowed is None or machine.uuid in self.allowed
                or machine.qualified_name in self.allowed):
            return True
        # `read` allows names only with a single namespace. A UUID in the list
        # is not a name, even if a VM is named like one.
        return machine.name in self.allowed and not is_uuid(machine.name)


def is_vm(text: str) -> bool:
    """Return whether a text is a VM's qualified name, 'namespace/name'."""
    namespace, slash, name = text.partition('/')
    return bool(slash and _LABEL.fullmatch(namespace)
                and _NAME.fullmatch(name))


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID, in any notation."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _text(value: typing.Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError('must be a non-empty string')
    return value


def _namespaces(value: typing.Any) -> tuple[str, ...]:
    if value == ALL:
        return ()
    if isinstance(value, str):
        value = [value]
    if (not isinstance(value, (list, tuple)) or not value
            or not all(isinstance(item, str) and _LABEL.fullmatch(item)
                       for item in value)):
        raise ValueError(
            f'must be a namespace, a list of them, or {ALL!r} for all')
    return tuple(dict.fromkeys(value))


def _vm(value: typing.Any) -> str:
    if not isinstance(value, str) or not is_vm(value):
        raise ValueError("must be one VM as 'namespace/name'")
    return value


def _secret(value: typing.Any) -> str:
    if not isinstance(value, str) or not is_vm(value):
        raise ValueError("must be one Secret as 'namespace/name'")
    return value


def _number(value: typing.Any) -> int:
    if (isinstance(value, bool) or not isinstance(value, int)
            or not 0 <= value <= 1000):
        raise ValueError('must be a number from 0 to 1000')
    return value


def _run_strategy(value: typing.Any) -> str:
    if value not in RUN_STRATEGIES:
        raise ValueError(f"must be one of {', '.join(RUN_STRATEGIES)}")
    return value


def _seconds(value: typing.Any) -> float:
    if (isinstance(value, bool) or not isinstance(value, (int, float))
            or not 0 < value < 86400):
        raise ValueError('must be a number of seconds above 0')
    return float(value)


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


def _true_or_false(value: typing.Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError('must be True or False')
    return value


def _paths(value: typing.Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if (not isinstance(value, (list, tuple)) or not value
            or not all(isinstance(item, str) and item for item in value)):
        raise ValueError('must be the path of a file or folder, or a list '
                         'of them')
    return tuple(dict.fromkeys(value))


def _session_timeout(value: typing.Any) -> int:
    if (isinstance(value, bool) or not isinstance(value, int)
            or not 30 <= value <= 86400):
        raise ValueError('must be a number of seconds from 30 to 86400')
    return value


def _networks(value: typing.Any) -> tuple[_Network, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise ValueError('must be a list of addresses or networks')
    try:
        return tuple(map(ipaddress.ip_network, value))
    except ValueError as exc:
        raise ValueError(
            f'must contain addresses or networks: {exc}') from None


def _host_names(value: typing.Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
            isinstance(name, str) and (
                name == ALL or _NAME.fullmatch(name.removeprefix('*.')))
            for name in value):
        raise ValueError("must be a list of names in lower case and "
                         "'*.domain', or ['*'] for all")
    return tuple(value)


def _service_ports(value: typing.Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict) or not all(
            name in PROTOCOLS and isinstance(port, int)
            and not isinstance(port, bool) and 0 < port < 65536
            for name, port in value.items()):
        raise ValueError(f"must be a dict of {', '.join(PROTOCOLS)} to ports")
    return tuple(sorted(value.items()))


def _option_names(value: typing.Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
            PREFIX + str(option) in OPTIONS and isinstance(name, str) and name
            for option, name in value.items()):
        raise ValueError('must be a dict of options, without '
                         f'{PREFIX}, to their names in messages')
    return value


_Table: typing.TypeAlias = dict[
    str, tuple[str, abc.Callable[[typing.Any], object]]]

# Option without prefix: (field, function that checks the value).
_SCOPE: _Table = {
    'KUBECONFIG': ('kubeconfig', _text),
    'CONTEXT': ('context', _text),
    'NAMESPACES': ('namespaces', _namespaces),
    'LABEL_SELECTOR': ('label_selector', _text),
    'VM': ('vm', _vm),
}
_SERVICES: _Table = {
    'STATE_SECRET': ('state_secret', _secret),
    'ACCOUNTS': ('accounts', _paths),
    'ACCOUNT_MANAGEMENT': ('account_management', _true_or_false),
    'SESSION_TIMEOUT': ('session_timeout', _session_timeout),
    'TRUSTED_PROXIES': ('trusted_proxies', _networks),
    'HOST_NAMES': ('host_names', _host_names),
    'SERVICE_PORTS': ('service_ports', _service_ports),
    'WEB_PAGE': ('web_page', _true_or_false),
    'WEB_MODULES': ('web_modules', _text),
}
_EVENTS: _Table = {
    'EVENT_ALLOWED_HOSTS': ('allowed_hosts', media_settings.hosts),
    'EVENT_DENIED_HOSTS': ('denied_hosts', media_settings.denied_hosts),
    'EVENT_DENIED_HOSTS_FILE': ('denied_hosts_file',
                                media_settings.hosts_file),
    'EVENT_DENIED_EXCEPT': ('denied_except', media_settings.hosts),
    'EVENT_ALLOW_LOOPBACK': ('allow_loopback', _true_or_false),
    'EVENT_ALLOW_LINK_LOCAL': ('allow_link_local', _true_or_false),
    'EVENT_SUBSCRIPTIONS': ('subscriptions', _number),
    'EVENT_STREAMS': ('streams', _number),
    'EVENT_LOG': ('log', _true_or_false),
}
_MACHINE: _Table = {
    'RUN_STRATEGY': ('run_strategy', _run_strategy),
    'REBOOT_POLICY': ('reboot_policy', _true_or_false),
    'WRITE_DEADLINE': ('write_deadline', _seconds),
    'READ_DEADLINE': ('read_deadline', _seconds),
    'STALE_SECONDS': ('stale_seconds', _seconds),
    'WATCH_SECONDS': ('watch_seconds', _seconds),
}
_MEDIA: _Table = {
    'MEDIA_STORAGE_CLASS': ('storage_class', _text),
    'MEDIA_ACCESS_MODE': ('access_mode', _text),
    'MEDIA_MINIMUM_SIZE': ('minimum_size', media_settings.size),
    'MEDIA_DEFAULT_SIZE': ('default_size', media_settings.size),
    'MEDIA_MODE': ('mode', media_settings.mode),
    'MEDIA_WAIT': ('wait_seconds', media_settings.wait),
    'MEDIA_PROBE_SECONDS': ('probe_seconds', _seconds),
    'MEDIA_ALLOWED_HOSTS': ('allowed_hosts', media_settings.hosts),
    'MEDIA_DENIED_HOSTS': ('denied_hosts', media_settings.denied_hosts),
    'MEDIA_DENIED_HOSTS_FILE': ('denied_hosts_file',
                                media_settings.hosts_file),
    'MEDIA_DENIED_EXCEPT': ('denied_except', media_settings.hosts),
    'MEDIA_ALLOW_LOOPBACK': ('allow_loopback', _true_or_false),
    'MEDIA_ALLOW_LINK_LOCAL': ('allow_link_local', _true_or_false),
    'MEDIA_CA_FILE': ('ca_file', media_settings.certificates),
    'MEDIA_VERIFY': ('verify', _true_or_false),
    'MEDIA_UPLOAD_PROXY_URL': ('upload_proxy_url', media_settings.url),
    'MEDIA_UPLOAD_PROXY_CA': ('upload_proxy_ca',
                              media_settings.certificates),
}

_OPTION_NAMES = 'OPTION_NAMES'

#: Names of all options of this driver.
OPTIONS = tuple(PREFIX + name for name in (
    *_SCOPE, *_SERVICES, *_EVENTS, *_MACHINE, *_MEDIA, _OPTION_NAMES))


def _names(table: _Table, names: dict[str, str] | None) -> dict[str, str]:
    """Name the options of a table in messages.

    :param table: `_MEDIA` or `_EVENTS`
    :param names: value of OPTION_NAMES; None for the options' own names
    :returns: by field
    """
    return {field: PREFIX + option if names is None else names[option]
            for option, (field, _check) in table.items()
            if names is None or option in names}


def read(config: abc.Mapping[str, typing.Any]) -> Settings:
    """Check the options.

    :param config: all options in sushy-emulator's config file
    :raises: `InvalidSettings` that names every invalid option
    """
    problems: list[str] = []

    def take(name: str, check: abc.Callable[[typing.Any], object]
             ) -> typing.Any:
        value = config.get(name)
        if value is None:
            return None
        try:
            return check(value)
        except ValueError as exc:
            problems.append(f'{name} {exc}; it is {value!r}')

    fields = {field: take(PREFIX + name, check)
              for name, (field, check) in {**_SCOPE, **_SERVICES}.items()}
    machine = {field: take(PREFIX + name, check)
               for name, (field, check) in _MACHINE.items()}
    media = {field: take(PREFIX + name, check)
             for name, (field, check) in _MEDIA.items()}
    events = {field: take(PREFIX + name, check)
              for name, (field, check) in _EVENTS.items()}
    names = take(PREFIX + _OPTION_NAMES, _option_names)
    media['names'] = _names(_MEDIA, names)
    events['names'] = _names(_EVENTS, names)
    fields['allowed'] = take(ALLOWED, _allowed)
    auth_file = take(AUTH_FILE, _text)
    if auth_file:
        fields['accounts'] = tuple(dict.fromkeys(
            (auth_file, *(fields['accounts'] or ()))))
    power_off_disabled = take(DISABLE_POWER_OFF, _true_or_false)

    for name in sorted(config):
        if name.startswith(PREFIX) and name not in OPTIONS:
            problems.append(f'{name} is not an option; the options are '
                            + ', '.join(OPTIONS))
    if fields['vm'] and fields['namespaces'] is not None:
        problems.append(f'{PREFIX}VM includes the namespace; remove '
                        f'{PREFIX}NAMESPACES')
    if fields['namespaces'] is not None and len(fields['namespaces']) != 1:
        # A VM of that name in another namespace would be accessible too.
        names = sorted(item for item in fields['allowed'] or ()
                       if not is_uuid(item) and not is_vm(item))
        if names:
            problems.append(
                f"{ALLOWED}: with more than one namespace, {', '.join(names)} "
                "must be given as 'namespace/name'")
    if problems:
        raise InvalidSettings('\n'.join(problems))

    def given(values: dict[str, typing.Any]) -> dict[str, typing.Any]:
        return {field: value for field, value in values.items()
                if value is not None}

    return Settings(**given(fields), power_off=not power_off_disabled,
                    events=event_options.EventOptions(**given(events)),
                    machine=options.Options(
                        **given(machine),
                        media=media_settings.media_options(given(media))))
