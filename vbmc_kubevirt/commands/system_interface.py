# SPDX-License-Identifier: Apache-2.0
"""Commands that only the system interface may send (appendix G).

A BMC of a VM has no such interface: they are refused as not permitted, and
not as unknown.
"""

from __future__ import annotations

from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

_NEVER, _TRANSPORT = constants.NEVER, constants.TRANSPORT


class SystemInterface(group.Group):
    """Commands that are refused because of their privilege level."""

    netfn = constants.APPLICATION

    @group.command(0x2E, 'Set BMC Global Enables', _NEVER)
    @group.command(0x30, 'Clear Message Flags', _NEVER)
    @group.command(0x31, 'Get Message Flags', _NEVER)
    @group.command(0x32, 'Enable Message Channel Receive', _NEVER)
    @group.command(0x33, 'Get Message', _NEVER)
    @group.command(0x35, 'Read Event Message Buffer', _NEVER)
    @group.command(0x14, 'Set PPP UDP Proxy Transmit Data', _NEVER, 0,
                   _TRANSPORT)
    @group.command(0x15, 'Get PPP UDP Proxy Transmit Data', _NEVER, 0,
                   _TRANSPORT)
    @group.command(0x16, 'Send PPP UDP Proxy Packet', _NEVER, 0, _TRANSPORT)
    @group.command(0x17, 'Get PPP UDP Proxy Receive Data', _NEVER, 0,
                   _TRANSPORT)
    def refuse(self, session: channel.Session, data: bytes) -> None:
        """Do nothing: no session has the level."""
