# SPDX-License-Identifier: Apache-2.0
"""Redfish and IPMI show, clear and change the same things."""

import datetime
import pathlib
import random
import secrets

import fixtures

from tests.fixtures import base
from tests.fixtures import vbmcd

#: Reasons of Events of KubeVirt and CDI.
REASONS = ('SuccessfulCreate', 'SuccessfulDelete', 'Created', 'Deleted',
           'Started', 'Stopped', 'ShuttingDown', 'Migrated', 'SyncFailed',
           'FailedScheduling', 'ImportScheduled', 'ImportSucceeded')


class LogTestCase(base.EmulatorTestCase):
    """A test case of one VM with a BMC of each protocol."""

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


class SharedLogTest(LogTestCase):

    def test_log(self):
        self.assertEqual(([], []), (self.entries(), self.sel()))
        self.emulator.reset(self.uuid, 'On')
        self.sandbox.wait_running('vm-0')
        self.until(lambda: 'ResourcePoweredOn' in self.entries())
        self.until(lambda: 'Started' in self.entries())
        self.daemon.ipmi('vm-0', 'raw', *'4 2 4 7 1 0x6f 1 0 0'.split())
        self.until(lambda: 'SelEntryAdded' in self.entries())

        def logs():
            entries, records = self.entries(), self.sel()
            # There may be an event between the two reads.
            return len(entries) == len(records) and (entries, records)
        events = dict(zip(*self.until(logs)))
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
        # Another process reads it from its watch.
        self.until(lambda: self.emulator.system(self.uuid)[
            'AssetTag'] == 'shelf')
        long = 'x' * 200
        self.emulator.patch_system(self.uuid, {'AssetTag': long})
        self.until(lambda: f"Asset Tag     : {'x' * 63}\n" in fru() + '\n')
        # A write of another field does not cut it.
        vbmcd.ipmitool(self.bmc, *'fru edit 0 field p 1 other'.split())
        self.assertEqual(long, self.emulator.system(self.uuid)['AssetTag'])


class OrderTest(LogTestCase):
    """The order of entries whose times do not tell it."""

    def happen(self):
        """Let events happen within seconds; return them in this order."""
        reasons = random.sample(REASONS, len(REASONS))
        second = datetime.datetime.now(datetime.timezone.utc).strftime(
            '%Y-%m-%dT%H:%M:%SZ')
        vm = self.sandbox.vm('vm-0')
        about = {'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
                 **{key: vm['metadata'][key] for key in (
                     'name', 'namespace', 'uid')}}
        for reason in reasons:
            # As KubeVirt's components do it: a random name, and a time in
            # seconds.
            self.sandbox.create('events', {
                'metadata': {'name': 'vm-0.' + secrets.token_hex(8),
                             'namespace': about['namespace']},
                'involvedObject': about, 'reason': reason,
                'message': 'text', 'type': 'Normal', 'count': 1,
                'source': {'component': 'virtualmachine-controller'},
                'firstTimestamp': second, 'lastTimestamp': second})
        sensors = random.sample(range(0x30, 0x3C), 12)
        records = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'records'
        records.write_text(''.join(
            f'0x04 0x01 0x{sensor:02x} 0x01 0x09 0x80 0x70 # temperature\n'
            for sensor in sensors))
        self.daemon.ipmi('vm-0', 'sel', 'add', str(records))
        return reasons + sensors

    def redfish_order(self):
        """Return reasons, and the sensors of records, as Redfish has them."""
        body = self.emulator.request('GET', self.log + '/Entries',
                                     expect=200).json()
        return [
            # Without its id a record is in the log: sensor is byte 12.
            int(entry['MessageArgs'][1][18:20], 16)
            if entry['MessageId'].endswith('SelEntryAdded')
            else entry['MessageArgs'][1] for entry in body['Members']]

    def columns(self, command):
        return [[column.strip() for column in line.split('|')] for line in
                self.daemon.ipmi('vm-0', 'sel', command).splitlines()]

    def sel_order(self):
        """Return reasons, and the sensors of records, as ipmitool does."""
        lines = self.columns('elist')
        self.assertEqual([line[0] for line in lines],
                         [line[0] for line in self.columns('list')])
        sensors = [line[3].removeprefix('System Event ')
                   .removeprefix('Temperature #') for line in lines]
        return [int(sensor, 16) if sensor.startswith('0x') else sensor
                for sensor in sensors]

    def assert_order(self, happened):
        self.assertEqual(happened, self.redfish_order())
        self.assertEqual(happened, self.sel_order())

    def test_order_within_a_second(self):
        for _ in range(3):
            self.daemon.ipmi('vm-0', 'sel', 'clear')
            # The emulator may have read the log a moment ago.
            self.until(lambda: not self.redfish_order())
            happened = self.happen()
            self.until(lambda: len(self.redfish_order()) == len(happened))
            self.assert_order(happened)
            times = [line[2] for line in self.columns('list')]
            # Some of the client's own are of one second, too.
            self.assertLess(len(set(times[len(REASONS):])), 12)
        for _ in range(2):
            self.emulator.cleanUp()
            self.emulator.setUp()
            self.daemon.vbmc('stop', 'vm-0')
            self.daemon.start('vm-0')
            self.assert_order(happened)
