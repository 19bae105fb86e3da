# SPDX-License-Identifier: Apache-2.0
"""Server-side apply; the cases follow those of structured-merge-diff."""
import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import fieldsets
from kubevirt_sandbox.api import managed_fields
from kubevirt_sandbox.api import merge_schema
from kubevirt_sandbox.api import merging
from kubevirt_sandbox.api import store
from tests.unit.api import base


class FieldSetTestCase(unittest.TestCase):

    PATHS = {('f:a',), ('f:a', 'f:b'), ('f:c', 'f:d'),
             ('f:l', 'k:{"name":"x"}'), ('f:l', 'k:{"name":"x"}', 'f:n'),
             ('f:s', 'v:"t"')}
    ENCODED = {'f:a': {'.': {}, 'f:b': {}}, 'f:c': {'f:d': {}},
               'f:l': {'k:{"name":"x"}': {'.': {}, 'f:n': {}}},
               'f:s': {'v:"t"': {}}}

    def test_encode_and_decode(self):
        self.assertEqual(self.ENCODED, fieldsets.encode(sorted(self.PATHS)))
        self.assertEqual(self.ENCODED, fieldsets.encode(
            sorted(self.PATHS, reverse=True)))
        self.assertEqual(self.PATHS, fieldsets.decode(self.ENCODED))

    def test_remove_keeps_other_paths(self):
        for path in self.PATHS:
            tree = fieldsets.encode(self.PATHS)
            self.assertTrue(fieldsets.has(tree, path))
            self.assertTrue(fieldsets.remove(tree, path))
            self.assertFalse(fieldsets.has(tree, path))
            self.assertEqual(self.PATHS - {path}, fieldsets.decode(tree))
            self.assertFalse(fieldsets.remove(tree, path))

    def test_decode_rejects_invalid_sets(self):
        for tree in ({'x': {}}, {'f:a': 1}, []):
            self.assertRaises(ValueError, fieldsets.decode, tree)

    def test_text_of_a_path(self):
        self.assertEqual('.l[a="x",b=1].n[="t"][0]', fieldsets.text(
            ('f:l', 'k:{"b":1,"a":"x"}', 'f:n', 'v:"t"', 'i:0')))


class MergeTestCase(unittest.TestCase):

    def setUp(self):
        self.shape = merge_schema.Shape(base.SCHEMA, True)

    def merge(self, old, new):
        return merging.merge(self.shape, {'spec': old}, {'spec': new})['spec']

    def ports(self, *names, **more):
        return {'ports': [{'name': n, **more} for n in names]}

    def test_merges_lists_by_type(self):
        self.assertEqual({'order': ['c']}, self.merge(
            {'order': ['a', 'b']}, {'order': ['c']}))
        self.assertEqual({'tags': ['a', 'b', 'c']}, self.merge(
            {'tags': ['a', 'b']}, {'tags': ['b', 'c']}))
        self.assertEqual(
            {'ports': [{'name': 'a', 'number': 1}, {'name': 'b'}]},
            self.merge({'ports': [{'name': 'a', 'number': 1}]},
                       self.ports('a', 'b')))

    def test_applied_order_of_list_entries_wins(self):
        for old, new, wanted in (
                ('abc', 'ca', 'bca'), ('ab', 'cab', 'cab'),
                ('ab', 'acb', 'acb'), ('abcd', 'db', 'acdb'),
                ('', 'ab', 'ab'), ('ab', '', 'ab')):
            got = self.merge(self.ports(*old), self.ports(*new))
            self.assertEqual(wanted, ''.join(
                p['name'] for p in got['ports']), (old, new))

    def test_rejects_entries_with_equal_or_missing_keys(self):
        self.assertRaisesRegex(ValueError, 'duplicate', self.merge, {},
                               self.ports('a', 'a'))
        self.assertRaisesRegex(ValueError, 'omits all key fields',
                               self.merge, {}, {'ports': [{'number': 1}]})

    def test_compares_objects(self):
        found = merging.compare(
            self.shape,
            {'spec': {'size': 1, 'ports': [{'name': 'a', 'number': 1}],
                      'order': ['x'], 'free': {'m': {}}}},
            {'spec': {'size': 2, 'ports': [{'name': 'a', 'number': 1},
                                           {'name': 'b'}],
                      'colour': 'red', 'order': ['y']}})
        spec = ('f:spec',)
        self.assertEqual({(*spec, 'f:size'), (*spec, 'f:order')},
                         found.modified)
        b = (*spec, 'f:ports', 'k:{"name":"b"}')
        self.assertEqual({(*spec, 'f:colour'), b, (*b, 'f:name')},
                         found.added)
        self.assertEqual({(*spec, 'f:free'), (*spec, 'f:free', 'f:m')},
                         found.removed)

    def test_paths_of_a_value(self):
        a = ('f:spec', 'f:ports', 'k:{"name":"a"}')
        self.assertEqual(
            {a, (*a, 'f:name'), ('f:spec', 'f:free', 'f:x'),
             ('f:spec', 'f:order'), ('f:spec', 'f:tags', 'v:"t"')},
            merging.paths(self.shape, {'spec': {
                'ports': [{'name': 'a'}], 'free': {'x': 1}, 'order': [],
                'tags': ['t']}}))


