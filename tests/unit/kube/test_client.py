# SPDX-License-Identifier: Apache-2.0
"""Requests, and how responses and connection faults map to errors."""

import socket
from unittest import mock

from oslotest import base
import urllib3

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import options
from tests.fixtures import black_hole
from tests.unit.machine import api

VM = '/virtualmachines/a'
DENIED = ('admission webhook "virtualmachine-validator.kubevirt.io" denied '
          'the request: ')


class ClientTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = api.Api()
        self.api.start()
        self.addCleanup(self.api.stop)
        self.api.put('virtualmachines', api.vm('a'))
        self.options = options.Options(
            request_timeout=30, write_deadline=60, page_size=2)
        self.client = client.Client(self.api.connection(), self.options)
        self.addCleanup(self.client.close)

    def get(self):
        return self.client.get(api_resources.VM, 'default', 'a')

    def patch(self, *operations):
        return self.client.patch(api_resources.VM, 'default', 'a',
                                 list(operations))

    def refused(self, error, code, message='', headers=None):
        self.api.rule('GET', VM, (code, {'message': message}, headers))
        return self.assertRaises(error, self.get)

    def test_get(self):
        self.assertEqual('a', self.get()['metadata']['name'])

    def test_attempt_sends_no_request(self):
        for call in (self.get, self.patch, lambda: list(
                self.client.pages(api_resources.VM))):
            self.assertRaises(blocking.WouldBlock, blocking.attempt, call)
        self.assertEqual(([], {}), (self.api.requests, self.client.calls))

    def test_lists_in_pages(self):
        for name in 'bcde':
            self.api.put('virtualmachines', api.vm(name))
        pages = list(self.client.pages(api_resources.VM))
        self.assertEqual([2, 2, 1], [len(items) for items, _ in pages])

    def test_named_create_is_server_side_apply(self):
        body = {'metadata': {'name': 'b', 'namespace': 'default'}}
        for code in (201, 409):
            self.api.rule('PATCH', '/virtualmachines/b', (code, body))
            try:
                made = self.client.create(api_resources.VM, 'default', body,
                                          named=True)
            except errors.Conflict:
                made = None
            self.assertEqual(body if code == 201 else None, made)
            method, path, query, headers, sent = self.api.requests[-1]
            self.assertEqual(('PATCH', client.APPLY, 'sushy-kubevirt'), (
                method, headers['Content-Type'], query['fieldManager']))
            self.assertEqual('Strict', query['fieldValidation'])
            self.assertNotIn('force', query)
            # The version makes the apply fail for an existing object.
            self.assertEqual('1', sent['metadata']['resourceVersion'])
        self.assertNotIn('resourceVersion', body['metadata'])

    def test_action_accepts_any_content_type(self):
        # virt-api responds with 406 to clients that accept only JSON.
        self.api.rule('PUT', '/start', (202, b'', None))
        self.assertEqual({}, self.client.action(
            api_resources.VM, 'default', 'a', 'start'))
        accepted = self.api.requests[-1][3]['Accept']
        self.assertEqual('application/json', accepted.split(',')[0])
        self.assertIn('*/*', [each.strip() for each in accepted.split(',')])

    def test_version(self):
        self.api.rule('GET', '/version', (200, {'gitVersion': 'v1.34.4'}))
        self.assertEqual({'gitVersion': 'v1.34.4'}, self.client.version())
        # A server that is no API server is not one of an unknown version.
        self.api.rule('GET', '/version', (404, {}, None))
        self.assertRaises(errors.ObjectNotFound, self.client.version)
        self.assertEqual('/version', self.api.requests[-1][1])

    def test_object_not_found(self):
        self.assertRaises(errors.ObjectNotFound, self.client.get,
                          api_resources.VM, 'default', 'none')

    def test_error_contains_plain_text_but_no_html(self):
        self.api.rule('GET', VM, (503, b'service unavailable\n', {
            'Content-Type': 'text/plain; charset=utf-8'}))
        e = self.assertRaises(errors.ServerError, self.get)
        self.assertIn('HTTP 503: service unavailable', str(e))
        self.api.rule('GET', VM, (502, b'<html>', {
            'Content-Type': 'text/html'}))
        e = self.assertRaises(errors.ServerError, self.get)
        self.assertNotIn('html', str(e))

    def test_denial_names_verb_resource_and_namespace(self):
        e = self.refused(errors.AccessDenied, 403,
                         'User "x" cannot get resource')
        self.assertEqual(
            ('get', 'virtualmachines.kubevirt.io', 'default'),
            (e.verb, e.resource, e.namespace))
        self.assertIn('cannot get', str(e))

    def test_denied_action_names_subresource(self):
        self.api.rule('PUT', '/start', (403, {'message': 'cannot update'}))
        e = self.assertRaises(
            errors.AccessDenied, self.client.action, api_resources.VM,
            'default', 'a', 'start')
        self.assertEqual(
            ('update', 'virtualmachines/start.subresources.kubevirt.io'),
            (e.verb, e.resource))

    def test_admission_forbidden_is_rejected(self):
        e = self.refused(errors.Rejected, 403, DENIED + 'not on Mondays')
        self.assertEqual('not on Mondays', str(e))

    def test_patch_with_changed_uid_is_a_conflict(self):
        for text in (
                'the server rejected our request due to an error in our '
                'request',
                'Secret "a" is invalid: metadata.uid: Invalid value: "x": '
                'field is immutable'):
            self.refused(errors.Conflict, 422, text)

    def test_admission_invalid_is_rejected_with_message(self):
        e = self.refused(errors.Rejected, 422, DENIED + 'SMM is needed')
        self.assertEqual('SMM is needed', str(e))

    def test_conflict(self):
        e = self.refused(errors.Conflict, 409, 'VM is not running')
        self.assertIn('VM is not running', str(e))

    def test_patch_whose_test_fails_is_a_conflict(self):
        self.assertRaises(errors.Conflict, self.patch, {
            'op': 'test', 'path': '/metadata/uid', 'value': 'another'})

    def test_too_many_requests_has_retry_after(self):
        e = self.refused(errors.TooManyRequests, 429, 'busy',
                         {'Retry-After': '7'})
        self.assertEqual(7, e.retry_after)

    def test_server_error(self):
        self.refused(errors.ServerError, 500, 'already underway')
        self.refused(errors.ServerError, 503)

    def test_refused_connection_is_not_maybe_done(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            free = client.Client(connection.Connection(
                lambda: connection.Access(
                    server=f'http://127.0.0.1:{taken.getsockname()[1]}')),
                self.options)
            e = self.assertRaises(
                errors.Unavailable, free.action, api_resources.VM, 'default',
                'a', 'start')
        self.assertFalse(e.maybe_done)
        self.assertIn('Connection refused', str(e))

    def test_lost_response_is_maybe_done(self):
        self.api.rule('PUT', '/start', 'drop-after')
        e = self.assertRaises(
            errors.ConnectionLost, self.client.action, api_resources.VM,
            'default', 'a', 'start')
        self.assertTrue(e.maybe_done)
        self.assertEqual(1, self.api.count('PUT'))

    def test_no_answer_to_connection(self):
        port = self.useFixture(black_hole.BlackHole()).port
        blocked = client.Client(
            connection.Connection(lambda: connection.Access(
                server=f'http://127.0.0.1:{port}')),
            self.options._replace(connect_timeout=0.2))
        e = self.assertRaises(
            errors.Unavailable, blocked.action, api_resources.VM, 'default',
            'a', 'start')
        self.assertFalse(e.maybe_done)
        self.assertIn('no NetworkPolicy or firewall', str(e))

    def test_request_gets_half_of_the_threads_deadline(self):
        self.api.rule('PATCH', VM, 'hang')
        e = self.assertRaises(
            errors.Unavailable, retry.within, 4, self.client.patch,
            api_resources.VM, 'default', 'a', [])
        self.assertTrue(e.maybe_done)

    def test_read_without_response_is_not_maybe_done(self):
        self.api.rule('GET', VM, 'hang', times=9)
        e = self.assertRaises(errors.Unavailable, retry.within, 0.2, self.get)
        self.assertFalse(e.maybe_done)

    def test_timeout_is_maybe_done(self):
        self.api.rule('PUT', '/start', 'hang')
        quick = client.Client(self.api.connection(),
                              self.options._replace(request_timeout=2))
        self.addCleanup(quick.close)
        e = self.assertRaises(
            errors.Unavailable, quick.action, api_resources.VM,
            'default', 'a', 'start')
        self.assertTrue(e.maybe_done)

    def test_read_is_retried_after_reset(self):
        self.api.rule('GET', VM, 'reset')
        self.get()
        self.assertEqual(2, self.api.count('GET', VM))

    def test_refused_token_is_renewed_once(self):
        tokens = iter(['old', 'new', 'never'])
        self.api.token = 'new'
        conn = connection.Connection(lambda: connection.Access(
            server=f'http://127.0.0.1:{self.api.port}',
            authorization='Bearer ' + next(tokens)))
        conn._renewed_at -= connection.RENEW_SECONDS
        own_client = client.Client(conn, self.options)
        own_client.get(api_resources.VM, 'default', 'a')
        self.assertEqual(2, self.api.count('GET', VM))
        self.api.token = 'other'
        self.assertRaises(errors.AccessDenied, own_client.get,
                          api_resources.VM, 'default', 'a')

    def test_refused_token_is_not_sent_with_other_credentials(self):
        tokens = iter(['Bearer old', None])
        self.api.token = 'new'
        conn = connection.Connection(lambda: connection.Access(
            server=f'http://127.0.0.1:{self.api.port}',
            authorization=next(tokens)))
        conn._renewed_at -= connection.RENEW_SECONDS
        sent = []
        urlopen = urllib3.HTTPConnectionPool.urlopen

        def record(*args, headers, **kwargs):
            sent.append(headers.get('Authorization'))
            return urlopen(*args, headers=headers, **kwargs)
        with mock.patch.object(urllib3.HTTPConnectionPool, 'urlopen', record):
            self.assertRaises(
                errors.AccessDenied, client.Client(conn, self.options).get,
                api_resources.VM, 'default', 'a')
        self.assertEqual(['Bearer old', None], sent)

    def test_server_with_a_path(self):
        with mock.patch.object(urllib3.HTTPConnectionPool, 'urlopen') as sent:
            for server in ('https://api', 'https://api:6443',
                           'https://[::1]:6443/k8s/clusters/c-1'):
                sent.return_value = urllib3.HTTPResponse(b'{}', status=200)
                client.Client(connection.Connection(
                    lambda server=server: connection.Access(server=server)),
                    self.options).get(api_resources.VM, 'default', 'a')
        path = api_resources.VM.path('default', 'a')
        self.assertEqual([path, path, '/k8s/clusters/c-1' + path],
                         [call.args[1] for call in sent.call_args_list])

    def test_secrets_are_in_no_message(self):
        self.api.rule('GET', VM, 'reset', times=2)
        own_client = client.Client(self.api.connection(
            authorization='Bearer secret'), self.options)
        e = self.assertRaises(errors.Unavailable, own_client.get,
                              api_resources.VM, 'default', 'a')
        self.assertNotIn('secret', str(e) + repr(e))
        self.assertNotIn('secret', repr(own_client._connection.access()))
