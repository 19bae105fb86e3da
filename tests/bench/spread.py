# SPDX-License-Identifier: Apache-2.0
"""Median and quartiles."""

import statistics


def of(values):
    """Return the median, ``middle``, the ``quartiles``, and their number.

    :param values: list of numbers, not empty
    :returns: dictionary; ``rounds`` is the number of values
    """
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return {'middle': statistics.median(ordered),
            'quartiles': [ordered[quarter], ordered[-1 - quarter]],
            'rounds': len(ordered)}
