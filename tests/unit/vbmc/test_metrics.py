# SPDX-License-Identifier: Apache-2.0
import collections
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import prometheus
from vbmc_kubevirt import bmc
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt import metrics


class MetricsTest(base.BaseTestCase):

    def test_exports_commands_and_sessions(self):
        ipmi_server = mock.Mock(
            responses=collections.Counter({
                (0, 1, 0): 3, (0, 1, 0xC0): 1, (None, None, 0xC1): 2}),
            command_names={(0, 1): 'Get Chassis Status'},
            sessions=1, sessions_opened=5, sessions_refused=2)
        text = prometheus.text(metrics.of([ipmi_server])).decode()
        for line in (
                'virtbmc_ipmi_commands_total'
                '{command="Get Chassis Status",code="0x00"} 3',
                'virtbmc_ipmi_commands_total'
                '{command="Get Chassis Status",code="0xc0"} 1',
                'virtbmc_ipmi_commands_total'
                '{command="other",code="0xc1"} 2',
                'virtbmc_ipmi_sessions 1',
                'virtbmc_ipmi_sessions_total{result="established"} 5',
                'virtbmc_ipmi_sessions_total{result="refused"} 2'):
            self.assertIn(line + '\n', text)

    def test_every_command_has_a_name(self):
        commands = bmc.Bmc(command_table.commands, None, 'vm', 'lab/vm', None,
                           None, None).commands
        one = server.Server('vm', None, None, None, None, None, None)
        self.assertEqual(set(channel.NAMES), set(one.command_names))
        one._commands = commands
        names = one.command_names
        self.assertEqual({*commands, *channel.NAMES}, set(names))
        self.assertEqual(len(names), len(set(names.values())))
        self.assertTrue(all(names.values()))
