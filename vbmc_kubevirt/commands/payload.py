# SPDX-License-Identifier: Apache-2.0
"""Payload commands (section 24): Serial over LAN with the VM's console.

There is one instance of SOL: the VM has one serial port, which KubeVirt
serves to one client at a time. A session that wants it while another has it
deactivates it first (section 24.2).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct

from sushy_kubevirt.machine import console
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import session20
from vbmc_kubevirt.ipmi import sol

LOG = logging.getLogger(__name__)

#: The only instance of SOL.
INSTANCE = 1

#: Activate Payload, auxiliary request data for SOL (table 24-2).
_ENCRYPT = 0x80

#: Version 1.0 of a payload type (section 24.9).
_VERSION = 0x10

#: Standard payload types 0 and 1: IPMI message and SOL; session setup types
#: 10h to 15h (section 24.8).
_STANDARD_TYPES, _SETUP_TYPES = 0x03, 0x3f

#: Standard payload 1 of the user payload accesses (sections 24.6 and 24.7).
_SOL_BIT = 0x02

#: Suspend/Resume Payload Encryption (section 24.3).
_SUSPEND, _RESUME = 0, 1

#: No VLAN for the payload (table 24-2).
_NO_VLAN = 0xffff

_LEVEL = constants.Privilege


def _check_instance(data: bytes) -> None:
    completion.refuse_if(data[0] & 0x3f != constants.Payload.SOL
                         or data[1] & 0x0f != INSTANCE,
                         constants.Completion.INVALID_FIELD)


class Payload(group.Group):
    """Commands about payloads."""

    netfn = constants.APPLICATION
    inline = True

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._redirection: _Redirection | None = None

    @property
    def _owner(self) -> session20.Session | None:
        """The session for which SOL is active, or None."""
        active = self._redirection
        return None if active is None or active.sol.closed else active.session

    def _check_sol(self, session: channel.Session, data: bytes) -> None:
        """Check payload type, instance, and whether SOL may be used."""
        _check_instance(data)
        completion.refuse_if(session.privilege < self._bmc.sol.privilege,
                             constants.Completion.ACCESS_DENIED)

    @group.command(0x48, 'Activate Payload', _LEVEL.USER, 6)
    def activate(self, session: channel.Session, data: bytes) -> bytes:
        """Activate Payload (section 24.1)."""
        if not isinstance(session, session20.Session):
            # IPMI v1.5 has no payloads.
            raise completion.RequestError(constants.Completion.WRONG_STATE)
        self._check_sol(session, data)
        completion.refuse_if(not self._bmc.sol.enabled,
                             constants.Completion.PAYLOAD_DISABLED)
        completion.refuse_if(not data[2] & _ENCRYPT,
                             constants.Completion.PAYLOAD_NEEDS_ENCRYPTION)
        completion.refuse_if(self._owner not in (None, session),
                             constants.Completion.PAYLOAD_ALREADY_ACTIVE)
        if self._owner is None:
            self._redirection = _Redirection(self._bmc, session)
        # Otherwise the client lost the response and repeats the request.
        return struct.pack('<IHHHH', 0, sol.PAYLOAD_MAX, sol.PAYLOAD_MAX,
                           self._bmc.client_port, _NO_VLAN)

    @group.command(0x49, 'Deactivate Payload', _LEVEL.USER, 2)
    def deactivate(self, session: channel.Session, data: bytes) -> None:
        """Deactivate Payload (section 24.2), also that of another session."""
        self._check_sol(session, data)
        active = self._redirection
        if active is None or self._owner is None:
            raise completion.RequestError(
                constants.Completion.PAYLOAD_NOT_ACTIVE)
        taken = self._owner is not session
        if taken:
            active.notice('Deactivated by another session.')
        active.sol.close(notify=taken)

    @group.command(0x4A, 'Get Payload Activation Status', _LEVEL.USER, 1)
    def status(self, session: channel.Session, data: bytes) -> bytes:
        """Get Payload Activation Status (section 24.4)."""
        completion.refuse_if(data[0] & 0x3f != constants.Payload.SOL,
                             constants.Completion.INVALID_FIELD)
        return struct.pack('<BH', INSTANCE, self._owner is not None)

    @group.command(0x4B, 'Get Payload Instance Info', _LEVEL.USER, 2)
    def instance_info(self, session: channel.Session, data: bytes) -> bytes:
        """Get Payload Instance Info (section 24.5)."""
        _check_instance(data)
        owner = self._owner
        # The VM's first serial port.
        return struct.pack('<IB7x', owner.session_id if owner else 0, 1)

    def _has_access(self, user_id: int) -> bool:
        """Tell whether a user may activate SOL: its level suffices."""
        users = self._bmc.users
        completion.refuse_if(not 1 <= user_id <= users.id_max,
                             constants.Completion.INVALID_FIELD)
        slot = users.slot(user_id)
        return (slot.limit != constants.NO_ACCESS and slot.messaging
                and slot.limit >= self._bmc.sol.privilege)

    @group.command(0x4D, 'Get User Payload Access', _LEVEL.OPERATOR, 2)
    def get_user_access(self, session: channel.Session, data: bytes) -> bytes:
        """Get User Payload Access (section 24.7)."""
        completion.check_channel(data[0])
        return bytes((_SOL_BIT * self._has_access(data[1] & 0x3f), 0, 0, 0))

    @group.command(0x4C, 'Set User Payload Access', _LEVEL.ADMINISTRATOR, 6)
    def set_user_access(self, session: channel.Session, data: bytes) -> None:
        """Set User Payload Access (section 24.6).

        The privilege level alone decides; a request that changes nothing
        succeeds, so that clients can write back what they have read.
        """
        completion.check_channel(data[0])
        has_access = self._has_access(data[1] & 0x3f)
        completion.refuse_if(
            data[1] >> 6 > 1 or data[2] & ~_SOL_BIT or any(data[3:6]),
            constants.Completion.INVALID_FIELD)
        completion.refuse_if(data[2] and has_access == bool(data[1] >> 6),
                             constants.Completion.WRONG_STATE)

    @group.command(0x4E, 'Get Channel Payload Support', _LEVEL.USER, 1)
    def support(self, session: channel.Session, data: bytes) -> bytes:
        """Get Channel Payload Support (section 24.8)."""
        completion.check_channel(data[0])
        return bytes((_STANDARD_TYPES, 0, _SETUP_TYPES, 0, 0, 0, 0, 0))

    @group.command(0x4F, 'Get Channel Payload Version', _LEVEL.USER, 2)
    def version(self, session: channel.Session, data: bytes) -> bytes:
        """Get Channel Payload Version (section 24.9)."""
        completion.check_channel(data[0])
        completion.refuse_if(data[1] & 0x3f not in tuple(constants.Payload),
                             constants.Completion.PAYLOAD_NOT_AVAILABLE)
        return bytes((_VERSION,))

    @group.command(0x50, 'Get Channel OEM Payload Info', _LEVEL.USER, 7)
    def oem_info(self, session: channel.Session, data: bytes) -> None:
        """Get Channel OEM Payload Info (section 24.10): there is none."""
        completion.check_channel(data[0])
        raise completion.RequestError(
            constants.Completion.PAYLOAD_NOT_AVAILABLE)

    @group.command(0x55, 'Suspend/Resume Payload Encryption', _LEVEL.USER, 3)
    def encryption(self, session: channel.Session, data: bytes) -> None:
        """Suspend/Resume Payload Encryption (section 24.3).

        Encryption is always on and has a new initialization vector in each
        packet.
        """
        _check_instance(data)
        completion.refuse_if(self._owner is not session,
                             constants.Completion.PAYLOAD_INSTANCE_NOT_ACTIVE)
        completion.refuse_if(data[2] & 0x1f == _SUSPEND,
                             constants.Completion.PAYLOAD_OPERATION_REFUSED)


class _Redirection:
    """SOL of a session, connected to the console of the VM.

    It ends with `sol.close()`, which the server calls when the session ends.
    """

    def __init__(self, bmc: group.Bmc, session: session20.Session) -> None:
        self.session: session20.Session | None = session
        self._name = bmc.name
        self.sol = sol.Sol(
            functools.partial(bmc.server.send_payload, session,
                              constants.Payload.SOL), self, bmc.sol.timing)
        self._console = console.Console(bmc.machine, self.sol.write,
                                        self.notice)
        session.sol = self.sol
        self._task = asyncio.get_running_loop().create_task(
            self._console.run())
        self._task.add_done_callback(self._ended)
        LOG.info('%s: SOL activated by %s', self._name, session.address[0])

    def notice(self, text: str) -> None:
        """Show the user a line about the console."""
        self.sol.put(f'\r\n[{text}]\r\n'.encode(errors='replace'))

    def _ended(self, task: asyncio.Task[bool]) -> None:
        if not task.cancelled() and task.exception() is not None:
            LOG.error('%s: the console failed', self._name,
                      exc_info=task.exception())
            self.notice('The console failed. See the log of the BMC.')
        self.sol.close()

    # The serial port of `sol.Sol`

    def accept(self, data: bytes) -> int | None:
        """Pass input to the VM.

        :returns: number of bytes accepted; None without a connection
        """
        return self._console.write(data)

    def discard_input(self) -> None:
        """Discard input that has not been sent to the VM."""
        self._console.discard_input()

    def send_break(self) -> None:
        """Tell the user that KubeVirt's console cannot send a break."""
        self.notice('KubeVirt\'s console does not transmit a break.')

    def closed(self) -> None:
        """Disconnect from the VM."""
        LOG.info('%s: SOL deactivated', self._name)
        if self.session is not None:
            self.session.sol = None
        # `set_in_progress` notices that an ended session is gone.
        self.session = None
        self._task.cancel()
