# SPDX-License-Identifier: Apache-2.0

import base64
import copy
import json
import threading
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import options

VM = objects.ObjectKey('default', 'vm-a')


class Client:
    """Fake Kubernetes client with one Secret."""

    def __init__(self):
        self.secret = None
        self.version = 10
        self.calls = []
        self.fails = []
        self.meanwhile = None

    def _called(self, name):
        self.calls.append(name)
        if self.fails:
            failure = self.fails.pop(0)
            if failure is not None:
                raise failure

    def _keep(self, secret):
        self.version += 1
        secret['metadata']['resourceVersion'] = str(self.version)
        self.secret = secret
        return copy.deepcopy(secret)

    def get(self, resource, namespace, name):
        self._called('get')
        if self.secret is None:
            raise errors.ObjectNotFound('none')
        found = copy.deepcopy(self.secret)
        if self.meanwhile:
            self.meanwhile.pop()()
        return found

    def create(self, resource, namespace, body):
        self._called('create')
        if self.secret is not None:
            raise errors.Conflict('exists')
        return self._keep(copy.deepcopy(body))

    def patch(self, resource, namespace, name, operations):
        self._called('patch')
        secret = copy.deepcopy(self.secret)
        for one in operations:
            if one['op'] == 'test':
                if secret['metadata']['resourceVersion'] != one['value']:
                    raise errors.Conflict('changed')
            elif one['path'] == '/data':
                secret['data'] = one['value']
            else:
                secret['metadata']['ownerReferences'] = one['value']
        return self._keep(secret)

    def put(self, section, value):
        """Write a section as another host does."""
        text = base64.b64encode(json.dumps(value).encode()).decode()
        secret = self.secret or {'metadata': {}, 'data': {}}
        secret['data'][section] = text
        self._keep(secret)


class Machine:
    name = VM.name
    uid = 'uid-1'


class Cluster:
    options = options.Options(write_deadline=2)
    default_namespace = 'lab'

    def __init__(self, vm=None):
        self.client = Client()
        self.closing = threading.Event()
        self.vm = vm
        self.there = Machine()

    def machine(self, identity):
        if self.there is None:
            raise errors.MachineNotFound(identity)
        return self.there


