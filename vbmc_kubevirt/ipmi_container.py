# SPDX-License-Identifier: Apache-2.0
"""The process of a pod's container that serves IPMI for one VM.

No daemon, no config file, no control port: what `bmc_server` joins, with the
account of a mounted Secret, and a port that tells whether all is well. What
the operator says to it is in `cmd.pod`.
"""

import asyncio
from concurrent import futures
import dataclasses
import logging
import signal

from sushy_kubevirt.machine import options as options_
from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import prometheus
from vbmc_kubevirt import bmc_server
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import ping
from vbmc_kubevirt.ipmi import udp_port
from vbmc_kubevirt import metrics
from vbmc_kubevirt import mounted_secret

LOG = logging.getLogger(__name__)

#: Threads that ask the cluster, and that change something. Only one command
#: at a time changes a VM.
READERS, WRITERS = 4, 1

#: Seconds that a pong may take. A probe waits for 5.
PING_SECONDS = 3

#: Seconds that commands have to be finished when this is told to end. The
#: pod has 10.
GRACE_SECONDS = 7


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the operator says.

    :ivar vm: 'namespace/name'
    :ivar folder: where the Secret is mounted
    :ivar address: to listen on
    :ivar port: UDP; 0 for a free one
    :ivar health_port: TCP; 0 for a free one
    :ivar options: `options.Options`
    """

    vm: str
    folder: str
    address: str
    port: int
    health_port: int
    options: options_.Options


class Pod:
    """One VM's BMC.

    :param settings: `Settings`
    """

    def __init__(self, settings):
        self._settings = settings
        self._account = mounted_secret.Account(
            settings.folder, (constants.USERNAME_MAX, constants.PASSWORD_MAX))
        self._entry = bmc_server.Entry(
            bmc_server.Link(None, None), settings.options,
            settings.vm, settings.vm, self._account.current)
        self._port = settings.port
        self._readers = futures.ThreadPoolExecutor(READERS, 'reader')
        self._writers = futures.ThreadPoolExecutor(WRITERS, 'writer')

    async def serve(self):
        """Serve until a signal says that it is enough.

        :raises: OSError if a port cannot be had
        """
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in signal.SIGTERM, signal.SIGINT:
            loop.add_signal_handler(signum, told.set)
        sock = udp_port.open_socket(
            self._settings.address,
            self._settings.port)
        self._port = sock.getsockname()[1]
        self._entry.start(sock, self._readers, self._writers)
        # Once, so that a Secret that cannot be used is told of at once.
        self._account.current()
        probes = health.Server(
            self._settings.address, self._settings.health_port,
            self.dead, self.unready,
            lambda: prometheus.text(metrics.of(self._entry)))
        probes.start()
        watch = asyncio.create_task(self._entry.watch(self._readers))
        LOG.info('%s: IPMI on %s, UDP port %d; probes and metrics on TCP '
                 'port %d', self._settings.vm, self._settings.address,
                 self._port, probes.port)
        await told.wait()
        watch.cancel()
        await self._entry.server.finish(GRACE_SECONDS)
        probes.close()
        self._entry.close()
        LOG.info('%s: ended', self._settings.vm)

    # For probes; in the thread of `health`

    def dead(self):
        """What is wrong with this process; '' if nothing is."""
        if not ping.answered(self._settings.address, self._port,
                             PING_SECONDS):
            return ('No answer to a ping on UDP port %d within %d s'
                    % (self._port, PING_SECONDS))
        return ''

    def unready(self):
        """Why nobody should be sent here; '' if all is well."""
        problem = self.dead() or self._account.problem
        if problem:
            return problem
        cluster = self._entry.cluster
        if cluster is None:
            return self._entry.bmc.problem or 'There is no watch yet'
        return cluster.watch_problem
