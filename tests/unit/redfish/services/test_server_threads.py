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
            taken = [slots.take() for _ in range(3)]
            self.assertNotIn(None, taken)
            self.assertIsNone(slots.take())
            taken[0].close()
            taken[0].close()
            self.assertIsNotNone(slots.take())
            self.assertIsNone(slots.take())

    def test_all_kinds_take_half_of_the_threads(self):
        for number in 1, 2, 3, 4, 5:
            one, two = self.threads(number)
            taken = [two.take() for _ in range(number // 2 - 1)]
            with one.take():
                self.assertNotIn(None, taken)
                self.assertIsNone(one.take())
                self.assertIsNone(two.take())
            self.assertIsNotNone(two.take())
