# SPDX-License-Identifier: Apache-2.0
"""The INI file of virtualpdu-kubevirt."""

import pathlib

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.pdu import config

SAMPLE = pathlib.Path(__file__).parents[3] / 'etc/virtualpdu/virtualpdu.conf'

GLOBAL = '[global]\n'
PDU = ('[rack]\nlisten_address = 127.0.0.1\nlisten_port = 9161\n'
       'community = hidden-word\nports = 1:node-0\n')


class ConfigTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'virtualpdu.conf')

    def read(self, text):
        self.path.write_text(text)
        return config.read(str(self.path))

    def refused(self, text, *parts):
        message = str(self.assertRaises(
            errors.ConfigError, self.read, text))
        for part in (str(self.path), *parts):
            self.assertIn(part, message)
        self.assertNotIn('hidden-word', message)

    def test_sample(self):
        parser, mapping = config.read(str(SAMPLE))
        self.assertEqual('default', parser['global']['kubevirt_namespace'])
        self.assertEqual({('rack-1', 1): 'node-0'}, mapping)

    def test_sample_of_snmpv3(self):
        before, start, lines = SAMPLE.read_text().rpartition('# [rack-2]')
        text = before + (start + lines).replace('# ', '')
        self.assertEqual({('rack-1', 1): 'node-0', ('rack-2', 1): 'node-2'},
                         self.read(text)[1])

    def test_file_of_upstream(self):
        self.read('[global]\nlibvirt_uri=test:///default\n' + PDU)

    def test_missing_file(self):
        message = str(self.assertRaises(
            errors.ConfigError, config.read, str(self.path)))
        self.assertIn('No such file', message)

    def test_global(self):
        self.refused(GLOBAL, 'no section of a PDU')
        self.refused(GLOBAL + 'kubevirt_namespaces = a\n' + PDU,
                     'unknown option kubevirt_namespaces')
        self.refused(GLOBAL + 'kubevirt_namespace = a/b\n' + PDU,
                     '[global]: kubevirt_namespace is wrong')
        self.refused(GLOBAL + 'kubevirt_run_strategy = Once\n' + PDU,
                     '[global]: kubevirt_run_strategy is wrong')
        self.refused(GLOBAL + 'outlet_default_state = on\n' + PDU,
                     'outlet_default_state is wrong')

    def test_lines_are_not_quoted(self):
        self.refused('community = hidden-word\n', 'line 1')
        self.refused(GLOBAL + PDU + 'hidden-word\n', 'line 7')

    def test_pdu(self):
        for before, after, part in (
                ('9161', '0', 'listen_port is wrong'),
                ('9161', '100000', 'listen_port is wrong'),
                ('listen_port', 'port', 'listen_port is missing'),
                ('listen_address', 'address', 'listen_address is missing'),
                ('community', 'unity', 'community is missing'),
                ('hidden-word', 'hidden-wörd', 'community is wrong'),
                ('ports', 'orts', 'ports is missing'),
                *((before, after, 'ports is wrong') for before, after in (
                    ('1:', '0:'), ('1:', '25:'), ('1:', '1: '),
                    ('1:node-0', '1'), ('1:node-0', '1:a,'),
                    ('node-0', 'Node'))),
                ('1:node-0', '1:a,1:b', 'ports has an outlet twice'),
                ('ports', 'snmp_versions = 2\nports',
                 'snmp_versions is wrong'),
                ('ports', 'snmp_versions = 3\nports', 'user is missing'),
                ('ports', 'auth_key = hidden-word\nports',
                 'auth_protocol is missing'),
                ('ports', 'priv_protocol = AES\nports',
                 'priv_key is missing'),
                ('ports', 'auth_key = a\nauth_protocol = ROT13\nports',
                 'auth_protocol is wrong'),
                ('ports', 'engine_id = 0x80\nports', 'engine_id is wrong'),
                ('ports', 'ports = 2:x\nports', 'ports')):
            self.refused(GLOBAL + PDU.replace(before, after), 'rack', part)

    def test_communities_are_for_v1_and_v2c(self):
        v3 = PDU.replace('community = hidden-word', 'user = ironic')
        for versions in '3', '1,3', '2c , 3':
            text = f'{GLOBAL}{v3}snmp_versions = {versions}\n'
            if versions == '3':
                self.read(text)
            else:
                self.refused(text, 'community is missing')
