# SPDX-License-Identifier: Apache-2.0

import fractions

from oslotest import base

from kubevirt_sandbox.api import quantity


class QuantityTest(base.BaseTestCase):

    def test_canonical(self):
        for given, wanted in (
                ('64Mi', '64Mi'), ('1024Mi', '1Gi'), ('1.5Gi', '1536Mi'),
                ('.5Gi', '512Mi'), ('0.5', '500m'), (1000, '1k'),
                ('2147483648', '2147483648'), ('1e3', '1e3'), (0, '0'),
                ('100Ki', '100Ki'), ('1500m', '1500m'), ('2000m', '2')):
            self.assertEqual(wanted, quantity.canonical(given), given)

    def test_value(self):
        for given, wanted in (('1Gi', 2 ** 30), ('2G', 2 * 10 ** 9),
                              ('-1', -1), (None, 0), (7, 7),
                              ('1e300', 2 ** 63 - 1),
                              ('100m', fractions.Fraction(1, 10))):
            self.assertEqual(wanted, quantity.value(given), given)

    def test_rejects_invalid_quantities(self):
        for given in ('plenty', '', '5X', '-', '1 Gi', '1e99999', '1' * 99):
            self.assertRaises(quantity.QuantityError, quantity.canonical,
                              given)
