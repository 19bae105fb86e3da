# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
from unittest import mock

from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import selectors
from kubevirt_sandbox.api import views
from kubevirt_sandbox.api import watches
from tests.unit.api import base

TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io'
MERGE = 'application/merge-patch+json'
JSON_PATCH = 'application/json-patch+json'
APPLY = 'application/apply-patch+yaml'


class AccessTestCase(base.ServerTestCase):

    async def test_a_wrong_token_is_401(self):
        body = await self.call('GET', self.THINGS, expect=401,
                               headers={'Authorization': 'Bearer wrong'})
        self.assertEqual('Unauthorized', body['reason'])

    async def test_without_a_token_one_is_anonymous(self):
        for headers in ({'Authorization': ''}, {'Authorization': 'Bearer '},
                        {'Authorization': 'Basic ' + self.server.token}):
            body = await self.call('GET', self.THINGS, expect=403,
                                   headers=headers)
            self.assertEqual(
                'things.example.test is forbidden: User "system:anonymous" '
                'cannot list resource "things" in API group "example.test" '
                'in the namespace "default"', body['message'])

    async def test_health_and_version_are_public(self):
        for path in ('/healthz', '/readyz', '/livez'):
            async with self.client.get(
                    path, headers={'Authorization': ''}) as answer:
                self.assertEqual((200, 'ok'),
                                 (answer.status, await answer.text()))
        body = await self.call('GET', '/version',
                               headers={'Authorization': ''}, expect=200)
        self.assertEqual('1', body['major'])

    async def test_who_am_i(self):
        body = await self.call(
            'POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews',
            {'apiVersion': 'authentication.k8s.io/v1',
             'kind': 'SelfSubjectReview'}, 201)
        self.assertEqual('kubernetes-admin',
                         body['status']['userInfo']['username'])


class RefusalTestCase(base.ServerTestCase):

    async def test_paths_that_are_nothing(self):
        for path in ('/nothing', '/apis/nothing/v1', '/api/v2',
                     '/apis/example.test/v1/nothing',
                     '/apis/example.test/v1/things/a',
                     self.THINGS + '/a/nothing'):
            body = await self.call('GET', path, expect=404)
            self.assertEqual('the server could not find the requested '
                             'resource', body['message'])

    async def test_methods(self):
        await self.call('POST', self.THINGS + '/a', {}, 405)
        await self.call('PUT', self.THINGS, {}, 405)
        await self.call('POST', '/apis/example.test/v1/things', {}, 405)
        await self.call('POST', '/apis', {}, 405)
        await self.call('OPTIONS', self.THINGS, expect=405)

    async def test_head_is_get_without_a_body(self):
        async with self.client.head(self.THINGS) as answer:
            self.assertEqual(200, answer.status)
            self.assertEqual(b'', await answer.read())

    async def test_accept(self):
        await self.call('GET', self.THINGS, expect=406,
                        headers={'Accept': 'text/html'})
        await self.call('GET', self.THINGS, expect=406, headers={
            'Accept': 'application/vnd.kubernetes.protobuf'})
        await self.call('GET', self.THINGS, expect=200, headers={
            'Accept': 'application/vnd.kubernetes.protobuf, */*;q=0.1'})
        await self.call('GET', self.THINGS, expect=200, headers={
            'Accept': 'application/yaml'})
        self.assertEqual('application/yaml', self.answer.content_type)

    async def test_nothing_is_written_for_who_reads_no_answer(self):
        await self.call('POST', self.THINGS, base.make(), 406,
                        headers={'Accept': 'text/html'})
        self.assertEqual([], self.store.list(self.kind))

    async def test_content_type(self):
        await self.call('POST', self.THINGS, 'x', 415, 'text/plain')
        self.store.create(self.kind, base.make())
        body = await self.call('PATCH', self.THINGS + '/a', '{}', 415,
                               'application/json')
        self.assertIn(MERGE, body['message'])
        # Custom resources take no strategic merge patches.
        await self.call('PATCH', self.THINGS + '/a', '{}', 415,
                        'application/strategic-merge-patch+json')

    async def test_bodies_that_are_no_objects(self):
        for body in ('{', '[]', '"x"', 'null', '', '{"a":NaN}',
                     '[' * 5000, '{"apiVersion":"example.test/v1"}',
                     '{"apiVersion":"example.test/v1","kind":"Thing",'
                     '"metadata":[]}'):
            for media in ('application/json', 'application/yaml'):
                answer = await self.call('POST', self.THINGS, body, 400,
                                         media)
                self.assertEqual('BadRequest', answer['reason'], body)

    async def test_yaml_that_blows_up(self):
        text = 'a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]'
        body = await self.call('POST', self.THINGS, text, 400,
                               'application/yaml')
        self.assertIn('aliases', body['message'])

    async def test_a_body_too_large(self):
        answer = await self.call('POST', self.THINGS,
                                 b'"' + b'x' * bodies.LIMIT + b'"', 413)
        self.assertEqual('RequestEntityTooLarge', answer['reason'])

    async def test_the_wrong_kind_name_or_namespace(self):
        wrong = {**base.make(), 'kind': 'Other'}
        await self.call('POST', self.THINGS, wrong, 400)
        wrong = base.make()
        wrong['metadata']['namespace'] = 'other'
        body = await self.call('POST', self.THINGS, wrong, 400)
        self.assertIn('does not match the namespace', body['message'])
        self.store.create(self.kind, base.make())
        body = await self.call('PUT', self.THINGS + '/a', base.make('b'),
                               400)
        self.assertEqual(
            'the name of the object (b) does not match the name on the URL '
            '(a)', body['message'])

    async def test_not_found_and_already_exists(self):
        body = await self.call('GET', self.THINGS + '/a', expect=404)
        self.assertEqual(
            {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {},
             'status': 'Failure', 'message':
                 'things.example.test "a" not found', 'reason': 'NotFound',
             'details': {'name': 'a', 'group': 'example.test',
                         'kind': 'things'}, 'code': 404}, body)
        await self.call('POST', self.THINGS, base.make(), 201)
        body = await self.call('POST', self.THINGS, base.make(), 409)
        self.assertEqual('AlreadyExists', body['reason'])

    async def test_a_namespace_that_is_not_there(self):
        body = await self.call(
            'POST', '/api/v1/namespaces/none/configmaps',
            {'apiVersion': 'v1', 'kind': 'ConfigMap',
             'metadata': {'name': 'x'}}, 404)
        self.assertEqual('namespaces "none" not found', body['message'])

    async def test_a_bug_is_a_status_too(self):
        def bug(admission):
            raise RuntimeError('secret')
        self.kind.validate = bug
        with self.assertLogs('kubevirt_sandbox.api.server'):
            body = await self.call('POST', self.THINGS, base.make(), 500)
        self.assertNotIn('secret', json.dumps(body))


