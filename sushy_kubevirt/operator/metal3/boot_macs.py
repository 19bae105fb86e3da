# SPDX-License-Identifier: Apache-2.0
"""Which BareMetalHost has a MAC address.

Ironic finds a machine that boots by its MAC address, and refuses a second node
with it (``MACAlreadyExists``). Of several hosts the oldest has it, else the
BMC that was first to want a host with it.
"""

from __future__ import annotations

import collections
import itertools
import typing

from sushy_kubevirt.kube import objects


class _Rank(typing.NamedTuple):
    """Place of a host, or of a BMC that wants one, among those with a MAC
    address: hosts by their age, then BMCs by their turn.

    :param created: creationTimestamp of the host
    """

    wants: bool
    created: str
    turn: int
    key: objects.ObjectKey


class BootMacs:
    """The MAC addresses of hosts, and of BMCs that want a host."""

    def __init__(self) -> None:
        #: In lower case.
        self._mac_of: dict[objects.ObjectKey, str] = {}
        self._ranks: dict[str, dict[objects.ObjectKey, _Rank]] = (
            collections.defaultdict(dict))
        self._count = itertools.count()

    def put(self, key: objects.ObjectKey, host: objects.Json | None
            ) -> set[objects.ObjectKey]:
        """Note a host that is created, changed or deleted.

        :param host: None if it does not exist
        :returns: other keys that may have the address now
        """
        mac = ((host or {}).get('spec') or {}).get('bootMACAddress')
        if host is None or not mac:
            return self.drop(key)
        return self._set(key, mac.lower(), _Rank(
            False, host['metadata'].get('creationTimestamp') or '', 0, key))

    def claim(self, key: objects.ObjectKey, mac: str) -> objects.ObjectKey:
        """Note that a BMC without a host wants one.

        :returns: key of the host, or of the BMC, that has the address
        """
        if self._mac_of.get(key) != mac.lower():
            self._set(key, mac.lower(), _Rank(
                True, '', next(self._count), key))
        return self.owner(mac) or key

    def drop(self, key: objects.ObjectKey) -> set[objects.ObjectKey]:
        """Note that a BMC wants no host; see `put` for what it returns."""
        return self._set(key)

    def owner(self, mac: str) -> objects.ObjectKey | None:
        """Find the host, or the BMC, that has an address.

        :returns: None for an address that is not known
        """
        ranks = self._ranks.get(mac.lower(), {})
        return min(ranks, key=ranks.__getitem__, default=None)

    def _set(self, key: objects.ObjectKey, mac: str = '',
             rank: _Rank | None = None) -> set[objects.ObjectKey]:
        old = self._mac_of.pop(key, '')
        before = self._ranks[old].pop(key, None) if old else None
        if rank:
            self._mac_of[key] = mac
            self._ranks[mac][key] = rank
        if old and (old, before) != (mac, rank):
            return self._ranks[old].keys() - {key}
        return set()
