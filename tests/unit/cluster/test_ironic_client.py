# SPDX-License-Identifier: Apache-2.0
import json
import logging
from unittest import mock

import fixtures
import keystoneauth1.exceptions
import openstack.exceptions
import requests

from sushy_kubevirt.cluster.ironic import client
from sushy_kubevirt.cluster.ironic import images
from sushy_kubevirt.cluster import problems
from tests.unit.cluster import openstack_case

NODES = f'{openstack_case.URL}/baremetal/v1/nodes'
LOCKED = {'error_message': json.dumps({
    'faultcode': 'Client', 'debuginfo': None,
    'faultstring': 'Node n is locked by host h, please retry after the '
                   'current operation is completed.'})}


class ClientTestCase(openstack_case.OpenStackTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            client, '_BUSY_INTERVAL', 0.001))
        self.ironic = client.Client(self.cloud, patience=5)

    def refused(self, *arguments, **options):
        return self.assertRaises(problems.ServiceError, *arguments, **options)

    def test_lists_all_pages(self):
        self.http.get(NODES, [
            {'json': {'nodes': [{'uuid': 'a'}, {'uuid': 'b'}],
                      'next': 'http://inside/v1/nodes?marker=b'}},
            {'json': {'nodes': [{'uuid': 'c'}]}}])
        self.assertEqual(
            ['a', 'b', 'c'],
            [one['uuid'] for one in self.ironic.list(
                'nodes', ('uuid', 'name'))])
        first, second = self.http.request_history[-2:]
        self.assertEqual({'fields': ['uuid,name']}, first.qs)
        self.assertEqual({'fields': ['uuid,name'], 'marker': ['b']},
                         second.qs)
        self.assertEqual(
            '1.86', first.headers['X-OpenStack-Ironic-API-Version'])

    def test_tries_again_while_ironic_is_busy(self):
        self.http.patch(f'{NODES}/n', [
            {'status_code': 409, 'json': LOCKED},
            {'status_code': 503, 'json': {'error_message': {
                'faultstring': 'Requested action cannot be performed due to '
                               'lack of free conductor workers.'}}},
            {'status_code': 503, 'text': '<html>proxy</html>'},
            {'status_code': 500, 'json': {'error_message': {
                'faultstring': '(sqlite3.OperationalError) database is '
                               'locked [SQL: ...]'}}},
            {'json': {'uuid': 'n'}}])
        self.assertEqual({'uuid': 'n'}, self.ironic.change('nodes', 'n', []))

    def test_patience_ends(self):
        self.http.patch(f'{NODES}/n', status_code=409, json=LOCKED)
        error = self.refused(client.Client(self.cloud, patience=0).change,
                             'nodes', 'n', [])
        self.assertIn('is locked by host h', str(error))

    def test_restart_of_the_api(self):
        self.http.get(NODES, [
            {'json': {'nodes': []}}, {'exc': requests.ConnectionError},
            {'exc': requests.ConnectTimeout},
            {'exc': requests.exceptions.SSLError('EOF')},
            {'exc': requests.exceptions.ChunkedEncodingError},
            {'json': {'nodes': []}}])
        for _ in range(2):
            self.assertEqual([], self.ironic.list('nodes', ('uuid',)))

    def test_cloud_without_ironic(self):
        for error in (keystoneauth1.exceptions.Unauthorized('not you.'),
                      openstack.exceptions.SDKException('no catalog.')):
            cloud = mock.Mock()
            type(cloud).baremetal = mock.PropertyMock(side_effect=error)
            text = str(self.refused(client.Client, cloud))
            self.assertIn(str(error), text)
            self.assertIn('credentials of the cloud', text)

    def test_wrong_address_is_not_tried_again(self):
        self.http.get(NODES, exc=requests.ConnectionError)
        self.refused(self.ironic.list, 'nodes', ('uuid',))
        self.assertEqual(1, self.requests('GET').count(
            ('GET', '/baremetal/v1/nodes')))

    def test_other_conflicts_are_final(self):
        self.http.post(NODES, status_code=409, json={'error_message': {
            'faultstring': 'A node with name n already exists.'}})
        error = self.refused(self.ironic.create, 'nodes', {'name': 'n'})
        self.assertEqual('Ironic refuses POST /nodes: A node with name n '
                         'already exists. (HTTP 409)', str(error))
        self.assertEqual([('POST', '/baremetal/v1/nodes')],
                         self.requests('POST'))

    def test_no_secrets_in_logs(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        patch = [{'op': 'add', 'path': '/driver_info/x', 'value': 's3cret'}]
        self.http.patch(f'{NODES}/n', status_code=400, json={
            'error_message': {'faultstring': f"Couldn't apply {patch}"}})
        self.refused(self.ironic.change, 'nodes', 'n', patch)
        self.assertNotIn('s3cret', log.output)
        self.assertIn('PATCH /nodes/n', log.output)

    def test_reset_of_interfaces(self):
        self.http.patch(f'{NODES}/n', json={})
        self.ironic.change('nodes', 'n', [], reset_interfaces=True)
        self.assertEqual({'reset_interfaces': ['true']},
                         self.http.last_request.qs)

    def test_other_requests(self):
        for method, path, body in (
                ('PUT', 'states/provision', {'target': 'manage'}),
                ('PUT', 'traits', {'traits': ['A', 'B']}),
                ('PUT', 'maintenance', {'reason': 'r'}),
                ('DELETE', 'maintenance', None)):
            self.http.request(method, f'{NODES}/n/{path}', status_code=204)
            {'states/provision': lambda: self.ironic.provision('n', 'manage'),
             'traits': lambda: self.ironic.set_traits('n', {'B', 'A'}),
             'maintenance': lambda: self.ironic.set_maintenance(
                 'n', body and 'r')}[path]()
            self.assertEqual(
                (method, body),
                (self.http.last_request.method,
                 self.http.last_request.text and
                 self.http.last_request.json()))

    def test_deleted_twice(self):
        self.http.delete(f'{NODES}/n', status_code=404, text='')
        self.ironic.delete('nodes', 'n')
        self.http.delete(f'{NODES}/n', status_code=403, text='no rights')
        self.assertIn('no rights (HTTP 403)',
                      str(self.refused(self.ironic.delete, 'nodes', 'n')))

    def test_no_answer(self):
        self.http.get(NODES, exc=requests.exceptions.ConnectionError('down'))
        error = self.refused(self.ironic.list, 'nodes', ('uuid',))
        self.assertIn('does not answer GET /nodes', str(error))


class ImagesTestCase(openstack_case.OpenStackTestCase):

    def glance(self, *uuids):
        self.http.get(f'{openstack_case.URL}/image/v2/images', json={
            'images': [{'id': one, 'name': 'kernel'} for one in uuids]})

    def test_names(self):
        self.glance('u')
        self.assertEqual({'kernel': 'u'},
                         images.resolve(self.cloud, {'kernel'}))
        self.assertEqual({}, images.resolve(self.cloud, set()))

    def test_none_or_several(self):
        for uuids, number in ((), 'no'), (('u', 'v'), '2'):
            self.glance(*uuids)
            error = self.assertRaises(
                problems.ServiceError, images.resolve, self.cloud, {'kernel'})
            self.assertIn(f'{number} images named kernel', str(error))

    def test_no_glance(self):
        self.http.get(f'{openstack_case.URL}/image/v2/images',
                      status_code=403)
        self.assertRaises(problems.ServiceError, images.resolve, self.cloud,
                          {'kernel'})