class ObjectTestCase(base.ServerTestCase):

    async def test_make_read_write_delete(self):
        made = await self.call('POST', self.THINGS, base.make(), 201)
        self.assertEqual('red', made['spec']['colour'])
        self.assertEqual(1, made['metadata']['generation'])
        made['spec']['size'] = 2
        changed = await self.call('PUT', self.THINGS + '/a', made, 200)
        self.assertEqual(2, changed['metadata']['generation'])
        self.assertEqual(
            changed, await self.call('GET', self.THINGS + '/a', expect=200))
        body = await self.call('PUT', self.THINGS + '/a', made, 409)
        self.assertIn('the object has been modified', body['message'])
        body = await self.call('DELETE', self.THINGS + '/a', expect=200)
        self.assertEqual(('Success', made['metadata']['uid']),
                         (body['status'], body['details']['uid']))
        await self.call('GET', self.THINGS + '/a', expect=404)

    async def test_put_needs_a_version_for_custom_resources(self):
        self.store.create(self.kind, base.make())
        body = await self.call('PUT', self.THINGS + '/a', base.make(), 422)
        self.assertIn('metadata.resourceVersion', body['message'])
        path = '/api/v1/namespaces/default/configmaps'
        config = {'apiVersion': 'v1', 'kind': 'ConfigMap',
                  'metadata': {'name': 'x'}, 'data': {'a': 'b'}}
        await self.call('POST', path, config, 201)
        await self.call('PUT', path + '/x', config, 200)

    async def test_generate_name(self):
        body = base.make()
        del body['metadata']['name']
        body['metadata']['generateName'] = 'x-'
        made = await self.call('POST', self.THINGS, body, 201)
        self.assertRegex(made['metadata']['name'], '^x-[a-z0-9]{5}$')

    async def test_what_the_schema_refuses(self):
        body = await self.call('POST', self.THINGS,
                               base.make(size=0, colour='blue'), 422)
        self.assertEqual('Invalid', body['reason'])
        self.assertEqual({'spec.size', 'spec.colour'},
                         {c['field'] for c in body['details']['causes']})
        self.assertIn('Unsupported value: "blue": supported values: "red", '
                      '"green"', body['message'])

    async def test_fields_nobody_knows(self):
        made = await self.call('POST', self.THINGS, base.make(nix=1), 201)
        self.assertNotIn('nix', made['spec'])
        self.assertEqual('299 - "unknown field \\"spec.nix\\""',
                         self.answer.headers['Warning'])
        obj = base.make('m')
        obj['metadata'].update(nix=1, annotations={}, finalizers=[])
        made = await self.call('POST', self.THINGS, obj, 201)
        self.assertIn('metadata.nix', self.answer.headers['Warning'])
        self.assertFalse({'nix', 'annotations', 'finalizers'}
                         & made['metadata'].keys())
        path = self.THINGS + '?fieldValidation='
        body = await self.call('POST', path + 'Strict',
                               base.make('b', nix=1), 400)
        self.assertEqual(
            'Thing in version "v1" cannot be handled as a Thing: strict '
            'decoding error: unknown field "spec.nix"', body['message'])
        await self.call('POST', path + 'Ignore', base.make('b', nix=1), 201)
        self.assertNotIn('Warning', self.answer.headers)
        await self.call('POST', path + 'Nix', base.make('c'), 422)

    async def test_fields_that_stand_twice(self):
        text = json.dumps(base.make()).replace(
            '"size": 1', '"size": 1, "size": 2')
        body = await self.call(
            'POST', self.THINGS + '?fieldValidation=Strict', text, 400)
        self.assertIn('duplicate field "size"', body['message'])

    async def test_dry_run_changes_nothing(self):
        made = await self.call('POST', self.THINGS + '?dryRun=All',
                               base.make(), 201)
        self.assertTrue(made['metadata']['uid'])
        await self.call('GET', self.THINGS + '/a', expect=404)
        self.store.create(self.kind, base.make())
        body = await self.call(
            'PATCH', self.THINGS + '/a?dryRun=All', {'spec': {'size': 9}},
            200, MERGE)
        self.assertEqual(9, body['spec']['size'])
        await self.call('DELETE', self.THINGS + '/a?dryRun=All', expect=200)
        self.assertEqual(1, self.store.get(
            self.kind, 'default', 'a')['spec']['size'])
        await self.call('DELETE', self.THINGS + '/a?dryRun=Some', expect=422)

    async def test_status_has_its_own_door(self):
        made = await self.call(
            'POST', self.THINGS, {**base.make(), 'status': {'phase': 'x'}},
            201)
        self.assertNotIn('status', made)
        path = self.THINGS + '/a/status'
        body = await self.call(
            'PATCH', path, {'status': {'phase': 'On'}, 'spec': {'size': 7},
                            'metadata': {'labels': {'x': 'y'}}}, 200, MERGE)
        self.assertEqual(('On', 1, 1), (
            body['status']['phase'], body['spec']['size'],
            body['metadata']['generation']))
        self.assertNotIn('labels', body['metadata'])
        body = await self.call(
            'PATCH', self.THINGS + '/a', {'status': {'phase': 'Off'}}, 200,
            MERGE)
        self.assertEqual('On', body['status']['phase'])
        self.assertEqual('On', (await self.call(
            'GET', path, expect=200))['status']['phase'])
        await self.call('DELETE', path, expect=405)

    async def test_patches(self):
        self.store.create(self.kind, base.make(free={'a': 1, 'b': 2}))
        path = self.THINGS + '/a'
        body = await self.call(
            'PATCH', path, {'spec': {'free': {'a': None, 'c': [1]}}}, 200,
            MERGE)
        self.assertEqual({'b': 2, 'c': [1]}, body['spec']['free'])
        body = await self.call('PATCH', path, [
            {'op': 'test', 'path': '/spec/size', 'value': 1},
            {'op': 'replace', 'path': '/spec/size', 'value': 3}], 200,
            JSON_PATCH)
        self.assertEqual(3, body['spec']['size'])
        for patch in ([{'op': 'test', 'path': '/spec/size', 'value': 1}],
                      [{'op': 'remove', 'path': '/spec/none'}]):
            body = await self.call('PATCH', path, patch, 422, JSON_PATCH)
            self.assertEqual('Invalid', body['reason'])
        for patch in ({'op': 'test'}, [{'op': 'nix', 'path': '/a'}], [1],
                      [{'op': 'add'}]):
            await self.call('PATCH', path, patch, 400, JSON_PATCH)
        await self.call('PATCH', path, [
            {'op': 'add', 'path': '/spec/free/x', 'value': ['y' * 100]}, *[
                {'op': 'copy', 'from': '/spec/free/x', 'path':
                 '/spec/free/x/-'}] * 40], 413, JSON_PATCH)
        await self.call('PATCH', path, [1], 400, MERGE)
        await self.call('PATCH', path, {'metadata': None}, 400, MERGE)
        for wrong in ({'kind': 'Other'}, {'kind': {}}, {'apiVersion': 'v9'},
                      {'apiVersion': None}):
            await self.call('PATCH', path, wrong, 400, MERGE)
        await self.call('PATCH', path, {'metadata': {
            'resourceVersion': '1'}, 'spec': {'size': 5}}, 409, MERGE)
        await self.call('PATCH', self.THINGS + '/none', {}, 404, MERGE)

    async def test_a_patch_that_changes_nothing_writes_nothing(self):
        made = self.store.create(self.kind, base.make())
        body = await self.call('PATCH', self.THINGS + '/a',
                               {'spec': {'size': 1}}, 200, MERGE)
        self.assertEqual(made['metadata'], body['metadata'])

    async def test_finalizers_keep_an_object(self):
        obj = base.make()
        obj['metadata']['finalizers'] = ['example.test/f']
        await self.call('POST', self.THINGS, obj, 201)
        body = await self.call('DELETE', self.THINGS + '/a', expect=200)
        self.assertEqual('Thing', body['kind'])
        self.assertIn('deletionTimestamp', body['metadata'])
        body = await self.call(
            'PATCH', self.THINGS + '/a', {'metadata': {'finalizers': [
                'example.test/f', 'example.test/g']}}, 422, MERGE)
        self.assertIn('no new finalizers can be added', body['message'])
        await self.call('PATCH', self.THINGS + '/a',
                        {'metadata': {'finalizers': None}}, 200, MERGE)
        await self.call('GET', self.THINGS + '/a', expect=404)

    async def test_options_of_a_deletion(self):
        self.store.create(self.kind, base.make())
        for options in ([], {'preconditions': []}, {'dryRun': 'All'},
                        {'preconditions': {'uid': 1}},
                        {'gracePeriodSeconds': 'x'},
                        {'gracePeriodSeconds': -1}):
            await self.call('DELETE', self.THINGS + '/a', options, 400)
        await self.call('DELETE', self.THINGS + '/a', {
            'propagationPolicy': 'Nix'}, 422)
        await self.call('DELETE', self.THINGS + '/a', {
            'propagationPolicy': None, 'gracePeriodSeconds': 0}, 200)

    async def test_preconditions_of_a_deletion(self):
        made = self.store.create(self.kind, base.make())
        body = await self.call('DELETE', self.THINGS + '/a', {
            'preconditions': {'uid': 'x'}}, 409)
        self.assertIn('Precondition failed: UID', body['message'])
        await self.call('DELETE', self.THINGS + '/a', {'preconditions': {
            'resourceVersion': made['metadata']['resourceVersion']}}, 200)

    async def test_the_uid_of_another(self):
        path = self.THINGS + '/a'
        whole = {**base.make(), 'metadata': {
            **base.make()['metadata'], 'uid': 'x'}}
        body = await self.call('PATCH', path + '?fieldManager=m', whole, 409,
                               APPLY)
        self.assertIn('no existing object was found', body['message'])
        self.store.create(self.kind, base.make())
        for media, what in ((MERGE, {'metadata': {'uid': 'x'}}),
                            (APPLY, whole)):
            body = await self.call(
                'PATCH', path + '?fieldManager=m&force=true', what, 422,
                media)
            self.assertIn('metadata.uid: Invalid value: "x": field is '
                          'immutable', body['message'])
        there = self.store.get(self.kind, 'default', 'a')
        body = await self.call('PUT', path, {**there, 'metadata': {
            **there['metadata'], 'uid': 'x'}}, 409)
        self.assertIn('Precondition failed: UID', body['message'])

    async def test_delete_a_collection(self):
        for name in 'abc':
            obj = base.make(name)
            obj['metadata']['labels'] = {'x': name}
            self.store.create(self.kind, obj)
        body = await self.call('DELETE', self.THINGS, expect=200,
                               params={'labelSelector': 'x in (a, b)'})
        self.assertEqual(2, len(body['items']))
        self.assertEqual(['c'], [o['metadata']['name'] for o in
                                 self.store.list(self.kind)])

    async def test_tables(self):
        self.store.create(self.kind, base.make(size=7))
        body = await self.call('GET', self.THINGS, expect=200,
                               headers={'Accept': TABLE})
        self.assertEqual(['Name', 'Size'], [
            c['name'] for c in body['columnDefinitions']])
        self.assertEqual(['a', 7], body['rows'][0]['cells'])
        self.assertEqual('PartialObjectMetadata',
                         body['rows'][0]['object']['kind'])
        body = await self.call(
            'GET', self.THINGS + '/a?includeObject=Object', expect=200,
            headers={'Accept': TABLE})
        self.assertEqual(7, body['rows'][0]['object']['spec']['size'])

    async def test_metadata_alone(self):
        self.store.create(self.kind, base.make())
        body = await self.call('GET', self.THINGS, expect=200, headers={
            'Accept': 'application/json;as=PartialObjectMetadataList;'
            'g=meta.k8s.io;v=v1'})
        self.assertEqual('PartialObjectMetadataList', body['kind'])
        self.assertNotIn('spec', body['items'][0])


