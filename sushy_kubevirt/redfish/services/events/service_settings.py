# SPDX-License-Identifier: Apache-2.0
"""Settings of the event service that clients may change."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret

_SECTION = 'events'

#: Lowest and highest value of each number.
ATTEMPTS = (0, 100)
INTERVAL = (1, 3600)
_LIMITS = {'attempts': ATTEMPTS, 'interval': INTERVAL}


class Settings(typing.NamedTuple):
    """Settings of the event service.

    :param enabled: ServiceEnabled, whether events are sent
    :param attempts: DeliveryRetryAttempts, retries after the first try
    :param interval: DeliveryRetryIntervalSeconds, seconds between retries
    """

    enabled: bool = True
    attempts: int = 3
    interval: int = 10


def cached(state: state_secret.StateSecret) -> Settings:
    """Return the cached settings, without blocking or failing.

    :returns: defaults for values that are absent or invalid
    """
    data = state.cached(_SECTION)
    types = typing.get_type_hints(Settings)
    # Other clients of Kubernetes may have written invalid values.
    return Settings(**{name: value for name, value in data.items()
                       if type(value) is types.get(name)
                       and _is_within(value, _LIMITS.get(name))})


def _is_within(value: int, limits: tuple[int, int] | None) -> bool:
    return limits is None or limits[0] <= value <= limits[1]


def change(state: state_secret.StateSecret, **values: bool | int) -> None:
    """Change settings.

    :param values: fields of `Settings`, validated by the caller
    :raises: `errors.MachineError`
    """
    state.update(_SECTION, lambda section: section.update(values))
