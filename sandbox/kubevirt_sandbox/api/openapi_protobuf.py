# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI v2 document in protobuf, reduced to what ``kubectl`` reads.

``kubectl create`` and ``apply`` of a ``v1`` ``List`` ask for this form, read
no other, and look only for the query parameters of each kind's PATCH. So the
document has those operations and no definitions; ``kubectl explain`` and
``diff`` read OpenAPI v3, see :mod:`openapi`. Field numbers are those of
``openapiv2/OpenAPIv2.proto`` of gnostic-models.
"""
import json

MEDIA = 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf'

_GVK = 'x-kubernetes-group-version-kind'


def _varint(value):
    found = bytearray()
    while value > 0x7f:
        found.append(value & 0x7f | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _field(number, content):
    """Encode a message or text as a length-delimited field."""
    if isinstance(content, str):
        content = content.encode()
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _parameter(name):
    """Encode a query parameter as a ParametersItem."""
    content = _field(2, 'query') + _field(4, name) + _field(6, 'string')
    return _field(1, _field(2, _field(3, content)))


def _operation(operation):
    # The value of an extension is YAML, of which JSON is a subset.
    value = _field(2, json.dumps(operation[_GVK]))
    parts = [_field(8, _parameter(parameter['name']))
             for parameter in operation['parameters']]
    parts.append(_field(13, _field(1, _GVK) + _field(2, value)))
    return b''.join(parts)


def encode(document):
    """Encode the PATCH operations of a document.

    :param document: OpenAPI v3, a dict (see :mod:`openapi`).
    :returns: bytes.
    """
    paths = b''.join(
        _field(2, _field(1, path)
               + _field(2, _field(8, _operation(item['patch']))))
        for path, item in document['paths'].items() if 'patch' in item)
    info = document['info']
    return b''.join((
        _field(1, '2.0'),
        _field(2, _field(1, info['title']) + _field(2, info['version'])),
        _field(8, paths)))