class ListTestCase(base.ServerTestCase):

    options = {'length': 8}

    async def asyncSetUp(self):
        await super().asyncSetUp()
        for name in 'abcde':
            self.store.create(self.kind, base.make(
                name, colour='green' if name == 'b' else 'red'))

    async def names(self, **params):
        self.body = await self.call('GET', self.THINGS, expect=200,
                                    params=params)
        return [o['metadata']['name'] for o in self.body['items']]

    async def test_pages_are_of_one_version(self):
        self.assertEqual(['a', 'b'], await self.names(limit='2'))
        meta = self.body['metadata']
        self.assertEqual(3, meta['remainingItemCount'])
        self.store.delete(self.kind, 'default', 'c')
        self.store.create(self.kind, base.make('bb'))
        self.assertEqual(['c', 'd'], await self.names(
            **{'limit': '2', 'continue': meta['continue']}))
        last = self.body['metadata']
        self.assertEqual(meta['resourceVersion'], last['resourceVersion'])
        self.assertEqual(['e'], await self.names(
            **{'limit': '2', 'continue': last['continue']}))
        self.assertNotIn('continue', self.body['metadata'])

    async def test_a_page_asked_for_too_late(self):
        await self.names(limit='2')
        token = self.body['metadata']['continue']
        for size in range(2, 12):
            self.store.change(self.kind, 'default', 'e',
                              lambda o, n=size: o['spec'].update(size=n))
        body = await self.call('GET', self.THINGS, expect=410, params={
            'limit': '2', 'continue': token})
        self.assertEqual('Expired', body['reason'])
        # The answer has a token to go on with all the same.
        self.assertEqual(['c', 'd', 'e'], await self.names(
            **{'continue': body['metadata']['continue']}))

    async def test_tokens_that_are_none(self):
        for token in ('x', '!!!', 'e30', 'bnVsbA'):
            await self.call('GET', self.THINGS, expect=400,
                            params={'continue': token})

    async def test_field_selectors(self):
        self.assertEqual(['b'], await self.names(
            fieldSelector='spec.colour=green'))
        self.assertEqual(['b', 'c', 'd', 'e'], await self.names(
            fieldSelector='metadata.name!=a'))
        body = await self.call('GET', self.THINGS, expect=400,
                               params={'fieldSelector': 'spec.size=1'})
        self.assertEqual('field label not supported: spec.size',
                         body['message'])

    async def test_versions(self):
        now = self.store.version
        self.store.delete(self.kind, 'default', 'a')
        self.assertEqual(4, len(await self.names(
            resourceVersion=str(now), resourceVersionMatch='NotOlderThan')))
        self.assertEqual(5, len(await self.names(
            resourceVersion=str(now), resourceVersionMatch='Exact')))
        body = await self.call('GET', self.THINGS, expect=504, params={
            'resourceVersion': str(self.store.version + 100)})
        self.assertIn('Too large resource version', body['message'])
        await self.call('GET', self.THINGS, expect=400,
                        params={'resourceVersion': 'x'})
        await self.call('GET', self.THINGS, expect=422,
                        params={'resourceVersionMatch': 'Exact'})


