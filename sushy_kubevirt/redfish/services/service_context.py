# SPDX-License-Identifier: Apache-2.0
"""Creates and connects the services of an emulator.

There is one instance of `Services` for each application.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import authenticator
from sushy_kubevirt.redfish.services.events import account_events
from sushy_kubevirt.redfish.services.events import dispatcher
from sushy_kubevirt.redfish.services import login_accounts
from sushy_kubevirt.redfish.services import server_threads
from sushy_kubevirt.redfish.services import service_threads
from sushy_kubevirt.redfish.services import sessions

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import cluster as cluster_
    from sushy_kubevirt.redfish.services import settings as settings_

#: Maximum number of open consoles, and of images that are uploaded, of one
#: account of a service of one VM; each BMC of a process with many has its own.
#: KubeVirt serves one client of each device. Consoles of an account take at
#: most a quarter of the connections of a pod's smallest HTTP server.
MAX_CONSOLES, MAX_UPLOADS = 8, 4

#: How many times as much a service of several VMs has.
SEVERAL = 4


class Services:
    """The services of an emulator.

    :param threads: of a process that serves many BMCs; None for threads of
        its own
    :param sources: of accounts; None for the files and folders of the
        settings
    :raises: `errors.ConfigError` if the accounts cannot be used
    """

    def __init__(self, settings: settings_.Settings, cluster: cluster_.Cluster,
                 threads: service_threads.ServiceThreads | None = None,
                 sources: abc.Iterable[account_files.AccountSource]
                 | None = None) -> None:
        self.settings = settings
        self.state = state_secret.StateSecret(
            cluster,
            state_secret.location(cluster, settings.state_secret),
        )
        #: Those that clients manage; None if this is disabled.
        self.accounts: accounts.Accounts | None = None
        if sources is None:
            sources = map(account_files.Source, settings.accounts)
        self.login = authenticator.Authenticator(
            self._accounts(tuple(sources)))
        self.sessions = sessions.Sessions(
            self.login, self.state, settings.session_timeout)
        self._owns_threads = threads is None
        self._threads = threads or service_threads.ServiceThreads()
        self.events = dispatcher.EventDispatcher(
            cluster, self.state, self._threads, settings.events,
            settings.allows)
        times = 1 if cluster.vm else SEVERAL
        self.consoles = server_threads.Slots(times * MAX_CONSOLES)
        self.uploads = server_threads.Slots(times * MAX_UPLOADS)
        self.login.refused.append(self.events.login_failed)
        if self.accounts is not None:
            account_events.AccountEvents(self.accounts, self.state,
                                         self.events.emit)

    def start(self) -> None:
        """Start watching for events; idempotent."""
        if self.accounts is not None and self._owns_threads:
            # Changes of accounts by other processes must be seen at once. A
            # process with many BMCs has no thread for the watch of each.
            self.state.start()
        self.events.start()

    def _accounts(self, sources: tuple[account_files.AccountSource, ...]
                  ) -> login_accounts.LoginAccounts | None:
        """Read the accounts. :returns: None if none are configured"""
        if not sources:
            return None
        configured = account_files.Accounts(sources)
        try:
            configured.require()
        except account_files.Invalid as exc:
            raise errors.ConfigError(
                'The accounts cannot be used, so every login would be '
                f'refused:\n{exc}') from None
        if self.settings.account_management:
            self.accounts = accounts.Accounts(self.state, configured.current)
        return login_accounts.LoginAccounts(configured, self.accounts)

    def close(self) -> None:
        """End all threads and streams."""
        self.state.close()
        self.login.close()
        self.events.close()
        if self._owns_threads:
            self._threads.close()
