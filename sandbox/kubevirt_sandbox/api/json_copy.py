# SPDX-License-Identifier: Apache-2.0
"""Copies of JSON values, and values without nulls.

Objects in the store are never changed in place, so everything that changes
one copies it first; ``copy.deepcopy`` is several times slower than this
for values that are only dicts, lists and scalars.
"""


def copy(value):
    """Return a deep copy of a JSON value."""
    kind = type(value)
    if kind is dict:
        return {k: copy(v) if type(v) in (dict, list) else v
                for k, v in value.items()}
    if kind is list:
        return [copy(v) if type(v) in (dict, list) else v for v in value]
    if isinstance(value, dict):
        return {k: copy(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [copy(v) for v in value]
    return value


def drop_nulls(value):
    """Remove fields that are null, in place.

    Kinds that a real API server knows as Go types have no nulls; in
    custom resources they stay.
    """
    if isinstance(value, dict):
        for name in [n for n, below in value.items() if below is None]:
            del value[name]
        for below in value.values():
            if isinstance(below, (dict, list)):
                drop_nulls(below)
    elif isinstance(value, list):
        for below in value:
            if isinstance(below, (dict, list)):
                drop_nulls(below)
