# SPDX-License-Identifier: Apache-2.0
"""LAN configuration parameters (sections 23.1 to 23.4).

The cluster configures the network of a pod, the host that of the daemon: the
parameters show it and are read-only. Writing "set in progress" has no effect
on them; clients write it around all others.
"""

from __future__ import annotations

from collections import abc
import socket

from sushy_kubevirt.bmc import interfaces
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import set_in_progress
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session20

_LEVEL = constants.Privilege
_CODE = constants.Completion

#: Revision of the parameters (23.2): 1.1.
REVISION = 0x11

_MD5 = 1 << packet.AUTH_MD5

# IP address source (table 23-4): another protocol than DHCP, such as that of
# the cluster's network plugin.
_OTHER_SOURCE = 0x04

# Don't fragment, in the flags of an IPv4 header.
_DONT_FRAGMENT = 0x40

# BMC-generated ARP control: responses, by the kernel; no gratuitous ARPs.
_ARP_RESPONSES = 0x02

_SUITES_MAX = 16


class Lan(set_in_progress.Parameters):
    """Commands about the LAN configuration."""

    netfn = constants.TRANSPORT
    inline = True

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        # By number: returns the data.
        self._parameters: dict[
            int, abc.Callable[[channel.Session], bytes]] = {
            set_in_progress.PARAMETER:
                lambda session: self.progress(),
            # Authentication types: support, enables for each of five levels.
            1: lambda session: self._authentication(),
            2: lambda session: 4 * self._authentication() + b'\0',
            3: lambda session: self._interface(session).address,
            4: lambda session: bytes((_OTHER_SOURCE,)),
            5: lambda session: self._interface(session).mac,
            6: lambda session: self._interface(session).mask,
            7: lambda session: _ipv4_header(),
            # The primary RMCP port. There is no secondary one.
            8: lambda session: self._bmc.client_port.to_bytes(2, 'little'),
            # ARPs, and the interval of gratuitous ones.
            10: lambda session: bytes((_ARP_RESPONSES,)),
            11: lambda session: b'\0',
            12: lambda session: self._interface(session).gateway,
            13: lambda session: self._interface(session).gateway_mac,
            # The backup gateway.
            14: lambda session: bytes(4),
            15: lambda session: bytes(6),
            # Number of destinations of alerts.
            17: lambda session: b'\0',
            # VLAN id (disabled) and priority.
            20: lambda session: bytes(2),
            21: lambda session: b'\0',
            22: lambda session: bytes((len(session20.SUITES),)),
            23: lambda session: b'\0' + bytes(
                suite.number for suite in session20.SUITES).ljust(
                    _SUITES_MAX, b'\0'),
            24: lambda session: _suite_levels(),
            # Bad password threshold: none.
            26: lambda session: bytes(6),
        }

    @group.command(0x01, 'Set LAN Configuration Parameters',
                   _LEVEL.ADMINISTRATOR, 2)
    def set_parameter(self, session: channel.Session, data: bytes) -> None:
        """Set LAN Configuration Parameters (23.1)."""
        self._check(data)
        completion.refuse_if(data[1] != set_in_progress.PARAMETER,
                             _CODE.READ_ONLY)
        completion.refuse_if(len(data) < 3, _CODE.LENGTH_INVALID)
        self.set_progress(session, data[2])

    @group.command(0x02, 'Get LAN Configuration Parameters', _LEVEL.OPERATOR,
                   4)
    def get_parameter(self, session: channel.Session, data: bytes) -> bytes:
        """Get LAN Configuration Parameters (23.2)."""
        self._check(data)
        if data[0] & 0x80:
            # The revision alone.
            return bytes((REVISION,))
        return bytes((REVISION,)) + self._parameters[data[1]](session)

    def _check(self, data: bytes) -> None:
        completion.check_channel(data[0])
        completion.refuse_if(data[1] not in self._parameters,
                             _CODE.PARAMETER_NOT_SUPPORTED)

    def _authentication(self) -> bytes:
        return bytes((_MD5 * self._bmc.server.v15_login_possible(),))

    def _interface(self, session: channel.Session) -> interfaces.Interface:
        return interfaces.towards(session.address)


def _ipv4_header() -> bytes:
    """Time to live, flags and type of service of this host's packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return bytes((sock.getsockopt(socket.IPPROTO_IP, socket.IP_TTL),
                      _DONT_FRAGMENT,
                      sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)))


def _suite_levels() -> bytes:
    """Maximum privilege level of each suite of parameter 23, in nibbles."""
    level = _LEVEL.ADMINISTRATOR
    pairs = len(session20.SUITES) // 2
    return b'\0' + (bytes((level << 4 | level,)) * pairs).ljust(
        _SUITES_MAX // 2, b'\0')
