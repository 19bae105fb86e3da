# SPDX-License-Identifier: Apache-2.0
"""Redfish and IPMI show, clear and change the same things."""

from tests.fixtures import base
from tests.fixtures import vbmcd


class SharedLogTest(base.EmulatorTestCase):

    VMS = 1

    def setUp(self):
        super().setUp()
        self.daemon = self.useFixture(
            vbmcd.Vbmcd(self.sandbox.bmc_account()))
        self.bmc = self.daemon.add('vm-0')
        self.path = self.emulator.systems()[0]
        self.uuid = self.path.rpartition('/')[2]
        self.log = self.path + '/LogServices/Events'

    def entries(self):
        """Return the MessageIds of the log without registry and version."""
        body = self.emulator.request('GET', self.log + '/Entries',
                                     expect=200).json()
        return [entry['MessageArgs'][1]
                if entry['MessageId'].endswith('KubernetesEvent')
                else entry['MessageId'].rpartition('.')[2]
                for entry in body['Members']]

    def sel(self):
        """Return sensor, event and direction of the SEL's records."""
        done = vbmcd.ipmitool(self.bmc, 'sel', 'elist')
        if 'SEL has no entries' in done.stdout:
            return []
        self.assertEqual(0, done.returncode, done.stdout)
        return [' | '.join(column.strip() for column in line.split('|')[3:])
                for line in done.stdout.splitlines()]

    def test_log(self):
        self.assertEqual(([], []), (self.entries(), self.sel()))
        self.emulator.reset(self.uuid, 'On')
        self.sandbox.wait_running('vm-0')
        self.until(lambda: 'ResourcePoweredOn' in self.entries())
        self.until(lambda: 'Started' in self.entries())
        self.daemon.ipmi('vm-0', 'raw', *'4 2 4 7 1 0x6f 1 0 0'.split())
        self.until(lambda: 'SelEntryAdded' in self.entries())
        entries = self.entries()
        self.until(lambda: len(self.sel()) == len(entries))
        events = dict(zip(entries, self.sel()))
        self.assertEqual('Power Unit Power | Power off/down | Deasserted',
                         events['ResourcePoweredOn'])
        self.assertEqual('System Event Started | Informational | Asserted',
                         events['Started'])
        self.assertEqual('Processor #0x01 | Thermal Trip | Asserted',
                         events['SelEntryAdded'])
        # Cleared by Redfish.
        self.emulator.request(
            'POST', self.log + '/Actions/LogService.ClearLog', {},
            expect=204)
        self.assertEqual([], self.entries())
        self.until(lambda: not self.sel(), 5)
        # What is newer is in both.
        self.emulator.reset(self.uuid, 'ForceOff')
        self.sandbox.wait_stopped('vm-0')
        self.until(lambda: {'ResourcePoweredOff', 'Stopped'} <= {
            *self.entries()})
        self.assertNotIn('ResourcePoweredOn', self.entries())
        self.until(lambda: 'Power Unit Power | Power off/down | Asserted' in (
            self.sel()))
        # Cleared by IPMI.
        self.until(lambda: len(self.sel()) == len(self.entries()))
        self.daemon.ipmi('vm-0', 'sel', 'clear')
        self.assertEqual([], self.sel())
        self.until(lambda: not self.entries(), 5)

    def test_asset_tag(self):
        def fru():
            return self.daemon.ipmi('vm-0', 'fru', 'print')

        self.emulator.patch_system(self.uuid, {'AssetTag': 'rack 7'})
        self.until(lambda: 'Asset Tag     : rack 7' in fru())
        vbmcd.ipmitool(self.bmc, *'fru edit 0 field p 5 shelf'.split())
        self.assertEqual('shelf', self.emulator.system(self.uuid)['AssetTag'])
        long = 'x' * 200
        self.emulator.patch_system(self.uuid, {'AssetTag': long})
        self.until(lambda: f"Asset Tag     : {'x' * 63}\n" in fru() + '\n')
        # A write of another field does not cut it.
        vbmcd.ipmitool(self.bmc, *'fru edit 0 field p 1 other'.split())
        self.assertEqual(long, self.emulator.system(self.uuid)['AssetTag'])
