# SPDX-License-Identifier: Apache-2.0
"""Tests for throttling of failed logins."""

from oslotest import base

from sushy_kubevirt.redfish.services import login_throttle


class ThrottleTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.throttle = login_throttle.Throttle(lambda: self.now)

    def guess(self, account='admin', source='10.0.0.1'):
        """Try a wrong password. :returns: wait in seconds, 0 if admitted"""
        wait = self.throttle.admit(account, source)
        if wait == 0:
            self.throttle.failed(account, source)
        return wait

    def admitted(self, seconds, sources=('10.0.0.1',), accounts=('admin',)):
        """Return how many attempts are admitted, of one every 10 ms."""
        found = 0
        for number in range(seconds * 100):
            self.now += 0.01
            found += self.guess(accounts[number % len(accounts)],
                                sources[number % len(sources)]) == 0
        return found

    def test_admits_free_failures_at_once(self):
        self.assertEqual([0] * login_throttle.PAIR.free, [
            self.guess() for _ in range(login_throttle.PAIR.free)])
        self.assertEqual(1, self.guess())
        # A refused attempt does not extend the wait.
        self.assertEqual(1, self.guess())

    def test_stores_digest_of_long_name(self):
        long = 'x' * 250000
        self.assertEqual(0, self.guess(long))
        self.assertEqual(0, self.guess(long + '\ud800'))
        self.throttle.succeeded(long, '10.0.0.2')
        for kept in self.throttle._counts, self.throttle._trusted:
            self.assertTrue(kept)
            for name, _source in kept:
                self.assertLessEqual(len(name or ''), 64)
        # Long names are distinguished all the same.
        for _ in range(login_throttle.PAIR.free - 1):
            self.guess(long)
        self.assertEqual(1, self.guess(long))
        self.assertEqual(0, self.guess('x' * 249999 + 'y'))

    def test_wait_doubles_up_to_maximum(self):
        waits = []
        for _ in range(login_throttle.PAIR.free + 8):
            while (wait := self.guess()) > 0:
                self.now += wait
                waits.append(wait)
        self.assertEqual([1, 2, 4, 8, 16, 32, 60, 60], waits)

    def test_limits_one_hour_of_guessing(self):
        self.assertLess(self.admitted(3600), 80)

    def test_limits_source_with_many_names(self):
        names = [f'user-{number}' for number in range(1000)]
        self.assertLess(self.admitted(600, accounts=names), 45)

    def test_limits_account_with_many_sources(self):
        sources = ['10.1.%d.%d' % divmod(number, 256)
                   for number in range(10000)]
        self.assertLess(self.admitted(600, sources), 200)

    def test_admits_owner_at_other_address(self):
        self.admitted(60)
        self.assertEqual(0, self.throttle.admit('admin', '10.0.0.2'))
        self.assertEqual(0, self.throttle.admit('other', '10.0.0.2'))

    def test_exempts_trusted_address_from_account_limit(self):
        """Failures elsewhere do not delay an address that logged in before."""
        self.throttle.succeeded('admin', '10.0.0.2')
        self.admitted(60, [f'10.1.0.{number}' for number in range(250)])
        self.assertGreater(self.throttle.admit('admin', '10.0.0.3'), 0)
        self.assertEqual(0, self.throttle.admit('admin', '10.0.0.2'))
        self.now += login_throttle.TRUST_SECONDS + 1
        self.admitted(60, [f'10.1.0.{number}' for number in range(250)])
        self.assertGreater(self.throttle.admit('admin', '10.0.0.2'), 0)

    def test_login_resets_count(self):
        for _ in range(login_throttle.PAIR.free):
            self.guess()
        self.now += 1
        self.assertEqual(0, self.throttle.admit('admin', '10.0.0.1'))
        self.throttle.succeeded('admin', '10.0.0.1')
        self.assertEqual([0] * login_throttle.PAIR.free, [
            self.guess() for _ in range(login_throttle.PAIR.free)])

    def test_admits_one_pending_attempt(self):
        for _ in range(login_throttle.PAIR.free):
            self.guess()
        self.now += 1
        admitted = [self.throttle.admit('admin', '10.0.0.1')
                    for _ in range(10)]
        self.assertEqual(1, admitted.count(0))

    def test_resets_expired_count(self):
        self.admitted(100)
        self.now += login_throttle.FORGET_SECONDS + 61
        self.assertEqual([0] * login_throttle.PAIR.free, [
            self.guess() for _ in range(login_throttle.PAIR.free)])

    def test_number_of_entries_is_bounded(self):
        for number in range(login_throttle.MAX_ENTRIES + 500):
            self.throttle.failed(f'user-{number}', 'x')
            self.throttle.succeeded(f'user-{number}', 'y')
        self.assertEqual(login_throttle.MAX_ENTRIES,
                         len(self.throttle._counts))
        self.assertEqual(login_throttle.MAX_ENTRIES,
                         len(self.throttle._trusted))

    def test_maps_address_to_network(self):
        for source, expected in (
                ('10.0.0.1', '10.0.0.1'), ('::ffff:10.0.0.1', '10.0.0.1'),
                ('2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'),
                ('fe80::1%eth0', 'fe80::/64'), ('nonsense', 'nonsense'),
                ('', '')):
            self.assertEqual(expected, login_throttle.network(source))