class DefaultsTestCase(unittest.TestCase):

    def test_defaults_belong_to_the_manager_that_caused_them(self):
        objects = base.cluster().store
        objects.create(core.SERVICE, {
            'metadata': {'name': 'a', 'namespace': 'default'},
            'spec': {'ports': [{'port': 80}]}}, manager='maker')

        def become(kind):
            return lambda new: new['spec'].update(type=kind)

        for kind, has in (('NodePort', True), ('ClusterIP', False)):
            # Another type removes a field, but not its managed entry.
            live = objects.change(core.SERVICE, 'default', 'a', become(kind),
                                  manager=kind)
            entries = {entry['manager']: entry['fieldsV1']['f:spec']
                       for entry in live['metadata']['managedFields']}
            self.assertIs(has, 'externalTrafficPolicy' in live['spec'])
            self.assertIn('f:externalTrafficPolicy', entries['NodePort'])
        self.assertIn('f:internalTrafficPolicy', entries['maker'])


class ManagedFieldsTestCase(unittest.TestCase):

    def setUp(self):
        self.server = base.cluster()
        self.store = self.server.store
        self.kind = self.server.kinds.find('example.test', 'v1', 'things')

    def live(self):
        return self.store.find(self.kind, 'default', 'a')

    def apply(self, manager, force=False, **spec):
        config = base.make(**spec)
        if 'size' not in spec:
            del config['spec']['size']
        new = managed_fields.apply(
            self.kind, self.live(), config, manager, force)
        write = store.Write(manager, managed=True)
        if self.live() is None:
            return self.store.create(self.kind, new, write=write)
        return self.store.update(self.kind, new, write=write)

    def owners(self):
        return {(m['manager'], m['operation']): m['fieldsV1']
                for m in self.live()['metadata']['managedFields']}

    def test_tracks_updates(self):
        self.store.create(self.kind, base.make(), manager='one')
        self.assertEqual(
            {('one', 'Update'): {'f:spec': {
                '.': {}, 'f:size': {}, 'f:colour': {}}}}, self.owners())
        self.store.change(self.kind, 'default', 'a', lambda o:
                          o['spec'].update(size=2), manager='two')
        self.assertEqual(
            {('one', 'Update'): {'f:spec': {'.': {}, 'f:colour': {}}},
             ('two', 'Update'): {'f:spec': {'f:size': {}}}}, self.owners())
        self.store.change(self.kind, 'default', 'a', lambda o:
                          o['spec'].pop('free', None), manager='three')
        self.assertNotIn(('three', 'Update'), self.owners())

    def test_removes_fields_no_longer_applied(self):
        self.apply('one', size=1, order=['x'], free={'a': 1, 'b': 2},
                   ports=[{'name': 'p', 'number': 1}, {'name': 'q'}])
        made = self.apply('one', size=1, free={'a': 1},
                          ports=[{'name': 'q'}])
        self.assertEqual(
            {'size': 1, 'colour': 'red', 'free': {'a': 1},
             'ports': [{'name': 'q'}]}, made['spec'])

    def test_removes_metadata_no_longer_applied(self):
        for labels in {'a': 'b'}, {}:
            config = base.make(size=1)
            config['metadata']['labels'] = labels
            if not labels:
                del config['metadata']['labels']
            new = managed_fields.apply(self.kind, self.live(), config, 'one',
                                       False)
            write = store.Write('one', managed=True)
            made = (self.store.update if self.live() else self.store.create)(
                self.kind, new, write=write)
            self.assertEqual(labels, made['metadata'].get('labels', {}))
            self.assertEqual('a', made['metadata']['name'])

    def test_keeps_fields_of_other_owners(self):
        self.apply('one', size=1, tags=['t'], free={'a': 1})
        self.apply('two', tags=['t', 'u'], free={'a': 1})
        made = self.apply('one', size=1)
        self.assertEqual((['t', 'u'], {'a': 1}), (
            made['spec']['tags'], made['spec']['free']))
        made = self.apply('two')
        self.assertNotIn('tags', made['spec'])
        self.assertNotIn('free', made['spec'])

    def test_list_entry_ends_with_its_owner(self):
        self.apply('one', size=1, ports=[{'name': 'p'}])
        self.store.change(self.kind, 'default', 'a', lambda o: (
            o['spec']['ports'][0].update(number=5),
            o['spec']['ports'].append({'name': 'h'})), manager='hand')
        made = self.apply('one', size=1)
        # A field that another manager set in the entry does not keep it.
        self.assertEqual([{'name': 'h'}], made['spec']['ports'])

    def test_equal_values_are_shared_without_conflict(self):
        self.apply('one', size=1)
        self.apply('two', size=1)
        self.assertEqual({('one', 'Apply'), ('two', 'Apply')},
                         self.owners().keys())
        self.api_error(self.apply, 'two', size=2)

    def api_error(self, call, *args, **kwargs):
        with self.assertRaises(errors.ApiError) as caught:
            call(*args, **kwargs)
        return caught.exception

    def test_conflicts_with_several_managers(self):
        self.apply('one', size=1, colour='red')
        self.store.change(self.kind, 'default', 'a', lambda o: o[
            'spec'].update(size=3), manager='hand')
        error = self.api_error(self.apply, 'two', size=2, colour='green')
        self.assertEqual(409, error.code)
        self.assertEqual(
            'Apply failed with 2 conflicts: conflicts with "hand" using '
            'example.test/v1:\n- .spec.size\nconflicts with "one":\n'
            '- .spec.colour', error.message)
        made = self.apply('two', True, size=2, colour='green')
        self.assertEqual(2, made['spec']['size'])
        self.assertEqual({('two', 'Apply')}, self.owners().keys() - {
            ('one', 'Apply')})

    def test_object_without_managed_fields(self):
        obj = self.store.create(self.kind, base.make(size=5))
        # metadata.managedFields: [] disables tracking.
        obj = {**obj, 'metadata': {**obj['metadata'], 'managedFields': []}}
        self.store.update(self.kind, obj)
        self.assertNotIn('managedFields', self.live()['metadata'])
        self.store.change(self.kind, 'default', 'a', lambda o: o[
            'spec'].update(size=6), manager='x')
        self.assertNotIn('managedFields', self.live()['metadata'])
        error = self.api_error(self.apply, 'one', size=7)
        self.assertIn('before-first-apply', error.message)

    def test_ignores_invalid_managed_fields_of_clients(self):
        made = self.store.create(self.kind, base.make(), manager='one')
        entry = made['metadata']['managedFields'][0]
        for wrong in ({**entry, 'fieldsV1': {'x': 1}},
                      {**entry, 'fieldsV1': {'f:spec': []}},
                      {**entry, 'manager': 1}, {**entry, 'time': {}},
                      {**entry, 'operation': 'Nix'}, {'fieldsV1': {}}):
            self.store.change(self.kind, 'default', 'a', lambda o: (
                o['metadata'].update(managedFields=[wrong])))
            self.assertEqual([entry], self.live()['metadata'][
                'managedFields'])
        self.store.change(self.kind, 'default', 'a', lambda o: (
            o['metadata'].update(managedFields=[
                {**entry, 'manager': 'other'}])))
        self.assertEqual({('other', 'Update')}, self.owners().keys())

    def test_changes_of_admission_have_no_owner(self):
        def mutate(admission):
            if admission.new:
                admission.new['spec']['order'] = ['made']
        self.kind.mutate = mutate
        self.store.create(self.kind, base.make(), manager='one')
        self.assertEqual(['made'], self.live()['spec']['order'])
        self.assertNotIn('f:order', self.owners()['one', 'Update']['f:spec'])

    def test_merges_oldest_of_many_update_entries(self):
        self.store.create(self.kind, base.make(), manager='m0')
        for number in range(1, 15):
            self.store.change(
                self.kind, 'default', 'a', lambda o, n=number: o[
                    'spec'].setdefault('free', {}).update({f'k{n}': n}),
                manager=f'm{number:02}')
        owners = self.owners()
        self.assertEqual(10, len(owners))
        self.assertIn(('ancient-changes', 'Update'), owners)
        owned = set()
        for fields in owners.values():
            owned |= fieldsets.decode(fields)
        self.assertLessEqual({('f:spec', 'f:free', f'f:k{n}')
                              for n in range(1, 15)}, owned)

    def test_updates_last_applied_annotation(self):
        obj = base.make()
        obj['metadata']['annotations'] = {managed_fields.LAST_APPLIED: '{}'}
        self.store.create(self.kind, obj, manager='kubectl')
        made = self.apply('kubectl', True, size=3)
        self.assertIn('"size":3', made['metadata']['annotations'][
            managed_fields.LAST_APPLIED])
