# SPDX-License-Identifier: Apache-2.0
"""DMTF's redfishtool."""

import json
from urllib import parse

from tests.clients import case
from tests.clients import environment


class RedfishtoolTestCase(case.ClientTestCase):

    CLIENT = 'redfishtool'

    @classmethod
    def version(cls):
        return environment.PYTHON.version_of(cls.CLIENT)

    def tool(self, *words, **options):
        """Run ``redfishtool`` and return its output."""
        return self.run_command(
            environment.PYTHON.bin / 'redfishtool', '-S', 'Always',
            '-r', parse.urlsplit(self.url).netloc, '-u', self.bmc.username,
            '-p', self.bmc.password, *words, **options)

    def read(self, *words):
        return json.loads(self.tool(*words))

    def test_reads_resources(self):
        for name in 'Systems', 'Managers', 'Chassis':
            self.assertEqual(f'/redfish/v1/{name}/1', self.read(
                name, '-I', '1')['@odata.id'])
        self.assertEqual(self.uuid, self.read('Systems', '-F')['UUID'])
        self.record('Systems', 'Managers', 'Chassis')

    def test_reads_subordinate_resources(self):
        for words in (('Systems', '-F', 'Processors'),
                      ('Systems', '-F', 'EthernetInterfaces'),
                      ('Managers', '-F', 'EthernetInterfaces'),
                      ('Systems', '-F', 'Logs'),
                      ('AccountService', 'Accounts'),
                      ('AccountService', 'Roles')):
            self.assertLess(0, self.read(*words)['Members@odata.count'],
                            words)
        self.assertEqual(443, self.read(
            'Managers', '-F', 'NetworkProtocol')['HTTPS']['Port'])
        self.record('Systems Processors', 'Managers EthernetInterfaces',
                    'Systems Logs', 'Managers NetworkProtocol')

    def test_resets(self):
        self.power('Off')
        for reset, state in (('On', 'On'), ('PowerCycle', 'On'),
                             ('ForceOff', 'Off')):
            self.tool('Systems', '-I', '1', 'reset', reset)
            self.wait_power(state)
        self.record('Systems reset')

    def test_boots_once(self):
        self.power('Off')
        count = len(self.boots())
        self.tool('Systems', '-F', 'setBootOverride', 'Once', 'Pxe')
        self.power('On')
        self.until(lambda: len(self.boots()) > count)
        self.assertEqual('Pxe', self.boots()[count])
        self.record('Systems setBootOverride')

    def test_asset_tag_and_indicator(self):
        self.tool('Systems', '-F', 'setAssetTag', 'rack 7')
        self.tool('Systems', '-F', 'setIndicatorLed', 'Blinking')
        found = self.read('Systems', '-F')
        self.assertEqual(('rack 7', 'Blinking'), (
            found['AssetTag'], found['IndicatorLED']))
        self.record('Systems setAssetTag', 'Systems setIndicatorLed')

    def test_accounts(self):
        service = 'AccountService'
        self.tool(service, 'adduser', 'guest', 'first-password', 'Operator')
        self.addCleanup(self.tool, service, 'deleteuser', 'guest', code=None)
        self.tool(service, 'setpassword', 'guest', 'second-password')
        self.tool(service, 'useradmin', 'guest', 'disable')
        account = self.read(service, 'Accounts', '-mUserName:guest')
        self.assertEqual(('Operator', False), (
            account['RoleId'], account['Enabled']))
        self.tool(service, 'deleteuser', 'guest')
        self.assertNotIn('guest', self.tool(service, 'Accounts', 'list'))
        self.record('AccountService')

    def test_sessions(self):
        # The session of this very command.
        self.assertEqual(1, self.read(
            '-A', 'Session', 'SessionService', 'Sessions')[
                'Members@odata.count'])
        self.assertEqual(0, self.read(
            'SessionService', 'Sessions')['Members@odata.count'])
        self.record('SessionService')
