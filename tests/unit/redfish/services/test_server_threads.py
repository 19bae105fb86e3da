# SPDX-License-Identifier: Apache-2.0

import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import server_threads


class SlotsTestCase(base.BaseTestCase):

    def threads(self, number):
        """Let the server have a number of threads; no slot is in use."""
        self.useFixture(fixtures.MockPatchObject(
            server_threads, '_threads', lambda: number))
        self.useFixture(fixtures.MockPatchObject(
            server_threads.Slots, '_all_used', 0))
        return server_threads.Slots(3), server_threads.Slots(3)

    def test_maximum_of_each_kind(self):
        for slots in self.threads(None):
            taken = [slots.take('a') for _ in range(3)]
            self.assertNotIn(None, taken)
            self.assertIsNone(slots.take('a'))
            taken[0].close()
            taken[0].close()
            self.assertIsNotNone(slots.take('a'))
            self.assertIsNone(slots.take('a'))

    def test_owner_leaves_slots_to_others(self):
        slots, _ = self.threads(None)
        for owner, number in ('a', 3), ('b', 2), ('c', 1):
            taken = [slots.take(owner) for _ in range(number)]
            self.assertNotIn(None, taken)
            self.assertIsNone(slots.take(owner))
        self.assertIsNone(slots.take('d'))

    def test_all_kinds_take_half_of_the_threads(self):
        for number in 1, 2, 3, 4, 5:
            one, two = self.threads(number)
            taken = [two.take('a') for _ in range(number // 2 - 1)]
            with one.take('a'):
                self.assertNotIn(None, taken)
                self.assertIsNone(one.take('a'))
                self.assertIsNone(two.take('b'))
            self.assertIsNotNone(two.take('b'))
