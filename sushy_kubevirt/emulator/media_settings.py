# SPDX-License-Identifier: Apache-2.0
"""Checks of the virtual media options in sushy-emulator's config file.

The options' names are in `settings`, their meaning in
`machine.options.MediaOptions`.
"""

from __future__ import annotations

import typing
from urllib import parse

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import options

MODES = ('auto', 'import', 'upload')

_DAY = 86400

# Each check takes the value from the config file and returns the value of
# the field, or raises ValueError.


def mode(value: typing.Any) -> str:
    """Check who fetches images: one of `MODES`."""
    if value not in MODES:
        raise ValueError(f"must be one of {', '.join(MODES)}")
    return value


def wait(value: typing.Any) -> float:
    """Check whether and how long an insert waits.

    :param value: True, False or seconds
    :returns: seconds, 0 for no wait
    """
    if value is True:
        return options.MediaOptions.wait_seconds
    if not isinstance(value, (int, float)) or not 0 <= value < _DAY:
        raise ValueError('must be True, False or a number of seconds')
    return float(value)


def hosts(value: typing.Any) -> tuple[str, ...]:
    """Check a list of hosts and networks."""
    if not isinstance(value, (list, tuple)) or not all(
            isinstance(item, str) for item in value):
        raise ValueError('must be a list of names, *.domains, addresses and '
                         'networks')
    for item in value:
        url_policy.network(item)
    return tuple(value)


def denied_hosts(value: typing.Any) -> tuple[str, ...]:
    """Check a list of hosts, networks, and addresses with a port."""
    if isinstance(value, (list, tuple)):
        hosts([item for item in value if not isinstance(item, str)
               or url_policy.address_and_port(item) is None])
        return tuple(value)
    return hosts(value)


def hosts_file(value: typing.Any) -> str:
    """Check the path of a file of denied hosts."""
    if not isinstance(value, str) or not value:
        raise ValueError('must be the path of a file')
    try:
        denied_hosts(url_policy.read_hosts(value))
    except errors.ConfigError as exc:
        raise ValueError(f'cannot be used: {exc}') from None
    return value


def certificates(value: typing.Any) -> str:
    """Check the path of a PEM file."""
    if not isinstance(value, str) or not value:
        raise ValueError('must be the path of a file')
    try:
        tls.context(True, tls.bundle(
            options.MediaOptions(ca_file=value)))
    except errors.ConfigError as exc:
        raise ValueError(f'cannot be used: {exc}') from None
    return value


def size(value: typing.Any) -> int:
    """Check a size in bytes or as a Kubernetes quantity.

    :returns: bytes
    """
    number = None if isinstance(value, bool) else quantity.to_int(value)
    if not number or number < 0:
        raise ValueError("must be bytes, such as 4294967296 or '4Gi'")
    return number


def url(value: typing.Any) -> str:
    """Check the URL of CDI's upload proxy."""
    try:
        parts = parse.urlsplit(value)
        good = (parts.scheme in ('http', 'https') and parts.hostname
                and parts.port != 0 and not parts.query
                and parts.username is None)
    except (AttributeError, TypeError, ValueError):
        good = False
    if not good:
        raise ValueError('must be a URL such as '
                         'https://cdi-uploadproxy.cdi.svc')
    return value


def media_options(given: dict[str, typing.Any]) -> options.MediaOptions:
    """Build the options of virtual media.

    :param given: checked values by field
    """
    given = dict(given)
    if 'wait_seconds' in given:
        given['wait'] = given['wait_seconds'] > 0
        if not given['wait']:
            del given['wait_seconds']
    return options.MediaOptions(**given)
