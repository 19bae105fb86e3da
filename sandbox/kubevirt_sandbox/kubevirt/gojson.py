# SPDX-License-Identifier: Apache-2.0
"""Changes of JSON that KubeVirt's Go types decode and encode.

virt-api's mutating webhook decodes an object into Go structs and replaces the
object by their encoding: empty lists and strings are omitted, quantities
become canonical, and structs that are not pointers are added. A value that
does not fit its Go type (a negative unsigned number, a word in place of a
quantity) is a bad request, not an invalid field. Wrong JSON types are left to
the schema, which KubeVirt checks, too.

Source: pkg/virt-api/webhooks/mutating-webhook (KubeVirt 1.9), encoding/json.
"""

from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt.schema import openapi

_LIMITS = {'uint': 2 ** 64, 'uint32': 2 ** 32, 'int32': 2 ** 31,
           'int64': 2 ** 63}


class DecodeError(ValueError):
    """A value does not fit the Go type."""


def rewrite(schema, value, path=''):
    """Return a value as Go would encode it after decoding it.

    :param schema: an :class:`openapi.Node` or plain schema.
    :param value: value sent by a client; not changed.
    :param path: path of the value, for the message.
    :returns: the value as it will be stored.
    :raises: DecodeError
    """
    go = getattr(schema, 'go', '')
    if isinstance(value, dict):
        return _record(schema, value, path)
    if isinstance(value, list):
        item = schema.get('items') or {}
        return [rewrite(item, each, f'{path}[{index}]')
                for index, each in enumerate(value)]
    if go == 'quantity' and isinstance(value, (str, int, float)):
        return _quantity(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(schema, go.lstrip('*'), value, path)
    return value


def _record(schema, value, path):
    fields = schema.get('properties')
    if fields is None:
        inner = schema.get('additionalProperties') or {}
        if not isinstance(inner, openapi.Node):
            return value
        return {key: rewrite(inner, each, f'{path}.{key}')
                for key, each in value.items()}
    result = {}
    required = schema.get('required', ())
    for key, each in value.items():
        inner = fields.get(key)
        if inner is None:
            result[key] = each
            continue
        where = f'{path}.{key}' if path else key
        if each is None and not inner.get('nullable'):
            continue
        each = rewrite(inner, each, where)
        if _is_omitted(inner, each) and key not in required:
            continue
        result[key] = each
    for key in getattr(schema, 'structs', ()):
        # The schema asks for those that are required.
        if result.get(key) is None and key not in required:
            result[key] = {}
    return result


def _is_omitted(schema, value):
    go = getattr(schema, 'go', '')
    return (go in ('zero', 'uint', 'uint32')
            and value in ('', False, 0, [], {}, None))


def _quantity(value):
    if isinstance(value, bool):
        return value
    try:
        return quantity.canonical(value)
    except quantity.QuantityError as error:
        raise DecodeError(str(error))


def _check_number(schema, go, value, path):
    kind = go if go in _LIMITS else schema.get('format')
    limit = _LIMITS.get(kind)
    if limit is None or (isinstance(value, float)
                         and not value.is_integer()):
        return
    lowest = 0 if kind.startswith('u') else -limit
    if not lowest <= value < limit:
        raise DecodeError(
            f'json: cannot unmarshal number {value} into Go struct field '
            f'{path} of type {kind}')
