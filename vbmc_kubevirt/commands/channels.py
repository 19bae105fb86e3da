# SPDX-License-Identifier: Apache-2.0
"""Commands about the LAN channel and its sessions (22.20, 22.22 to 22.25).

The channel's configuration is fixed, as its security depends on it: commands
that would change it are refused.
"""

from __future__ import annotations

import ipaddress
import struct

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session_tables

_LEVEL = constants.Privilege
_CODE = constants.Completion

# Get Channel Info (table 22-29): 802.3 LAN, IPMB-1.0 protocol, multi-session,
# the IPMI forum's IANA number as vendor id.
_MEDIUM_LAN, _PROTOCOL_IPMB, _MULTI_SESSION = 0x04, 0x01, 0x80
_VENDOR = (7154).to_bytes(3, 'little')

#: Get Channel Access (table 22-28): no alerts, per-message and user-level
#: authentication, always available, up to ADMINISTRATOR.
ACCESS = bytes((0x22, _LEVEL.ADMINISTRATOR))

# Get Session Info (table 22-25): how to look the session up.
_CURRENT, _BY_HANDLE, _BY_ID = 0x00, 0xFE, 0xFF
_NO_HANDLE = 0

# Largest number of sessions that its fields hold.
_COUNT_MAX = 0x3f

# Set Channel Access (table 22-27): what to do with a setting; the others
# store or set it.
_KEEP, _RESERVED = 0, 3

# Set Channel Security Keys (table 22-30): an operation, the key ids.
_SET_KEY = 1
_KEYS = 0, 1
_LOCKED = 0x01


class Channels(group.Group):
    """Commands about the channel and its sessions."""

    netfn = constants.APPLICATION
    inline = True

    @group.command(0x40, 'Set Channel Access', _LEVEL.ADMINISTRATOR, 3)
    def set_access(self, session: channel.Session, data: bytes) -> None:
        """Set Channel Access (22.22): accept only what is set already."""
        completion.check_channel(data[0])
        for value, now, mask, refusal in (
                (data[1], ACCESS[0], 0x07, _CODE.ACCESS_MODE_NOT_SUPPORTED),
                (data[1], ACCESS[0], 0x38, _CODE.READ_ONLY),
                (data[2], ACCESS[1], 0x0f, _CODE.READ_ONLY)):
            action = value >> 6
            completion.refuse_if(action == _RESERVED, _CODE.INVALID_FIELD)
            completion.refuse_if(
                action != _KEEP and value & mask != now & mask, refusal)

    @group.command(0x41, 'Get Channel Access', _LEVEL.USER, 2)
    def get_access(self, session: channel.Session, data: bytes) -> bytes:
        """Get Channel Access (22.23): stored settings are the present."""
        completion.check_channel(data[0])
        completion.refuse_if(data[1] >> 6 in (_KEEP, _RESERVED),
                             _CODE.INVALID_FIELD)
        return ACCESS

    @group.command(0x56, 'Set Channel Security Keys', _LEVEL.ADMINISTRATOR,
                   3)
    def set_security_keys(self, session: channel.Session,
                          data: bytes) -> bytes:
        """Set Channel Security Keys (22.25): K_R and K_G are not used.

        Sessions are authenticated by the users' passwords alone, so both keys
        are locked and have no value.
        """
        completion.check_channel(data[0])
        operation = data[1] & 3
        completion.refuse_if(operation == _RESERVED or data[2] not in _KEYS,
                             _CODE.INVALID_FIELD)
        completion.refuse_if(operation == _SET_KEY, _CODE.KEY_LOCKED)
        return bytes((_LOCKED,))

    @group.command(0x42, 'Get Channel Info', _LEVEL.USER, 1)
    def get_channel_info(self, session: channel.Session, data: bytes) -> bytes:
        """Get Channel Info (22.24)."""
        completion.check_channel(data[0])
        number = min(len(self._bmc.server.active_sessions()), _COUNT_MAX)
        return bytes((channel.CHANNEL, _MEDIUM_LAN, _PROTOCOL_IPMB,
                      _MULTI_SESSION | number)) + _VENDOR + bytes(2)

    @group.command(0x3D, 'Get Session Info', _LEVEL.USER, 1)
    def get_session_info(self, session: channel.Session, data: bytes) -> bytes:
        """Get Session Info (22.20)."""
        active = self._bmc.server.active_sessions()
        named = _find(active, session, data)
        counts = bytes((min(session_tables.ESTABLISHED_MAX, _COUNT_MAX),
                        min(len(active), _COUNT_MAX)))
        if named is None:
            return bytes((_NO_HANDLE,)) + counts
        return bytes((named.handle,)) + counts + bytes((
            channel.user(named).id, named.privilege,
            named.rmcpp << 4 | channel.CHANNEL)) + _client(named.address)


def _find(active: list[channel.Session], session: channel.Session,
          data: bytes) -> channel.Session | None:
    """Return the session that a request names; None if there is none."""
    which = data[0]
    if which == _CURRENT:
        return session
    if which not in (_BY_HANDLE, _BY_ID):
        return active[which - 1] if which <= len(active) else None
    completion.refuse_if(len(data) < (2 if which == _BY_HANDLE else 5),
                         _CODE.LENGTH_INVALID)
    number = int.from_bytes(data[1:5], 'little')
    return next((other for other in active if (
        data[1] == other.handle if which == _BY_HANDLE
        else number == other.session_id)), None)


def _client(address: packet.Address) -> bytes:
    """Encode a client's address (table 22-25).

    :returns: IPv4 address (zeros for IPv6), MAC address (zeros: unknown
        beyond routers), UDP port
    """
    host = ipaddress.ip_address(address[0].partition('%')[0])
    if host.version == 6:
        host = host.ipv4_mapped or ipaddress.IPv4Address(0)
    return host.packed + bytes(6) + struct.pack('<H', address[1])
