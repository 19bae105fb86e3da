# SPDX-License-Identifier: Apache-2.0
"""BMC of one VM: what its IPMI commands share.

Power and boot semantics are implemented by `sushy_kubevirt.machine`, sessions
and privileges by `ipmi.server`, the commands by the modules of `commands`.
"""

from __future__ import annotations

from collections import abc
import logging
import math
import typing
import uuid

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import machine
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt import restart_cause

if typing.TYPE_CHECKING:
    from vbmc_kubevirt.commands import sol_configuration

LOG = logging.getLogger(__name__)

Machine: typing.TypeAlias = machine.Machine


class Bmc:
    """IPMI commands of one VM.

    :param name: name for log messages
    :param find: returns the machine; may block and raise
        `errors.MachineError`
    :param version: version of this program
    :param reset: called with the session in the event loop on a cold reset
    :param log: to be called after `machine`
    :ivar last_error: error text of the last command; '' if it succeeded
    :ivar users: set by the owner
    :ivar on_reset: functions, called in the event loop on
        a warm or cold reset, before ``reset``
    :ivar server: for commands about sessions; set by the owner before it is
        started
    :ivar write_deadline: longest time, in seconds, for the retries of a
        command's request to the cluster, whatever the options of accounts and
        log, which may be Redfish's
    :ivar sol: set by `command_table.commands`
    :ivar client_port: UDP port that clients use
    :ivar log: see the parameter
    :ivar watchdog_events: returns the offsets of sensor type Watchdog 2 (table
        42-3) that are set
    """

    def __init__(self, name: str, find: abc.Callable[[], Machine],
                 version: str, reset: abc.Callable[[channel.Session], object],
                 log: abc.Callable[[], event_log.Log]) -> None:
        self.users: bmc_users.BmcUsers
        self.server: server.Server
        self.sol: sol_configuration.SolConfiguration
        self.name = name
        self.version = version
        self.last_error = ''
        self.on_reset: list[abc.Callable[[], object]] = []
        self.restart_cause = restart_cause.RestartCause()
        self.write_deadline = math.inf
        self.client_port = constants.PORT
        self.log = log
        self.watchdog_events: abc.Callable[[], tuple[int, ...]] = tuple
        self._find = find
        self._reset = reset
        self._uuid = str(uuid.UUID(int=0))

    def guid(self) -> bytes:
        """Return the VM's UUID, 16 bytes; zeros until the VM was found.

        All bytes are reversed, as in table 20-10. FreeIPMI decodes no other
        order. ``ipmitool`` recognises it: in the order of SMBIOS, the variant
        of a UUID (RFC 4122: 8 to B) would be the version, which is at most 5.
        """
        return uuid.UUID(self._uuid).bytes[::-1]

    def warm_reset(self) -> None:
        """Drop the state of commands that belongs to clients."""
        for release in self.on_reset:
            release()

    def reset(self, session: channel.Session) -> None:
        """Cold reset: drop the state of commands, end all sessions.

        :param session: the session that requested it
        """
        self.warm_reset()
        self._reset(session)

    def machine(self) -> Machine:
        """Find the machine and store its UUID for `guid`.

        :raises: `errors.MachineError`
        """
        present = self._find()
        self._uuid = present.uuid
        return present

    def record_error(self, error: errors.MachineError) -> None:
        """Store an error, and log it unless it equals the previous one.

        A client that polls would otherwise fill the log.
        """
        problem = str(error)
        if problem != self.last_error:
            LOG.warning('%s: %s (completion code %02Xh)', self.name, problem,
                        completion.code_of(error))
        self.last_error = problem

    def map_errors(self, handle: completion.Handle) -> channel.Handler:
        """Wrap a handler so that errors become completion codes."""
        def wrapper(session: channel.Session, data: bytes
                    ) -> channel.Response:
            try:
                with retry.within(self.write_deadline):
                    answer = handle(session, data)
            except completion.RequestError as exc:
                return exc.code, b''
            except errors.MachineError as exc:
                self.record_error(exc)
                return completion.code_of(exc), b''
            self.last_error = ''
            return constants.Completion.OK, answer or b''
        return wrapper
