# SPDX-License-Identifier: Apache-2.0
"""Copies of JSON values.

Objects in the store are never changed in place, so everything that changes
one copies it first; ``copy.deepcopy`` is several times slower than this
for values that are only dicts, lists and scalars.
"""


def copy(value):
    """A deep copy of a JSON value."""
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
