# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patches: lists of objects merge by a key.

Follows ``apimachinery/pkg/util/strategicpatch`` (1.36). Only Kubernetes' own
kinds accept them; schemas mark the lists that merge
(``x-kubernetes-patch-strategy`` and ``x-kubernetes-patch-merge-key``).
"""
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import merge_schema

_PATCH, _RETAIN = '$patch', '$retainKeys'
_DELETE_FROM, _ORDER = '$deleteFromPrimitiveList/', '$setElementOrder/'


def patch(kind, obj, change):
    """Apply a strategic merge patch to an object.

    :param change: the patch, a dict.
    :returns: a new object.
    :raises errors.ApiError: 400 for a patch that cannot be read.
    """
    return _merge(merge_schema.of_kind(kind), obj, change)


def _merge(shape, old, change):
    directive = change.get(_PATCH)
    if directive == 'replace':
        return json_copy.copy({k: v for k, v in change.items() if k != _PATCH})
    if directive == 'delete':
        return {}
    if directive not in (None, 'merge'):
        raise errors.bad_request(f'unknown patch type found: {directive}')
    result = dict(old)
    if _RETAIN in change:
        kept = change[_RETAIN]
        if not isinstance(kept, list):
            raise errors.bad_request('invalid patch format of $retainKeys')
        result = {k: v for k, v in result.items() if k in kept}
    orders = {}
    for name, value in change.items():
        if name in (_PATCH, _RETAIN):
            continue
        if name.startswith(_DELETE_FROM):
            field = name[len(_DELETE_FROM):]
            gone = _list(value, name)
            result[field] = [v for v in result.get(field) or ()
                             if v not in gone]
        elif name.startswith(_ORDER):
            orders[name[len(_ORDER):]] = _list(value, name)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _field(shape.field(name), result.get(name), value)
    for field, order in orders.items():
        if isinstance(result.get(field), list):
            result[field] = _ordered(shape.field(field), result[field],
                                     order)
    return result


def _list(value, name):
    if not isinstance(value, list):
        raise errors.bad_request(f'invalid patch format of {name}')
    return value


def _field(shape, old, value):
    if isinstance(value, dict):
        return _merge(shape, old if isinstance(old, dict) else {}, value)
    if isinstance(value, list):
        return _merge_list(shape, old if isinstance(old, list) else [],
                           value)
    return value


def _merge_list(shape, old, change):
    if shape.schema.get('x-kubernetes-patch-strategy') != 'merge':
        return [_clean(v) for v in change]
    key = shape.schema.get('x-kubernetes-patch-merge-key')
    if not key:
        return old + [v for v in change if v not in old]
    if any(isinstance(v, dict) and v.get(_PATCH) == 'replace'
           for v in change):
        return [_clean(v) for v in change
                if not (isinstance(v, dict) and v.get(_PATCH) == 'replace')]
    result = list(old)
    for entry in change:
        if not isinstance(entry, dict) or key not in entry:
            raise errors.bad_request(
                f'map: {entry} does not contain declared merge key: {key}')
        at = [i for i, v in enumerate(result) if v.get(key) == entry[key]]
        if entry.get(_PATCH) == 'delete':
            result = [v for i, v in enumerate(result) if i not in at]
        elif at:
            result[at[0]] = _merge(shape.items, result[at[0]], entry)
        else:
            result.append(_merge(shape.items, {}, entry))
    return result


def _ordered(shape, values, order):
    """Sort entries in the order of the patch; others keep theirs."""
    key = shape.schema.get('x-kubernetes-patch-merge-key')

    def mark(value):
        return value.get(key) if key and isinstance(value, dict) else value
    wanted = [mark(v) for v in order]
    listed = sorted((v for v in values if mark(v) in wanted),
                    key=lambda v: wanted.index(mark(v)))
    result, at = [], 0
    for value in values:
        if mark(value) in wanted:
            result.append(listed[at])
            at += 1
        else:
            result.append(value)
    return result


def _clean(value):
    """Return a value of a patch without directives."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()
                if v is not None and not k.startswith('$')}
    if isinstance(value, list):
        return [_clean(v) for v in value]
    return value
