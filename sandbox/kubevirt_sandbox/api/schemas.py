# SPDX-License-Identifier: Apache-2.0
"""Structural schemas: pruning, defaults and validation.

The OpenAPI v3 subset that CustomResourceDefinitions use; messages follow
``apiextensions-apiserver/pkg/apiserver/validation`` and
``kube-openapi/pkg/validation`` (1.36). ``metadata`` and ``bodies`` check
``metadata``, ``apiVersion`` and ``kind`` of the object.
"""
import datetime
import ipaddress
import json
import re

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy

PRESERVE = 'x-kubernetes-preserve-unknown-fields'
INT_OR_STRING = 'x-kubernetes-int-or-string'
EMBEDDED = 'x-kubernetes-embedded-resource'

#: Fields of every object that no schema describes.
ROOT = frozenset(('apiVersion', 'kind', 'metadata'))

#: Maximum number of wrong fields to report.
MOST_CAUSES = 50


def prune(schema, obj, unknown=None, same=()):
    """Remove the fields that a schema does not know, in place.

    :param unknown: a list that takes their paths.
    :param same: fields of the object that need not be looked into, because
        they are as they were.
    """
    _prune(schema, obj, '', unknown, True, same)


def _prune(schema, value, path, unknown, root, same=()):
    if isinstance(value, list):
        items = schema.get('items')
        if isinstance(items, dict):
            for at, entry in enumerate(value):
                if isinstance(entry, (dict, list)):
                    _prune(items, entry, f'{path}[{at}]', unknown, False)
        return
    if not isinstance(value, dict):
        return
    named = schema.get('properties', {})
    others = schema.get('additionalProperties')
    kept = ROOT if root or schema.get(EMBEDDED) else ()
    keep_all = schema.get(PRESERVE) or others is True
    for name in list(value):
        if name in same:
            continue
        below = named.get(name)
        if below is None:
            if name in kept:
                continue
            if isinstance(others, dict):
                below = others
            elif keep_all:
                continue
            else:
                del value[name]
                if unknown is not None:
                    unknown.append(f'{path}.{name}' if path else name)
                continue
        if name in kept and name == 'metadata':
            continue
        if isinstance(value[name], (dict, list)):
            _prune(below, value[name], f'{path}.{name}' if path else name,
                   unknown, False)


def fill_defaults(schema, value, same=()):
    """Fill in defaults, in place; nulls that are not allowed go.

    :param same: fields that need not be looked into.
    """
    if isinstance(value, list):
        items = schema.get('items')
        if isinstance(items, dict):
            for entry in value:
                fill_defaults(items, entry)
        return
    if not isinstance(value, dict):
        return
    for name, below in schema.get('properties', {}).items():
        if name in same:
            continue
        if name in value:
            here = value[name]
            if here is None and not below.get('nullable'):
                if 'default' in below:
                    value[name] = _default(below)
                elif below:
                    del value[name]
            elif isinstance(here, (dict, list)):
                fill_defaults(below, here)
        elif 'default' in below:
            value[name] = _default(below)
    others = schema.get('additionalProperties')
    if isinstance(others, dict):
        named = schema.get('properties', {})
        for name, here in list(value.items()):
            if name in named:
                continue
            if here is None and others and not others.get('nullable'):
                del value[name]
            elif isinstance(here, (dict, list)):
                fill_defaults(others, here)


def _default(schema):
    """Return a default, including those of its fields."""
    value = json_copy.copy(schema['default'])
    fill_defaults(schema, value)
    return value


def causes(schema, obj, same=()):
    """List violations of a schema, as :class:`errors.Cause`.

    :param same: fields that need not be looked into.
    """
    found = []
    _check(schema, obj, '', found, ROOT.union(same))
    return found[:MOST_CAUSES]


_TYPES = {dict: 'object', list: 'array', str: 'string', bool: 'boolean',
          int: 'integer', float: 'number', type(None): 'null'}


def type_name(value):
    """Return the JSON schema type of a value."""
    return _TYPES.get(type(value), 'object')


