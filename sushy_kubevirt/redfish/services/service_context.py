# SPDX-License-Identifier: Apache-2.0
"""Creates and connects the services of an emulator.

There is one instance of `Services` for each application.
"""

from __future__ import annotations

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

#: Maximum number of open consoles, and of images that are uploaded, of one
#: account of a service of one VM; each BMC of a process with many has its own.
#: KubeVirt serves one client of each device. Consoles of an account take at
#: most a quarter of the connections of a pod's smallest HTTP server.
MAX_CONSOLES, MAX_UPLOADS = 8, 4

#: How many times as much a service of several VMs has.
SEVERAL = 4


class Services:
    """The services of an emulator.

    :param settings: the `settings.Settings`
    :param cluster: the `cluster.Cluster` with the VMs
    :param threads: the `service_threads.SharedThreads` of a process that
        serves many BMCs; None for threads of its own
    :param sources: sources of accounts, like `account_files.Source`; None for
        the files and folders of the settings
    :raises: `errors.ConfigError` if the accounts cannot be used
    """

    def __init__(self, settings, cluster, threads=None,
                 sources=None) -> None:
        self.settings = settings
        self._own_threads = None if threads else (
            service_threads.ServiceThreads())
        threads = threads or self._own_threads
        self.state = state_secret.StateSecret(
            cluster,
            state_secret.location(cluster, settings.state_secret),
        )
        #: `accounts.Accounts` that clients manage; None if this is disabled.
        self.accounts = None
        if sources is None:
            sources = map(account_files.Source, settings.accounts)
        self.login = authenticator.Authenticator(
            self._accounts(tuple(sources)))
        self.sessions = sessions.Sessions(
            self.login, self.state, settings.session_timeout)
        self.events = dispatcher.EventDispatcher(
            cluster, self.state, threads, settings.events, settings.allows)
        times = 1 if cluster.vm else SEVERAL
        self.consoles = server_threads.Slots(times * MAX_CONSOLES)
        self.uploads = server_threads.Slots(times * MAX_UPLOADS)
        self.login.refused.append(self.events.login_failed)
        if self.accounts is not None:
            account_events.AccountEvents(self.accounts, self.state,
                                         self.events.emit)

    def start(self) -> None:
        """Start watching for events; idempotent."""
        if self.accounts is not None and self._own_threads is not None:
            # Changes of accounts by other processes must be seen at once. A
            # process with many BMCs has no thread for the watch of each.
            self.state.start()
        self.events.start()

    def _accounts(self, sources):
        """Return `login_accounts.LoginAccounts`; None if none are configured.
        """
        if not sources:
            return None
        found = account_files.Accounts(sources)
        try:
            found.require()
        except account_files.Invalid as exc:
            raise errors.ConfigError(
                'The accounts cannot be used, so every login would be '
                f'refused:\n{exc}') from None
        if self.settings.account_management:
            self.accounts = accounts.Accounts(self.state, found.current)
        return login_accounts.LoginAccounts(found, self.accounts)

    def close(self) -> None:
        """End all threads and streams."""
        self.state.close()
        self.login.close()
        self.events.close()
        if self._own_threads is not None:
            self._own_threads.close()
