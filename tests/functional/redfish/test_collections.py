# SPDX-License-Identifier: Apache-2.0
"""Collections of many systems: their pages, and how their VMs are listed."""

import sushy

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import machines
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures.redfish_case import SYSTEMS

VMS_PATH = '/virtualmachines$'


@given_cluster.needs_sandbox('a number of VMs that it knows')
class PageTestCase(base.EmulatorTestCase):
    """Sixty systems, whose VMs the emulator lists as a stream."""

    VMS = 60

    def get(self, where):
        return self.emulator.request('GET', where, expect=200)

    def walk(self, where):
        """Follow the links from page to page.

        :returns: list of the pages' members, and the set of their ETags
        """
        pages, tags = [], set()
        while where:
            response = self.get(where)
            body = response.json()
            self.assertEqual(60, body.get('Members@odata.count', 60))
            pages.append(body['Members'])
            tags.add(response.headers['ETag'])
            where = body.get('Members@odata.nextLink')
        return pages, tags

    def test_pages_have_all_members_once(self):
        whole = self.get(SYSTEMS)
        members = whole.json()['Members']
        self.assertEqual(60, len(members))
        for size, count in ((7, 9), (20, 3), (60, 1), (61, 1)):
            pages, tags = self.walk(f'{SYSTEMS}?$top={size}')
            self.assertEqual(count, len(pages))
            self.assertEqual(members, sum(pages, []))
            # A page has the ETag of the collection.
            self.assertEqual({whole.headers['ETag']}, tags)

    def test_pages_of_expanded_and_of_selected_members(self):
        paths = [one['@odata.id'] for one in self.get(SYSTEMS).json()[
            'Members']]
        for query in '$expand=.', '$select=Members', (
                '$expand=.&$select=Members/Name'):
            pages, _ = self.walk(f'{SYSTEMS}?$top=25&{query}')
            self.assertEqual(3, len(pages))
            self.assertEqual(paths, [one['@odata.id']
                                     for one in sum(pages, [])])

    def test_pages_beyond_the_end_are_empty(self):
        for query in '$skip=60', '$skip=1000&$top=10', '$top=0':
            body = self.get(f'{SYSTEMS}?{query}').json()
            self.assertEqual([], body['Members'])
            self.assertEqual(60, body['Members@odata.count'])
            self.assertNotIn('Members@odata.nextLink', body)

    def test_unchanged_pages_are_not_sent(self):
        for where in SYSTEMS, SYSTEMS + '?$top=7&$skip=7':
            tag = self.get(where).headers['ETag']
            self.emulator.request('GET', where, expect=304, headers={
                'If-None-Match': tag})

    def test_without_query_clients_that_read_no_next_link_see_all(self):
        root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
        self.assertEqual(
            60, len(root.get_system_collection().members_identities))
        for where in '/redfish/v1/Chassis', '/redfish/v1/Managers':
            self.assertEqual(60, len(self.get(where).json()['Members']))

    def test_collections_follow_changes(self):
        before = self.get(SYSTEMS).headers['ETag']
        self.sandbox.create('virtualmachines', machines.vm('more', 'Halted'))
        try:
            self.until(lambda: len(self.emulator.systems()) == 61)
            self.assertNotEqual(before, self.get(SYSTEMS).headers['ETag'])
            self.assertEqual(61, len(self.get('/redfish/v1/Chassis').json()[
                'Members']))
        finally:
            self.sandbox.delete('virtualmachines', 'more')
            self.until(lambda: len(self.emulator.systems()) == 60)
        self.assertEqual(before, self.get(SYSTEMS).headers['ETag'])

    def test_vms_are_listed_by_a_stream(self):
        self.sandbox.reset_stats()
        started = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account()))
        self.assertEqual(60, len(started.systems()))
        self.assertNotIn('virtualmachines.kubevirt.io',
                         self.sandbox.stats()['calls'].get('list', {}))


@given_cluster.needs_sandbox('an API server without streaming lists')
class ExpiredListTestCase(base.SandboxTestCase):
    """An API server without streaming lists, whose tokens expire."""

    VMS = 60
    SANDBOX_ARGUMENTS = ('--no-streaming-lists',)

    def start(self, count):
        """Start an emulator; the tokens of as many lists expire."""
        self.sandbox.fault('gone', verb='GET', where=VMS_PATH, count=count)
        return self.useFixture(emulator.Emulator(self.sandbox.bmc_account()))

    def test_list_restarts_after_expired_token(self):
        """The first collection is complete, and no error."""
        started = self.start(1)
        self.assertEqual(60, len(started.systems()))
        [fault] = self.sandbox.faults()['faults']
        self.assertEqual(1, fault['hits'])

    def test_repeated_expiry_is_unavailable(self):
        """Large pages need no token, so a listing comes to an end."""
        started = self.start(10 ** 6)

        def answered():
            response = started.request('GET', SYSTEMS)
            if response.status_code == 200:
                return response.json()
            self.assertEqual(503, response.status_code)
            self.assertIn('Retry-After', response.headers)
            return None
        self.assertEqual(60, len(self.until(answered)['Members']))
        [fault] = self.sandbox.faults()['faults']
        self.assertEqual(1, fault['hits'])
