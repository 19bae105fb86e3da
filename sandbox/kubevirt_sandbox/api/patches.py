# SPDX-License-Identifier: Apache-2.0
"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

Kubernetes' own formats are in ``strategic`` and ``managed_fields``.
"""
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import json_copy

JSON_PATCH = 'application/json-patch+json'
MERGE = 'application/merge-patch+json'
STRATEGIC = 'application/strategic-merge-patch+json'
APPLY = 'application/apply-patch+yaml'

#: As kube-apiserver (``maxJSONPatchOperations``).
MOST_OPERATIONS = 10000

#: What all ``copy`` operations of a patch may copy, bytes of JSON: a few of
#: them could otherwise double an object again and again.
MOST_COPIED = 3 * 1024 * 1024


def json_patch(obj, patch):
    """Apply a JSON patch to a copy of an object.

    :raises errors.ApiError: 400 for what is no patch, 422 for one that
        cannot be applied or whose test fails.
    """
    import jsonpatch
    import jsonpointer
    if not isinstance(patch, list):
        raise errors.bad_request(
            'json: cannot unmarshal object into Go value of type '
            'jsonpatch.Patch')
    if len(patch) > MOST_OPERATIONS:
        raise errors.ApiError(
            413, 'RequestEntityTooLarge', 'Request entity too large: The '
            f'allowed maximum operations in a JSON patch is '
            f'{MOST_OPERATIONS}, got {len(patch)}')
    try:
        operations = [jsonpatch.JsonPatch([o]) for o in patch]
    except (jsonpatch.InvalidJsonPatch, jsonpointer.JsonPointerException,
            TypeError, KeyError, AttributeError) as exc:
        raise errors.bad_request(f'invalid JSON patch: {exc}') from None
    obj, copied = json_copy.copy(obj), 0
    try:
        for operation in operations:
            change = operation.patch[0]
            if change['op'] == 'copy':
                source = jsonpointer.resolve_pointer(obj, change['from'])
                copied += len(history.encode(source))
                if copied > MOST_COPIED:
                    raise errors.too_large(MOST_COPIED)
            obj = operation.apply(obj, in_place=True)
        return obj
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException,
            TypeError, KeyError, IndexError, AttributeError):
        # kube-apiserver sends only this message, without a name.
        raise errors.ApiError(
            422, 'Invalid', 'the server rejected our request due to an '
            'error in our request', {}) from None


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
