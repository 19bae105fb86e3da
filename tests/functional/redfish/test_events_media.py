# SPDX-License-Identifier: Apache-2.0
"""Redfish events about virtual media and failed logins."""

import bcrypt
import fixtures

from tests.fixtures import event_listener
from tests.fixtures import events_case
from tests.fixtures import redfish_case
from tests.fixtures import sandbox
from tests.fixtures import virtual_media_case

ADMIN = ('admin', 'secret-of-admin')


class TestMedia(virtual_media_case.MediaTestCase):

    SETTINGS = {**virtual_media_case.MediaTestCase.SETTINGS,
                **events_case.SETTINGS}

    def test_media_events(self):
        self.make()
        one = self.useFixture(event_listener.Listener())
        answer = self.emulator.request(
            'POST', events_case.SUBSCRIPTIONS, {
                'Destination': one.url, 'Protocol': 'Redfish',
                'RegistryPrefixes': ['SushyKubeVirt', 'TaskEvent']},
            expect=201)
        self.addCleanup(self.emulator.request, 'DELETE',
                        answer.headers['Location'])
        drive = {'origin': self.device}
        url = self.url()
        self.insert(url.replace(
            '://', f'://me:{virtual_media_case.PASSWORD}@'))
        event = one.wait('MediaInserted', **drive)
        self.assertEqual([f'{sandbox.NAMESPACE}/{self.name}', url, 'Cd'],
                         event['MessageArgs'])
        one.wait('MediaImported', **drive)
        one.wait('TaskStarted')
        one.wait('TaskCompletedOK')
        self.eject()
        one.wait('MediaEjected', **drive)
        # The image disappears before CDI downloads it.
        self.images.missing = 'lost'
        self.insert(self.url('lost.iso'))
        event = one.wait('MediaImportFailed', **drive)
        self.assertEqual('Critical', event['MessageSeverity'])
        self.assertIn('404', event['Message'])
        one.wait('TaskAborted')
        self.emulator.process.wait_output(
            f'WARNING.*{sandbox.NAMESPACE}/{self.name}.*lost.iso|'
            f'{sandbox.NAMESPACE}/{self.name}: .*lost.iso')
        self.eject()
        one.wait('MediaEjected', count=2, **drive)
        for text in (str(one.posts), self.emulator.process.output):
            self.assertNotIn(virtual_media_case.PASSWORD, text)


class TestLogins(redfish_case.RedfishTestCase):

    @classmethod
    def setUpClass(cls):
        folder = fixtures.TempDir()
        cls.share(folder)
        with open(folder.join('accounts'), 'w') as stream:
            hashed = bcrypt.hashpw(ADMIN[1].encode(), bcrypt.gensalt(4))
            stream.write(f'{ADMIN[0]}:{hashed.decode()}\n')
        cls.SETTINGS = {**events_case.SETTINGS,
                        'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS':
                            folder.join('accounts')}
        super().setUpClass()

    def test_failed_login_events(self):
        one = self.useFixture(event_listener.Listener())
        self.emulator.request(
            'POST', events_case.SUBSCRIPTIONS, {
                'Destination': one.url, 'Protocol': 'Redfish'},
            expect=201, auth=ADMIN)
        systems = '/redfish/v1/Systems'
        self.emulator.request('GET', systems, expect=401,
                              auth=('admin', 'a-guess'))
        event = one.wait('LoginFailed')
        self.assertEqual(['admin', '127.0.0.1'], event['MessageArgs'])
        self.emulator.request('GET', systems, expect=401,
                              auth=('pa55-in-wrong-field', 'x'))
        event = one.wait('LoginFailed', count=2)
        self.assertEqual('(unknown)', event['MessageArgs'][0])
        self.assertNotIn('a-guess', str(one.posts))
        self.assertNotIn('pa55', str(one.posts))
