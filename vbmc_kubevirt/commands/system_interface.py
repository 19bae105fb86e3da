# SPDX-License-Identifier: Apache-2.0
"""Commands that only the system interface may send (appendix G).

A BMC of a VM has no such interface: they are refused as not permitted, and
not as unknown.
"""

from __future__ import annotations

from vbmc_kubevirt import bmc
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

_COMMANDS = (
    (constants.APPLICATION, 0x2E, 'Set BMC Global Enables'),
    (constants.APPLICATION, 0x30, 'Clear Message Flags'),
    (constants.APPLICATION, 0x31, 'Get Message Flags'),
    (constants.APPLICATION, 0x32, 'Enable Message Channel Receive'),
    (constants.APPLICATION, 0x33, 'Get Message'),
    (constants.APPLICATION, 0x35, 'Read Event Message Buffer'),
    (constants.TRANSPORT, 0x14, 'Set PPP UDP Proxy Transmit Data'),
    (constants.TRANSPORT, 0x15, 'Get PPP UDP Proxy Transmit Data'),
    (constants.TRANSPORT, 0x16, 'Send PPP UDP Proxy Packet'),
    (constants.TRANSPORT, 0x17, 'Get PPP UDP Proxy Receive Data'),
)


def _refuse(session: channel.Session, data: bytes) -> channel.Response:
    return constants.Completion.ACCESS_DENIED, b''


def commands(bmc: bmc.Bmc) -> dict[channel.Code, server.Command]:
    """Return the commands of this module."""
    return {(netfn, number): server.Command(name, _refuse, constants.NEVER)
            for netfn, number, name in _COMMANDS}
