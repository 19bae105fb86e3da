# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import schemas


def objects(**properties):
    return {'type': 'object', 'properties': {
        'spec': {'type': 'object', 'properties': properties}}}


class SchemaTestCase(unittest.TestCase):

    def messages(self, schema, value):
        return [str(c) for c in schemas.causes(
            objects(x=schema), {'spec': {'x': value}})]

    def test_messages_of_violations(self):
        # (schema, value, message)
        for schema, value, wanted in (
                ({'type': 'integer'}, 'a', 'spec.x: Invalid value: "string":'
                 ' spec.x in body must be of type integer: "string"'),
                ({'type': 'integer'}, True, 'spec.x: Invalid value: '
                 '"boolean": spec.x in body must be of type integer: '
                 '"boolean"'),
                ({'type': 'integer'}, 1.5, 'spec.x: Invalid value: "number":'
                 ' spec.x in body must be of type integer: "number"'),
                ({'type': 'string'}, None, 'spec.x: Invalid value: "null": '
                 'spec.x in body must be of type string: "null"'),
                ({'type': 'string', 'enum': ['a', 'b']}, 'c',
                 'spec.x: Unsupported value: "c": supported values: "a", '
                 '"b"'),
                ({'type': 'integer', 'minimum': 1}, 0, 'spec.x: Invalid '
                 'value: 0: spec.x in body should be greater than or equal '
                 'to 1'),
                ({'type': 'integer', 'maximum': 1}, 2, 'spec.x: Invalid '
                 'value: 2: spec.x in body should be less than or equal to '
                 '1'),
                ({'type': 'integer', 'format': 'int32'}, 2 ** 31,
                 'spec.x: Invalid value: 2147483648: spec.x in body must be '
                 'of type int32: "2147483648"'),
                ({'type': 'string', 'pattern': '^a$'}, 'b', 'spec.x: Invalid'
                 ' value: "b": spec.x in body should match \'^a$\''),
                ({'type': 'string', 'minLength': 2}, 'b', 'spec.x: Invalid '
                 'value: "b": spec.x in body should be at least 2 chars '
                 'long'),
                ({'type': 'string', 'maxLength': 1}, 'bb', 'spec.x: Too '
                 'long: may not be more than 1 bytes'),
                ({'type': 'array', 'maxItems': 1}, [1, 2], 'spec.x: Too '
                 'many: 2: must have at most 1 items'),
                ({'type': 'object', 'required': ['y']}, {}, 'spec.x.y: '
                 'Required value'),
                ({'type': 'array', 'items': {'type': 'string'}}, ['a', 1],
                 'spec.x[1]: Invalid value: "integer": spec.x[1] in body '
                 'must be of type string: "integer"'),
                ({'type': 'array', 'x-kubernetes-list-type': 'set'},
                 ['a', 'a'], 'spec.x[1]: Duplicate value: "a"'),
                ({'type': 'array', 'x-kubernetes-list-type': 'map',
                  'x-kubernetes-list-map-keys': ['k']},
                 [{'k': 1, 'a': 1}, {'k': 1}], 'spec.x[1]: Duplicate value: '
                 '{"k":1}'),
                ({'anyOf': [{'type': 'string'}, {'type': 'object'}]}, 1,
                 'spec.x: Invalid value: 1: spec.x in body must validate at '
                 'least one schema (anyOf)'),
                *(({'type': 'string', 'format': form}, value,
                   f'spec.x: Invalid value: "{value}": spec.x in body must '
                   f'be of type {form}: "{value}"') for form, value in (
                    ('cidr', '10.0.0.0'), ('cidr', '10.0.0.0/33'),
                    ('cidr', '10.0.0/8'),
                    ('cidr', '10.0.0.0/255.0.0.0'), ('cidr', 'fd00::/129'),
                    ('cidr', 'fe80::1%eth0/64'), ('cidr', ''),
                    ('ipv4', 'fd00::1'), ('ipv4', '10.0.0.256'),
                    ('ipv6', '10.0.0.1'), ('date-time', 'today'),
                    ('date-time', '2026-01-01'),
                    ('date-time', '2026-01-01T00:00:00'),
                    ('date-time', '2026-01-01 00:00:00Z'),
                    ('date-time', '2026-01-32T00:00:00Z'))),
                ({'x-kubernetes-int-or-string': True}, [], 'spec.x: Invalid '
                 'value: "array": spec.x in body must be of type '
                 'integer,string: "array"')):
            self.assertEqual([wanted], self.messages(schema, value))

    def test_valid_values(self):
        for schema, value in (
                ({'type': 'integer'}, 1.0), ({'type': 'number'}, 1),
                ({'type': 'string', 'nullable': True}, None),
                ({'x-kubernetes-int-or-string': True}, '1'),
                ({'x-kubernetes-int-or-string': True}, 1),
                ({'type': 'string', 'format': 'date-time'},
                 '2026-01-01T00:00:00Z'),
                ({'type': 'string', 'format': 'date-time'},
                 '2026-01-01t00:00:00.5-08:00'),
                *(({'type': 'string', 'format': form}, value)
                  for form, value in (
                      ('cidr', '10.0.0.0/8'), ('cidr', '10.0.0.1/8'),
                      ('cidr', '010.0.0.0/8'),
                      ('cidr', 'fd00::/8'), ('ipv4', '10.0.0.1'),
                      ('ipv6', 'fd00::1'), ('hexcolor', 'unknown'))),
                # Some regular expressions of Go are invalid in Python.
                ({'type': 'string', 'pattern': r'\z(?<'}, 'x')):
            self.assertEqual([], self.messages(schema, value))

    def test_prunes_unknown_fields(self):
        schema = objects(
            a={'type': 'object', 'properties': {'b': {'type': 'string'}}},
            keep={'type': 'object',
                  'x-kubernetes-preserve-unknown-fields': True},
            free={'type': 'object', 'additionalProperties': {
                'type': 'object', 'properties': {'b': {}}}},
            list={'type': 'array', 'items': {
                'type': 'object', 'properties': {'b': {}}}})
        obj = {'apiVersion': 'v1', 'kind': 'X', 'metadata': {'x': 1},
               'other': 1, 'spec': {
                   'a': {'b': 'x', 'c': 1}, 'keep': {'c': {'d': 1}},
                   'free': {'q': {'b': 1, 'c': 2}},
                   'list': [{'b': 1}, {'c': 2}]}}
        unknown = []
        schemas.prune(schema, obj, unknown)
        self.assertEqual(
            {'apiVersion': 'v1', 'kind': 'X', 'metadata': {'x': 1},
             'spec': {'a': {'b': 'x'}, 'keep': {'c': {'d': 1}},
                      'free': {'q': {'b': 1}}, 'list': [{'b': 1}, {}]}}, obj)
        self.assertEqual({'other', 'spec.a.c', 'spec.free.q.c',
                          'spec.list[1].c'}, set(unknown))

    def test_fills_in_defaults(self):
        schema = objects(
            a={'type': 'string', 'default': 'x'},
            o={'type': 'object', 'default': {'p': 1}, 'properties': {
                'q': {'type': 'integer', 'default': 2}}},
            list={'type': 'array', 'items': {'type': 'object', 'properties':
                                             {'r': {'default': 3}}}})
        schema['properties']['spec']['properties'].update(
            n={'type': 'string', 'nullable': True}, m={'type': 'string'},
            t={'type': 'object', 'additionalProperties': {
                'type': 'string'}})
        obj = {'spec': {'a': None, 'list': [{}], 'n': None, 'm': None,
                        't': {'x': None}}}
        schemas.fill_defaults(schema, obj)
        self.assertEqual({'a': 'x', 'o': {'p': 1, 'q': 2}, 'list': [{'r': 3}],
                          'n': None, 't': {}}, obj['spec'])
        # Each object has its own copy of a default.
        self.assertIsNot(schema['properties']['spec']['properties']['o'][
            'default'], obj['spec']['o'])
        obj = {}
        schemas.fill_defaults(schema, obj)
        self.assertEqual({}, obj)
