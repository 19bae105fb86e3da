# SPDX-License-Identifier: Apache-2.0
"""BMC of one VM: its server, and what its IPMI commands share.

Power and boot semantics are implemented by `sushy_kubevirt.machine`, sessions
and privileges by `ipmi.server`, the commands by the modules of `commands`. The
daemon's `bmc_process`, `ipmi_service` and `shared_bmc` supply the port, the
credentials and the thread pools.
"""

from __future__ import annotations

import asyncio
from collections import abc
from concurrent import futures
import functools
from importlib import metadata
import logging
import math
import socket
import threading
import typing

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import machine
from vbmc_kubevirt import backends
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import sol
from vbmc_kubevirt import restart_cause

LOG = logging.getLogger(__name__)

Machine: typing.TypeAlias = 'machine.Machine'
Cluster: typing.TypeAlias = 'cluster.Cluster'
RestartCause: typing.TypeAlias = 'restart_cause.RestartCause'
Commands: typing.TypeAlias = abc.Mapping[channel.Code, server.Command]


class Bmc:
    """BMC of one VM.

    :param commands: `command_table.commands`; called on first use
    :param connect: called on first use, again after `errors.ConfigError`
    :param name: name for log messages
    :param vm: 'namespace/name'
    :param readers: see `ipmi.server.Server`
    :param writers: see `ipmi.server.Server`
    :ivar last_error: error text of the last command; '' if it succeeded
    :ivar write_deadline: longest time, in seconds, for the retries of a
        command's request to the cluster, whatever the options of accounts and
        log, which may be Redfish's
    :ivar client_port: UDP port that clients use
    :ivar on_reset: called in the event loop on a warm or cold reset
    :ivar restart_cause: why the VM was started; set with the commands
    :ivar watchdog_events: returns the offsets of sensor type Watchdog 2 (table
        42-3) that are set; set by its commands
    """

    restart_cause: RestartCause
    watchdog_events: abc.Callable[[], tuple[int, ...]]

    def __init__(self, commands: abc.Callable[[Bmc], Commands],
                 connect: abc.Callable[[], backends.Backend], name: str,
                 vm: str, users: bmc_users.BmcUsers,
                 readers: futures.Executor, writers: futures.Executor) -> None:
        self.name = name
        self.users = users
        self.last_error = ''
        self.write_deadline = math.inf
        self.client_port = constants.PORT
        self._vm = vm
        self._uuid = ''
        self._connect_backend = connect
        self._lock = threading.Lock()
        self._backend: backends.Backend | None = None
        self._closed = False
        self.on_reset: list[abc.Callable[[], object]] = []
        self.sol = sol.Settings()
        self._make_commands = commands
        self.server = server.Server(
            name, users, lambda: self.commands, self.guid, readers, writers,
            blocking.attempt)

    # Made on first use: the port is served before these modules are loaded.

    @functools.cached_property
    def version(self) -> str:
        """Version of this program."""
        return version()

    @functools.cached_property
    def commands(self) -> Commands:
        """The commands; read it in the event loop."""
        self.restart_cause = restart_cause.RestartCause()
        return self._make_commands(self)

    def _connected(self) -> backends.Backend:
        if self._backend is not None:
            return self._backend
        blocking.check()
        with self._lock:
            if self._backend is not None:
                return self._backend
            if self._closed:
                raise errors.Unavailable('This BMC was stopped')
            backend = self._connect_backend()
            backend.attach(self.users)
            self.write_deadline = backend.cluster.options.write_deadline
            # Last, as it is read without the lock.
            self._backend = backend
            return backend

    @property
    def cluster(self) -> Cluster | None:
        """None before the connection is made."""
        return None if self._backend is None else self._backend.cluster

    def start(self, sock: socket.socket, client_port: int = 0) -> None:
        """Serve IPMI; call it in the event loop.

        :param sock: bound, non-blocking UDP socket
        :param client_port: UDP port that clients use; 0 for the socket's
        """
        self.client_port = client_port or sock.getsockname()[1]
        self.server.start(sock)

    async def watch(self, executor: futures.Executor) -> None:
        """Start watching the VM without waiting for a request.

        The watch restores the VM's boot order after a one-time boot. Retries
        until the connection's configuration can be loaded.

        :param executor: for blocking calls
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(executor, self.machine)
                return
            except errors.ConfigError as exc:
                self.record_error(exc)
            except errors.MachineError as exc:
                self.record_error(exc)
                # The watch was started and reconnects by itself.
                return
            await asyncio.sleep(backends.RETRY_SECONDS)

    def close(self) -> None:
        """Stop the watches; may block."""
        with self._lock:
            self._closed = True
            if self._backend is not None:
                self._backend.close()

    # For the commands

    def guid(self) -> bytes:
        """Return the VM's UUID, 16 bytes; zeros until the VM was found.

        All bytes are reversed, as in table 20-10. FreeIPMI decodes no other
        order. ``ipmitool`` recognises it: in the order of SMBIOS, the variant
        of a UUID (RFC 4122: 8 to B) would be the version, which is at most 5.
        """
        return (bytes.fromhex(self._uuid.replace('-', ''))[::-1]
                if self._uuid else bytes(16))

    def warm_reset(self) -> None:
        """Drop the state of commands that belongs to clients."""
        for release in self.on_reset:
            release()

    def machine(self) -> Machine:
        """Find the machine and store its UUID for `guid`; may block.

        :raises: `errors.MachineError`
        """
        present = self._connected().cluster.machine(self._vm)
        self._uuid = present.uuid
        return present

    def log(self) -> event_log.Log:
        """Return the log; may block like `machine`."""
        return self._connected().log

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
                answer = retry.within(self.write_deadline, handle, session,
                                      data)
            except completion.RequestError as exc:
                return exc.code, b''
            except errors.MachineError as exc:
                self.record_error(exc)
                return completion.code_of(exc), b''
            self.last_error = ''
            return constants.Completion.OK, answer or b''
        return wrapper


@functools.cache
def version() -> str:
    """Return the version of this program."""
    try:
        return metadata.version('sushy-kubevirt')
    except metadata.PackageNotFoundError:
        return '0.0'
