# SPDX-License-Identifier: Apache-2.0
"""Requests with random data to sensors, SEL and FRU."""
import random
import types

from testtools import content

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.machine import power_state
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import fru
from vbmc_kubevirt.commands import sdr
from vbmc_kubevirt.commands import sel
from vbmc_kubevirt.commands import sensors

REQUESTS = 20000


class HostileRequestsTest(bmc_case.BmcTestCase):

    def test_every_request_is_answered(self):
        seed = random.randrange(2 ** 32)
        self.addDetail('seed', content.text_content(str(seed)))
        chance = random.Random(seed)
        self.machine.power_state.return_value = power_state.PowerState.ON
        self.machine.medium.return_value = None
        self.machine.booted_from.return_value = None
        self.machine.name, self.machine.qualified_name = 'vm', 'lab/vm'
        self.machine.gates = types.SimpleNamespace(version='v1')
        self.machine.asset_tag.return_value = ''
        self.log.erased_at.return_value = 0
        self.log.entries.return_value = tuple(event_log.Entry(
            f'e{number}', '', 1e9 + number, 'OK', '', '', '',
            event_registry.POWERED_ON.id, ()) for number in range(3))
        self.log.add.return_value = 'e0'
        commands = [command for group in (
            sdr.Repository, sel.Sel, fru.Fru, sensors.Sensors)
            for command in group(self.bmc).commands().values()]
        for _ in range(REQUESTS):
            command = chance.choice(commands)
            data = bytearray(chance.randbytes(
                command.min_length + chance.choice((0, 0, 1, 20, 250))))
            # Values near to valid ones.
            for at in range(len(data)):
                if chance.random() < 0.5:
                    data[at] = chance.choice((0, 1, 2, 3, 16, 0xAA, 0xFF))
            code, answer = command.handler(self.session, bytes(data))
            self.assertIsInstance(answer, bytes)
            self.assertLess(len(answer), 260)
            self.assertTrue(code == 0 or not answer)
        self.machine.set_asset_tag.assert_not_called()
