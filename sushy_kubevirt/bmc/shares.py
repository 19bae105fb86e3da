# SPDX-License-Identifier: Apache-2.0
"""Divides what a BMC has a limited number of among those who use it.

The owner of a connection, session, stream and so on is an account, or the
network of a client without login. What one owner uses does not cost another
its share:

* What must last, such as a console, a stream or a subscription, is refused to
  an owner that has as many already as are left (`fits`).
* What a client can open again, a connection or a session, is taken from the
  owner that has most (`surplus`).
"""

from __future__ import annotations

import collections
from collections import abc
import ipaddress
import typing

EntryT = typing.TypeVar('EntryT')


def network(address: str) -> str:
    """Return the network that counts as one source.

    :param address: IP address
    :returns: the IPv4 address or the IPv6 /64; ``address`` itself if it is no
        IP address
    """
    try:
        source = ipaddress.ip_address(address.partition('%')[0])
    except ValueError:
        return address
    source = getattr(source, 'ipv4_mapped', None) or source
    if source.version == 6:
        return str(ipaddress.ip_network((source, 64), strict=False))
    return str(source)


def fits(own: int, used: int, most: int, size: int = 1) -> bool:
    """Decide whether an owner may take more.

    An owner gets at most half of all, the next one at most half of the rest,
    and so on.

    :param own: what the owner has
    :param used: what all owners have
    :param most: what there is
    :param size: what it asks for, in the same unit
    """
    return own + size <= most - used


def total(limit: int) -> int:
    """Return how many there have to be so that one owner can have `limit`.

    :param limit: the share of an owner, if the others have none
    """
    return 2 * limit


def surplus(entries: abc.Collection[EntryT], newest: EntryT,
            *owners: abc.Callable[[EntryT], abc.Hashable]) -> EntryT:
    """Choose which entry an overfull table loses.

    The owner with the most entries loses one. Of several such owners it is
    that of the newest entry, so that two owners do not displace each other in
    turns. If each owner has one entry, the table loses the first.

    :param entries: in the order in which an owner loses them
    :param newest: the entry that has made the table overfull
    :param owners: functions that return the owner of an entry: first among
        whom the entries are divided, then among whom those of each owner are
        divided, and so on
    """
    for owner in owners:
        counts = collections.Counter(map(owner, entries))
        most = max(counts.values())
        chosen = owner(newest)
        if not counts[chosen] == most > 1:
            chosen = next(owner(entry) for entry in entries
                          if counts[owner(entry)] == most)
        entries = [entry for entry in entries if owner(entry) == chosen]
    return next(iter(entries))