def _is(value, wanted):
    kind = type(value)
    if wanted == 'integer':
        return kind is int or (kind is float and value.is_integer())
    if wanted == 'number':
        return kind in (int, float)
    return _TYPES.get(kind) == wanted


def shown(value):
    """Format a value for messages."""
    return json.dumps(value, ensure_ascii=False, separators=(',', ':'))


def _invalid(found, path, value, why):
    found.append(errors.Cause(
        'FieldValueInvalid', f'Invalid value: {shown(value)}: {path} in body '
        f'{why}', path or '<nil>'))


def _wrong_type(found, path, value, wanted):
    have = type_name(value)
    found.append(errors.Cause(
        'FieldValueTypeInvalid', f'Invalid value: "{have}": {path} in body '
        f'must be of type {wanted}: "{have}"', path or '<nil>'))


def _check(schema, value, path, found, skip=None):
    if len(found) > MOST_CAUSES:
        return
    if value is None:
        if not schema.get('nullable') and schema.get('type'):
            _wrong_type(found, path, value, schema['type'])
        return
    wanted = schema.get('type')
    if schema.get(INT_OR_STRING):
        if type(value) not in (int, str) and not (
                type(value) is float and schema.get('format') == 'quantity'):
            _wrong_type(found, path, value, 'integer,string')
            return
    elif wanted and not _is(value, wanted):
        _wrong_type(found, path, value, wanted)
        return
    if 'enum' in schema and value not in schema['enum']:
        allowed = ', '.join(shown(v) for v in schema['enum'])
        found.append(errors.Cause(
            'FieldValueNotSupported', f'Unsupported value: {shown(value)}: '
            f'supported values: {allowed}', path))
    if isinstance(value, dict):
        _check_object(schema, value, path, found, skip)
    elif isinstance(value, list):
        _check_array(schema, value, path, found)
    elif isinstance(value, str):
        _check_string(schema, value, path, found)
    elif type(value) in (int, float):
        _check_number(schema, value, path, found)
    _check_junctions(schema, value, path, found)


def _check_object(schema, value, path, found, skip):
    named = schema.get('properties', {})
    others = schema.get('additionalProperties')
    prefix = path + '.' if path else ''
    for name in schema.get('required', ()):
        if name not in value:
            found.append(errors.Cause('FieldValueRequired', 'Required value',
                                      prefix + name))
    if skip is None:
        skip = ROOT if schema.get(EMBEDDED) else ()
    for name, below in value.items():
        if name in skip:
            continue
        child = named.get(name)
        if child is None:
            child = others
        if isinstance(child, dict):
            here = f'{path}[{name}]' if name not in named and (
                '.' in name) else prefix + name
            _check(child, below, here, found)
    most, least = schema.get('maxProperties'), schema.get('minProperties')
    if most is not None and len(value) > most:
        found.append(errors.Cause(
            'FieldValueTooMany', f'Too many: {len(value)}: must have at most '
            f'{most} items', path))
    if least is not None and len(value) < least:
        _invalid(found, path, value, f'should have at least {least} '
                 'properties')


def _check_array(schema, value, path, found):
    most, least = schema.get('maxItems'), schema.get('minItems')
    if most is not None and len(value) > most:
        found.append(errors.Cause(
            'FieldValueTooMany', f'Too many: {len(value)}: must have at most '
            f'{most} items', path))
        return
    if least is not None and len(value) < least:
        _invalid(found, path, len(value), f'should have at least {least} '
                 'items')
    items = schema.get('items')
    if isinstance(items, dict):
        for at, entry in enumerate(value):
            _check(items, entry, f'{path}[{at}]', found)
    form = schema.get('x-kubernetes-list-type')
    if form in ('map', 'set') or schema.get('uniqueItems'):
        keys = schema.get('x-kubernetes-list-map-keys') if (
            form == 'map') else None
        seen = set()
        for at, entry in enumerate(value):
            if keys is not None:
                if not isinstance(entry, dict):
                    continue
                entry = {k: entry[k] for k in keys if k in entry}
            mark = json.dumps(entry, sort_keys=True)
            if mark in seen:
                found.append(errors.Cause(
                    'FieldValueDuplicate', f'Duplicate value: '
                    f'{shown(entry)}', f'{path}[{at}]'))
            seen.add(mark)


