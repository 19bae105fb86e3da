# SPDX-License-Identifier: Apache-2.0
"""The services of one emulator, made and put together.

One instance a process. What they are is in the modules of this package; this
one knows what each of them needs of the others.
"""

from sushy_kubevirt.kube import errors
from sushy_kubevirt.services import accounts
from sushy_kubevirt.services import bus
from sushy_kubevirt.services import credentials
from sushy_kubevirt.services.events import hub
from sushy_kubevirt.services import local
from sushy_kubevirt.services import sessions
from sushy_kubevirt.services import state
from sushy_kubevirt.services import writes


class Services:
    """Services for the VMs of a cluster.

    :param config: mapping with what sushy-emulator's config file set
    :param settings: the `settings.Settings` made of it
    :param cluster: a `cluster.Cluster`
    :raises: `errors.ConfigError` if accounts or folder cannot be used
    """

    def __init__(self, config, settings, cluster):
        self.settings = settings
        self.folder = local.Folder(config)
        self.folder.make()
        self.bus = bus.Bus(self.folder.path)
        cluster.writes = writes.Writes(self.folder.path)
        self.state = state.State(
            cluster, state.place(cluster, settings.state_secret), self.bus)
        self.login = accounts.Login(self._accounts())
        self.sessions = sessions.Sessions(
            self.folder, self.login, self.state, settings.session_timeout)
        self.events = hub.Events(cluster, self.state, self.bus, self.folder,
                                 settings.events, settings.allows)
        self.login.refused.append(self.events.login_failed)

    def start(self):
        """Begin to serve: what happens is told from now on.

        Again, it changes nothing; a child process has to start anew.
        """
        self.bus.start()
        self.events.start()

    def _accounts(self):
        """:returns: `credentials.Accounts`; None if none are configured"""
        sources = [credentials.Source(path, self.folder.path.name)
                   for path in self.settings.accounts]
        if not sources:
            return None
        found = credentials.Accounts(sources)
        try:
            found.require()
        except credentials.Invalid as exc:
            raise errors.ConfigError(
                'The accounts cannot be used, so nobody could log in:\n%s'
                % exc) from None
        return found

    def close(self):
        self.events.close()
        self.bus.close()
        self.folder.close()
