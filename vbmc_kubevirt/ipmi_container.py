# SPDX-License-Identifier: Apache-2.0
"""IPMI container of a BMC pod: one VM, probes and metrics.

Combines a `bmc_server.BmcServer` with the credentials of a mounted Secret
and the HTTP port for probes. `cmd.ipmi` reads the settings.
"""

import asyncio
from concurrent import futures
import dataclasses
import logging
import signal

from sushy_kubevirt.machine import options
from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import prometheus
from vbmc_kubevirt import bmc_server
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt.ipmi import udp
from vbmc_kubevirt import metrics
from vbmc_kubevirt import mounted_secret

LOG = logging.getLogger(__name__)

#: Threads for commands that read from the cluster, and for commands that
#: change the VM. One writer suffices: changes of a VM are serialised.
READERS, WRITERS = 4, 1

#: Seconds to wait for the pong in the liveness probe, whose timeout is 5 s.
PING_SECONDS = 3

#: Seconds to complete running commands after SIGTERM. The pod's grace period
#: is 10 s.
GRACE_SECONDS = 7


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the container.

    :ivar vm: 'namespace/name'
    :ivar folder: path of the mounted Secret
    :ivar address: address to listen on
    :ivar port: UDP port; 0 for a free one
    :ivar client_port: UDP port that clients use; 0 for ``port``
    :ivar health_port: TCP port; 0 for a free one
    :ivar machine_options: `options.Options`
    :ivar account_management: whether clients may create accounts
    """

    vm: str
    folder: str
    address: str
    port: int
    client_port: int
    health_port: int
    machine_options: options.Options
    account_management: bool = True


class IpmiContainer:
    """BMC of one VM with probes and metrics.

    :param settings: `Settings`
    """

    def __init__(self, settings):
        self._settings = settings
        self._account = mounted_secret.MountedAccount(settings.folder)
        self._server = bmc_server.BmcServer(
            bmc_server.SharedConnection(None, None),
            settings.machine_options, settings.vm, settings.vm,
            bmc_users.BmcUsers(self._account.users,
                               settings.account_management))
        self._port = settings.port
        self._readers = futures.ThreadPoolExecutor(READERS, 'reader')
        self._writers = futures.ThreadPoolExecutor(WRITERS, 'writer')

    async def serve(self):
        """Serve until SIGTERM or SIGINT.

        :raises: OSError if a port cannot be opened
        """
        stop_requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in signal.SIGTERM, signal.SIGINT:
            loop.add_signal_handler(signum, stop_requested.set)
        sock = udp.open_socket(self._settings.address, self._settings.port)
        self._port = sock.getsockname()[1]
        self._server.start(sock, self._readers, self._writers,
                           self._settings.client_port)
        # Log an unusable Secret at start, not at the first login.
        self._account.users()
        probes = health.Server(
            self._settings.address, self._settings.health_port,
            self.liveness_problem, self.readiness_problem,
            lambda: prometheus.text(metrics.of(self._server)))
        probes.start()
        watch = asyncio.create_task(self._server.watch(self._readers))
        LOG.info('%s: IPMI on %s, UDP port %d; probes and metrics on TCP '
                 'port %d', self._settings.vm, self._settings.address,
                 self._port, probes.port)
        await stop_requested.wait()
        watch.cancel()
        await self._server.server.finish(GRACE_SECONDS)
        probes.close()
        self._server.close()
        LOG.info('%s: IPMI stopped', self._settings.vm)

    # Probes; called in the thread of `health`

    def liveness_problem(self):
        """:returns: why the process must be restarted; '' if it is healthy"""
        if not udp.answers_ping(self._settings.address, self._port,
                                PING_SECONDS):
            return (f'No answer to a ping on UDP port {self._port} within '
                    f'{PING_SECONDS} s')
        return ''

    def readiness_problem(self):
        """:returns: why the BMC cannot serve requests; '' if it can"""
        problem = self.liveness_problem() or self._account.problem
        if problem:
            return problem
        cluster = self._server.cluster
        if cluster is None:
            return (self._server.bmc.last_error
                    or 'Not connected to the Kubernetes API yet')
        return cluster.watch_problem
