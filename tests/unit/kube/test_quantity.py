# SPDX-License-Identifier: Apache-2.0
"""Quantities, compared with the parser of the kubernetes package."""

import decimal

from kubernetes import utils
from oslotest import base

from sushy_kubevirt.kube import quantity


class QuantityTestCase(base.BaseTestCase):

    def test_same_result_as_kubernetes_library(self):
        for text in ('64Mi', '1.5Gi', '500m', '1e3', '2', '0.1', '1k', '3E',
                     '3Ei', '.5', '5.', '1500000u', '7n', '12Pi', 3, '0',
                     '+2Ki', '-1', '2e-1', '9E2', 2.5):
            exact = utils.parse_quantity(text)
            self.assertEqual(
                int(exact.to_integral_value(decimal.ROUND_CEILING)),
                quantity.to_int(text), text)

    def test_invalid_quantities(self):
        for text in ('', 'x', '1ki', '1 Mi', '1Mi2', None, '--1', '1mi',
                     '1_0', ' 1', '٣Mi', '１', '1e٣'):
            self.assertIsNone(quantity.to_int(text), text)

    def test_huge_quantities_are_capped_or_invalid(self):
        # Kubernetes accepts these and caps them at the same number.
        for text in ('1e30', '1e999', '100Ei', '9' * 40):
            self.assertEqual(2 ** 63 - 1, quantity.to_int(text), text)
        for text in ('1e999999999', '1e-999999999', '9' * 100000):
            self.assertIsNone(quantity.to_int(text))

    def test_total(self):
        for values, expected in (
                (['5m', '2m'], '7m'), (['500m', '500m'], '1'), ([1, '2'], '3'),
                (['48Mi', '16Mi'], '64Mi'), (['1Gi', '1Gi'], '2Gi'),
                (['1Gi', '64Mi'], '1088Mi'), (['1M', '1'], '1000001'),
                (['0.0004', '0'], '1m'), (['0', 0], '0'), (['7k'], '7k'),
                (['1e3', '24'], '1Ki'), (['1', 'many'], 'many'),
                (['1e40', '64Mi'], str(2 ** 63 - 1)),
                (['1', '9e99'], str(2 ** 63 - 1))):
            self.assertEqual(expected, quantity.total(values), values)
