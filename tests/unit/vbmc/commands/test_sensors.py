# SPDX-License-Identifier: Apache-2.0
import hashlib

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import sdr
from vbmc_kubevirt.commands import sensor_table

P = power_state.PowerState
NUMBERS = {sensor.name: sensor.number for sensor in sensor_table.READABLE}
ILLEGAL = (0xCD, b'')


#: What the records and `sdr.CHANGED` were when both were changed last.
RECORDS = ('8bc2b178702354e0', 1795870800)


class SensorsTestCase(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.machine.power_state.return_value = P.ON
        self.machine.node_lost.return_value = False
        self.machine.booted_from.return_value = None
        self.machine.medium.return_value = None

    def offsets(self, name):
        """Read a sensor; return the list of offsets that are set."""
        code, data = self.ask(4, 0x2D, NUMBERS[name])
        self.assertEqual((0, 4, 0, 0xC0),
                         (code, len(data), data[0], data[1]))
        states = int.from_bytes(data[2:], 'little')
        self.assertTrue(states & 0x8000)
        return [bit for bit in range(15) if states >> bit & 1]

    def test_power_and_acpi(self):
        for state, power, acpi in (
                (P.ON, [], [0]), (P.PAUSED, [], [9]),
                (P.POWERING_OFF, [], [0]), (P.POWERING_ON, [0], [5]),
                (P.OFF, [0], [5])):
            self.machine.power_state.return_value = state
            self.assertEqual((power, acpi), (
                self.offsets('Power'), self.offsets('ACPI State')))
        self.machine.problem.return_value = power_state.Problem('a', 'b')
        self.assertEqual([0, 5], self.offsets('Power'))

    def test_lost_node(self):
        self.assertEqual([], self.offsets('Node'))
        self.machine.node_lost.return_value = True
        self.assertEqual([1], self.offsets('Node'))
        self.assertEqual([14], self.offsets('ACPI State'))

    def test_disks(self):
        self.assertEqual([], self.offsets('Disks'))
        for reason, offsets in ('PausedIOError', [1]), ('NodeUnresponsive',
                                                        []):
            self.machine.impairment.return_value = power_state.Problem(
                reason, 'this is why')
            self.assertEqual(offsets, self.offsets('Disks'))

    def test_os_boot_has_the_device(self):
        self.assertEqual([], self.offsets('OS Boot'))
        for target, offset in ((boot.Target.PXE, 2), (boot.Target.HDD, 1),
                               (boot.Target.CD, 4),
                               (boot.Target.UEFI_HTTP, 4)):
            self.machine.booted_from.return_value = target
            self.assertEqual([offset], self.offsets('OS Boot'))
        self.machine.booted_from.return_value = boot.Target.NONE
        self.assertEqual([], self.offsets('OS Boot'))

    def test_media(self):
        for name, device in (('CD', 'Cd'), ('USB Stick', 'USBStick')):
            self.assertEqual([], self.offsets(name))
            for state, offset in ((media.State.READY, 2),
                                  (media.State.IMPORTING, 2),
                                  (media.State.FAILED, 0)):
                media_of = {device: media.Medium('u', True, state)}
                self.machine.medium.side_effect = media_of.get
                self.assertEqual([offset], self.offsets(name))

    def test_watchdog(self):
        self.assertEqual([], self.offsets('Watchdog'))
        self.bmc.watchdog_events = lambda: (1,)
        self.assertEqual([1], self.offsets('Watchdog'))

    def test_no_sensor_has_thresholds(self):
        for command, *data in ((0x23, 0), (0x24, 0xFF, 1, 1), (0x25, 0xFF),
                               (0x26, 0, 0, 0, 0, 0, 0, 0), (0x27,)):
            self.assertEqual(ILLEGAL, self.ask(4, command, 1, *data))
            self.assertEqual((0xCB, b''), self.ask(4, command, 99, *data))

    def test_type_and_events(self):
        for sensor in sensor_table.READABLE:
            self.assertEqual((0, bytes((sensor.type, 0x6F))),
                             self.ask(4, 0x2F, sensor.number))
        self.assertEqual((0, b'\xC0\x21\0\x21\0'), self.ask(4, 0x29, 1))
        self.machine.power_state.return_value = P.OFF
        self.assertEqual((0, b'\xC0\1\0\0\0'), self.ask(4, 0x2B, 1))
        self.assertEqual((0, b''), self.ask(4, 0x2A, 1, 0))

    def test_events_cannot_be_disabled(self):
        for data, expected in (((0xC0,), (0, b'')), ((0x40,), ILLEGAL),
                               ((0x80,), ILLEGAL), ((0xD0, 1), (0, b'')),
                               ((0xE0, 1), ILLEGAL)):
            self.assertEqual(expected, self.ask(4, 0x28, 1, *data))
        self.assertEqual(ILLEGAL, self.ask(4, 0x2E, 1, 1, 0x6F))


class RepositoryTestCase(bmc_case.BmcTestCase):

    def record(self, number, offset=0, count=0xFF, reserved=b'\0\0'):
        return self.ask(0x0A, 0x23, *reserved, *number.to_bytes(2, 'little'),
                        offset, count)

    def walk(self):
        """Read all records: dict of id to bytes."""
        found, number = {}, 0
        while number != 0xFFFF:
            code, data = self.record(number)
            self.assertEqual(0, code)
            record = data[2:]
            found[int.from_bytes(record[:2], 'little')] = record
            number = int.from_bytes(data[:2], 'little')
        return found

    def test_records(self):
        code, info = self.ask(0x0A, 0x20)
        count = int.from_bytes(info[1:3], 'little')
        self.assertEqual((0, 14, 0x51, 3), (code, len(info), info[0],
                                            info[13]))
        found = self.walk()
        self.assertEqual(list(range(1, count + 1)), list(found))
        for record in found.values():
            self.assertEqual((0x51, len(record) - 5), (record[2], record[4]))
        self.assertEqual({2: 8, 0x12: 1, 0x11: 1,
                          3: len(sensor_table.EVENT_ONLY)}, {
            type_: [one[3] for one in found.values()].count(type_)
            for type_ in (2, 0x12, 0x11, 3)})
        power = found[1]
        # Number, entity; sensor type, reading type; masks; name.
        self.assertEqual((1, 0x13, 9, 0x6F), (
            power[7], power[8], power[12], power[13]))
        self.assertEqual(b'\x21\0' * 3 + b'\xC0', power[14:21])
        self.assertEqual(b'\xC5Power', power[31:])

    def test_sensors_have_unique_numbers_and_names_that_fit(self):
        sensors = sensor_table.READABLE + sensor_table.EVENT_ONLY
        self.assertEqual(len(sensors), len({one.number for one in sensors}))
        for one in sensors:
            self.assertLessEqual(len(one.name), sensor_table.NAME_MAX)
            self.assertLess(max(one.offsets), 15)

    def test_changed_is_set_with_each_change(self):
        """Clients keep a copy of the records until `sdr.CHANGED` differs."""
        digest = hashlib.sha256(b''.join(sdr.records())).hexdigest()[:16]
        if (digest == RECORDS[0]) != (sdr.CHANGED == RECORDS[1]):
            self.fail('records have changed: set sdr.CHANGED to today')
        self.assertEqual(RECORDS, (digest, sdr.CHANGED))

    def test_partial_reads_need_a_reservation(self):
        whole = self.record(1)[1][2:]
        self.assertEqual(whole[:5], self.record(1, 0, 5)[1][2:])
        self.assertEqual((0xC5, b''), self.record(1, 5, 5))
        code, reserved = self.ask(0x0A, 0x22)
        other = self.ask(0x0A, 0x22)[1]
        self.assertNotEqual(reserved, other)
        self.assertEqual(whole[5:10], self.record(1, 5, 5, reserved)[1][2:])
        self.assertEqual(whole[30:], self.record(1, 30, 200, other)[1][2:])
        self.assertEqual((0xC9, b''), self.record(1, 250, 1, other))
        self.assertEqual((0xCB, b''), self.record(4000))
        last = len(sdr.records())
        self.assertEqual(self.record(last), self.record(0xFFFF))

    def test_other_commands(self):
        self.assertEqual((0, 9), (self.ask(0x0A, 0x21)[0],
                                  len(self.ask(0x0A, 0x21)[1])))
        self.assertEqual((0, b'\1'), self.ask(0x0A, 0x2C, 1))

    def test_device_id_announces_the_same_functions(self):
        self.assertEqual(sdr.CAPABILITIES, self.ask(6, 1)[1][5])
        [locator] = [one for one in sdr.records() if one[3] == 0x12]
        self.assertEqual(sdr.CAPABILITIES, locator[8])
