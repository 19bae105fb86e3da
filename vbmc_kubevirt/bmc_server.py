# SPDX-License-Identifier: Apache-2.0
"""BMC of one VM: its commands, its IPMI server and its Kubernetes connection.

Used by the daemon's `bmc_process` and by the pod's `ipmi_service`, which
supply the port, the credentials and the thread pools.
"""

from __future__ import annotations

import asyncio
from collections import abc
from concurrent import futures
import functools
from importlib import metadata
import socket
import threading
import time
import typing

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine import options
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import server

#: Minimum seconds between attempts to load the connection's configuration.
RETRY_SECONDS = 10


class SharedConnection:
    """Kubernetes connection of several BMCs, created on first use.

    :param kubeconfig: path
    :param context: context name
    """

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        self._create = functools.partial(
            connection.Connection.from_options, kubeconfig, context)
        self._lock = threading.Lock()
        self._connection: connection.Connection | None = None
        self._failure: errors.ConfigError | None = None
        self._failed_at = 0.0

    def get(self) -> connection.Connection:
        """Return the connection.

        :raises: `errors.ConfigError`; the error is cached for RETRY_SECONDS
        """
        with self._lock:
            if self._connection is None:
                # Reading a kubeconfig starts a process.
                if (self._failure is not None and
                        time.monotonic() < self._failed_at + RETRY_SECONDS):
                    raise self._failure
                try:
                    self._connection = self._create()
                except errors.ConfigError as exc:
                    self._failure = exc.with_traceback(None)
                    self._failed_at = time.monotonic()
                    raise
            return self._connection


class OwnBackend:
    """What a BMC works on, if nothing else in the process works on its VM.

    :param vm: 'namespace/name'
    :param shared_state: None for a state Secret of the VM's own; otherwise
        that of an emulator for several VMs, 'namespace/name' or '' for its
        default
    :raises: `errors.ConfigError`
    """

    def __init__(self, shared_connection: SharedConnection,
                 options: options.Options, vm: str,
                 shared_state: str | None = None) -> None:
        # One watch for this VM only, so that RBAC rules with the VM's name
        # suffice.
        self.cluster = cluster.Cluster(shared_connection.get(),
                                       options=options, vm=vm)
        shared = shared_state is not None
        self._state = state_secret.StateSecret(
            self.cluster, state_secret.location(
                self.cluster, shared_state, shared), shared=shared)
        self.log = event_log.Log(self.cluster, self._state)

    def attach(self, users: bmc_users.BmcUsers) -> None:
        """Let clients manage accounts, if they may."""
        if users.managed:
            users.attach(self._state, self.log)
            # Changes over Redfish must be seen at once.
            self._state.start()

    def close(self) -> None:
        """Stop the watches; may block."""
        self._state.close()
        self.cluster.close()


class SharedBackend:
    """What a BMC works on, if Redfish in this process serves the same VM.

    :param machines: those of Redfish, as are the next three
    :param options: fields of `options.Options` that differ
    """

    def __init__(self, machines: cluster.Cluster,
                 state: state_secret.StateSecret, log: event_log.Log,
                 stored: accounts.Accounts | None,
                 options: abc.Mapping[str, typing.Any]) -> None:
        self.cluster = machines.with_options(**options)
        self.log = log
        self._state = state
        self._stored = stored

    def attach(self, users: bmc_users.BmcUsers) -> None:
        """See `OwnBackend.attach`."""
        if not users.managed:
            return
        if self._stored is not None:
            users.share(self._stored)
        else:
            users.attach(self._state, self.log)
            # Nothing else reads it; the first login would be refused.
            self._state.refresh(state_secret.MAX_AGE_SECONDS)

    def close(self) -> None:
        """Do nothing: Redfish closes what it has."""


Backend: typing.TypeAlias = OwnBackend | SharedBackend
Cluster: typing.TypeAlias = cluster.Cluster


class BmcServer:
    """BMC of one VM.

    :param connect: called on first use, again after `errors.ConfigError`
    :param name: name for log messages
    :param vm: 'namespace/name'
    :ivar server: None before `start`
    """

    def __init__(self, connect: abc.Callable[[], Backend], name: str, vm: str,
                 users: bmc_users.BmcUsers) -> None:
        self.name = name
        self.server: server.Server | None = None
        self._vm = vm
        self._users = users
        self._connect_backend = connect
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._closed = False
        self.bmc = bmc.Bmc(self.name, self._find_machine, version(),
                           self._reset, lambda: self._connected().log)
        self.bmc.users = users

    def _find_machine(self) -> machine.Machine:
        return self._connected().cluster.machine(self._vm)

    def _connected(self) -> Backend:
        if self._backend is not None:
            return self._backend
        blocking.check()
        with self._lock:
            if self._backend is not None:
                return self._backend
            if self._closed:
                raise errors.Unavailable('This BMC was stopped')
            backend = self._connect_backend()
            backend.attach(self._users)
            self.bmc.write_deadline = backend.cluster.options.write_deadline
            # Last, as it is read without the lock.
            self._backend = backend
            return backend

    @property
    def cluster(self) -> Cluster | None:
        """None before the connection is made."""
        return None if self._backend is None else self._backend.cluster

    def start(self, sock: socket.socket, readers: futures.Executor,
              writers: futures.Executor,
              client_port: int = 0) -> server.Server:
        """Serve IPMI.

        :param sock: bound, non-blocking UDP socket
        :param readers: see `ipmi.server.Server`
        :param writers: see `ipmi.server.Server`
        :param client_port: UDP port that clients use; 0 for the socket's
        """
        self.server = server.Server(
            self.name, self._users, command_table.commands(self.bmc),
            self.bmc.guid, readers, writers, blocking.attempt)
        self.bmc.server = self.server
        self.bmc.client_port = client_port or sock.getsockname()[1]
        self.server.start(sock)
        return self.server

    async def watch(self, executor: futures.Executor) -> None:
        """Start watching the VM without waiting for a request.

        The watch restores the VM's boot order after a one-time boot. Retries
        until the connection's configuration can be loaded.

        :param executor: for blocking calls
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(executor, self.bmc.machine)
                return
            except errors.ConfigError as exc:
                self.bmc.record_error(exc)
            except errors.MachineError as exc:
                self.bmc.record_error(exc)
                # The watch was started and reconnects by itself.
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _reset(self, session: channel.Session) -> None:
        # Runs after the response was sent.
        asyncio.get_running_loop().call_soon(self.bmc.server.end_sessions)

    def stop(self) -> None:
        """Stop the IPMI server; call it in the event loop."""
        if self.server is not None:
            self.server.stop()

    def close(self) -> None:
        """Stop the watches; may block."""
        with self._lock:
            self._closed = True
            if self._backend is not None:
                self._backend.close()


@functools.cache
def version() -> str:
    """Return the version of this program."""
    try:
        return metadata.version('sushy-kubevirt')
    except metadata.PackageNotFoundError:
        return '0.0'
