# SPDX-License-Identifier: Apache-2.0
"""JSON patches as Kubernetes' library applies them."""

import unittest

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_patch

OBJECT = {'m': {'a': {'x': '1'}, 'n': 1, 'null': None}, 's': ['a', 'b']}


def op(name, path, *value, **more):
    return {'op': name, 'path': path, **more,
            **({'value': value[0]} if value else {})}


#: (operations, changed members of the object; None if it is refused)
CASES = (
    # Null tests that a member is absent, if its parent is there.
    ([op('test', '/m/a/y', None)], {}),
    ([op('test', '/m/a/y')], {}),
    ([op('test', '/m/null', None)], {}),
    ([op('test', '/m/a/x', None)], None),
    ([op('test', '/m/b/y', None)], None),
    ([op('test', '/s/5', None)], None),
    ([op('test', '/m/a/y', '1')], None),
    # Numbers are compared as texts.
    ([op('test', '/m/n', 1)], {}),
    ([op('test', '/m/n', 1.0)], None),
    ([op('test', '/m/n', True)], None),
    ([op('test', '/m/a', {'x': '1'})], {}),
    ([op('test', '/s', ['a', 'b'])], {}),
    ([op('test', '', OBJECT)], {}),
    ([op('test', '', {})], None),
    # A missing member is replaced by adding it, a missing item is not.
    ([op('replace', '/n', 2)], {'n': 2}),
    ([op('replace', '/m/b/y', 2)], None),
    ([op('replace', '/s/1', 'c')], {'s': ['a', 'c']}),
    ([op('replace', '/s/2', 'c')], None),
    ([op('replace', '', {'s': 1})], {'s': 1, 'm': None}),
    ([op('replace', '', 1)], None),
    ([op('remove', '/m/b')], None),
    ([op('remove', '/m/null'), op('remove', '/m/a')], {'m': {'n': 1}}),
    # -1 is the last item, and the place behind it for `add`.
    ([op('test', '/s/-1', 'b')], {}),
    ([op('test', '/s/-3', 'b')], None),
    ([op('add', '/s/-1', 'c')], {'s': ['a', 'b', 'c']}),
    ([op('add', '/s/-2', 'c')], {'s': ['a', 'c', 'b']}),
    ([op('add', '/s/-', 'c')], {'s': ['a', 'b', 'c']}),
    ([op('add', '/s/2', 'c')], {'s': ['a', 'b', 'c']}),
    ([op('add', '/s/3', 'c')], None),
    ([op('add', '/s/x', 'c')], None),
    ([op('remove', '/s/-1')], {'s': ['a']}),
    ([op('remove', '/s/-')], None),
    ([op('add', '', {})], None),
    ([op('add', 'n', 1)], None),
    ([op('add', 'ignored/n', 1)], {'n': 1}),
    ([op('add', '/a~1b~0', 1)], {'a/b~': 1}),
    ([op('move', '/s/0', **{'from': '/s/1'})], {'s': ['b', 'a']}),
    ([op('move', '/x', **{'from': '/y'})], None),
    ([op('copy', '/x', **{'from': '/m/n'})], {'x': 1}),
    ([op('copy', '/x', **{'from': '/y'})], {'x': None}),
    ([op('copy', '/x')], None),
    ([op('nix', '/x')], None),
    ([{'path': '/x'}], None),
    ([{'op': 'remove'}], None),
)


class JsonPatchTestCase(unittest.TestCase):

    def test_operations(self):
        for operations, change in CASES:
            with self.subTest(operations=operations):
                if change is None:
                    with self.assertRaises(errors.ApiError) as caught:
                        json_patch.apply(OBJECT, operations)
                    self.assertEqual(422, caught.exception.code)
                    continue
                patched = json_patch.apply(OBJECT, operations)
                wanted = {**OBJECT, **change}
                if 'm' in change and change['m'] is None:
                    del wanted['m']
                self.assertEqual(wanted, patched)

    def test_the_object_stays_as_it_is(self):
        json_patch.apply(OBJECT, [op('remove', '/m/a'), op('add', '/s/-', 1)])
        self.assertEqual({'x': '1'}, OBJECT['m']['a'])
        self.assertEqual(['a', 'b'], OBJECT['s'])

    def test_what_is_no_patch(self):
        for patch in ({'op': 'test'}, 'text', [1], [[]]):
            with self.subTest(patch=patch):
                with self.assertRaises(errors.ApiError) as caught:
                    json_patch.apply(OBJECT, patch)
                self.assertEqual(400, caught.exception.code)
