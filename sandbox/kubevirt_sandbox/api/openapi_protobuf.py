# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI v2 document in protobuf.

``kubectl create -f`` of a ``List``, and every ``kubectl`` before 1.27, ask
for this form and read no other. Written is what they look for: operations
with their parameters, and the definitions. Field numbers are those of
``openapiv2/OpenAPIv2.proto`` of gnostic-models.
"""
import json

MEDIA = 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf'

#: Methods of a PathItem and their numbers.
_METHODS = {'get': 2, 'put': 3, 'post': 4, 'delete': 5, 'patch': 8}

#: Where the rest of the name of a parameter's message stands.
_QUERY, _PATH = (3, 6), (4, 5)


def _varint(value):
    found = bytearray()
    while value > 0x7f:
        found.append(value & 0x7f | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _field(number, content):
    """A message or text as a field."""
    if isinstance(content, str):
        content = content.encode()
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _true(number):
    return _varint(number << 3) + b'\1'


def _any(value):
    # JSON is YAML.
    return _field(2, json.dumps(value))


def _extensions(number, value):
    return b''.join(
        _field(number, _field(1, name) + _field(2, _any(below)))
        for name, below in value.items() if name.startswith('x-'))


def _named(number, name, content):
    return _field(number, _field(1, name) + _field(2, content))


def _schema(schema):
    parts = [_field(number, schema[name]) for number, name in (
        (1, '$ref'), (2, 'format'), (4, 'description')) if schema.get(name)]
    parts += [_field(19, name) for name in schema.get('required', ())]
    others = schema.get('additionalProperties')
    if isinstance(others, dict):
        parts.append(_field(21, _field(1, _schema(others))))
    elif others:
        parts.append(_field(21, _true(2)))
    if schema.get('type'):
        parts.append(_field(22, _field(1, schema['type'])))
    if isinstance(schema.get('items'), dict):
        parts.append(_field(23, _field(1, _schema(schema['items']))))
    if schema.get('properties'):
        parts.append(_field(25, b''.join(
            _named(1, name, _schema(below))
            for name, below in schema['properties'].items())))
    parts.append(_extensions(31, schema))
    return b''.join(parts)


def _parameter(parameter):
    """A ParametersItem."""
    if parameter['in'] == 'body':
        body = _field(2, parameter['name']) + _field(3, 'body') + _field(
            5, _schema(parameter['schema']))
        return _field(1, _field(1, body))
    which, type_ = _QUERY if parameter['in'] == 'query' else _PATH
    content = _true(1) if parameter['required'] else b''
    content += _field(2, parameter['in']) + _field(4, parameter['name'])
    content += _field(type_, 'string')
    return _field(1, _field(2, _field(which, content)))


def _operation(operation):
    parts = [_field(5, operation['operationId'])]
    parts += [_field(6, media) for media in operation['produces']]
    parts += [_field(7, media) for media in operation.get('consumes', ())]
    parts += [_field(8, _parameter(p)) for p in operation['parameters']]
    answer = operation['responses']['200']
    parts.append(_field(9, _named(1, '200', _field(1, _field(
        1, answer['description']) + _field(2, _field(1, _schema(
            answer['schema'])))))))
    parts.append(_extensions(13, operation))
    return b''.join(parts)


def encode(document):
    """The document as bytes.

    :param document: OpenAPI v2, a dict (see :mod:`openapi`).
    """
    paths = []
    for path, item in document['paths'].items():
        content = b''.join(
            _field(number, _operation(item[method]))
            for method, number in _METHODS.items() if method in item)
        content += b''.join(_field(9, _parameter(p))
                            for p in item.get('parameters', ()))
        paths.append(_named(2, path, content))
    definitions = [_named(1, name, _schema(schema))
                   for name, schema in document['definitions'].items()]
    info = document['info']
    return b''.join((
        _field(1, document['swagger']),
        _field(2, _field(1, info['title']) + _field(2, info['version'])),
        _field(8, b''.join(paths)), _field(9, b''.join(definitions))))