class TestStateSecret(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()
        self.client = self.cluster.client
        self.state = state_secret.StateSecret(self.cluster, ('default', 's'))

    def write(self, **values):
        return self.state.update('a', lambda section: section.update(values))

    def test_first_write_creates_secret(self):
        self.assertEqual({}, self.state.read('a'))
        self.assertEqual({'x': 1}, self.write(x=1))
        self.assertEqual({'x': 1, 'y': 2}, self.write(y=2))
        self.assertEqual(['get', 'get', 'create', 'get', 'patch'],
                         self.client.calls)
        self.assertEqual('Opaque', self.client.secret['type'])
        self.assertNotIn('ownerReferences', self.client.secret['metadata'])
        again = state_secret.StateSecret(self.cluster, ('default', 's'))
        self.assertEqual({'x': 1, 'y': 2}, again.read('a'))
        self.assertEqual({}, again.read('b'))

    def test_reads_use_cache(self):
        self.write(x=1)
        del self.client.calls[:]
        for _ in range(5):
            self.assertEqual({'x': 1}, self.state.read('a'))
        self.assertEqual([], self.client.calls)
        self.client.put('a', {'x': 2})
        self.assertEqual({'x': 2}, self.state.read('a', fresh=True))

    def test_read_refreshes_old_cache_in_thread(self):
        self.write(x=1)
        self.client.put('a', {'x': 2})
        changed = threading.Event()
        self.state.subscribe(changed.set)
        self.useFixture(fixtures.MockPatchObject(
            state_secret, 'MAX_AGE_SECONDS', -1))
        self.state.cached('a')
        self.assertTrue(changed.wait(30))
        self.assertEqual({'x': 2}, self.state.cached('a'))

    def test_sections_are_independent(self):
        self.write(x=1)
        self.state.update('b', lambda section: section.update(z=3))
        self.assertEqual({'x': 1}, self.state.read('a'))

    def test_update_without_change_is_not_written(self):
        self.write(x=1)
        del self.client.calls[:]
        self.write(x=1)
        self.assertEqual(['get'], self.client.calls)

    def test_keeps_concurrent_change(self):
        self.write(x=1)
        self.client.meanwhile = [lambda: self.client.put(
            'a', {'x': 1, 'other': 5})]
        self.assertEqual({'x': 1, 'y': 2, 'other': 5}, self.write(y=2))

    def test_recognizes_own_write_after_lost_response(self):
        self.write(x=1)
        patch = self.client.patch

        def lost(*args):
            patch(*args)
            self.client.patch = patch
            raise errors.ConnectionLost('gone', maybe_done=True)

        self.client.patch = lost
        del self.client.calls[:]
        self.assertEqual({'x': 1, 'y': 2}, self.write(y=2))
        self.assertEqual(['get', 'patch', 'get'], self.client.calls)

    def test_watch_shows_write_after_lost_response(self):
        self.write(x=1)
        patch = self.client.patch

        def lost(*args):
            self.state.event(None, 'MODIFIED', patch(*args))
            self.client.fails = [errors.ServerError('busy')] * 99
            raise errors.ConnectionLost('gone', maybe_done=True)

        self.client.patch = lost
        del self.client.calls[:]
        with mock.patch.object(state_secret.StateSecret, '_watched', True):
            self.assertEqual({'x': 1, 'y': 2}, self.write(y=2))
        self.assertEqual(['get', 'patch'], self.client.calls)

    def test_read_without_permission_is_empty(self):
        denied = errors.AccessDenied('no', 'get', 'secrets', 'default')
        self.client.fails = [denied, denied, denied]
        self.assertEqual({}, self.state.read('a'))
        self.client.fails = [denied, denied, denied]
        self.assertRaises(errors.AccessDenied, self.write, x=1)

    def test_waits_for_secret_it_may_not_create(self):
        denied = errors.AccessDenied('no', 'create', 'secrets', 'default')
        self.client.fails = [None, denied, None]
        self.cluster.options = options.Options(write_deadline=0)
        e = self.assertRaises(errors.Unavailable, self.write, x=1)
        self.assertIn('of type Opaque', str(e))
        # Once the operator has created it.
        self.cluster.options = options.Options()
        self.client.fails = [None, denied]
        create = self.client.create

        def refused(*args):
            self.client.secret = {'metadata': {'resourceVersion': '1'}}
            return create(*args)

        self.client.create = refused
        self.assertEqual({'x': 1}, self.write(x=1))

    def test_absent_section_is_the_same_object(self):
        self.state.read('absent')
        self.assertIs(self.state.cached('absent'), self.state.cached('absent'))

    def test_cached_survives_unreachable_api(self):
        self.client.fails = [errors.Unavailable('away')] * 2
        self.assertRaises(errors.Unavailable, self.state.read, 'a')
        self.assertEqual({}, self.state.cached('a'))

    def test_refuses_update_of_full_section(self):
        self.write(x=1)
        self.assertRaises(errors.Rejected, self.write,
                          y='y' * state_secret.MAX_BYTES)
        self.assertEqual({'x': 1}, self.state.read('a', fresh=True))

    def test_full_section_leaves_room_to_others(self):
        for section, most in state_secret.LARGE_SECTIONS.items():
            self.state.update(section, lambda section: section.update(
                x='x' * (most * 3 // 4 - 10)))
            self.assertRaises(
                errors.Rejected, self.state.update, section,
                lambda section: section.update(y='y' * 10))
        for section in 'accounts', 'events', 'sessions', 'other':
            self.state.update(section, lambda section: section.update(
                x='x' * (state_secret.MAX_BYTES * 3 // 4 - 10)))
        # What Kubernetes accepts, without base64.
        self.assertLess(sum(
            len(base64.b64decode(data)) for data
            in self.client.secret['data'].values()), 2 ** 20)

    def test_section_that_is_too_large_can_be_made_smaller(self):
        """An earlier release has stored it."""
        self.write(x='x' * 100, y='y' * 100)
        self.useFixture(fixtures.MockPatchObject(
            state_secret, 'MAX_BYTES', 50))
        self.state.update('a', lambda section: section.pop('y'))
        self.assertEqual(['x'], list(self.state.read('a', fresh=True)))
        self.assertRaises(errors.Rejected, self.write, z=1)

    def test_ignores_invalid_section(self):
        self.write(x=1)
        self.client.secret['data']['a'] = '%%%'
        self.assertEqual({}, self.state.read('a', fresh=True))
        self.client.secret['data']['a'] = base64.b64encode(b'[1]').decode()
        self.assertEqual({}, self.state.read('a', fresh=True))
        self.assertEqual({'y': 1}, self.write(y=1))

    def test_failing_edit_changes_nothing(self):
        self.write(x=1)

        def edit(section):
            section['x'] = 2
            raise KeyError('x')

        self.assertRaises(KeyError, self.state.update, 'a', edit)
        self.assertEqual({'x': 1}, self.state.read('a', fresh=True))


class TestWatch(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()
        self.client = self.cluster.client
        self.client.put('a', {'x': 1})
        self.state = state_secret.StateSecret(self.cluster, ('default', 's'))
        self.state._watcher = self.source = mock.Mock(
            error=None, broken_since=None)

    def pages(self, version='11'):
        yield [], version
        if self.client.secret is not None:
            yield [copy.deepcopy(self.client.secret)], version

    def event(self, kind='MODIFIED'):
        self.state.event(self.source, kind, copy.deepcopy(self.client.secret))

    def test_events_replace_reads(self):
        self.assertEqual('11', self.state.take_list(
            self.source, self.pages()))
        self.assertEqual({'x': 1}, self.state.read('a'))
        self.useFixture(fixtures.MockPatchObject(
            state_secret, 'MAX_AGE_SECONDS', -1))
        self.client.put('a', {'x': 2})
        self.event()
        self.assertEqual({'x': 2}, self.state.cached('a'))
        self.state.refresh(0)
        self.event('DELETED')
        self.assertEqual({}, self.state.cached('a'))
        self.assertEqual([], self.client.calls)
        self.state.refresh(0, trust_watch=False)
        self.assertEqual(['get'], self.client.calls)

    def test_lagging_event_does_not_undo_write(self):
        self.state.take_list(self.source, self.pages())
        old = copy.deepcopy(self.client.secret)
        self.state.update('a', lambda section: section.update(x=3))
        self.state.event(self.source, 'MODIFIED', old)
        self.assertEqual({'x': 3}, self.state.cached('a'))
        # A list may show an older state after a restored backup.
        self.client.secret = old
        self.state.take_list(self.source, self.pages('1'))
        self.assertEqual({'x': 1}, self.state.cached('a'))

    def test_lagging_event_does_not_discard_read(self):
        self.state.take_list(self.source, self.pages())
        self.client.put('a', {'x': 2})
        lagging = copy.deepcopy(self.client.secret)
        self.client.put('a', {'x': 3})
        # The event arrives after the request, and before its response.
        self.client.meanwhile = [lambda: self.state.event(
            self.source, 'MODIFIED', lagging)]
        self.state.refresh(0, trust_watch=False)
        self.assertEqual({'x': 3}, self.state.cached('a'))

    def test_late_response_does_not_undo_event(self):
        update = self.client.patch

        def patch(*args):
            answer = update(*args)
            self.client.put('a', {'x': 5})
            self.event()
            return answer

        self.state.take_list(self.source, self.pages())
        self.client.patch = patch
        self.state.update('a', lambda section: section.update(x=3))
        self.assertEqual({'x': 5}, self.state.cached('a'))

    def test_reads_by_age_without_permission_to_watch(self):
        self.source.error = errors.AccessDenied('no', 'list', 'secrets', '')
        self.state.changed()
        self.source.stop.assert_called_once()
        self.state.refresh(1)
        self.state.refresh(1)
        self.assertEqual(['get'], self.client.calls)
        self.assertEqual({'x': 1}, self.state.cached('a'))

    def test_refresh_does_not_fail(self):
        self.client.fails = [errors.Unavailable('away')]
        self.state.refresh(1)
        self.assertEqual({}, self.state.cached('a'))


class TestSecretOfOneVM(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(vm=VM)
        self.client = self.cluster.client
        self.where = state_secret.location(self.cluster)
        self.state = state_secret.StateSecret(self.cluster, self.where)

    def test_vm_owns_secret(self):
        self.assertEqual(('default', 'vm-a-bmc-state'), self.where)
        self.state.update('a', lambda section: section.update(x=1))
        self.assertEqual([{
            'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'name': 'vm-a', 'uid': 'uid-1'}],
            self.client.secret['metadata']['ownerReferences'])

    def test_long_names(self):
        self.assertEqual('v' * 243 + '-bmc-state',
                         state_secret.name('v' * 243))
        names = {state_secret.name('v' * 231 + end)
                 for end in ('.' + 'v' * 12, '-' * 12 + 'v', '.a' * 10)}
        self.assertEqual(3, len(names))
        for name in names:
            self.assertRegex(name, '^v{231}-[0-9a-f]{10}-bmc-state$')

    def test_configured_location(self):
        self.assertEqual(('a', 'b'),
                         state_secret.location(self.cluster, 'a/b'))

    def test_secret_shared_with_other_vms(self):
        where = state_secret.location(self.cluster, shared=True)
        self.assertEqual(('lab', 'sushy-kubevirt-state'), where)
        state = state_secret.StateSecret(self.cluster, where, shared=True)
        self.client.put('a', {'x': 1})
        self.assertEqual({'x': 1}, state.read('a'))
        state.update('b', lambda section: section.update(y=1))
        self.assertNotIn('ownerReferences', self.client.secret['metadata'])
        self.assertEqual({'x': 1}, state.read('a', fresh=True))

    def test_ignores_secret_of_deleted_vm_of_same_name(self):
        self.state.update('a', lambda section: section.update(x=1))
        self.cluster.there = Machine()
        self.cluster.there.uid = 'uid-2'
        self.assertEqual({}, self.state.read('a', fresh=True))
        self.state.update('a', lambda section: section.update(y=1))
        self.assertEqual({'y': 1}, self.state.read('a', fresh=True))
        self.assertEqual('uid-2', self.client.secret['metadata'][
            'ownerReferences'][0]['uid'])

    def test_missing_vm(self):
        self.cluster.there = None
        self.assertEqual({}, self.state.read('a'))
        self.assertRaises(errors.MachineNotFound, self.state.update, 'a',
                          lambda section: section.update(x=1))
