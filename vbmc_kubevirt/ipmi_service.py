# SPDX-License-Identifier: Apache-2.0
"""IPMI of one BMC: server, probes and metrics.

Combines a `bmc.Bmc` with the credentials of a Secret. The process
that runs it, its signals and its port for probes are `bmc_pod`'s.
"""

from __future__ import annotations

import asyncio
from concurrent import futures
import functools
import logging
import typing

from sushy_kubevirt.pod import prometheus
from vbmc_kubevirt import backends
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import session20
from vbmc_kubevirt.ipmi import udp
from vbmc_kubevirt import metrics
from vbmc_kubevirt import mounted_secret

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import cluster
    from sushy_kubevirt.machine import options
    from sushy_kubevirt.pod import redfish_service

LOG = logging.getLogger(__name__)

#: Threads for commands that read from the cluster, and for commands that
#: change the VM. One writer suffices: changes of a VM are serialised.
READERS, WRITERS = 4, 1

#: Seconds to wait for the pong in the liveness probe, whose timeout is 5 s.
PING_SECONDS = 3

#: Seconds to complete running commands after SIGTERM. The pod's grace period
#: is 10 s.
GRACE_SECONDS = 7

#: Seconds from the start until a thread loads what logins and commands need,
#: if none has come until then. Before that, it would take the processor from
#: the first answers of both protocols.
LOAD_SECONDS = 1


class Settings(typing.NamedTuple):
    """Settings of IPMI.

    :ivar vm: 'namespace/name'
    :ivar folder: path of the mounted Secret
    :ivar address: address to listen on
    :ivar port: UDP port; 0 for a free one
    :ivar client_port: UDP port that clients use; 0 for ``port``
    :ivar account_management: whether clients may create accounts
    """

    vm: str
    folder: str
    address: str
    port: int
    client_port: int
    machine_options: options.Options
    account_management: bool = True


Cluster: typing.TypeAlias = 'cluster.Cluster'


def _connect(settings: Settings,
             redfish: redfish_service.RedfishService | None
             ) -> backends.Backend:
    """Make what the commands work on; may block."""
    if redfish is None:
        return backends.OwnBackend(
            backends.SharedConnection(None, None), settings.machine_options,
            settings.vm)
    services = redfish.services
    return backends.SharedBackend(
        redfish.cluster, services.state, services.events.log,
        services.accounts, constants.CLUSTER_DEADLINES)


def _load() -> None:
    """Load what the first login and the first command need.

    In a thread, as AES of pycryptodomex starts a process when it is loaded.
    The use of an attribute loads a module, see `lazy_modules`. No assert,
    which images leave out.
    """
    _ = session20.AES.block_size, command_table.GROUPS


class IpmiService:
    """IPMI of one BMC.

    :param redfish: of the same VM; None without
    :raises: OSError if the port cannot be opened
    :ivar address: address that it listens on
    :ivar port: UDP port
    """

    def __init__(self, settings: Settings,
                 redfish: redfish_service.RedfishService | None) -> None:
        self._settings = settings
        self._account = mounted_secret.MountedAccount(settings.folder)
        self._readers = futures.ThreadPoolExecutor(READERS, 'reader')
        self._bmc = bmc.Bmc(
            lambda bmc: command_table.commands(bmc),
            functools.partial(_connect, settings, redfish), settings.vm,
            settings.vm,
            bmc_users.BmcUsers(
                self._account.users, settings.account_management),
            self._readers, futures.ThreadPoolExecutor(WRITERS, 'writer'))
        self._stopped = asyncio.Event()
        self._socket = udp.open_socket(settings.address, settings.port)
        self.address = settings.address
        self.port = self._socket.getsockname()[1]

    @property
    def cluster(self) -> Cluster | None:
        """None before the connection is made."""
        return self._bmc.cluster

    async def run(self) -> None:
        """Serve until `stop`, then complete running commands."""
        self._bmc.start(self._socket, self._settings.client_port)
        # Log an unusable Secret at start, not at the first login.
        self._account.users()
        watch = asyncio.create_task(self._bmc.watch(self._readers))
        loading = asyncio.get_running_loop().call_later(
            LOAD_SECONDS, self._readers.submit, _load)
        await self._stopped.wait()
        watch.cancel()
        loading.cancel()
        await self._bmc.server.finish(GRACE_SECONDS)
        LOG.info('%s: IPMI stopped', self._settings.vm)

    def stop(self) -> None:
        """Make `run` return; call it in the event loop."""
        self._stopped.set()

    def close(self) -> None:
        """Stop the watches; may block."""
        self._bmc.close()

    # Probes and metrics; called in the thread of `health`

    def liveness_problem(self) -> str:
        """Return why the process must be restarted; '' if it is healthy."""
        if not udp.answers_ping(self.address, self.port, PING_SECONDS):
            return (f'No answer to a ping on UDP port {self.port} within '
                    f'{PING_SECONDS} s')
        return ''

    def readiness_problem(self) -> str:
        """Return why the BMC cannot serve requests; '' if it can."""
        problem = self.liveness_problem() or self._account.problem
        if problem:
            return problem
        if self.cluster is None:
            return (self._bmc.last_error
                    or 'Not connected to the Kubernetes API yet')
        return self.cluster.cache.problem

    def metrics(self) -> list[prometheus.Metric]:
        """Return the metrics of IPMI."""
        return metrics.of([self._bmc.server])