class WatchTestCase(base.ServerTestCase):

    options = {'length': 8, 'bookmark_seconds': 0.05}

    def types(self, events):
        return [(e['type'], e['object']['metadata'].get('name'))
                for e in events]

    async def test_from_now_everything_that_is_there_comes_first(self):
        self.store.create(self.kind, base.make())
        for version in ('', '0'):
            events = await self.watch(self.THINGS, lambda e: True,
                                      resourceVersion=version)
            self.assertEqual([('ADDED', 'a')], self.types(events))

    async def test_from_a_version_only_what_came_later(self):
        made = self.store.create(self.kind, base.make())
        version = made['metadata']['resourceVersion']

        async def change():
            await asyncio.sleep(0.1)
            self.store.delete(self.kind, 'default', 'a')
        self.store.change(self.kind, 'default', 'a',
                          lambda o: o['spec'].update(size=2))
        task = asyncio.ensure_future(change())
        events = await self.watch(self.THINGS, lambda e: len(e) == 2,
                                  resourceVersion=version)
        await task
        self.assertEqual([('MODIFIED', 'a'), ('DELETED', 'a')],
                         self.types(events))
        versions = [int(e['object']['metadata']['resourceVersion'])
                    for e in events]
        self.assertLess(int(version), versions[0])
        self.assertLess(versions[0], versions[1])

    async def test_a_selector_sees_objects_come_and_go(self):
        version = str(self.store.version)
        self.store.create(self.kind, base.make())
        for colour in ('green', 'green', 'red'):
            self.store.change(self.kind, 'default', 'a', lambda o:
                              o['spec'].update(colour=colour, size=o[
                                  'spec']['size'] + 1))
        events = await self.watch(
            self.THINGS, lambda e: len(e) == 3, resourceVersion=version,
            fieldSelector='spec.colour=green')
        self.assertEqual(['ADDED', 'MODIFIED', 'DELETED'],
                         [e['type'] for e in events])
        # What is gone is shown as it was when it was last selected.
        self.assertEqual('green', events[2]['object']['spec']['colour'])
        self.assertEqual(
            self.store.get(self.kind, 'default', 'a')['metadata'][
                'resourceVersion'],
            events[2]['object']['metadata']['resourceVersion'])

    async def test_too_old_is_an_error_event(self):
        self.store.create(self.kind, base.make())
        for size in range(2, 12):
            self.store.change(self.kind, 'default', 'a',
                              lambda o, n=size: o['spec'].update(size=n))
        events = await self.watch(self.THINGS, lambda e: False,
                                  resourceVersion='1')
        self.assertEqual(['ERROR'], [e['type'] for e in events])
        self.assertEqual((410, 'Expired'), (
            events[0]['object']['code'], events[0]['object']['reason']))
        self.assertRegex(events[0]['object']['message'],
                         r'^too old resource version: 1 \(\d+\)$')

    async def test_bookmarks(self):
        version = str(self.store.version)
        self.store.create(core.CONFIG_MAP, {'metadata': {
            'name': 'x', 'namespace': 'default'}})
        events = await self.watch(
            self.THINGS, lambda e: True, resourceVersion=version,
            allowWatchBookmarks='true')
        self.assertEqual('BOOKMARK', events[0]['type'])
        self.assertEqual(str(self.store.version), events[0]['object'][
            'metadata']['resourceVersion'])

    async def test_initial_events_end_with_a_bookmark(self):
        self.store.create(self.kind, base.make())
        events = await self.watch(
            self.THINGS, lambda e: len(e) == 2, sendInitialEvents='true',
            allowWatchBookmarks='true', resourceVersionMatch='NotOlderThan')
        self.assertEqual(['ADDED', 'BOOKMARK'], [e['type'] for e in events])
        self.assertEqual({'k8s.io/initial-events-end': 'true'}, events[1][
            'object']['metadata']['annotations'])
        await self.call('GET', self.THINGS + '?watch=1&sendInitialEvents='
                        'true', expect=422)

    async def test_it_ends_after_its_time(self):
        events = await self.watch(self.THINGS, lambda e: False,
                                  timeoutSeconds='1',
                                  resourceVersion=str(self.store.version))
        self.assertEqual([], events)

    async def test_of_one_object_by_its_name(self):
        for name in 'ab':
            self.store.create(self.kind, base.make(name))
        events = await self.watch(self.THINGS + '/b', lambda e: True)
        self.assertEqual([('ADDED', 'b')], self.types(events))

    async def test_as_tables(self):
        for name in 'ab':
            self.store.create(self.kind, base.make(name))
        events = []
        async with self.client.get(self.THINGS + '?watch=1', headers={
                'Accept': TABLE}) as answer:
            async for line in answer.content:
                events.append(json.loads(line)['object'])
                if len(events) == 2:
                    break
        self.assertTrue(events[0]['columnDefinitions'])
        self.assertIsNone(events[1]['columnDefinitions'])

    async def test_a_client_that_does_not_read_is_cut_off(self):
        written = []

        class Response:
            async def write(self, raw):
                written.append(raw)
        view = views.View(self.kind, negotiation.Form())
        watch = watches.Watch(self.store, view, selectors.Selector(
            '', '', self.kind), None, 20)
        with mock.patch.object(watches, 'BACKLOG', 2):
            watch.begin(self.store.version, False)
            for name in 'abcdef':
                self.store.create(self.kind, base.make(name))
        await watch.send(Response())
        self.assertEqual(3, len(b''.join(written).splitlines()))

    async def test_a_client_that_goes_leaves_nothing(self):
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            self.assertEqual(200, answer.status)
            await self.eventually(lambda: self.server.watches)
            answer.close()
        await self.eventually(lambda: not self.server.watches)
        self.assertEqual([], self.store.shelf(self.kind).listeners)


