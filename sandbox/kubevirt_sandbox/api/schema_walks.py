# SPDX-License-Identifier: Apache-2.0
"""Finds in one walk which work a schema leaves to do on a value.

Most values are as they are to be: without unknown fields, with all defaults
and valid. A schema is compiled to functions that confirm it; :mod:`schemas`
prunes, fills in defaults and lists violations only where they do not. The
functions of a field are made when a value first has it.
"""
from collections.abc import Callable
import re

from kubevirt_sandbox.api import schemas

#: The value may have fields that the schema does not know.
UNKNOWN = 1
#: It may lack defaults, or have nulls that are not allowed.
DEFAULTS = 2
#: It may violate the schema.
INVALID = 4
#: :mod:`go_types` may change it.
UNSETTLED = 8

#: Takes a value and returns a sum of the constants.
Walk = Callable[[object], int]

_ALL = UNKNOWN | DEFAULTS | INVALID | UNSETTLED
_CONTAINERS = (dict, list)
_MISSING = object()

#: Keywords that mean nothing to a walk.
_OTHERS = frozenset((
    'type', 'description', 'default', 'nullable', 'x-kubernetes-map-type',
    'x-kubernetes-patch-strategy', 'x-kubernetes-patch-merge-key',
    'x-kubernetes-validations', 'x-sandbox-omitted-when-zero'))
_OBJECT = _OTHERS | {'properties', 'additionalProperties', 'required',
                     schemas.PRESERVE, schemas.EMBEDDED}
_ARRAY = _OTHERS | {'items', 'minItems', 'maxItems', 'x-kubernetes-list-type',
                    'x-kubernetes-list-map-keys'}
_STRING = _OTHERS | {'enum', 'format', 'pattern', 'minLength', 'maxLength'}
_NUMBER = _OTHERS | {'enum', 'format'}
#: The validation ignores junctions beside it.
_EITHER = _OTHERS | {schemas.INT_OR_STRING, 'anyOf', 'format', 'pattern'}

#: {id of a schema: (schema, function)}; the schema is kept for its id.
_roots: dict[int, tuple[dict, Walk]] = {}


def work(schema: dict, obj: dict, old: dict | None = None) -> int:
    """Return what is left to do on an object.

    :param old: the object before; its fields at the root that are equal need
        not be looked into.
    :returns: a sum of the module's constants, 0 for an object as it is to be.
    """
    found = _roots.get(id(schema))
    if found is None:
        found = _roots[id(schema)] = schema, _Compiler().object(schema, True)
    return found[1](obj, () if old is None else same_fields(obj, old))


def same_fields(obj: dict, old: dict) -> set[str]:
    """Return the names of the fields at the root that are equal."""
    return {name for name, value in obj.items()
            if name in old and old[name] == value}


def _interpreted(schema):
    """Check a value of a schema that is not compiled."""
    settled = UNSETTLED if schema.get('format') == 'quantity' else 0

    def walk(value):
        left = settled
        if type(value) in _CONTAINERS:
            left = _ALL & ~INVALID
        elif value is None:
            left |= DEFAULTS
        return left if schemas.fits(schema, value) else left | INVALID
    return walk


