# SPDX-License-Identifier: Apache-2.0
"""The weights of containers that compete for CPU, and the power state."""

from unittest import mock

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


class PowerStateTestCase(testtools.TestCase):

    def test_ends_when_the_bmc_shows_the_stop(self):
        measured = mock.Mock(vm='vm-0')
        measured.power_state.side_effect = ['Off', 'On', 'On', 'Off']
        self.assertLess(0, contending._late(measured))
        poll = mock.call.power_state()
        self.assertEqual(
            [mock.call.cluster.do('vm-0', 'start'),
             mock.call.cluster.wait_running('vm-0'), poll, poll,
             mock.call.cluster.do('vm-0', 'stop'),
             mock.call.cluster.wait_stopped('vm-0'), poll, poll],
            measured.mock_calls)
