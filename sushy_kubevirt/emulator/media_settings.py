# SPDX-License-Identifier: Apache-2.0
"""What the options of virtual media in a config file may be.

Their names are in `settings`, what they do in `kubevirt.media`.
"""

from urllib import parse

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import options

MODES = ('auto', 'import', 'upload')

_DAY = 86400

# Each takes a value of the config file and returns it as it is used, or
# raises ValueError.


def mode(value):
    """Who fetches images."""
    if value not in MODES:
        raise ValueError(f"must be one of {', '.join(MODES)}")
    return value


def wait(value):
    """Whether an insert waits for its end, or how long: seconds, 0 for not.
    """
    if value is True:
        return options.MediaOptions.wait_seconds
    if not isinstance(value, (int, float)) or not 0 <= value < _DAY:
        raise ValueError('must be True, False or a number of seconds')
    return float(value)


def hosts(value):
    """A list of hosts and networks."""
    if not isinstance(value, (list, tuple)) or not all(
            isinstance(item, str) for item in value):
        raise ValueError('must be a list of names, *.domains, addresses and '
                         'networks')
    for item in value:
        url_policy.network(item)
    return tuple(value)


def certificates(value):
    """Path of a file with certificates."""
    if not isinstance(value, str) or not value:
        raise ValueError('must be the path of a file')
    try:
        tls.context(True, tls.bundle(
            options.MediaOptions(ca_file=value)))
    except errors.ConfigError as exc:
        raise ValueError(f'cannot be used: {exc}') from None
    return value


def size(value):
    """Bytes, also in Kubernetes' notation."""
    found = None if isinstance(value, bool) else quantity.whole(value)
    if not found or found < 0:
        raise ValueError("must be bytes, such as 4294967296 or '4Gi'")
    return found


def url(value):
    """Where CDI's upload proxy is."""
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


def media_options(given):
    """Put the options together.

    :param given: dict of field to checked value
    :returns: `kubevirt.options.MediaOptions`
    """
    given = dict(given)
    if 'wait_seconds' in given:
        given['wait'] = given['wait_seconds'] > 0
        if not given['wait']:
            del given['wait_seconds']
    return options.MediaOptions(**given)
