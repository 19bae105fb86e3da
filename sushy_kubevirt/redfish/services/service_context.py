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
from sushy_kubevirt.redfish.services import sessions
from sushy_kubevirt.redfish.services import workers

#: Maximum number of open consoles, and of images that are uploaded, of one
#: account of a service of one VM; each BMC of a process with many has its own.
#: KubeVirt serves one client of each device. Consoles of an account take at
#: most a quarter of the connections of a pod's smallest HTTP server.
MAX_CONSOLES, MAX_UPLOADS = 8, 4

#: How many times as much a service of several VMs has.
SEVERAL = 4


class Services:
    """The services of an emulator.

    :param config: mapping, the content of sushy-emulator's config file
    :param settings: the `settings.Settings` made of it
    :param cluster: the `cluster.Cluster` with the VMs
    :param group: a `workers.Workers`, or one BMC's part of a
        `workers.OneProcess`; None to make the former
    :param sources: sources of accounts, like `account_files.Source`; None for
        the files and folders of the settings
    :raises: `errors.ConfigError` if the accounts or the shared directory
        cannot be used
    """

    def __init__(self, config, settings, cluster, group=None,
                 sources=None) -> None:
        self.settings = settings
        # A process with many BMCs has no thread for the watch of each.
        self._watches_state = group is None
        group = group or workers.Workers(config)
        self.folder = group.folder
        self.worker_messages = group.messages
        cluster.recent_writes = group.recent_writes
        #: Held while a conditional change is compared and carried out.
        self.change_locks = group.change_locks
        self.state = state_secret.StateSecret(
            cluster,
            state_secret.location(cluster, settings.state_secret),
            self.worker_messages,
        )
        #: `accounts.Accounts` that clients manage; None if this is disabled.
        self.accounts = None
        if sources is None:
            sources = [account_files.Source(path, self.folder.path.name)
                       for path in settings.accounts]
        self.login = authenticator.Authenticator(self._accounts(sources))
        self.sessions = sessions.Sessions(
            self.folder, self.login, self.state, settings.session_timeout)
        self.events = dispatcher.EventDispatcher(
            cluster,
            self.state,
            group,
            settings.events,
            settings.allows,
        )
        times = 1 if cluster.vm else SEVERAL
        self.consoles = server_threads.Slots(times * MAX_CONSOLES)
        self.uploads = server_threads.Slots(times * MAX_UPLOADS)
        self.login.refused.append(self.events.login_failed)
        if self.accounts is not None:
            account_events.AccountEvents(self.accounts, self.state,
                                         self.events.observe)

    def start(self) -> None:
        """Start exchanging messages and watching for events; idempotent."""
        if self._watches_state:
            self.folder.make()
        self.worker_messages.start()
        if self.accounts is not None and self._watches_state:
            # Changes of accounts by other processes must be seen at once.
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
        self.state.close()
        self.login.close()
        self.events.close()
        self.worker_messages.close()
        self.folder.close()
