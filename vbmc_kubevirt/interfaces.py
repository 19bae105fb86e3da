# SPDX-License-Identifier: Apache-2.0
"""The network interface by which a client reaches this process (Linux)."""

import dataclasses
import fcntl
import ipaddress
import pathlib
import socket
import struct

_PROC = pathlib.Path('/proc/net')
_SYS = pathlib.Path('/sys/class/net')

# ioctl requests of netdevice(7), and the size of struct ifreq.
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_IFREQ = 40

_NO_ADDRESS, _NO_MAC = bytes(4), bytes(6)


@dataclasses.dataclass(frozen=True)
class Interface:
    """Addresses in network order; zeros where there is none.

    :param address: IPv4 address, 4 bytes
    :param mask: subnet mask, 4 bytes
    :param mac: MAC address, 6 bytes
    :param gateway: default gateway, 4 bytes
    :param gateway_mac: its MAC address, if the host has resolved it, 6 bytes
    """

    address: bytes = _NO_ADDRESS
    mask: bytes = _NO_ADDRESS
    mac: bytes = _NO_MAC
    gateway: bytes = _NO_ADDRESS
    gateway_mac: bytes = _NO_MAC


def towards(client):
    """Find the interface that packets to a client leave by.

    :param client: socket address
    :returns: `Interface`; its IPv4 fields are zeros if the client uses IPv6
    """
    host = ipaddress.ip_address(client[0].partition('%')[0])
    if host.version == 6 and host.ipv4_mapped:
        client, host = (str(host.ipv4_mapped), client[1]), host.ipv4_mapped
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            # Sends nothing: the kernel chooses route and source address.
            sock.connect(client)
            local = ipaddress.ip_address(
                sock.getsockname()[0].partition('%')[0])
            if local.version == 6:
                return Interface(mac=_mac(_ipv6_interface(local)))
            return _ipv4_interface(sock, local.packed)
    except OSError:
        return Interface()


def _ipv4_interface(sock, address):
    for _index, name in socket.if_nameindex():
        if _ioctl(sock, _SIOCGIFADDR, name) == address:
            gateway = _gateway(name)
            return Interface(
                address, _ioctl(sock, _SIOCGIFNETMASK, name), _mac(name),
                gateway, _neighbour(gateway))
    return Interface(address)


def _ioctl(sock, request, name):
    """:returns: the IPv4 address of a struct ifreq, or None"""
    try:
        answer = fcntl.ioctl(
            sock, request, name.encode().ljust(_IFREQ, b'\0'))
    except OSError:
        return None
    return answer[20:24]


def _ipv6_interface(address):
    for line in _lines(_PROC / 'if_inet6'):
        if line[0] == address.packed.hex():
            return line[-1]
    return None


def _gateway(name):
    """Read the default gateway from /proc/net/route."""
    for line in _lines(_PROC / 'route'):
        if line[:2] == [name, '00000000']:
            # In the host's byte order.
            return struct.pack('=I', int(line[2], 16))
    return _NO_ADDRESS


def _neighbour(address):
    """Read a MAC address from the ARP cache."""
    text = str(ipaddress.IPv4Address(address))
    for line in _lines(_PROC / 'arp'):
        if line[0] == text:
            return _parse_mac(line[3])
    return _NO_MAC


def _mac(name):
    if name is None:
        return _NO_MAC
    try:
        return _parse_mac((_SYS / name / 'address').read_text())
    except OSError:
        return _NO_MAC


def _parse_mac(text):
    try:
        found = bytes.fromhex(text.strip().replace(':', ''))
    except ValueError:
        return _NO_MAC
    return found if len(found) == len(_NO_MAC) else _NO_MAC


def _lines(path):
    """:returns: the lines of a file, each as a list of words"""
    try:
        return [line.split() for line in path.read_text().splitlines()
                if line.strip()]
    except OSError:
        return []
