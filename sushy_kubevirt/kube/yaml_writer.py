# SPDX-License-Identifier: Apache-2.0
"""Objects as YAML that ``kubectl`` and tools in Go read as it is meant.

PyYAML writes text without quotes unless YAML 1.1 takes it for something else.
kubectl 1.32 also takes ``123e45`` for a number and ``y`` for a boolean, and
refuses such a label or annotation. One of some thousand hashes of 16
hexadecimal digits is such a number.
"""

from __future__ import annotations

from collections import abc
import re

import yaml


class _Dumper(yaml.SafeDumper):
    pass


# kubectl ignores underscores in numbers, at any place behind the first digit,
# sign or point.
for _kind, _pattern, _first in (
        ('float', r'[-+]?_*(\._*)?\d[\d_]*(\.[\d_]*)?([eE]_*[-+]?[\d_]+)?',
         '-+.0123456789'),
        ('int', r'[-+]?_*0_*([oO][0-7_]+|[xX][\da-fA-F_]+|[bB][01_]+)', '-+0'),
        ('bool', '[yYnN]', 'yYnN')):
    _Dumper.add_implicit_resolver(
        f'tag:yaml.org,2002:{_kind}', re.compile(_pattern + '$', re.ASCII),
        list(_first))


def dump(documents: abc.Iterable[object], explicit_start: bool = False) -> str:
    """Write documents, with their keys in the given order.

    :param explicit_start: whether the first one begins with ``---``, too
    :returns: YAML
    """
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False,
                         explicit_start=explicit_start)
