# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from tests.unit.api import base


class StoreTestCase(unittest.TestCase):

    def setUp(self):
        self.server = base.cluster()
        self.store = self.server.store
        self.kind = self.server.kinds.find('example.test', 'v1', 'things')

    def assert_error(self, code, call, *args, **kwargs):
        with self.assertRaises(errors.ApiError) as caught:
            call(*args, **kwargs)
        self.assertEqual(code, caught.exception.code, caught.exception)
        return caught.exception

    def test_copies_objects(self):
        given = base.make(free={'a': []})
        made = self.store.create(self.kind, given)
        given['spec']['free']['a'].append(1)
        self.assertEqual([], made['spec']['free']['a'])
        seen = json_copy.copy(made)
        self.store.change(self.kind, 'default', 'a', lambda o: o['spec'][
            'free']['a'].append(2))
        self.assertEqual(seen, made)

    def test_resource_version_increases_with_each_write(self):
        first = self.store.create(self.kind, base.make())
        second = self.store.change(self.kind, 'default', 'a',
                                   lambda o: o['spec'].update(size=2))
        self.assertLess(int(first['metadata']['resourceVersion']),
                        int(second['metadata']['resourceVersion']))
        self.assertEqual(second['metadata']['resourceVersion'],
                         str(self.store.version))

    def test_hooks_run_in_order_and_may_refuse(self):
        calls = []

        def hook(name):
            def call(admission):
                calls.append((name, admission.operation,
                              admission.subresource))
                if name == 'validate' and admission.operation == 'DELETE':
                    raise errors.bad_request('no')
            return call
        self.kind.mutate, self.kind.validate = hook('mutate'), hook(
            'validate')
        self.store.create(self.kind, base.make())
        self.store.change(self.kind, 'default', 'a', lambda o: o.update(
            status={'phase': 'x'}), subresource='status')
        self.assert_error(400, self.store.delete, self.kind, 'default', 'a')
        self.assertEqual(
            [(n, *what) for what in (('CREATE', ''), ('UPDATE', 'status'),
                                     ('DELETE', ''))
             for n in ('mutate', 'validate')], calls)
        self.assertTrue(self.store.find(self.kind, 'default', 'a'))

    def test_refused_write_changes_nothing(self):
        self.store.create(self.kind, base.make())
        version = self.store.version
        self.assert_error(422, self.store.change, self.kind, 'default', 'a',
                          lambda o: o['spec'].update(size=0))
        self.assertEqual(version, self.store.version)
        self.assertEqual(1, self.store.get(self.kind, 'default', 'a')[
            'spec']['size'])

    def test_schema_applies_to_what_hooks_set(self):
        def enlarge(obj):
            obj['spec']['size'] = 1000

        for hook in ({'default': enlarge},
                     {'mutate': lambda admission: enlarge(admission.new)}):
            kind = base.thing(**hook)
            with self.subTest(hook=hook):
                self.assert_error(422, base.cluster(kind).store.create, kind,
                                  base.make(colour='red'))

    def test_listeners_get_events_in_order(self):
        events = []

        def first(type_, obj, old):
            events.append(('first', type_, obj['spec']['size'],
                          old and old['spec']['size']))
            if obj['spec']['size'] == 1:
                self.store.change(self.kind, 'default', 'a', lambda o:
                                  o['spec'].update(size=2))

        def second(type_, obj, old):
            events.append(('second', type_, obj['spec']['size'],
                          old and old['spec']['size']))
        self.store.subscribe(self.kind, first)
        end = self.store.subscribe(self.kind, second)
        self.store.create(self.kind, base.make())
        self.assertEqual([
            ('first', 'ADDED', 1, None), ('second', 'ADDED', 1, None),
            ('first', 'MODIFIED', 2, 1), ('second', 'MODIFIED', 2, 1)],
            events)
        end()
        self.store.delete(self.kind, 'default', 'a')
        self.assertEqual(('first', 'DELETED', 2, 2), events[-1])

    def test_exception_in_listener_does_not_affect_others(self):
        events = []

        def bad(*event):
            raise RuntimeError
        self.store.subscribe(self.kind, bad)
        self.store.subscribe(self.kind, lambda *e: events.append(e))
        with self.assertLogs('kubevirt_sandbox.api.store'):
            self.store.create(self.kind, base.make())
        self.assertEqual(1, len(events))

    def test_update_keeps_identity(self):
        made = self.store.create(self.kind, base.make())
        other = json_copy.copy(made)
        other['metadata']['uid'] = 'other'
        del other['metadata']['resourceVersion']
        self.assert_error(409, self.store.update, self.kind, other)
        other = json_copy.copy(made)
        other['metadata'].update(creationTimestamp='x', generation=99)
        other['spec']['size'] = 2
        new = self.store.update(self.kind, other)
        self.assertEqual(made['metadata']['creationTimestamp'],
                         new['metadata']['creationTimestamp'])
        self.assertEqual(2, new['metadata']['generation'])

    def test_rejects_invalid_metadata(self):
        for change in ({'name': 'A'}, {'name': 'a_b'}, {'name': ''},
                       {'name': 'a' * 254}, {'labels': {'a b': 'c'}},
                       {'labels': {'a': 'b c'}},
                       {'annotations': {'a': 'x' * 300000}},
                       {'ownerReferences': [{'name': 'x'}]}):
            obj = base.make()
            obj['metadata'].update(change)
            self.assert_error(422, self.store.create, self.kind, obj)
        for change in ({'labels': {'a': 1}}, {'labels': []},
                       {'finalizers': 'x'}, {'name': 1},
                       {'resourceVersion': '5'}):
            obj = base.make()
            obj['metadata'].update(change)
            self.assert_error(400, self.store.create, self.kind, obj)

    def test_deletion_with_finalizer(self):
        obj = base.make()
        obj['metadata']['finalizers'] = ['example.test/f']
        self.store.create(self.kind, obj)
        marked = self.store.delete(self.kind, 'default', 'a', grace=30)
        self.assertEqual(30, marked['metadata'][
            'deletionGracePeriodSeconds'])
        self.assertEqual(2, marked['metadata']['generation'])
        again = self.store.delete(self.kind, 'default', 'a', grace=0)
        self.assertEqual(0, again['metadata']['deletionGracePeriodSeconds'])
        self.assertEqual(marked['metadata']['deletionTimestamp'],
                         again['metadata']['deletionTimestamp'])
        self.store.change(self.kind, 'default', 'a',
                          lambda o: o['metadata'].pop('finalizers'))
        self.assertIsNone(self.store.find(self.kind, 'default', 'a'))

    def test_status_update_keeps_finalizers(self):
        obj = base.make()
        obj['metadata']['finalizers'] = ['example.test/f']
        self.store.create(self.kind, obj)
        self.store.change(self.kind, 'default', 'a', lambda o: (
            o['metadata'].pop('finalizers'), o.update(status={
                'phase': 'x'})), subresource='status')
        self.assertEqual(['example.test/f'], self.store.get(
            self.kind, 'default', 'a')['metadata']['finalizers'])

    def test_lists_are_sorted_and_selected(self):
        for name in 'cab':
            self.store.create(self.kind, base.make(name))
        self.assertEqual(['a', 'b', 'c'], [
            o['metadata']['name'] for o in self.store.list(self.kind)])
        self.assertEqual([], self.store.list(self.kind, 'kube-system'))
        self.assertEqual(1, len(self.store.list(
            self.kind, field_selector='metadata.name=b')))
        self.assertEqual([], self.store.list(
            self.kind, label_selector={'x': 'y'}))


