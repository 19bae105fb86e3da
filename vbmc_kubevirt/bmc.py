# SPDX-License-Identifier: Apache-2.0
"""BMC of one VM: what its IPMI commands share.

Power and boot semantics are implemented by `sushy_kubevirt.machine`, sessions
and privileges by `ipmi.server`, the commands by the modules of `commands`.
"""

from __future__ import annotations

import functools
import logging
import math
import uuid

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from vbmc_kubevirt.commands import boot_options
from vbmc_kubevirt.commands import channels
from vbmc_kubevirt.commands import chassis
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import dcmi
from vbmc_kubevirt.commands import device
from vbmc_kubevirt.commands import fru
from vbmc_kubevirt.commands import lan
from vbmc_kubevirt.commands import payload
from vbmc_kubevirt.commands import sdr
from vbmc_kubevirt.commands import sel
from vbmc_kubevirt.commands import sensors
from vbmc_kubevirt.commands import sol_configuration
from vbmc_kubevirt.commands import system_info
from vbmc_kubevirt.commands import system_interface
from vbmc_kubevirt.commands import users
from vbmc_kubevirt.commands import watchdog
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt import restart_cause

LOG = logging.getLogger(__name__)

#: Modules with commands.
MODULES = (
    device,
    channels,
    lan,
    chassis,
    boot_options,
    system_info,
    dcmi,
    users,
    payload,
    sol_configuration,
    system_interface,
    sdr,
    sensors,
    sel,
    fru,
    watchdog,
)


class Bmc:
    """IPMI commands of one VM.

    :param name: name for log messages
    :param find: function that returns the `machine.Machine`; may block and
        raise `errors.MachineError`
    :param version: text, version of this program
    :param reset: function of the session, called in the event loop on a cold
        reset
    :param log: function that returns the `event_log.Log`; to be called after
        `machine`
    :ivar last_error: error text of the last command; '' if it succeeded
    :ivar users: the `bmc_users.BmcUsers`; set by the owner
    :ivar on_reset: functions without parameters, called in the event loop on
        a warm or cold reset, before ``reset``
    :ivar restart_cause: `restart_cause.RestartCause`
    :ivar server: the `server.Server`, for commands about sessions; None before
        it is started
    :ivar write_deadline: longest time, in seconds, for the retries of a
        command's request to the cluster, whatever the options of accounts and
        log, which may be Redfish's
    :ivar client_port: UDP port that clients use
    :ivar sol: `sol_configuration.Parameters`
    :ivar log: see the parameter
    :ivar watchdog_events: function that returns the offsets of sensor type
        Watchdog 2 (table 42-3) that are set
    """

    def __init__(self, name, find, version, reset, log=None) -> None:
        self.name = name
        self.version = version
        self.last_error = ''
        self.users = None
        self.on_reset = []
        self.restart_cause = restart_cause.RestartCause()
        self.server = None
        self.write_deadline = math.inf
        self.client_port = constants.PORT
        self.sol = sol_configuration.Parameters(lambda: self.client_port)
        self.log = log
        self.watchdog_events = tuple
        self._find = find
        self._reset = reset
        self._uuid = str(uuid.UUID(int=0))

    def guid(self):
        """Return the VM's UUID, 16 bytes; zeros until the VM was found.

        All bytes are reversed, as in table 20-10. FreeIPMI decodes no other
        order. ``ipmitool`` recognises it: in the order of SMBIOS, the variant
        of a UUID (RFC 4122: 8 to B) would be the version, which is at most 5.
        """
        return uuid.UUID(self._uuid).bytes[::-1]

    @functools.cached_property
    def commands(self):
        """Commands for `server.Server`, with the privileges of table G-1.

        :returns: dict of (network function, command) to `server.Command`
        """
        found = {}
        for module in MODULES:
            found.update(module.commands(self))
        return found

    def warm_reset(self) -> None:
        """Drop the state of commands that belongs to clients."""
        for each in self.on_reset:
            each()

    def reset(self, session) -> None:
        """Cold reset: drop the state of commands, end all sessions.

        :param session: the session that requested it
        """
        self.warm_reset()
        self._reset(session)

    def machine(self):
        """Find the machine and store its UUID for `guid`.

        :returns: `machine.Machine`
        :raises: `errors.MachineError`
        """
        machine = self._find()
        self._uuid = machine.uuid
        return machine

    def record_error(self, error) -> None:
        """Store an error, and log it unless it equals the previous one.

        A client that polls would otherwise fill the log.

        :param error: an `errors.MachineError`
        """
        problem = str(error)
        if problem != self.last_error:
            LOG.warning('%s: %s (completion code %02Xh)', self.name, problem,
                        completion.code_of(error))
        self.last_error = problem

    def map_errors(self, handle):
        """Wrap a handler so that errors become completion codes.

        :param handle: function of (session, data) that returns response data,
            or None for none
        :returns: handler for `server.Command`
        """
        def wrapper(session, data):
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
