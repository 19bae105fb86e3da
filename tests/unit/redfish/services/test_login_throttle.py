# SPDX-License-Identifier: Apache-2.0
"""Tests for throttling of failed logins."""

from oslotest import base

from sushy_kubevirt.redfish.services import login_throttle


class ThrottleTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.throttle = login_throttle.Throttle(lambda: self.now)

    def delay(self, account='admin', source='10.0.0.1'):
        return self.throttle.failed(account, source)[0]

    def test_delay_doubles_up_to_maximum(self):
        free = [0.25] * login_throttle.PAIR
        self.assertEqual(free + [0.5, 1, 2, 4, 5, 5], [
            self.delay() for _ in range(login_throttle.PAIR + 6)])
        self.assertEqual(0.25, self.delay('admin', '10.0.0.2'))
        self.assertEqual(0.25, self.delay('other', '10.0.0.1'))

    def test_delays_source_with_many_names(self):
        delays = [self.delay(f'user-{number}') for number in range(100)]
        self.assertEqual(0.25, delays[login_throttle.SOURCE - 1])
        self.assertEqual(5, delays[-1])
        self.assertEqual(0.25, self.delay('user-1', '10.0.0.2'))

    def test_delays_account_with_many_sources(self):
        delays = [self.delay(source=f'10.1.0.{number}')
                  for number in range(100)]
        self.assertEqual(0.25, delays[login_throttle.ACCOUNT - 1])
        self.assertEqual(5, delays[-1])
        self.assertEqual(0.25, self.delay('other', '10.1.0.1'))

    def test_counts_failures(self):
        self.assertEqual(0, self.throttle.failures('10.0.0.1'))
        self.delay()
        self.delay('other')
        self.assertEqual(2, self.throttle.failures('10.0.0.1'))
        self.assertEqual(0, self.throttle.failures('10.0.0.2'))

    def test_stores_digest_of_long_name(self):
        long = 'x' * 250000
        for _ in range(login_throttle.PAIR):
            self.assertEqual(0.25, self.delay(long))
        self.assertEqual(0.25, self.delay(long + '\ud800'))
        for name, _source in self.throttle._counts:
            self.assertLessEqual(len(name or ''), 64)
        # Long names are distinguished all the same.
        self.assertEqual(0.5, self.delay(long))
        self.assertEqual(0.25, self.delay('x' * 249999 + 'y'))

    def test_resets_expired_count(self):
        for _ in range(100):
            self.delay()
        self.now += login_throttle.FORGET_SECONDS + 1
        self.assertEqual(0, self.throttle.failures('10.0.0.1'))
        self.assertEqual(0.25, self.delay())

    def test_number_of_entries_is_bounded(self):
        for number in range(login_throttle.MAX_ENTRIES + 500):
            self.delay(f'user-{number}')
        self.assertEqual(login_throttle.MAX_ENTRIES,
                         len(self.throttle._counts))

    def test_reports_become_rare(self):
        reported = [number for number in range(1, 100)
                    if self.throttle.failed('admin', '10.0.0.1')[1]]
        self.assertEqual([1, 2, 4, 8, 16, 32, 64], reported)

    def test_reports_of_one_source_leave_some_to_others(self):
        def report(name, source):
            return self.throttle.failed(name, source)[1]

        self.assertEqual(10, sum(report(f'name-{number}', '192.0.2.1')
                                 for number in range(100)))
        self.assertTrue(report('admin', '192.0.2.2'))
        self.now += 10000
        self.assertTrue(report('other', '192.0.2.1'))

    def test_reports_are_limited(self):
        def reports(sources):
            return sum(self.throttle.failed('admin', f'from-{number}')[1]
                       for number in sources)

        self.assertEqual(20, reports(range(500)))
        self.now += 12
        self.assertEqual(2, reports(range(500, 600)))
        self.now += 10000
        self.assertEqual(20, reports(range(600, 700)))
