# SPDX-License-Identifier: Apache-2.0
"""The network interface by which a client reaches this process (Linux)."""

from __future__ import annotations

from collections import abc
import dataclasses
import fcntl
import ipaddress
import pathlib
import socket
import struct
import typing

_PROC = pathlib.Path('/proc/net')
_SYS = pathlib.Path('/sys/class/net')

# ioctl requests of netdevice(7), and the size of struct ifreq.
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_IFREQ = 40

_NO_ADDRESS, _NO_MAC = bytes(4), bytes(6)

_Address: typing.TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Flags of if_inet6 (linux/if_addr.h), and its scope link-local.
_DAD_FAILED, _DEPRECATED, _TENTATIVE = 0x08, 0x20, 0x40
_LINK_LOCAL = 0x20


@dataclasses.dataclass(frozen=True)
class Ipv6Address:
    """An IPv6 address of an interface.

    :param address: as text
    :param prefix: length of its prefix, bits
    :param link_local: whether its scope is the link
    :param state: ``Preferred``, ``Deprecated``, ``Tentative`` or ``Failed``
    """

    address: str
    prefix: int
    link_local: bool = False
    state: str = 'Preferred'


@dataclasses.dataclass(frozen=True)
class Interface:
    """Addresses in network order; zeros where there is none.

    :param address: IPv4 address, 4 bytes
    :param mask: subnet mask, 4 bytes
    :param mac: MAC address, 6 bytes
    :param gateway: default gateway, 4 bytes
    :param gateway_mac: its MAC address, if the host has resolved it, 6 bytes
    :param name: of the interface, such as ``eth0``; '' if it is not known
    :param mtu: bytes; 0 if it is not known
    """

    address: bytes = _NO_ADDRESS
    mask: bytes = _NO_ADDRESS
    mac: bytes = _NO_MAC
    gateway: bytes = _NO_ADDRESS
    gateway_mac: bytes = _NO_MAC
    name: str = ''
    ipv6: tuple[Ipv6Address, ...] = ()
    mtu: int = 0


def towards(client: tuple[typing.Any, ...]) -> Interface:
    """Find the interface that packets to a client leave by.

    :param client: socket address
    """
    host: _Address = ipaddress.ip_address(client[0].partition('%')[0])
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped:
        client, host = (str(host.ipv4_mapped), client[1]), host.ipv4_mapped
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            # Sends nothing: the kernel chooses route and source address.
            sock.connect(client)
            local = ipaddress.ip_address(
                sock.getsockname()[0].partition('%')[0])
        return _with_address(local)
    except OSError:
        return Interface()


def _with_address(local: _Address) -> Interface:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        if isinstance(local, ipaddress.IPv6Address):
            name = _ipv6_interface(local)
        else:
            name = next((name for _index, name in socket.if_nameindex()
                         if _ioctl(sock, _SIOCGIFADDR, name) == local.packed),
                        None)
        if name is None:
            return Interface(local.packed if local.version == 4
                             else _NO_ADDRESS)
        gateway = _gateway(name)
        return Interface(
            _ioctl(sock, _SIOCGIFADDR, name) or _NO_ADDRESS,
            _ioctl(sock, _SIOCGIFNETMASK, name) or _NO_ADDRESS,
            _parse_mac(_attribute(name, 'address')), gateway,
            _neighbour(gateway), name, tuple(_ipv6_addresses(name)),
            int(_attribute(name, 'mtu') or 0))


def _ioctl(sock: socket.socket, request: int, name: str) -> bytes | None:
    """Return the IPv4 address of a struct ifreq."""
    try:
        answer = fcntl.ioctl(
            sock, request, name.encode().ljust(_IFREQ, b'\0'))
    except OSError:
        return None
    return answer[20:24]


def _ipv6_interface(address: ipaddress.IPv6Address) -> str | None:
    for line in _lines(_PROC / 'if_inet6'):
        if line[0] == address.packed.hex():
            return line[-1]
    return None


def _ipv6_addresses(name: str) -> abc.Iterator[Ipv6Address]:
    for line in _lines(_PROC / 'if_inet6'):
        if line[-1] != name:
            continue
        prefix, scope, flags = (int(word, 16) for word in line[2:5])
        yield Ipv6Address(
            str(ipaddress.IPv6Address(bytes.fromhex(line[0]))), prefix,
            scope == _LINK_LOCAL,
            'Failed' if flags & _DAD_FAILED
            else 'Tentative' if flags & _TENTATIVE
            else 'Deprecated' if flags & _DEPRECATED else 'Preferred')


def _gateway(name: str) -> bytes:
    """Read the default gateway from /proc/net/route."""
    for line in _lines(_PROC / 'route'):
        if line[:2] == [name, '00000000']:
            # In the host's byte order.
            return struct.pack('=I', int(line[2], 16))
    return _NO_ADDRESS


def _neighbour(address: bytes) -> bytes:
    """Read a MAC address from the ARP cache."""
    text = str(ipaddress.IPv4Address(address))
    for line in _lines(_PROC / 'arp'):
        if line[0] == text:
            return _parse_mac(line[3])
    return _NO_MAC


def _attribute(name: str, attribute: str) -> str:
    try:
        return (_SYS / name / attribute).read_text().strip()
    except OSError:
        return ''


def _parse_mac(text: str) -> bytes:
    try:
        address = bytes.fromhex(text.replace(':', ''))
    except ValueError:
        return _NO_MAC
    return address if len(address) == len(_NO_MAC) else _NO_MAC


def _lines(path: pathlib.Path) -> list[list[str]]:
    """Return the words of each line of a file."""
    try:
        return [line.split() for line in path.read_text().splitlines()
                if line.strip()]
    except OSError:
        return []