class ApplyTestCase(base.ServerTestCase):

    def config(self, **spec):
        return {'apiVersion': 'example.test/v1', 'kind': 'Thing',
                'metadata': {'name': 'a'}, 'spec': spec}

    async def apply(self, manager, config, expect, **params):
        return await self.call(
            'PATCH', self.THINGS + '/a', config, expect, APPLY,
            params={'fieldManager': manager, **params})

    async def test_it_makes_owns_and_refuses(self):
        made = await self.apply('one', self.config(size=1), 201)
        self.assertEqual('red', made['spec']['colour'])
        body = await self.apply('two', self.config(size=2), 409)
        self.assertEqual(
            'Apply failed with 1 conflict: conflict with "one": .spec.size',
            body['message'])
        self.assertEqual([{
            'reason': 'FieldManagerConflict', 'field': '.spec.size',
            'message': 'conflict with "one"'}], body['details']['causes'])
        body = await self.apply('two', self.config(size=2), 200,
                                force='true')
        self.assertEqual(2, body['spec']['size'])
        self.assertEqual({'two'}, {
            m['manager'] for m in body['metadata']['managedFields']})

    async def test_the_same_again_changes_nothing(self):
        first = await self.apply('one', self.config(size=1), 201)
        again = await self.apply('one', self.config(size=1), 200)
        self.assertEqual(first, again)

    async def test_what_it_needs(self):
        body = await self.call('PATCH', self.THINGS + '/a',
                               self.config(size=1), 422, APPLY)
        self.assertIn('fieldManager: Required value', body['message'])
        wrong = self.config(size=1)
        wrong['metadata']['managedFields'] = []
        body = await self.apply('one', wrong, 400)
        self.assertIn('must be nil', body['message'])
        await self.apply('one', self.config(size='x'), 422)
        await self.apply('one', {'metadata': {'name': 'a'}}, 400)

    async def test_yaml(self):
        await self.apply('one', 'apiVersion: example.test/v1\nkind: Thing\n'
                         'metadata: {name: a}\nspec: {size: 4}\n', 201)

    async def test_unknown_fields_when_strict(self):
        body = await self.apply('one', self.config(size=1, nix=1), 400,
                                fieldValidation='Strict')
        self.assertIn('unknown field "spec.nix"', body['message'])

    async def test_status(self):
        await self.apply('one', self.config(size=1), 201)
        body = await self.call(
            'PATCH', self.THINGS + '/a/status', {
                **self.config(), 'status': {'phase': 'On'}}, 200, APPLY,
            params={'fieldManager': 'status'})
        self.assertEqual((1, 'On'), (body['spec']['size'],
                                     body['status']['phase']))
        entry = [m for m in body['metadata']['managedFields']
                 if m['manager'] == 'status'][0]
        self.assertEqual(('status', {'f:status': {'f:phase': {}}}),
                         (entry['subresource'], entry['fieldsV1']))


