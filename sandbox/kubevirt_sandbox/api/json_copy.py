# SPDX-License-Identifier: Apache-2.0
"""Copies of JSON values, and values without nulls.

Objects in the store are never changed in place, so everything that changes
one copies it first; ``copy.deepcopy`` is several times slower than this
for values that are only dicts, lists and scalars.
"""


def copy(value):
    """Return a deep copy of a JSON value."""
    if type(value) is dict:
        return _copy_dict(value)
    if type(value) is list:
        return _copy_list(value)
    if isinstance(value, dict):
        return {k: copy(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [copy(v) for v in value]
    return value


# Most values are scalars, which are told apart without a call.
_SCALARS = frozenset((str, int, float, bool, type(None)))


def _copy_dict(value):
    return {k: v if type(v) in _SCALARS else _copy_dict(v)
            if type(v) is dict else copy(v) for k, v in value.items()}


def _copy_list(value):
    return [v if type(v) in _SCALARS else _copy_dict(v)
            if type(v) is dict else copy(v) for v in value]


def drop_nulls(value):
    """Remove fields that are null, in place.

    Kinds that a real API server knows as Go types have no nulls; in
    custom resources they stay.
    """
    if isinstance(value, dict):
        if None in value.values():
            for name in [n for n, below in value.items() if below is None]:
                del value[name]
        for below in value.values():
            if isinstance(below, (dict, list)):
                drop_nulls(below)
    elif isinstance(value, list):
        for below in value:
            if isinstance(below, (dict, list)):
                drop_nulls(below)