class _Compiler:
    """Makes the functions for a schema, one for each part of it."""

    def __init__(self):
        self._walks = {}

    def _of(self, schema):
        walk = self._walks.get(id(schema))
        if walk is None:
            walk = self._walks[id(schema)] = self._compile(schema)
        return walk

    def _compile(self, schema):
        kind, words = schema.get('type'), schema.keys()
        if kind == 'object' and words <= _OBJECT:
            return self.object(schema)
        if kind == 'array' and words <= _ARRAY:
            return self._array(schema)
        if schema.get(schemas.INT_OR_STRING) and words <= _EITHER:
            return _string(schema, (int, str))
        if kind == 'string' and words <= _STRING:
            return _string(schema, (str,))
        if kind in _NUMBERS and words <= _NUMBER:
            return _number(schema, _NUMBERS[kind])
        return _interpreted(schema)

    def object(self, schema, root=False):
        """Return the function for an object."""
        if not schema.keys() <= _OBJECT:
            return _whole_object
        named = schema.get('properties') or {}
        others = schema.get('additionalProperties')
        required = tuple(schema.get('required') or ())
        defaults = tuple(name for name, below in named.items()
                         if 'default' in below)
        nullable = schema.get('nullable')
        kept = schemas.ROOT if root or schema.get(schemas.EMBEDDED) else ()
        keep_all = schema.get(schemas.PRESERVE) or others is True
        strange = 0 if keep_all else UNKNOWN
        others = others if isinstance(others, dict) else None
        # Its values are not walked through.
        always = DEFAULTS | UNSETTLED if kept and named.get(
            'metadata', {}).keys() & {'properties', 'default'} else 0
        walks, of = {}, self._of

        def walk(value, same=()):
            if type(value) is not dict:
                return _wrong(value, nullable)
            left = always
            for name in required:
                if name not in value:
                    left |= INVALID
            for name in defaults:
                if name not in value:
                    left |= DEFAULTS
            for name, below in value.items():
                if name in kept or name in same:
                    continue
                found = walks.get(name)
                if found is None:
                    child = named.get(name, others)
                    if child is None:
                        left |= strange
                        continue
                    found = of(child)
                    if name in named:
                        walks[name] = found
                left |= found(below)
                if not below:
                    left |= UNSETTLED
            return left
        return walk

    def _array(self, schema):
        items = schema.get('items')
        items = items if isinstance(items, dict) else None
        form = schema.get('x-kubernetes-list-type')
        keys = tuple(schema.get('x-kubernetes-list-map-keys') or ())
        nullable = schema.get('nullable')
        least, most = schema.get('minItems', 0), schema.get('maxItems')

        def walk(value):
            if type(value) is not list:
                return _wrong(value, nullable)
            left = 0
            if items is not None and value:
                item = self._of(items)
                for entry in value:
                    left |= item(entry)
            if len(value) < least or most is not None and len(value) > most:
                left |= INVALID
            if form in ('map', 'set') and not _differ(
                    value, keys if form == 'map' else None):
                left |= INVALID
            return left
        return walk


def _differ(entries, keys):
    """Confirm that no two entries of a list are equal."""
    try:
        marks = set(entries) if keys is None else {
            tuple([entry.get(key, _MISSING) for key in keys])
            for entry in entries}
    except (TypeError, AttributeError):
        return False
    # What is equal for Python need not be so in JSON: 1 and true.
    return len(marks) == len(entries)


_NUMBERS = {'boolean': bool, 'integer': int}


def _wrong(value, nullable):
    """Return the work on a value of another type than the schema's."""
    if value is None:
        return 0 if nullable else DEFAULTS | INVALID
    return _ALL & ~DEFAULTS if type(value) in _CONTAINERS else INVALID


def _string(schema, types):
    """Return the function for a string.

    :param types: the types that a value may have.
    """
    nullable, allowed = schema.get('nullable'), schema.get('enum')
    least, most = schema.get('minLength', 0), schema.get('maxLength')
    parse = schemas.FORMATS.get(schema.get('format'))
    settled = UNSETTLED if schema.get('format') == 'quantity' else 0
    search = None
    if schema.get('pattern'):
        try:
            search = re.compile(schema['pattern']).search
        except re.error:
            pass  # as in schemas, where such a pattern fits all

    def walk(value):
        if type(value) not in types:
            return _wrong(value, nullable) | settled
        if type(value) is int:
            return settled
        if (allowed is not None and value not in allowed
                or search is not None and not search(value)
                or len(value) < least
                or most is not None and len(value) > most):
            return INVALID
        if parse is not None:
            try:
                parse(value)
            except ValueError:
                return INVALID
        return settled
    return walk


def _number(schema, kind):
    """Return the function for a flag or a whole number."""
    nullable, allowed = schema.get('nullable'), schema.get('enum')
    bits = {'int32': 31, 'int64': 63}.get(
        schema.get('format')) if kind is int else None

    def walk(value):
        if type(value) is not kind:
            return _wrong(value, nullable)
        if allowed is not None and value not in allowed or bits and not (
                -2 ** bits <= value < 2 ** bits):
            return INVALID
        return 0
    return walk


def _whole_object(_value, _same=()):
    return _ALL