class DiscoveryTestCase(base.ServerTestCase):

    async def test_groups_and_resources(self):
        body = await self.call('GET', '/apis', expect=200)
        groups = {g['name']: g for g in body['groups']}
        self.assertEqual('v1', groups['example.test'][
            'preferredVersion']['version'])
        self.assertIn('apiextensions.k8s.io', groups)
        body = await self.call('GET', '/apis/example.test/v1', expect=200)
        entries = {r['name']: r for r in body['resources']}
        self.assertEqual({'things', 'things/status'}, entries.keys())
        self.assertEqual(['th'], entries['things']['shortNames'])
        body = await self.call('GET', '/api', expect=200)
        self.assertEqual(['v1'], body['versions'])
        await self.call('GET', '/apis/example.test', expect=200)

    async def test_all_at_once(self):
        accept = 'application/json;g=apidiscovery.k8s.io;v=v2;' \
            'as=APIGroupDiscoveryList,application/json'
        body = await self.call('GET', '/apis', expect=200,
                               headers={'Accept': accept})
        self.assertEqual('APIGroupDiscoveryList', body['kind'])
        self.assertIn('as=APIGroupDiscoveryList',
                      self.answer.headers['Content-Type'])
        mine = [i for i in body['items']
                if i['metadata']['name'] == 'example.test'][0]
        self.assertEqual('status', mine['versions'][0]['resources'][0][
            'subresources'][0]['subresource'])
        mark = self.answer.headers['ETag']
        await self.call('GET', '/apis', expect=304, headers={
            'Accept': accept, 'If-None-Match': mark})

    async def test_openapi(self):
        body = await self.call('GET', '/openapi/v3', expect=200)
        url = body['paths']['apis/example.test/v1']['serverRelativeURL']
        body = await self.call('GET', url, expect=200)
        schema = body['components']['schemas']['test.example.v1.Thing']
        self.assertEqual(
            [{'group': 'example.test', 'kind': 'Thing', 'version': 'v1'}],
            schema['x-kubernetes-group-version-kind'])
        patch = body['paths'][
            '/apis/example.test/v1/namespaces/{namespace}/things/{name}'][
                'patch']
        self.assertIn('fieldValidation',
                      [p['name'] for p in patch['parameters']])
        await self.call('GET', '/openapi/v2', expect=406)
        await self.call('GET', '/openapi/v3/apis/none/v1', expect=404)
        for dot in '.@':
            async with self.client.get('/openapi/v2', headers={
                    'Accept': 'application/com.github.proto-openapi.spec.v2'
                    f'{dot}v1.0+protobuf'}) as answer:
                raw = await answer.read()
            # Field 1 of the document, then its operations.
            self.assertEqual(b'\x0a\x032.0', raw[:5])
            self.assertIn(b'"group": "example.test"', raw)
            self.assertIn(b'fieldValidation', raw)


