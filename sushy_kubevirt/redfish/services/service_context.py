# SPDX-License-Identifier: Apache-2.0
"""Creates and connects the services of an emulator.

There is one instance of `Services` per process.
"""

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import authenticator
from sushy_kubevirt.redfish.services.events import account_events
from sushy_kubevirt.redfish.services.events import dispatcher
from sushy_kubevirt.redfish.services import login_accounts
from sushy_kubevirt.redfish.services import sessions
from sushy_kubevirt.redfish.services import shared_directory
from sushy_kubevirt.redfish.services import worker_locks
from sushy_kubevirt.redfish.services import worker_messages
from sushy_kubevirt.redfish.services import written_versions


class Services:
    """The services of an emulator.

    :param config: mapping, the content of sushy-emulator's config file
    :param settings: the `settings.Settings` made of it
    :param cluster: the `cluster.Cluster` with the VMs
    :raises: `errors.ConfigError` if the accounts or the shared directory
        cannot be used
    """

    def __init__(self, config, settings, cluster):
        self.settings = settings
        self.folder = shared_directory.SharedDirectory(config)
        self.folder.make()
        self.worker_messages = worker_messages.WorkerMessages(self.folder.path)
        cluster.recent_writes = written_versions.WrittenVersions(
            self.folder.path)
        #: Held while a conditional change is compared and carried out.
        self.change_locks = worker_locks.WorkerLocks(self.folder.path)
        self.state = state_secret.StateSecret(
            cluster,
            state_secret.location(cluster, settings.state_secret),
            self.worker_messages,
        )
        #: `accounts.Accounts` that clients manage; None if this is disabled.
        self.accounts = None
        self.login = authenticator.Authenticator(self._accounts())
        self.sessions = sessions.Sessions(
            self.folder, self.login, self.state, settings.session_timeout)
        self.events = dispatcher.EventDispatcher(
            cluster,
            self.state,
            self.worker_messages,
            self.folder,
            settings.events,
            settings.allows,
        )
        self.login.refused.append(self.events.login_failed)
        if self.accounts is not None:
            account_events.AccountEvents(self.accounts, self.state,
                                         self.events.observe)

    def start(self):
        """Start exchanging messages and watching for events; idempotent."""
        self.folder.make()
        self.worker_messages.start()
        if self.accounts is not None:
            # Changes of accounts by other processes must be seen at once.
            self.state.start()
        self.events.start()

    def _accounts(self):
        """Return `login_accounts.LoginAccounts`; None if none are configured.
        """
        sources = [account_files.Source(path, self.folder.path.name)
                   for path in self.settings.accounts]
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

    def close(self):
        self.state.close()
        self.login.close()
        self.events.close()
        self.worker_messages.close()
        self.folder.close()
