# SPDX-License-Identifier: Apache-2.0
import datetime
import time
import types
import uuid

from oslotest import base

from sushy_kubevirt.bmc import clock
from sushy_kubevirt.bmc import state_secret
from tests.unit.bmc import fake_state

VM, OTHER = (types.SimpleNamespace(uid=uid) for uid in ('a', 'b'))


class TestClocks(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.state = fake_state.State()
        self.clocks = clock.Clocks(self.state)

    def error(self, wanted, machine=VM):
        return abs((self.clocks.of(machine).now() - wanted).total_seconds())

    def test_shows_host_time_in_utc(self):
        shown = self.clocks.of(VM).now()
        self.assertEqual(datetime.timedelta(0), shown.utcoffset())
        self.assertLess(self.error(
            datetime.datetime.now(datetime.timezone.utc)), 2)

    def test_keeps_time_and_offset(self):
        wanted = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=(
            datetime.timezone.utc))
        self.clocks.set(VM, seconds=wanted.timestamp())
        self.clocks.set(VM, offset=-90)
        for clocks in self.clocks, clock.Clocks(self.state):
            shown = clocks.of(VM).now()
            self.assertLess(abs((shown - wanted).total_seconds()), 30)
            self.assertEqual(datetime.timedelta(minutes=-90),
                             shown.utcoffset())
        self.clocks.set(VM, seconds=wanted.timestamp() + 3600)
        self.assertEqual(-90, self.clocks.of(VM).offset)
        self.assertEqual(clock.Clock(), self.clocks.of(OTHER))

    def test_drops_the_oldest(self):
        for number in range(clock.MAX_MACHINES + 2):
            self.state.sections.setdefault(clock.SECTION, {})[
                str(number)] = {'shift': 0, 'offset': 1, 'set_at': number}
        self.clocks.set(VM, offset=5)
        section = self.state.sections[clock.SECTION]
        self.assertEqual(clock.MAX_MACHINES, len(section))
        self.assertNotIn('2', section)
        self.assertEqual(5, self.clocks.of(VM).offset)

    def test_machines_have_room_in_the_secret(self):
        section = {str(uuid.uuid4()): {
            'shift': -1234567890.123456, 'offset': -1199,
            'set_at': 1234567890.123456 + number}
            for number in range(clock.MAX_MACHINES)}
        self.assertLess(len(state_secret._encode(section)),
                        state_secret.MAX_BYTES)

    def test_clock_of_the_host_is_not_kept(self):
        self.clocks.set(VM, seconds=time.time() + 100)
        self.assertIn(VM.uid, self.state.sections[clock.SECTION])
        self.clocks.set(VM, seconds=time.time() + 0.5)
        self.assertEqual({}, self.state.sections[clock.SECTION])

    def test_ignores_invalid_section(self):
        for stored in None, [], {}, {'shift': 'x', 'offset': 1, 'set_at': 0}:
            self.state.sections[clock.SECTION] = {VM.uid: stored}
            self.assertEqual(clock.Clock(), self.clocks.of(VM))
