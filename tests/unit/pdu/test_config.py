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
        options, vms = config.read(str(SAMPLE))
        self.assertEqual('default', options['kubevirt_namespace'])
        self.assertEqual(['node-0'], vms)

    def test_sample_of_snmpv3(self):
        before, start, lines = SAMPLE.read_text().rpartition('# [rack-2]')
        text = before + (start + lines).replace('# ', '')
        self.assertEqual(['node-0', 'node-2'], self.read(text)[1])

    def test_file_of_upstream(self):
        self.read('[global]\nlibvirt_uri=test:///default\n' + PDU)

    def test_missing_file(self):
        message = str(self.assertRaises(
            errors.ConfigError, config.read, str(self.path)))
        self.assertIn('No such file', message)

    def test_global(self):
        self.refused(PDU, '[global]', 'missing')
        self.refused(GLOBAL, 'no section of a PDU')
        self.refused(GLOBAL + 'kubevirt_namespaces = a\n' + PDU,
                     'unknown option kubevirt_namespaces',
                     'kubevirt_namespace,')
        self.refused(GLOBAL + 'kubevirt_run_strategy = Once\n' + PDU,
                     "'Once'", 'RerunOnFailure')
        self.refused(GLOBAL + 'debug_snmp = yes\n' + PDU, 'debug_snmp')

    def test_lines_are_not_quoted(self):
        self.refused('community = hidden-word\n', 'line 1')
        self.refused(GLOBAL + PDU + 'hidden-word\n', 'line 7')

    def test_pdu(self):
        for before, after, part in (
                ('9161', '0', "listen_port cannot be '0'"),
                ('9161', '65536', 'listen_port'),
                ('listen_port', 'port', 'listen_port'),
                ('listen_address', 'address', 'listen_address is missing'),
                ('community', 'unity', 'community is missing'),
                ('ports', 'orts', 'ports is missing'),
                ('1:', '0:', "'0:node-0'"), ('1:', '25:', '24'),
                ('1:', '1: ', "'1: node-0'"), ('1:node-0', '1', "'1'"),
                ('1:node-0', '1:a,1:b', "'1:b'"),
                ('1:node-0', '1:a,', "''"), ('node-0', 'Node', "'1:Node'"),
                ('ports', 'snmp_versions = 2\nports', '1, 2c, 3'),
                ('ports', 'snmp_versions = 3\nports', 'user is missing'),
                ('ports', 'auth_key = hidden-word\nports', 'auth_protocol'),
                ('ports', 'priv_protocol = AES\nports', 'priv_key'),
                ('ports', 'ports = 2:x\nports', 'ports')):
            self.refused(GLOBAL + PDU.replace(before, after), 'rack', part)
