# SPDX-License-Identifier: Apache-2.0
import socket

import fixtures

from tests.unit.redfish import base
from tests.unit.redfish import test_consoles

ROOT = '/redfish/v1/'
OWN = ('localhost', 'LOCALHOST:8000', 'bmc.localhost', '127.0.0.1:8000',
       '[::1]:8000', '10.1.2.3', '[fe80::1%25eth0]', 'node', 'node.test:80',
       'Node.Test.')
FOREIGN = ('attacker.test', '127.0.0.1.attacker.test',
           'localhost.attacker.test', 'node.attacker.test', 'x.node.test',
           '1.2.3', '0x7f000001', 'xlocalhost')


class HostsMixin:

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            socket, 'gethostname', lambda: 'node.test'))

    def codes(self, hosts, path=ROOT, **headers):
        return {self.client.get(
            path, headers={**headers, 'Host': host}).status_code
            for host in hosts}


class TestWithoutAccounts(HostsMixin, base.RedfishTestCase):

    def test_serves_own_names(self):
        self.assertEqual({200}, self.codes(OWN))

    def test_refuses_other_names(self):
        for path in ROOT, self.path, '/', '/web/main.js', '/nonsense':
            self.assertEqual({421}, self.codes(FOREIGN, path), path)
        for console in 'SerialConsole', 'GraphicalConsole':
            self.assertEqual({421}, self.codes(
                FOREIGN, f'{self.path}/{console}',
                **{**test_consoles.UPGRADE, 'Host': None}))
        answer = self.client.patch(
            self.path, json={'AssetTag': 'x'}, headers={
                'Host': 'attacker.test', 'Origin': 'http://attacker.test'})
        self.assertEqual(421, answer.status_code)
        self.assertIn('SUSHY_EMULATOR_KUBEVIRT_HOST_NAMES', answer.text)
        self.assertEqual([], self.machine.calls)

    def test_response_that_is_sent_again(self):
        for hosts, code in (OWN, 200), (FOREIGN, 421), (OWN, 200):
            self.assertEqual({code}, self.codes(hosts))


class TestConfigured(HostsMixin, base.RedfishTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_HOST_NAMES': [
        'bmc.example.org', '*.svc']}

    def test_serves_configured_names(self):
        self.assertEqual({200}, self.codes(
            ('bmc.example.org', 'BMC.example.org:80', 'redfish.metal.svc',
             *OWN)))
        self.assertEqual({421}, self.codes(
            ('x.bmc.example.org', 'example.org', 'svc', 'xsvc', *FOREIGN)))


class TestAll(HostsMixin, base.RedfishTestCase):

    CONFIG = {'SUSHY_EMULATOR_KUBEVIRT_HOST_NAMES': ['*']}

    def test_serves_all_names(self):
        self.assertEqual({200}, self.codes((*OWN, *FOREIGN)))
        self.assertEqual({400}, self.codes(('a b', 'x,y', '')))


class TestWithAccounts(HostsMixin, base.AccountsTestCase):

    def test_serves_all_names(self):
        self.assertEqual({200}, self.codes((*OWN, *FOREIGN)))
