# SPDX-License-Identifier: Apache-2.0
"""Merge of raw fields into an object (RFC 7386)."""

from __future__ import annotations

import copy


def merge(target, patch):
    """Return a dict with another merged into it.

    :param target: dict; is not changed
    :param patch: dict, whose None removes a key
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
