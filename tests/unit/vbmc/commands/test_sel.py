# SPDX-License-Identifier: Apache-2.0
import struct
import threading
import time

import fixtures

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry as registry
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import reservation
from vbmc_kubevirt.commands import sel
from vbmc_kubevirt.commands import sel_records
from vbmc_kubevirt.commands import sensor_table as table

NOW = 1795400000


def entry(name, message=registry.POWERED_ON, args=('a/vm',), second=0, count=1,
          severity=None, reason='', raw=b''):
    return event_log.Entry(
        id=name, created='', seconds=NOW + second + 0.5,
        severity=severity or message.severity, text='', by='',
        reason=reason, message_id=message.id, args=args,
        occurrences=count, raw=raw)


class SelTestCase(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.machine.qualified_name = 'a/vm'
        self.log.erased_at.return_value = 0
        self.entries()

    def entries(self, *entries):
        self.log.entries.return_value = entries
        # Read again.
        self.bmc.warm_reset()

    def record(self, number, offset=0, count=0xFF, reserved=b'\0\0'):
        return self.ask(0x0A, 0x43, *reserved, *struct.pack('<H', number),
                        offset, count)

    def walk(self):
        """List the records as clients do: list of (id, record)."""
        found, number = [], 0
        while number != 0xFFFF:
            code, data = self.record(number)
            self.assertEqual(0, code)
            found.append((struct.unpack_from('<H', data, 2)[0], data[2:]))
            number, = struct.unpack_from('<H', data)
        return found

    def ids(self):
        return [number for number, _ in self.walk()]

    def test_reservations_of_one_user_do_not_cancel_those_of_others(self):
        kept = self.ask(0x0A, 0x42)[1]
        guest = bmc_case.Session(name=b'guest')
        first, *_, last = [self.ask(0x0A, 0x42, session=guest)[1]
                           for _ in range(reservation.MAX)]
        self.assertEqual((0xC5, b''), self.record(0, 4, 4, first))
        for reserved in kept, last:
            self.assertEqual((0xCB, b''), self.record(0, 4, 4, reserved))

    def test_empty(self):
        self.assertEqual((0xCB, b''), self.record(0))
        self.assertEqual((0xCB, b''), self.record(0xFFFF))
        self.assertEqual(
            (0, b'\x51\0\0' + (16000).to_bytes(2, 'little') + b'\xFF' * 8
             + b'\x0B'), self.ask(0x0A, 0x40))

    def test_attempt_lists_what_was_read(self):
        def would_block(machine, fresh_seconds):
            blocking.check()
            return entry('a'), entry('b', second=1)

        self.log.entries.side_effect = would_block
        self.assertRaises(blocking.WouldBlock, blocking.attempt, self.record,
                          0)
        ids = self.ids()
        self.assertEqual([0, 0], [
            blocking.attempt(self.record, number)[0] for number in ids])

    def test_attempt_waits_for_no_api_call_of_another_thread(self):
        reading, go_on = threading.Event(), threading.Event()

        def read(machine, fresh_seconds):
            reading.set()
            go_on.wait(30)
            return ()

        self.log.entries.side_effect = read
        thread = threading.Thread(target=self.ask, args=(0x0A, 0x40))
        thread.start()
        reading.wait(30)
        try:
            self.assertRaises(blocking.WouldBlock, blocking.attempt,
                              self.ask, 0x0A, 0x40)
        finally:
            go_on.set()
            thread.join()

    def test_info(self):
        self.log.erased_at.return_value = NOW - 9.5
        self.entries(entry('a'), entry('b', second=3))
        code, data = self.ask(0x0A, 0x40)
        self.assertEqual((0x51, 2, 998 * 16, NOW + 3, NOW - 10, 0x0B),
                         struct.unpack('<BHHIIB', data))
        self.assertEqual((0, struct.pack('<HHHHB', 1000, 16, 998, 998, 1)),
                         self.ask(0x0A, 0x41))

    def test_standard_record(self):
        self.entries(entry('a', registry.POWERED_OFF), entry('b', second=1))
        (first, off), (second, on) = self.walk()
        self.assertEqual(
            struct.pack('<HBIHB6B', first, 2, NOW, 0x20, 4, 9, 1, 0x6F, 0,
                        0xFF, 0xFF), off)
        self.assertEqual(
            struct.pack('<HBIHB6B', second, 2, NOW + 1, 0x20, 4, 9, 1, 0xEF,
                        0, 0xFF, 0xFF), on)
        self.assertEqual((0, b'\xFF\xFF' + on), self.record(0xFFFF))

    def test_every_message_refers_to_a_sensor(self):
        sensors = {(one.number, one.type): one
                   for one in table.READABLE + table.EVENT_ONLY}
        messages = [one for one in vars(registry).values()
                    if isinstance(one, registry.Message)]
        self.assertGreater(len(messages), 20)
        for message in messages:
            for device in ('Cd', 'USBStick', 'HttpBoot'):
                raw = sel_records.of(entry(
                    'a', message, ('vm', 'Pxe', device), reason='Why'), 1)
                sensor = sensors[raw[11], raw[10]]
                self.assertEqual(sensor.reading_type, raw[12] & 0x7F)
                self.assertIn(raw[13] & 0x0F, sensor.offsets)

    def test_messages(self):
        for message, args, sensor, offset, deasserted in (
                (registry.MEDIA_INSERTED, ('vm', 'u', 'Cd'), table.CD, 2, 0),
                (registry.MEDIA_EJECTED, ('vm', 'u', 'USBStick'),
                 table.USB_STICK, 2, 1),
                (registry.MEDIA_FAILED, ('vm', 'u', 'HttpBoot', 'r', 'm'),
                 table.HTTP_BOOT, 0, 0),
                (registry.MEDIA_INSERTED, ('vm',), table.EVENT, 8, 0),
                (registry.START_FAILED, (), table.POWER, 5, 0),
                (registry.IMPAIRED, ('vm', 'PausedIOError', 'm'),
                 table.DISKS, 1, 0),
                (registry.IMPAIRED, ('vm', 'NodeUnresponsive', 'm'),
                 table.NODE, 1, 0),
                (registry.IMPAIRED, (), table.EVENT, 2, 0),
                (registry.HEALTH_OK, (), table.POWER_CHANGE, 0, 0),
                (registry.POWERING_OFF, (), table.POWER_CHANGE, 8, 0),
                (registry.STARTED, (), table.BMC, 8, 0),
                (registry.BOOT_CONSUMED, ('vm', 'Pxe'), table.RESTART, 3, 0),
                (registry.BOOT_CONSUMED, ('vm', 'Cd'), table.BOOT_USED, 8, 0),
                (registry.LOGIN_FAILED, ('u', '::1'), table.LOGIN, 5, 0),
                (registry.TEST, (), table.EVENT, 8, 0)):
            raw = sel_records.of(entry('a', message, args), 1)
            self.assertEqual(
                (sensor.number, sensor.type, offset, deasserted),
                (raw[11], raw[10], raw[13], raw[12] >> 7), message.key)

    def test_events_of_kubernetes(self):
        for reason, severity, sensor, offset in (
                ('Started', 'OK', table.REASONS['Started'], 8),
                ('SyncFailed', 'Warning', table.REASONS['SyncFailed'], 1),
                ('Other', 'Warning', table.KUBERNETES, 1)):
            raw = sel_records.of(entry(
                'a', registry.KUBERNETES, severity=severity, reason=reason),
                1)
            self.assertEqual((sensor.number, offset), (raw[11], raw[13]))

    def test_ids_are_stable(self):
        many = [entry(f'e{number}') for number in range(1000)]
        self.entries(*many)
        ids = self.ids()
        self.assertEqual(1000, len(set(ids)))
        self.assertTrue(all(0 < one < 0xFFFF for one in ids))
        # Kubernetes deletes the oldest entries, new ones come.
        self.log.entries.return_value = (*many[500:], entry('new'))
        self.at_a_later_time()
        later = self.ids()
        self.assertEqual(ids[500:], later[:-1])
        # Another process, of which only collisions may differ.
        self.entries(*many[500:])
        restarted = self.ids()
        self.assertGreater(sum(map(int.__eq__, restarted, ids[500:])), 480)

    def test_colliding_ids(self):
        """The id of an entry does not change when another one goes."""
        by_id = {}
        for number in range(2000):
            one = entry(f'e{number}')
            by_id.setdefault(sel_records.first_id(one), []).append(one)
        first, second = next(both for both in by_id.values()
                             if len(both) > 1)[:2]
        self.entries(first, second)
        ids = self.ids()
        self.assertEqual(ids[0] + 1, ids[1])
        self.log.entries.return_value = (second,)
        self.at_a_later_time()
        self.assertEqual(ids[1:], self.ids())

    def at_a_later_time(self):
        later = sel.time.monotonic() + 2 * sel.LISTING_SECONDS
        self.useFixture(fixtures.MockPatchObject(
            sel.time, 'monotonic', lambda: later))

    def test_repeated_event_is_a_new_record(self):
        self.entries(entry('a'), entry('b'))
        a, b = self.ids()
        self.log.entries.return_value = (entry('b'), entry('a', count=2))
        self.at_a_later_time()
        again = self.ids()
        self.assertEqual(b, again[0])
        self.assertNotEqual(a, again[1])

    def test_listing_reads_the_log_once(self):
        self.entries(*(entry(f'e{number}') for number in range(100)))
        self.ask(0x0A, 0x40)
        self.assertEqual(100, len(self.walk()))
        self.log.entries.assert_called_once()

    def test_partial_read_and_errors(self):
        self.entries(entry('a'))
        [(number, whole)] = self.walk()
        self.assertEqual((0xC5, b''), self.record(number, 4, 4))
        reserved = self.ask(0x0A, 0x42)[1]
        self.assertEqual((0, b'\xFF\xFF' + whole[4:8]),
                         self.record(number, 4, 4, reserved))
        self.assertEqual((0xC9, b''), self.record(number, 16, 4, reserved))
        self.assertEqual((0xCB, b''), self.record(number % 0xFFFE + 1))

    def test_clear(self):
        def clear(reserved, word=b'CLR', action=0xAA):
            return self.ask(0x0A, 0x47, *reserved, *word, action)

        self.entries(entry('a'))
        self.assertEqual((0xC5, b''), clear(b'\0\0'))
        reserved = self.ask(0x0A, 0x42)[1]
        self.assertEqual((0xCC, b''), clear(reserved, b'XYZ'))
        self.assertEqual((0xCC, b''), clear(reserved, action=1))
        self.assertEqual((0, b'\1'), clear(reserved, action=0))
        self.log.clear.assert_not_called()
        self.ids()
        self.assertEqual((0, b'\1'), clear(reserved))
        self.log.clear.assert_called_once_with(self.machine)
        self.assertEqual((0, b'\1'), clear(reserved, action=0))
        self.log.entries.return_value = ()
        self.assertEqual((0xCB, b''), self.record(0))

    def clear(self, reserved):
        """Clear the SEL. :returns: completion code"""
        return self.ask(0x0A, 0x47, *reserved, *b'CLR', 0xAA)[0]

    def test_clear_cancels_reservations_of_others(self):
        self.entries(entry('a'))
        first, second = (self.ask(0x0A, 0x42)[1] for _ in range(2))
        self.log.clear.side_effect = lambda machine: setattr(
            self.log.erased_at, 'return_value', NOW)
        self.assertEqual([0, 0xC5], [self.clear(first), self.clear(second)])
        self.log.clear.assert_called_once()
        # The one who cleared can still ask for the state of the erasure.
        self.assertEqual((0, b'\1'), self.ask(
            0x0A, 0x47, *first, *b'CLR', 0))

    def test_clear_over_redfish_cancels_reservations(self):
        self.entries(entry('a'))
        before = self.ask(0x0A, 0x42)[1]
        self.log.erased_at.return_value = NOW
        self.assertEqual(0xC5, self.clear(before))
        self.log.erased_at.return_value = NOW + 1
        # Not one that was made later.
        self.assertEqual(0, self.clear(self.ask(0x0A, 0x42)[1]))

    def test_clear_over_redfish_shows_in_a_listing(self):
        self.entries(entry('a'))
        reserved = self.ask(0x0A, 0x42)[1]
        self.log.erased_at.return_value = NOW
        number, = self.ids()
        self.assertEqual(0xC5, self.record(number, 4, 4, reserved)[0])

    def test_clear_and_reset_while_the_log_is_read(self):
        """What is being read then is not used any more."""
        for forget in (lambda: self.clear(self.ask(0x0A, 0x42)[1]),
                       lambda: self.ask(6, 3)):
            self.entries()

            def read(machine, fresh_seconds, forget=forget):
                self.log.entries.side_effect = None
                forget()
                return entry('old'),

            self.log.entries.side_effect = read
            self.assertEqual(0, self.record(0)[0])
            self.assertEqual((0xCB, b''), self.record(0))

    def delete(self, reserved, number):
        return self.ask(0x0A, 0x46, *reserved, *struct.pack('<H', number))

    def test_delete_entry(self):
        self.entries(entry('a'), entry('b', count=2), entry('c'))
        first, second, third = self.ids()
        mine, other = (self.ask(0x0A, 0x42)[1] for _ in range(2))
        self.assertEqual((0xC5, b''), self.delete(b'\0\0', second))
        self.assertEqual((0xCB, b''), self.delete(mine, second ^ 0x5555))
        self.log.delete.assert_not_called()

        def delete(machine, name):
            self.log.erased_at.return_value += 1
            self.log.entries.return_value = [
                one for one in self.log.entries.return_value if one.id != name]

        self.log.delete.side_effect = delete
        self.assertEqual((0, struct.pack('<H', second)),
                         self.delete(mine, second))
        self.log.delete.assert_called_once_with(self.machine, 'b')
        self.assertEqual([first, third], self.ids())
        self.assertEqual((0xCB, b''), self.delete(mine, second))
        self.assertEqual((0xC5, b''), self.delete(other, first))
        # The last one, then the first one.
        for number, place in (third, 0xFFFF), (first, 0):
            self.assertEqual((0, struct.pack('<H', number)),
                             self.delete(mine, place))
        self.assertEqual((0xCB, b''), self.delete(mine, 0))

    def add(self, raw):
        """Add a record; the log then has it."""
        self.log.add.return_value = 'new'
        self.log.entries.return_value = (entry('new', registry.SEL_ENTRY,
                                               raw=raw),)

    def test_add_entry(self):
        raw = bytes((9, 9, 2, 1, 2, 3, 4, 0x41, 0, 4, 1, 0x30, 1, 9, 80, 70))
        self.add(raw)
        code, data = self.ask(0x0A, 0x44, *raw)
        self.log.add.assert_called_once_with(
            self.machine, registry.SEL_ENTRY, ('a/vm', raw[2:].hex()), raw)
        [(number, record)] = self.walk()
        self.assertEqual((0, struct.pack('<H', number)), (code, data))
        # The BMC sets id and time.
        self.assertEqual(struct.pack('<HBI', number, 2, NOW) + raw[7:],
                         record)

    def test_what_was_written_succeeds_although_nothing_can_be_read(self):
        raw = struct.pack('<HBIHB6B', 0, 2, 0, 0x41, 4, 1, 0x30, 1, 9, 80, 70)
        self.add(raw)
        [number] = self.ids()
        number = struct.pack('<H', number)
        reserved = self.ask(0x0A, 0x42)[1]
        self.log.entries.side_effect = errors.Unavailable('busy')
        self.assertEqual((0, number), self.ask(0x0A, 0x46, *reserved, *number))
        self.log.delete.assert_called_once()
        self.assertEqual((0, b''), self.ask(4, 2, 4, 1, 0x30, 1, 9, 80, 70))
        self.assertEqual((0, number), self.ask(0x0A, 0x44, *raw))
        # The deleted record is not listed from memory.
        self.log.entries.side_effect = None
        self.log.entries.return_value = ()
        self.assertEqual(0xCB, self.record(*struct.unpack('<H', number))[0])

    def test_types_of_added_entries(self):
        for type_, stamped in ((0xC0, True), (0xDF, True), (0xE0, False),
                               (0xFF, False)):
            raw = bytes((0, 0, type_, *range(13)))
            self.add(raw)
            self.at_a_later_time()
            self.assertEqual(0, self.ask(0x0A, 0x44, *raw)[0])
            [(_, record)] = self.walk()
            self.assertEqual(stamped, record[3:7] != raw[3:7])
            self.assertEqual(raw[7:], record[7:])
            self.log.entries.return_value = ()
            self.log.add.reset_mock()
        self.assertEqual((0xCC, b''), self.ask(0x0A, 0x44, *bytes(16)))
        self.log.add.assert_not_called()

    def test_platform_event(self):
        # Software ids of remote consoles (table 5-4); an IPMI v1.0 event is
        # logged as one of v1.5 (29.3).
        for requester, revision in (0x81, 4), (0x83, 3):
            self.session.requester = requester
            self.add(b'')
            self.assertEqual((0, b''), self.ask(
                4, 2, revision, 1, 0x30, 1, 9, 80, 70))
            raw = self.log.add.call_args.args[3]
            self.assertEqual(
                struct.pack('<HBIHB6B', 0, 2, 0, 0x1000 | requester, 4, 1,
                            0x30, 1, 9, 80, 70), raw)

    def time(self, command=0x48):
        code, data = self.ask(0x0A, command)
        self.assertEqual(0, code)
        return struct.unpack('<I', data)[0]

    def test_time(self):
        for get, set_ in (0x48, 0x49), (0x28, 0x29):
            self.assertLess(abs(self.time(get) - time.time()), 30)
            for seconds in NOW, 0, 0xFFFFFFFE:
                self.assertEqual((0, b''), self.ask(
                    0x0A, set_, *struct.pack('<I', seconds)))
                # The last one cannot go on.
                self.assertIn(self.time(get) - seconds, range(30))
            self.assertEqual((0xCC, b''), self.ask(
                0x0A, set_, *b'\xFF\xFF\xFF\xFF'))
            self.assertTrue(self.commands[0x0A, set_].modifies)
            self.ask(0x0A, set_, *struct.pack('<I', int(time.time())))

    def test_offset(self):
        self.assertEqual((0, b'\0\0'), self.ask(0x0A, 0x5C))
        for minutes in -1199, 90, 1199:
            data = struct.pack('<h', minutes)
            self.assertEqual((0, b''), self.ask(0x0A, 0x5D, *data))
            self.assertEqual((0, data), self.ask(0x0A, 0x5C))
            # From UTC to the time of the SEL.
            self.assertLess(abs(
                self.time() - 60 * minutes - time.time()), 30)
            # The local time.
            self.assertEqual((0, b''), self.ask(
                0x0A, 0x49, *struct.pack('<I', NOW)))
            self.assertIn(self.time() - NOW, range(30))
            self.assertEqual((0, data), self.ask(0x0A, 0x5C))
            self.ask(0x0A, 0x49, *struct.pack(
                '<I', int(time.time()) + 60 * minutes))
        for minutes in -1200, 1440, 0x7FFE:
            self.assertEqual((0xCC, b''), self.ask(
                0x0A, 0x5D, *struct.pack('<h', minutes)))
        self.assertEqual((0, b''), self.ask(0x0A, 0x5D, 0xFF, 7))
        self.assertEqual((0, b'\0\0'), self.ask(0x0A, 0x5C))
        self.assertLess(abs(self.time() - time.time()), 30)

    def test_records_have_the_time_that_was_set(self):
        self.log.erased_at.return_value = NOW - 9
        self.entries(entry('a'))
        self.log.clocks.set(self.machine, offset=60)
        self.entries(entry('a'))
        [(_number, raw)] = self.walk()
        self.assertEqual(NOW + 3600, struct.unpack_from('<I', raw, 3)[0])
        self.assertEqual((NOW + 3600, NOW + 3591), struct.unpack_from(
            '<II', self.ask(0x0A, 0x40)[1], 5))
