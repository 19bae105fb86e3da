# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities: '64Mi', '500m', '1e3'.

Kubernetes decodes every quantity and writes it back in canonical form, so a
client may read another spelling than it sent. Schemas mark the fields that are
quantities.

Source: k8s.io/apimachinery/pkg/api/resource/quantity.go (Kubernetes 1.36).
"""

import fractions
import functools
import re

PATTERN = (
    r'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$')
"""The pattern that Kubernetes names in its complaint about a quantity."""

_GRAMMAR = re.compile(
    r'^([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))'
    r'(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?$')

_LARGEST = fractions.Fraction(2 ** 63 - 1)
_BINARY = {suffix: 1024 ** power for power, suffix in enumerate(
    ('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'))}
_DECIMAL = {'n': -9, 'u': -6, 'm': -3, '': 0, 'k': 3, 'M': 6, 'G': 9,
            'T': 12, 'P': 15, 'E': 18}


class QuantityError(ValueError):
    """A string or number that is not a quantity."""


def _parse(text):
    match = _GRAMMAR.match(text) if len(text) <= 64 else None
    if match is None:
        raise QuantityError(
            f"quantities must match the regular expression '{PATTERN}'")
    sign, whole, decimals, only, binary, decimal, exponent = match.groups()
    digits = f'{whole or 0}.{decimals or only or 0}'
    number = fractions.Fraction(digits)
    if binary:
        number *= _BINARY[binary]
    elif decimal:
        number *= fractions.Fraction(10) ** _DECIMAL[decimal]
    elif exponent:
        number *= fractions.Fraction(10) ** int(exponent)
    number = min(number, _LARGEST)  # capped, as Kubernetes does
    kind = 'binary' if binary else 'exponent' if exponent else 'decimal'
    return (-number if sign == '-' else number), kind


def value(quantity):
    """Parse a quantity into a number.

    :param quantity: a string, an integer, a float, or None (counts as 0).
    :returns: a :class:`fractions.Fraction`.
    :raises QuantityError: it is not a quantity.
    """
    if quantity is None:
        return fractions.Fraction(0)
    return _cached(str(quantity).strip())[0]


def canonical(quantity):
    """Format a quantity as Kubernetes does.

    The largest suffix that leaves an integer is taken: '1024Mi' becomes
    '1Gi', '0.5' becomes '500m', 1000 becomes '1k'.

    :param quantity: a string or a number.
    :returns: a string.
    :raises QuantityError: it is not a quantity.
    """
    return _cached(str(quantity).strip())[1]


@functools.lru_cache(maxsize=4096)
def _cached(text):
    number, kind = _parse(text)
    return number, _spell(number, kind)


def _spell(number, kind):
    if not number:
        return '0'
    if kind == 'binary' and abs(number) >= 1024 and number.denominator == 1:
        for suffix in ('Ei', 'Pi', 'Ti', 'Gi', 'Mi', 'Ki', ''):
            if number % _BINARY[suffix] == 0:
                return f'{number / _BINARY[suffix]}{suffix}'
    for suffix, power in sorted(_DECIMAL.items(), key=lambda i: -i[1]):
        scaled = number / fractions.Fraction(10) ** power
        if scaled.denominator == 1:
            if kind == 'exponent' and power:
                return f'{scaled}e{power}'
            return f'{scaled}{suffix}'
    # finer than a nano is rounded up, as Kubernetes does
    nano = number * 10 ** 9
    return f'{-(-nano.numerator // nano.denominator)}n'
