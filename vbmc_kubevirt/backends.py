# SPDX-License-Identifier: Apache-2.0
"""What a BMC works on: machine, log and accounts."""

from __future__ import annotations

from collections import abc
import functools
import threading
import time
import typing

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from vbmc_kubevirt import bmc_users

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
                # Reading a kubeconfig may start an exec plugin.
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