class SubresourceTestCase(base.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.seen = []

        async def start(request):
            self.seen.append(request)
            return (202, None) if not request.path else (
                200, {'path': request.path})
        self.server.register_subresource(
            'sub.example.test', 'v1', 'things', 'start', start,
            kind='Thing')

    PATH = '/apis/sub.example.test/v1/namespaces/default/things/a/start'

    async def test_a_verb_under_an_object(self):
        await self.call('PUT', self.PATH, {'x': 1}, 202)
        await self.call('PUT', self.PATH, expect=202)
        self.assertEqual([{'x': 1}, {}], [r.body for r in self.seen])
        request = self.seen[0]
        self.assertEqual(('default', 'a', 'kubernetes-admin'), (
            request.namespace, request.name, request.user))
        body = await self.call('PUT', self.PATH + '/22', expect=200)
        self.assertEqual({'path': '22'}, body)

    async def test_refusals(self):
        await self.call('GET', self.PATH, expect=405)
        await self.call('PUT', self.PATH, '[', 400)
        await self.call('PUT', self.PATH, '[]', 400)
        await self.call('PUT', self.PATH + 'x', expect=404)

    async def test_discovery_lists_it(self):
        body = await self.call('GET', '/apis/sub.example.test/v1',
                               expect=200)
        self.assertEqual([{
            'name': 'things/start', 'singularName': '', 'namespaced': True,
            'kind': 'Thing', 'verbs': ['update']}], body['resources'])
