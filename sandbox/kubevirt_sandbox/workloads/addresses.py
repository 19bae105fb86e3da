# SPDX-License-Identifier: Apache-2.0
"""Addresses of loopback networks, each used by one sandbox only.

All of 127.0.0.0/8 is this machine, so services and pods can have addresses
without privileges. Several sandboxes may run on one machine: each reserves
blocks of 254 addresses of a /16 by abstract Unix sockets named after the
block, which the kernel closes when the process ends.
"""

import collections
import ipaddress
import socket

SERVICES = '127.53'
PODS = '127.54'
NODES = '127.55'
BALANCERS = '127.56'

_PREFIX = '\0sushy-kubevirt-sandbox/'


class Exhausted(Exception):
    """There is no address left."""


class Pool:
    """The addresses of one purpose.

    :param network: the first two numbers, e.g. ``127.53``.
    """

    def __init__(self, network):
        self._network = network
        self._range = ipaddress.IPv4Network(f'{network}.0.0/16')
        self._held = []
        self._free = collections.deque()
        self._used = set()

    def __contains__(self, address):
        """Tell whether an address is in use."""
        return address in self._used

    def belongs(self, address):
        """Tell whether an address belongs to the network."""
        try:
            return ipaddress.ip_address(address) in self._range
        except ValueError:
            return False

    def peek(self):
        """Return a free address, which stays free until it is taken.

        :raises Exhausted: all are in use.
        """
        while True:
            while self._free and self._free[0] in self._used:
                self._free.popleft()
            if self._free:
                return self._free[0]
            self._claim()

    def take(self, address=None):
        """Use an address.

        :param address: which; None: any that is free.
        :returns: the address.
        :raises Exhausted: all are in use.
        """
        address = address or self.peek()
        if address in self._free:
            self._free.remove(address)
        self._used.add(address)
        return address

    def release(self, address):
        """Free an address; the others are used before it again."""
        if address in self._used:
            self._used.discard(address)
            self._free.append(address)

    def close(self):
        """Free all addresses."""
        for one in self._held:
            one.close()
        self._held.clear()
        self._free.clear()
        self._used.clear()

    def _claim(self):
        for number in range(256):
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                lock.bind(f'{_PREFIX}{self._network}.{number}')
            except OSError:
                lock.close()
                continue
            self._held.append(lock)
            self._free.extend(f'{self._network}.{number}.{last}'
                              for last in range(1, 255))
            return
        raise Exhausted(f'no address of {self._range} is left')
