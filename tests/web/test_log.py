# SPDX-License-Identifier: Apache-2.0
"""The event log: live, filtered, cleared."""

import re

from tests.web import case


class LogTestCase(case.WebPodTestCase):

    def setUp(self):
        super().setUp()
        self.log_in()
        self.page.get_by_role('link', name='Log', exact=True).click()
        self.entries = self.page.get_by_role(
            'list', name='Log').get_by_role('listitem')

    def event(self, reason, message, kind='Normal'):
        """Write an Event about the VM, as components of the cluster do."""
        vm = self.sandbox.vm('vm-0')
        self.sandbox.create('events', {
            'metadata': {'generateName': 'vm-0.'}, 'type': kind,
            'reason': reason, 'message': message,
            'involvedObject': {
                'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
                'name': 'vm-0', 'namespace': 'default',
                'uid': vm['metadata']['uid']},
            'source': {'component': 'a component'},
            'firstTimestamp': '2026-01-01T00:00:00Z',
            'lastTimestamp': '2026-01-01T00:00:00Z'})

    def test_live_and_filter(self):
        self.pod.request(
            'POST', '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset',
            {'ResetType': 'On'}, 204)
        self.expect(self.entries.filter(
            has_text='has powered on').first).to_be_visible()
        self.page.get_by_label('Search').fill('powered ON')
        self.expect(self.entries.filter(
            has_not_text='powered on')).to_have_count(0)
        self.expect(self.page).to_have_url(re.compile('q=powered'))
        # The URL has the filter.
        self.page.reload()
        self.expect(self.page.get_by_label('Search')).to_have_value(
            'powered ON')
        self.expect(self.entries.first).to_contain_text('powered on')
        self.page.get_by_label('Search').fill('')
        self.page.get_by_label('Severity').select_option('Critical')
        self.expect(self.page.get_by_text(
            re.compile(r'^0 of \d+ entries$'))).to_be_visible()

    def test_clear(self):
        self.event('Before', 'An entry from before')
        self.expect(self.entries.filter(
            has_text='An entry from before')).to_be_visible()
        self.page.get_by_role('button', name='Clear log').click()
        self.page.get_by_role('dialog').get_by_role(
            'button', name='Clear log').click()
        self.expect(self.entries.filter(
            has_text='An entry from before')).to_have_count(0)
        found = self.pod.request(
            'GET', '/redfish/v1/Systems/1/LogServices/Events/Entries').json()
        self.assertNotIn('from before', str(found))

    def test_text_of_the_cluster_is_text(self):
        text = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
        self.page.on('dialog', lambda one: self.fail(one.message))
        self.event('Hostile', text, 'Warning')
        entry = self.entries.filter(has_text='Hostile')
        self.expect(entry).to_contain_text(text)
        self.expect(entry.locator('img')).to_have_count(0)
        self.page.get_by_label('Severity').select_option('Warning')
        self.expect(entry).to_be_visible()
