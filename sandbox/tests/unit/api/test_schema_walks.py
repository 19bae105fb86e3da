# SPDX-License-Identifier: Apache-2.0
import random

from oslotest import base

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import go_types
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import pod_schemas
from kubevirt_sandbox.api import schema_walks
from kubevirt_sandbox.api import schemas
from kubevirt_sandbox.kubevirt.schema import machine

STRANGE = (None, '', 0, 1, 2 ** 40, 1.0, 1.5, True, False, [], {}, 'text',
           '100m', '1000m', [None], ['a', 'a'], [1, True], {'a': None},
           {'a': {}}, [{'name': 'x'}, {'name': 'x'}], '2026-01-01T00:00:00Z')

SCHEMAS = {
    'VM': machine.VM, 'VMI': machine.VMI, 'KubeVirt': machine.KUBEVIRT,
    'Pod': pod_schemas.POD, 'CRD': core_schemas.CRD,
    'Secret': core_schemas.SECRET, 'Lease': core_schemas.LEASE,
    'Claim': core_schemas.CLAIM, 'Node': core_schemas.NODE,
    'all keywords': {'type': 'object', 'required': ['id'], 'properties': {
        'id': {'type': 'string', 'pattern': '^[a-z]+$', 'maxLength': 3},
        'port': {'type': 'integer', 'format': 'int32', 'minimum': 1},
        'mode': {'type': 'string', 'enum': ['a', 'text'], 'default': 'a'},
        'nothing': {'type': 'string', 'nullable': True, 'default': 'x'},
        'when': {'type': 'string', 'format': 'date-time'},
        'rate': {'type': 'number'},
        'size': {'x-kubernetes-int-or-string': True, 'format': 'quantity'},
        'set': {'type': 'array', 'x-kubernetes-list-type': 'set',
                'items': {'type': 'string'}, 'maxItems': 3},
        'members': {'type': 'array', 'x-kubernetes-list-type': 'set',
                    'items': {'type': 'integer'}},
        'map': {'type': 'array', 'x-kubernetes-list-type': 'map',
                'x-kubernetes-list-map-keys': ['name'], 'items': {
                    'type': 'object', 'required': ['name'], 'properties': {
                        'name': {'type': 'string'},
                        'other': {'type': 'boolean', 'default': False}}}},
        'any': {'x-kubernetes-preserve-unknown-fields': True},
        'empty': {}, 'either': {'type': 'object', 'properties': {
            'a': {'type': 'string'}, 'b': {'type': 'string'}},
            'oneOf': [{'required': ['a']}, {'required': ['b']}]},
        'embedded': {'type': 'object',
                     'x-kubernetes-embedded-resource': True,
                     'properties': {'spec': {'type': 'object'}}},
        'texts': {'type': 'object',
                  'additionalProperties': {'type': 'string'}}}}}


def value_of(schema, chance, depth=0):
    """Make a value that fits a schema in most parts."""
    if chance.random() < 0.02:
        return chance.choice(STRANGE)
    if 'enum' in schema:
        return chance.choice(schema['enum'])
    if schema.get('x-kubernetes-int-or-string'):
        return chance.choice((1, '1', '100m', '1Gi'))
    kind = schema.get('type')
    if kind == 'object' or 'properties' in schema:
        made = {name: value_of(below, chance, depth + 1)
                for name, below in schema.get('properties', {}).items()
                if name in schema.get('required', ()) or (
                    chance.random() < (0.5 if depth < 4 else 0.2))}
        others = schema.get('additionalProperties')
        if isinstance(others, dict):
            made['other'] = value_of(others, chance, depth + 1)
        if chance.random() < 0.02:
            made['unknown'] = 'field'
        return made
    if kind == 'array':
        return [value_of(schema.get('items', {}), chance, depth + 1)
                for _ in range(chance.choice((0, 1, 1, 2)))]
    return {'string': chance.choice(('abc', 'text')), 'boolean': True,
            'integer': 7, 'number': 1.5}.get(kind, 'x')


class SchemaWalksTestCase(base.BaseTestCase):
    """The walks report all work that the slow functions do."""

    def check(self, schema, value):
        # What the API has checked before.
        value = {**value, 'apiVersion': 'v1', 'kind': 'Thing'}
        value.pop('metadata', None)
        left = schema_walks.work(schema, value)
        kind = kinds.Kind('', 'v1', 'Thing', 'things', 'thing',
                          schema=schema, omits=True)
        for flag, act in (
                (schema_walks.UNKNOWN, lambda new: schemas.prune(
                    schema, new)),
                (schema_walks.DEFAULTS, lambda new: schemas.fill_defaults(
                    schema, new)),
                (schema_walks.UNSETTLED, lambda new: go_types.settle(
                    kind, new))):
            if not left & flag:
                after = json_copy.copy(value)
                act(after)
                self.assertEqual(repr(value), repr(after), flag)
        if not left & schema_walks.INVALID:
            self.assertEqual([], schemas.causes(schema, value))
        return left

    def test_values(self):
        chance, clean = random.Random(1), 0
        for name, schema in SCHEMAS.items():
            with self.subTest(name):
                for _ in range(60):
                    value = value_of(schema, chance)
                    if isinstance(value, dict):
                        clean += not self.check(schema, value)
        self.assertGreater(clean, 20)

    def test_unchanged_fields(self):
        schema = SCHEMAS['all keywords']
        old = {'id': 'abc', 'mode': 'a', 'nothing': None, 'set': [1]}
        self.assertTrue(schema_walks.work(schema, old) & schema_walks.INVALID)
        self.assertEqual(0, schema_walks.work(schema, dict(old), old))
        self.assertTrue(schema_walks.work(schema, {**old, 'set': [2]}, old)
                        & schema_walks.INVALID)
