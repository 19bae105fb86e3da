# SPDX-License-Identifier: Apache-2.0
"""Merge of raw fields into an object (RFC 7386)."""

from __future__ import annotations

from collections import abc
import copy
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


def merge(target: abc.Mapping[str, typing.Any],
          patch: abc.Mapping[str, typing.Any]) -> objects.Json:
    """Return a copy of an object with another merged into it.

    :param patch: whose None removes a key
    """
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            old = merged.get(key)
            merged[key] = merge(old if isinstance(old, dict) else {}, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def given(fields: objects.Json) -> objects.Json:
    """Leave out the fields that are None."""
    return {key: value for key, value in fields.items() if value is not None}
