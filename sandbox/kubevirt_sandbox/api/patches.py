# SPDX-License-Identifier: Apache-2.0
"""Media types of patches, and JSON merge patch (RFC 7386).

JSON patch is in ``json_patch``, Kubernetes' own formats are in ``strategic``
and ``managed_fields``.
"""
from kubevirt_sandbox.api import json_copy

JSON_PATCH = 'application/json-patch+json'
MERGE = 'application/merge-patch+json'
STRATEGIC = 'application/strategic-merge-patch+json'
APPLY = 'application/apply-patch+yaml'


def merge_patch(obj, patch):
    """Apply a JSON merge patch; returns a new value."""
    if not isinstance(patch, dict):
        return json_copy.copy(patch)
    result = dict(obj) if isinstance(obj, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result
