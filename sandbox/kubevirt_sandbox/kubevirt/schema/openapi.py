# SPDX-License-Identifier: Apache-2.0
"""Pieces of structural schemas.

Each piece is a :class:`Node`: a plain OpenAPI v3 schema with a note on how the
Go type decodes and encodes a value, which :mod:`gojson` uses. The note is not
part of the schema that clients see.
"""
import functools

QUANTITY = (r'^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)'
            r'|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$')


class Node(dict):
    """A schema with a note of the Go type.

    ``go`` is one of

    - ``''``: a pointer; its zero is kept,
    - ``'zero'``: a value; its zero is not written back,
    - ``'struct'``: a struct; it is written back even when not sent,
    - ``'uint'``, ``'uint32'``: an unsigned value, zero not written back;
      with ``*`` in front a pointer to one,
    - ``'quantity'``: a ``resource.Quantity``.
    """

    go = ''

    @functools.cached_property
    def structs(self) -> tuple[str, ...]:
        """Return the names of the fields that are structs."""
        return tuple(name for name, schema in self.get(
            'properties', {}).items()
            if getattr(schema, 'go', '') == 'struct')


def _node(go, description, **schema):
    node = Node(schema)
    node.go = go
    if description:
        node['description'] = description
    return node


def text(description=''):
    """Make a Go string: '' is not written back."""
    return _node('zero', description, type='string')


def choice(description, *values):
    """Make a pointer to a string with an enumeration of values."""
    return _node('', description, type='string', enum=list(values))


def integer(description='', bits=32, pointer=False):
    """Make a signed integer."""
    return _node('' if pointer else 'zero', description, type='integer',
                 format=f'int{bits}')


def unsigned(description='', go='uint32'):
    """Make an unsigned integer: a negative one does not decode."""
    if go.endswith('32'):
        return _node(go, description, type='integer', format='int32')
    return _node(go, description, type='integer')


def boolean(description=''):
    """Make a pointer to a bool: false is a value."""
    return _node('', description, type='boolean')


def flag(description=''):
    """Make a Go bool: false is not written back."""
    return _node('zero', description, type='boolean')


def quantity(description=''):
    """Make a quantity such as 64Mi."""
    return _node('quantity', description,
                 anyOf=[{'type': 'integer'}, {'type': 'string'}],
                 pattern=QUANTITY, **{'x-kubernetes-int-or-string': True})


def record(description, properties, required=(), struct=False, **more):
    """Make an object with known fields.

    :param properties: ``{field: schema}``.
    :param required: names of the fields that must be there.
    :param struct: a Go struct, not a pointer to one.
    :param more: further keywords of the schema.
    """
    node = _node('struct' if struct else '', description, type='object',
                 properties=dict(properties), **more)
    if required:
        node['required'] = list(required)
    return node


def anything(description='', struct=False, nullable=False):
    """Make an object whose fields are not validated."""
    node = _node('struct' if struct else '', description, type='object',
                 **{'x-kubernetes-preserve-unknown-fields': True})
    if nullable:
        node['nullable'] = True
    return node


def many(item, description='', limit=None):
    """Make a list; an empty one is not written back."""
    node = _node('zero', description, type='array', items=item)
    if limit:
        node['maxItems'] = limit
    return node


def mapping(value, description=''):
    """Make an object of any keys; an empty one is not written back."""
    return _node('zero', description, type='object',
                 additionalProperties=value)


def strings(description=''):
    """Make a list of strings."""
    return many(text(), description)


def labels(description=''):
    """Make a mapping of strings to strings."""
    return mapping(text(), description)


def switch(description, struct=False):
    """Make a feature that is on if present, unless ``enabled`` is false."""
    return record(description, {'enabled': boolean('On unless false.')},
                  struct=struct)
