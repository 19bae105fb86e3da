# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from sushy_kubevirt.redfish.protocol import expand_select
from tests.unit.redfish import base
from tests.unit.redfish import fakes

SYSTEMS = '/redfish/v1/Systems'


class TestCollections(base.RedfishTestCase):

    def names(self, query):
        body = self.get('?' + query, SYSTEMS)
        self.assertEqual(2, body['Members@odata.count'])
        return [member['@odata.id'][-2:] for member in body['Members']], (
            body.get('Members@odata.nextLink'))

    def test_top_and_skip(self):
        self.assertEqual((['aa'], SYSTEMS + '?$top=1&$skip=1'),
                         self.names('$top=1'))
        self.assertEqual((['bb'], None), self.names('$top=1&$skip=1'))
        self.assertEqual((['aa', 'bb'], None), self.names('$top=2'))
        self.assertEqual(([], None), self.names('$top=0'))
        self.assertEqual(([], None), self.names('$skip=2'))
        self.assertEqual(([], None), self.names('$skip=999999999'))
        self.assertEqual((['bb'], None), self.names('$skip=1'))

    def test_next_link(self):
        link = SYSTEMS + '?$top=1&$expand=.&$select=Members/Name&x=1'
        names = []
        while link:
            body = self.client.get(link).json
            names += [member['Name'] for member in body['Members']]
            link = body.get('Members@odata.nextLink')
        self.assertEqual(['vm-a', 'vm-b'], names)

    def test_only_returns_single_member(self):
        self.assertEqual(2, len(self.get('?only', SYSTEMS)['Members']))
        del self.cluster.all[1]
        answer = self.client.get(SYSTEMS + '?only')
        self.assertEqual(fakes.A, answer.json['Id'])
        alone = self.client.get(self.path)
        self.assertEqual(alone.headers['ETag'], answer.headers['ETag'])
        self.assertEqual(alone.json, answer.json)
        self.assertIn('ComputerSystem.', answer.headers['Link'])

    def test_resources_reject_collection_parameters(self):
        for query in 'only', '$top=1', '$skip=0':
            self.get('?' + query, code=400)


class TestSelect(base.RedfishTestCase):

    def test_select_properties(self):
        body = self.get(
            '?$select=Name,Boot/BootSourceOverrideMode,Links,None,Name/x')
        self.assertEqual({'@odata.id', '@odata.type', 'Name', 'Boot',
                          'Links'}, set(body))
        self.assertEqual({'BootSourceOverrideMode': 'UEFI'}, body['Boot'])
        self.assertEqual(self.get()['Links'], body['Links'])

    def test_select_keeps_etag_of_whole_resource(self):
        self.assertEqual(
            self.client.get(self.path).json['@odata.etag'],
            self.client.get(self.path + '?$select=Name').json['@odata.etag'])


class TestExpand(base.RedfishTestCase):

    def test_expand_members(self):
        body = self.get('?$expand=.', SYSTEMS)
        self.assertEqual(['vm-a', 'vm-b'],
                         [member['Name'] for member in body['Members']])
        self.assertEqual(self.client.get(self.path).json, body['Members'][0])

    def test_expand_subordinates_links_or_all(self):
        def expanded(query):
            body = self.get('?$expand=' + query)
            return [len(link) > 1 for link in (
                body['EthernetInterfaces'], body['Links']['ManagedBy'][0])]
        self.assertEqual([True, False], expanded('.'))
        self.assertEqual([False, True], expanded('~'))
        self.assertEqual([True, True], expanded('*'))

    def test_expand_levels(self):
        body = self.get('?$expand=.($levels=2)', SYSTEMS)
        nics = body['Members'][0]['EthernetInterfaces']
        self.assertEqual({'@odata.id'}, set(nics['Members'][0]))
        body = self.get('?$expand=.($levels=3)', SYSTEMS)
        nics = body['Members'][0]['EthernetInterfaces']
        self.assertEqual('default', nics['Members'][0]['Id'])

    def test_expand_does_not_follow_cycles(self):
        # A system links to its manager, which links to the system.
        body = self.get('?$expand=*($levels=6)')
        manager = body['Links']['ManagedBy'][0]
        self.assertEqual(
            [{'@odata.id': self.path}],
            manager['Links']['ManagerForServers'])

    def test_expand_limit_gets_507(self):
        with mock.patch.object(expand_select, 'MAX_EXPANDED', 5):
            answer = self.client.get(SYSTEMS + '?$expand=*($levels=6)')
        self.assertEqual(507, answer.status_code)
        self.check_error(answer)

    def test_unreadable_member_stays_a_link(self):
        with mock.patch.object(self.cluster.all[1], 'power_state',
                               side_effect=KeyError('x')):
            body = self.get('?$expand=.', SYSTEMS)
        self.assertEqual('vm-a', body['Members'][0]['Name'])
        self.assertEqual({'@odata.id'}, set(body['Members'][1]))

    def test_etag_depends_on_expanded_members(self):
        path = SYSTEMS + '?$expand=.'
        before = self.client.get(path).headers['ETag']
        self.assertEqual(before, self.client.get(path).headers['ETag'])
        self.machine._indicator = 'Lit'
        self.assertNotEqual(before, self.client.get(path).headers['ETag'])
