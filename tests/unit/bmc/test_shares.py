# SPDX-License-Identifier: Apache-2.0
import operator

from oslotest import base

from sushy_kubevirt.bmc import shares


class SharesTestCase(base.BaseTestCase):

    def test_maps_address_to_network(self):
        for source, expected in (
                ('10.0.0.1', '10.0.0.1'), ('::ffff:10.0.0.1', '10.0.0.1'),
                ('2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'),
                ('fe80::1%eth0', 'fe80::/64'), ('nonsense', 'nonsense'),
                ('', '')):
            self.assertEqual(expected, shares.network(source))

    def take_all(self, most):
        """Return how many each owner gets, if each takes all that it can."""
        used, owners = 0, []
        while True:
            own = 0
            while shares.fits(own, used, most):
                own += 1
                used += 1
            if not own:
                return owners
            owners.append(own)

    def test_owner_leaves_as_much_for_others(self):
        for most, owners in ((1, [1]), (2, [1, 1]), (4, [2, 1, 1]),
                             (shares.total(4), [4, 2, 1, 1]),
                             (16, [8, 4, 2, 1, 1])):
            self.assertEqual(owners, self.take_all(most))

    def test_sizes(self):
        self.assertTrue(shares.fits(40, 50, 100, 10))
        self.assertFalse(shares.fits(40, 50, 100, 11))

    def surplus(self, entries, *owners):
        """Choose of texts like ``a1 b2``; the last one is the newest."""
        entries = entries.split()
        return shares.surplus(entries, entries[-1], *(
            owners or (operator.itemgetter(0),)))

    def test_owner_with_most_loses_its_first(self):
        self.assertEqual('a1', self.surplus('b1 a1 a2 c1'))
        self.assertEqual('a1', self.surplus('b1 a1 c1 a2'))

    def test_equal_owners_do_not_displace_each_other(self):
        self.assertEqual('b1', self.surplus('a1 a2 b1 b2'))

    def test_first_is_lost_if_nobody_has_two(self):
        self.assertEqual('a1', self.surplus('a1 b1 c1'))

    def test_entries_of_an_owner_are_divided(self):
        self.assertEqual('a2', self.surplus(
            'b1 a1 a2 a2 b2', operator.itemgetter(0),
            operator.itemgetter(1)))
