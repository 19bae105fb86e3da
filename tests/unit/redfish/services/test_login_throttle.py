# SPDX-License-Identifier: Apache-2.0
"""Who has to wait, how long, and who has not."""

from oslotest import base

from sushy_kubevirt.redfish.services import login_throttle


class TestThrottle(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.throttle = login_throttle.Throttle(lambda: self.now)

    def guess(self, account='admin', source='10.0.0.1'):
        """A wrong guess. :returns: the wait, 0 if it was looked at"""
        wait = self.throttle.admit(account, source)
        if wait == 0:
            self.throttle.wrong(account, source)
        return wait

    def looked_at(self, seconds, sources=('10.0.0.1',), accounts=('admin',)):
        """How many guesses are looked at, of one every 10 ms."""
        found = 0
        for number in range(seconds * 100):
            self.now += 0.01
            found += self.guess(accounts[number % len(accounts)],
                                sources[number % len(sources)]) == 0
        return found

    def test_some_are_free(self):
        self.assertEqual([0] * login_throttle.PAIR.free, [
            self.guess() for _ in range(login_throttle.PAIR.free)])
        self.assertEqual(1, self.guess())
        # What is refused does not make it longer.
        self.assertEqual(1, self.guess())

    def test_long_names_are_not_kept(self):
        long = 'x' * 250000
        self.assertEqual(0, self.guess(long))
        self.assertEqual(0, self.guess(long + '\ud800'))
        self.throttle.right(long, '10.0.0.2')
        for kept in self.throttle._counts, self.throttle._known:
            self.assertTrue(kept)
            for name, _source in kept:
                self.assertLessEqual(len(name or ''), 64)
        # They are told apart all the same.
        for _ in range(login_throttle.PAIR.free - 1):
            self.guess(long)
        self.assertEqual(1, self.guess(long))
        self.assertEqual(0, self.guess('x' * 249999 + 'y'))

    def test_waits_grow(self):
        waits = []
        for _ in range(login_throttle.PAIR.free + 8):
            while (wait := self.guess()) > 0:
                self.now += wait
                waits.append(wait)
        self.assertEqual([1, 2, 4, 8, 16, 32, 60, 60], waits)

    def test_an_hour_of_guessing(self):
        self.assertLess(self.looked_at(3600), 80)

    def test_many_names(self):
        names = ['user-%d' % number for number in range(1000)]
        self.assertLess(self.looked_at(600, accounts=names), 45)

    def test_many_sources(self):
        sources = ['10.1.%d.%d' % divmod(number, 256)
                   for number in range(10000)]
        self.assertLess(self.looked_at(600, sources), 200)

    def test_owner_elsewhere(self):
        self.looked_at(60)
        self.assertEqual(0, self.throttle.admit('admin', '10.0.0.2'))
        self.assertEqual(0, self.throttle.admit('other', '10.0.0.2'))

    def test_owner_where_they_were(self):
        """Guessers from everywhere do not hinder who was there before."""
        self.throttle.right('admin', '10.0.0.2')
        self.looked_at(60, ['10.1.0.%d' % number for number in range(250)])
        self.assertGreater(self.throttle.admit('admin', '10.0.0.3'), 0)
        self.assertEqual(0, self.throttle.admit('admin', '10.0.0.2'))
        self.now += login_throttle.TRUST + 1
        self.looked_at(60, ['10.1.0.%d' % number for number in range(250)])
        self.assertGreater(self.throttle.admit('admin', '10.0.0.2'), 0)

    def test_right_ends_it(self):
        for _ in range(login_throttle.PAIR.free):
            self.guess()
        self.now += 1
        self.assertEqual(0, self.throttle.admit('admin', '10.0.0.1'))
        self.throttle.right('admin', '10.0.0.1')
        self.assertEqual([0] * login_throttle.PAIR.free, [
            self.guess() for _ in range(login_throttle.PAIR.free)])

    def test_one_at_a_time(self):
        for _ in range(login_throttle.PAIR.free):
            self.guess()
        self.now += 1
        admitted = [self.throttle.admit('admin', '10.0.0.1')
                    for _ in range(10)]
        self.assertEqual(1, admitted.count(0))

    def test_forgotten(self):
        self.looked_at(100)
        self.now += login_throttle.FORGET + 61
        self.assertEqual([0] * login_throttle.PAIR.free, [
            self.guess() for _ in range(login_throttle.PAIR.free)])

    def test_bounded(self):
        for number in range(login_throttle.MOST + 500):
            self.throttle.wrong('user-%d' % number, 'x')
            self.throttle.right('user-%d' % number, 'y')
        self.assertEqual(login_throttle.MOST, len(self.throttle._counts))
        self.assertEqual(login_throttle.MOST, len(self.throttle._known))

    def test_networks(self):
        for source, expected in (
                ('10.0.0.1', '10.0.0.1'), ('::ffff:10.0.0.1', '10.0.0.1'),
                ('2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'),
                ('fe80::1%eth0', 'fe80::/64'), ('nonsense', 'nonsense'),
                ('', '')):
            self.assertEqual(expected, login_throttle.network(source))
