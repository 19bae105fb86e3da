# SPDX-License-Identifier: Apache-2.0
"""The weights of containers that compete for CPU."""

import testtools

from tests.bench import contending


class WeightTestCase(testtools.TestCase):

    def test_shares_of_a_request(self):
        self.assertEqual(
            [2, 7, 30, 1024],
            [contending.shares(request) for request in (0, 7, 30, 1000)])

    def test_weight_of_shares(self):
        # The ends of both ranges, their defaults, and the default of a BMC.
        self.assertEqual(
            [1, 100, 10000, 7],
            [contending.weight(shares) for shares in (2, 1024, 262144, 30)])
