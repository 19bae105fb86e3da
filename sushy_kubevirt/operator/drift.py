# SPDX-License-Identifier: Apache-2.0
"""Compares an object with its desired state.

The cluster adds defaults and addresses, and other clients add labels, so an
object must have all desired fields and may have more; lists must be equal. An
additional field is a difference if managedFields say that another client set
it in a part that only the operator may write. Metadata and status are not
such parts.
"""

from __future__ import annotations

import hashlib
import json
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import quantity
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import naming

#: Empty values, which the API server may omit.
_EMPTY: tuple[typing.Any, ...] = ({}, [], '', None)

#: Immutable fields: an object with another value is recreated.
_IMMUTABLE: dict[str, tuple[str, ...]] = {
    'RoleBinding': ('roleRef',), 'Deployment': ('spec', 'selector')}

#: Fields with quantities, which the API server may normalize.
_QUANTITIES = ('requests', 'limits', 'sizeLimit')

#: Parts of an object that only the operator may write, as in managedFields.
_OWNED_PARTS = ('f:spec', 'f:data', 'f:rules', 'f:subjects')

#: Fields in these parts that others may set, as in managedFields; None for
#: all below.
_OF_OTHERS: objects.Json = {'f:spec': {
    # Of a Deployment: ``kubectl rollout restart``.
    'f:template': {'f:metadata': {'f:annotations': None}},
    # Of a Service: load balancer controllers, such as kube-vip's.
    'f:loadBalancerIP': None,
    # Of a Route, the certificate that the ingress controller presents:
    # cert-manager's openshift-routes.
    'f:tls': dict.fromkeys((
        '.', 'f:caCertificate', 'f:certificate', 'f:externalCertificate',
        'f:key'))}}


def digest(wanted: typing.Any) -> str:
    """Make a digest, a short text, of a desired object."""
    return hashlib.sha256(json.dumps(
        wanted, sort_keys=True).encode()).hexdigest()[:16]


def applied_digest(live: objects.AnyObject) -> str | None:
    """Read the digest of the desired object that was last written.

    :param live: as the API has it
    :returns: None if the operator has not written the object
    """
    return (live['metadata'].get('annotations') or {}).get(
        stored_names.APPLIED)


def differs(wanted: objects.AnyObject, live: objects.AnyObject) -> bool:
    """Tell whether an object differs from the desired one.

    :param live: as the API has it
    """
    mine, its = wanted['metadata'], live['metadata']
    for name in ('labels', 'annotations'):
        if _differs(mine.get(name) or {}, its.get(name) or {}):
            return True
    if foreign_fields(live):
        return True
    owners = its.get('ownerReferences') or ()
    if any(owner not in owners
           for owner in mine.get('ownerReferences') or ()):
        return True
    return any(_differs(wanted[name], live.get(name), name)
               for name in wanted if name not in (
                   'metadata', 'apiVersion', 'kind'))


def foreign_fields(live: objects.AnyObject) -> list[objects.Json]:
    """Find other clients that own fields in parts of the operator.

    Fields that do not exist any more are ignored: when the type of a Service
    changes, the API server removes the fields of the type, and leaves their
    owners in managedFields.

    :param live: as the API has it
    :returns: entries of managedFields, reduced to what this function needs
    """
    foreign = []
    for entry in live['metadata'].get('managedFields') or ():
        if (entry.get('manager') == naming.OPERATOR
                or entry.get('subresource')):
            continue
        fields = entry.get('fieldsV1') or {}
        parts: objects.Json = {
            part: {'.': {}} for part in _OWNED_PARTS
            if part in fields
            and not _is_within(fields[part], _OF_OTHERS.get(part, {}))
            and _has_any(fields[part], live.get(part[2:]))}
        if parts:
            foreign.append({'manager': entry.get('manager', ''),
                            'fieldsV1': parts})
    return foreign


def _has_any(fields: objects.Json, value: typing.Any) -> bool:
    """Tell whether a value has any field of a set.

    :param fields: as in managedFields
    :param value: part of an object
    """
    if not fields:
        return value is not None
    return any(_has(name, inner, value) for name, inner in fields.items())


def _has(name: str, inner: objects.Json, value: typing.Any) -> bool:
    what, _, text = name.partition(':')
    if what == 'f' and isinstance(value, dict):
        return text in value and _has_any(inner, value[text])
    if what in ('k', 'v') and isinstance(value, list):
        try:
            key = json.loads(text)
        except (ValueError, RecursionError):
            # No item has such a key.
            return False
        if what == 'v':
            return key in value
        return isinstance(key, dict) and any(
            _has_any(inner, item) for item in value
            if isinstance(item, dict) and key.items() <= item.items())
    # The whole value, or an item by its index.
    return value is not None


def _is_within(fields: objects.Json, tree: objects.Json | None) -> bool:
    """Tell whether fields are some of a tree of them."""
    if tree is None:
        return True
    # '.' is the part itself.
    names = fields.keys() - ({'.'} - tree.keys())
    return bool(names) and names <= tree.keys() and all(
        _is_within(fields[name], tree[name]) for name in names)


def must_recreate(wanted: objects.AnyObject, live: objects.AnyObject) -> bool:
    """Tell whether an object has to be deleted and created again.

    :param live: as the API has it
    """
    path = _IMMUTABLE.get(wanted['kind'], ())
    for name in path:
        wanted, live = wanted[name], live.get(name) or {}
    return bool(path) and wanted != live


def _differs(wanted: typing.Any, live: typing.Any, name: str = '',
             quantities: bool = False) -> bool:
    if wanted == live:
        # Usual, and much faster than the rest.
        return False
    if wanted in _EMPTY:
        return live not in _EMPTY and not isinstance(wanted, dict)
    quantities = quantities or name in _QUANTITIES
    if isinstance(wanted, dict):
        return not isinstance(live, dict) or any(
            _differs(value, live.get(key), key, quantities)
            for key, value in wanted.items())
    if isinstance(wanted, list):
        return (not isinstance(live, list) or len(live) != len(wanted)
                or any(_differs(item, other, '', quantities)
                       for item, other in zip(wanted, live)))
    if quantities and live is not None:
        return quantity.to_decimal(wanted) != quantity.to_decimal(live)
    return wanted != live
