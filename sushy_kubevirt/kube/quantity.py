# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities, such as ``64Mi`` or ``500m``, as whole numbers.

`kubernetes.utils.quantity` parses them too, but importing it adds 17 MiB
(PSS), as it imports the whole kubernetes package.
"""

from __future__ import annotations

from collections import abc
import decimal
import re

_QUANTITY = re.compile(
    r'([+-]?(?:\d+\.?\d*|\.\d+))'
    r'(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)', re.ASCII)
_SUFFIXES = {'': (10, 0), 'n': (10, -9), 'u': (10, -6), 'm': (10, -3),
             'k': (10, 3), 'M': (10, 6), 'G': (10, 9), 'T': (10, 12),
             'P': (10, 15), 'E': (10, 18), 'Ki': (2, 10), 'Mi': (2, 20),
             'Gi': (2, 30), 'Ti': (2, 40), 'Pi': (2, 50), 'Ei': (2, 60)}

#: Longest text accepted. Tenants write quantities, and the expansion of
#: 1e999999999 would take hours.
_LONGEST = 64
_MOST = 2 ** 63 - 1


def to_int(quantity: str | float | None) -> int | None:
    """Return the value, rounded up as Kubernetes does (Quantity.Value).

    :param quantity: text such as ``1.5Gi``, or a number
    :returns: at most 2^63 - 1; None for other text
    """
    parsed = _parse(quantity)
    if parsed is None:
        return None
    number, base, power = parsed
    if number.isdecimal() and power >= 0:
        # Nearly all of a VM; decimal takes 1 ms of a start, and 0.3 MiB.
        value = int(number) * base ** power
    else:
        value = int(_exact(*parsed).to_integral_value(decimal.ROUND_CEILING))
    # Kubernetes has the same limit (Quantity, apimachinery's MaxInt64).
    return min(value, _MOST)


def to_decimal(quantity: str | float | None) -> decimal.Decimal | None:
    """Return the exact value.

    :param quantity: text such as ``500m``, or a number
    :returns: None for other text
    """
    parsed = _parse(quantity)
    return None if parsed is None else _exact(*parsed)


def _parse(quantity: str | float | None) -> tuple[str, int, int] | None:
    """Split a quantity into number, base and power; None for other text."""
    text = str(quantity)
    match = _QUANTITY.fullmatch(text)
    if not match or len(text) > _LONGEST:
        return None
    number, exponent, suffix = match.groups()
    if exponent:
        return number, 10, int(exponent[1:])
    return number, *_SUFFIXES[suffix or '']


def _exact(number: str, base: int, power: int) -> decimal.Decimal:
    if base == 10:
        return decimal.Decimal(f'{number}e{power}')
    return decimal.Decimal(number) * base ** power


def total(quantities: abc.Sequence[str | float]) -> str | float:
    """Add quantities.

    :returns: text, with a binary suffix if it divides the sum, rounded up to
        thousandths, at most 2^63 - 1; the first quantity that is none, for an
        error message of the API server
    """
    values = []
    for quantity in quantities:
        exact = to_decimal(quantity)
        if exact is None:
            return quantity
        values.append(exact)
    if len(values) == 1:
        return quantities[0]
    value = min(sum(values, decimal.Decimal()), decimal.Decimal(_MOST))
    if value != value.to_integral_value():
        return f'{(value * 1000).to_integral_value(decimal.ROUND_CEILING):f}m'
    for suffix in 'Gi', 'Mi', 'Ki':
        size = 2 ** _SUFFIXES[suffix][1]
        if value and not value % size:
            return f'{value // size:f}{suffix}'
    return f'{value.to_integral_value():f}'