class CoreTestCase(unittest.TestCase):

    def setUp(self):
        self.store = base.cluster().store

    def create(self, kind, **more):
        return self.store.create(kind, {'metadata': {
            'name': 'x', 'namespace': 'default'}, **more})

    def test_encodes_string_data_of_secret(self):
        made = self.create(core.SECRET, stringData={'a': 'b'})
        self.assertEqual({'a': 'Yg=='}, made['data'])
        self.assertEqual('Opaque', made['type'])
        self.assertNotIn('stringData', made)
        self.assertRaises(errors.ApiError, self.store.create, core.SECRET,
                          {'metadata': {'name': 'y', 'namespace': 'default'},
                           'data': {'a': 'no base64!'}})

    def test_service_keeps_its_cluster_ip(self):
        made = self.create(core.SERVICE, spec={'ports': [{'port': 80}]})
        address = made['spec']['clusterIP']
        self.assertTrue(address.startswith('10.96.'))
        self.assertEqual('TCP', made['spec']['ports'][0]['protocol'])
        made = self.store.change(
            core.SERVICE, 'default', 'x',
            lambda o: o['spec'].pop('clusterIP'))
        self.assertEqual(address, made['spec']['clusterIP'])

    def test_rejects_wrong_types_before_hooks(self):
        for kind, more in (
                (core.SECRET, {'stringData': {'a': 1}}),
                (core.SECRET, {'data': []}),
                (core.SERVICE, {'spec': {'ports': ['x']}}),
                (core.NAMESPACE, {'spec': 'x'}),
                (core.EVENT, {'series': []})):
            with self.assertRaises(errors.ApiError) as caught:
                self.create(kind, **more)
            self.assertEqual(400, caught.exception.code)
            self.assertIn('cannot unmarshal', caught.exception.message)

    def test_omits_null_in_builtin_kinds(self):
        made = self.create(core.CONFIG_MAP, data={'a': 'b'},
                           binaryData=None)
        self.assertNotIn('binaryData', made)
