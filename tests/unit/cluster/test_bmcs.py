# SPDX-License-Identifier: Apache-2.0
"""Addresses and credentials of BMCs."""

import base64

from oslotest import base

from sushy_kubevirt.cluster import apply
from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.remote import endpoint
from tests.unit.cluster import live
from tests.unit.cluster import memory
from tests.unit.cluster import nodes

BMCS = 'virtualmachinebmcs'


class BmcsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = memory.Memory()
        self.api.controller = lambda obj: live.serve(self.api, obj)
        result = apply.run(self.api, plan.make(
            self.api, nodes.cluster(2, volumes=()), 'space'))
        self.assertEqual({}, result.failed)
        self.api.calls.clear()

    def read(self):
        return bmcs.of_cluster(self.api, 'space', 'tenks')

    def test_reads_cluster_by_lists(self):
        found = self.read()
        self.assertEqual({'tk0', 'tk1'}, set(found))
        one = found['tk1']
        self.assertEqual(
            ('10.96.0.7', 443, 623, 'admin', live.CA, 'tk1-bmc'),
            (one.address, one.redfish_port, one.ipmi_port, one.username,
             one.ca, one.secret))
        self.assertEqual(live.password(self.api, 'tk1'), one.password)
        self.assertEqual({'list'}, {verb for verb, *_ in self.api.calls})
        self.assertEqual(3, len(self.api.calls))

    def test_reads_one_node(self):
        self.assertEqual(
            self.read()['tk0'], bmcs.of_node(self.api, 'space', 'tk0'))

    def test_revision_changes_with_secret(self):
        before = self.read()['tk0'].revision
        self.api.change('secrets', 'tk0-bmc', lambda obj: None)
        self.assertNotEqual(before, self.read()['tk0'].revision)

    def test_password_is_not_in_representation(self):
        self.assertNotIn(live.password(self.api, 'tk0'), repr(self.read()))

    def test_newline_at_end_of_password(self):
        def change(obj):
            obj['data']['password'] = base64.b64encode(b'text\n').decode()
        self.api.change('secrets', 'tk0-bmc', change)
        self.assertEqual('text', self.read()['tk0'].password)

    def test_other_ports(self):
        def change(obj):
            obj['status']['endpoints'].update(
                redfish={'url': 'https://[fd00::7]:8443/redfish/v1/Systems/1'},
                ipmi={'host': 'fd00::7', 'port': 6230})
        self.api.change(BMCS, 'tk0', change)
        one = self.read()['tk0']
        self.assertEqual(('fd00::7', 8443, 6230, None), (
            one.address, one.redfish_port, one.ipmi_port, one.ca))

    def test_bmc_without_address_says_why(self):
        self.api.change(BMCS, 'tk0', lambda obj: obj.update(status={
            'conditions': [nodes.condition(
                'Ready', 'False', 'VirtualMachineNotFound', 'no VM')]}))
        found = self.read()
        self.assertEqual('BMC of tk0: VirtualMachineNotFound: no VM',
                         str(found['tk0']))
        self.assertEqual('10.96.0.7', found['tk1'].address)

    def test_unusable_bmcs(self):
        self.api.change(BMCS, 'tk0', lambda obj: obj['status'].update(
            authSecret='gone'))
        error = self.assertRaises(
            endpoint.BmcUnavailable, bmcs.of_node, self.api, 'space', 'tk0')
        self.assertIn('Secret space/gone does not exist', str(error))

    def test_missing_protocols(self):
        def plain(obj):
            obj['status']['endpoints']['redfish']['url'] = 'http://a/'
        for change, protocol, text in (
                (plain, 'redfish', 'does not serve Redfish over HTTPS. Remove '
                 '"plainHTTP"'),
                (lambda obj: obj['status']['endpoints'].pop('redfish'),
                 'redfish', '"enabled" from "redfish" in "bmc"')):
            self.api.change(BMCS, 'tk0', change)
            found = self.read()['tk0']
            self.assertEqual(623, bmcs.require('tk0', found, 'ipmi').ipmi_port)
            error = self.assertRaises(
                endpoint.BmcUnavailable, bmcs.require, 'tk0', found, protocol)
            self.assertIn(text, str(error))
        self.api.change(BMCS, 'tk1', lambda obj: obj['status'][
            'endpoints'].pop('ipmi'))
        error = self.assertRaises(
            endpoint.BmcUnavailable, bmcs.require, 'tk1', self.read()['tk1'],
            'ipmi')
        self.assertIn('does not serve IPMI. Remove "enabled" from "ipmi"',
                      str(error))

    def test_secret_without_password(self):
        self.api.change('secrets', 'tk0-bmc', lambda obj: obj['data'].pop(
            'password'))
        self.assertIn('no usable password', str(self.read()['tk0']))

    def test_unknown_node(self):
        error = self.assertRaises(
            endpoint.BmcUnavailable, bmcs.of_node, self.api, 'space', 'tk9')
        self.assertIn('there is no VirtualMachineBMC space/tk9', str(error))

    def test_addresses_in_urls(self):
        self.assertEqual('a', endpoint.host_and_port('a', 443, 443))
        self.assertEqual('[fd00::7]:444',
                         endpoint.host_and_port('fd00::7', 444, 443))
