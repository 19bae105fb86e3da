# SPDX-License-Identifier: Apache-2.0
"""Parses the paths of API requests."""
import functools
from typing import NamedTuple
import urllib.parse


class Target(NamedTuple):
    """A resource, an object, or something under an object.

    :param namespace: ``''`` for all namespaces and cluster-scoped kinds.
    :param name: ``''`` for the whole collection.
    :param subresource: the path after the name, e.g. ``status``,
        ``vnc/screenshot``; or ``''``.
    """

    group: str
    version: str
    namespace: str
    plural: str
    name: str = ''
    subresource: str = ''


@functools.lru_cache(1000)
def parse(raw_path):
    """Parse a path into a :class:`Target`, or None.

    :param raw_path: the path as it was sent, percent-encoded.
    """
    parts = [urllib.parse.unquote(p) for p in raw_path.strip('/').split('/')]
    if parts[0] == 'api' and len(parts) >= 3:
        group, version, rest = '', parts[1], parts[2:]
    elif parts[0] == 'apis' and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ''
    if rest[0] == 'namespaces' and len(rest) > 2 and not (
            group == '' and rest[2] in ('status', 'finalize')):
        namespace, rest = rest[1], rest[2:]
    elif '' in rest:
        return None
    return Target(group, version, namespace, rest[0],
                  rest[1] if len(rest) > 1 else '', '/'.join(rest[2:]))
