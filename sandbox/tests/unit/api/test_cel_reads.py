# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import cel_reads

# (expression, paths of what it reads of "object")
READS = (
    ('object.a.b.c == 1', {('a', 'b')}),
    ('object . a\n.b', {('a', 'b')}),
    ('object.a == 1 && object.a.b == 2', {('a',), ('a', 'b')}),
    ('has(object.a.b) ? object.a.b : object.c', {('a', 'b'), ('c',)}),
    ('object.a[0].b + object.a["c"].d', {('a',)}),
    # Methods.
    ('object.all(key, key in object.a)', {(), ('a',)}),
    ('object.a.all(key, true)', {('a',)}),
    ('object.a.b.matches ("c")', {('a', 'b')}),
    ('object.?a.orValue(1)', {()}),
    ('object.a.?b.orValue(1)', {('a',)}),
    # The value itself.
    ('object == oldObject', {()}),
    ('"a" in object', {()}),
    ('object["a"]', {()}),
    ('f(object)', {()}),
    ('null == object', {()}),
    ('object == nullable', {()}),
    ('object == null || object != null', set()),
    ('object == null || object.a', {('a',)}),
    ('object.a == null', {('a',)}),
    # Other names.
    ('variables.object.a', None),
    ('objects.a', None),
    ('oldObject.a', None),
)

OBJECT = {'a': {'b': 1, 'c': {'d': 2}}, 'e': [{'f': 3}], 'g': None}

# (paths, part of OBJECT)
PARTS = (
    ((), {}),
    ([()], OBJECT),
    ([(), ('a',)], OBJECT),
    ([('a',), ('a', 'b')], {'a': OBJECT['a']}),
    ([('a', 'c')], {'a': {'c': {'d': 2}}}),
    ([('a', 'b'), ('a', 'c')], {'a': OBJECT['a']}),
    # A field that lacks is told from one whose parent lacks as well.
    ([('a', 'none')], {'a': {}}),
    ([('none', 'b')], {}),
    ([('e', 'f'), ('g', 'h')], {'e': [{'f': 3}], 'g': None}),
)


class ReadsTestCase(unittest.TestCase):

    def test_reads(self):
        for text, paths in READS:
            with self.subTest(text=text):
                self.assertEqual(paths, cel_reads.reads(text).get('object'))

    def test_reads_of_several_variables(self):
        self.assertEqual(
            {'self': {('a',)}, 'oldSelf': {()}, 'request': {('name',)}},
            cel_reads.reads('self.a in oldSelf && request.name == ""'))

    def test_part(self):
        for paths, kept in PARTS:
            with self.subTest(paths=paths):
                self.assertEqual(
                    kept, cel_reads.part(OBJECT, frozenset(paths)))

    def test_part_of_other_values(self):
        for value in (None, 'a', [1]):
            self.assertEqual(value, cel_reads.part(
                value, frozenset([('a',)])))