def _check_string(schema, value, path, found):
    most, least = schema.get('maxLength'), schema.get('minLength')
    if most is not None and len(value) > most:
        found.append(errors.Cause(
            'FieldValueTooLong', f'Too long: may not be more than {most} '
            'bytes', path))
    if least is not None and len(value) < least:
        _invalid(found, path, value, f'should be at least {least} chars '
                 'long')
    pattern = schema.get('pattern')
    if pattern and not _matches(pattern, value):
        _invalid(found, path, value, f'should match \'{pattern}\'')
    form = schema.get('format')
    if form in FORMATS:
        try:
            FORMATS[form](value)
        except ValueError:
            _invalid(found, path, value,
                     f'must be of type {form}: {shown(value)}')


def _date_time(text):
    """Parse as IsDateTime of kube-openapi's pkg/validation/strfmt.

    A time without an offset, and a date, are none.
    """
    if text:
        if not _DATE_TIME.fullmatch(text):
            raise ValueError(text)
        datetime.datetime.fromisoformat(text.upper())


_DATE_TIME = re.compile(
    r'[0-9-]{10}[Tt][0-9:]{8}([.,][0-9]+)?([Zz]|[-+][0-9]{2}:[0-9]{2})')


def _cidr(text):
    """Parse as ParseCIDRSloppy of k8s.io/utils/net.

    It allows bits behind the prefix, and leading zeros.
    """
    address, slash, length = text.partition('/')
    address = re.sub(r'(^|\.)0+(?=[0-9])', r'\1', address)
    found = ipaddress.ip_address(address)
    if not re.fullmatch('[0-9]{1,3}', length) or (
            int(length) > found.max_prefixlen
            or getattr(found, 'scope_id', None)):
        raise ValueError(text)


#: Formats that are validated: function that raises ValueError. API servers
#: validate a few more (kube-openapi's pkg/validation/strfmt/default.go).
FORMATS = {'date-time': _date_time, 'cidr': _cidr,
           'ipv4': ipaddress.IPv4Address, 'ipv6': ipaddress.IPv6Address}


def _matches(pattern, value):
    try:
        return re.search(pattern, value)
    except re.error:
        # Go's syntax, not Python's: better let it pass than refuse all.
        return True


def _check_number(schema, value, path, found):
    bits = {'int32': 31, 'int64': 63}.get(schema.get('format'))
    if bits and not -2 ** bits <= value < 2 ** bits:
        _invalid(found, path, value,
                 f'must be of type {schema["format"]}: "{value}"')
    most, least = schema.get('maximum'), schema.get('minimum')
    if most is not None:
        if schema.get('exclusiveMaximum'):
            if value >= most:
                _invalid(found, path, value, f'should be less than {most}')
        elif value > most:
            _invalid(found, path, value,
                     f'should be less than or equal to {most}')
    if least is not None:
        if schema.get('exclusiveMinimum'):
            if value <= least:
                _invalid(found, path, value,
                         f'should be greater than {least}')
        elif value < least:
            _invalid(found, path, value,
                     f'should be greater than or equal to {least}')
    of = schema.get('multipleOf')
    if of and value % of:
        _invalid(found, path, value, f'should be a multiple of {of}')


def fits(schema, value, path=''):
    """Tell whether a value violates nothing of a schema."""
    found = []
    _check(schema, value, path, found)
    return not found


def _check_junctions(schema, value, path, found):
    if schema.get(INT_OR_STRING):
        return
    for below in schema.get('allOf', ()):
        _check(below, value, path, found)
    if 'anyOf' in schema and not any(
            fits(s, value, path) for s in schema['anyOf']):
        _invalid(found, path, value,
                 'must validate at least one schema (anyOf)')
    if 'oneOf' in schema and sum(
            fits(s, value, path) for s in schema['oneOf']) != 1:
        _invalid(found, path, value,
                 'must validate one and only one schema (oneOf)')
    if 'not' in schema and fits(schema['not'], value, path):
        _invalid(found, path, value,
                 'must not validate the schema (not)')
