# SPDX-License-Identifier: Apache-2.0
"""Changes of an object when it is decoded to Kubernetes' Go types.

A real API server decodes its own kinds into structs and encodes them again.
This normalizes quantities (``1000m`` becomes ``1``) and omits empty strings,
lists and maps, and zero numbers and booleans that are not pointers
(``omitempty``). Clients that compare the object they sent with the stored one
must allow for this.
"""

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import quantity


def settle(kind, obj, same=()):
    """Write an object as a real API server would, in place.

    :param kind: the :class:`kinds.Kind`.
    :param same: fields at the root that need not be looked into.
    :raises errors.ApiError: 400, a quantity is invalid.
    """
    for name, schema in kind.schema.get('properties', {}).items():
        if name in obj and name not in same:
            try:
                _settle(schema, obj[name], kind.omits)
            except quantity.QuantityError as exc:
                raise errors.bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be '
                    f'handled as a {kind.kind}: {exc}') from None


def _settle(schema, value, omits):
    """Return the settled value; lists and objects change in place."""
    if isinstance(value, list):
        items = schema.get('items') or {}
        value[:] = [_settle(items, entry, omits) for entry in value]
    elif isinstance(value, dict):
        named = schema.get('properties') or {}
        others = schema.get('additionalProperties')
        for name, here in list(value.items()):
            below = named.get(name)
            if below is None:
                if isinstance(others, dict):
                    value[name] = _settle(others, here, omits)
                continue
            here = value[name] = _settle(below, here, omits)
            if omits and _empty(below, here):
                del value[name]
    elif schema.get('format') == 'quantity' and type(value) in (
            int, float, str):
        return quantity.canonical(value)
    return value


def _empty(schema, value):
    if value in ('', []):
        return 'default' not in schema
    if value == {}:
        return 'additionalProperties' in schema
    return schema.get(core_schemas.OMITTED) and not value
