# SPDX-License-Identifier: Apache-2.0
"""Which BareMetalHost has a MAC address.

Ironic finds a machine that boots by its MAC address, and refuses a second node
with it (``MACAlreadyExists``). Of several hosts the oldest has it, else the
BMC that was first to want a host with it.
"""

from __future__ import annotations

import itertools


class BootMacs:
    """The MAC addresses of hosts, and of BMCs that want a host."""

    def __init__(self) -> None:
        self._ranks = {}        # key: (MAC address, rank)
        self._keys = {}         # MAC address: {key: rank}
        self._count = itertools.count()

    def put(self, key, host):
        """Note a host that is created, changed or deleted.

        :param key: (namespace, name)
        :param host: dict; None if it does not exist
        :returns: set of other keys that may have the address now
        """
        mac = host and (host.get('spec') or {}).get('bootMACAddress')
        return self._set(key, mac, host and (
            0, host['metadata'].get('creationTimestamp') or '', key))

    def claim(self, key, mac):
        """Note that a BMC without a host wants one.

        :param key: (namespace, name)
        :param mac: text
        :returns: key of the host, or of the BMC, that has the address
        """
        if self._ranks.get(key, ('',))[0] != mac.lower():
            self._set(key, mac, (1, next(self._count), key))
        return self.owner(mac)

    def drop(self, key):
        """Note that a BMC wants no host; see `put` for what it returns."""
        return self._set(key, None, None)

    def owner(self, mac):
        """:returns: key of the host, or of the BMC, that has an address; None
            for an address that is not known
        """
        keys = self._keys.get((mac or '').lower(), {})
        return min(keys, key=keys.get, default=None)

    def _set(self, key, mac, rank):
        old = self._ranks.pop(key, None)
        new = (mac.lower(), rank) if mac else None
        if old:
            del self._keys[old[0]][key]
        if new:
            self._ranks[key] = new
            self._keys.setdefault(new[0], {})[key] = rank
        if old and old != new:
            return set(self._keys[old[0]]) - {key}
        return set()
