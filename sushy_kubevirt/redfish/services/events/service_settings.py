# SPDX-License-Identifier: Apache-2.0
"""What clients may set about the event service itself."""

import dataclasses

_SECTION = 'events'

#: Limits of what may be set.
ATTEMPTS = (0, 100)
INTERVAL = (1, 3600)
_LIMITS = {'attempts': ATTEMPTS, 'interval': INTERVAL}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings.

    :param enabled: whether events are sent
    :param attempts: tries after the first, DeliveryRetryAttempts
    :param interval: seconds between them, DeliveryRetryIntervalSeconds
    """

    enabled: bool = True
    attempts: int = 3
    interval: int = 10


def cached(state):
    """The settings, as far as they are known: at once, without an error.

    :param state: a `state.State`
    """
    data = state.cached(_SECTION)
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    # Others may have written it: what could not have been set is left out.
    return Settings(**{name: value for name, value in data.items()
                       if name in fields
                       and type(value) is fields[name].type
                       and _is_within(value, _LIMITS.get(name))})


def _is_within(value, limits):
    return limits is None or limits[0] <= value <= limits[1]


def change(state, **values):
    """Change some.

    :param values: fields of `Settings`, checked by the caller
    """
    state.update(_SECTION, lambda section: section.update(values))
