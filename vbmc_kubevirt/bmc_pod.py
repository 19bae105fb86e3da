# SPDX-License-Identifier: Apache-2.0
"""The process of a BMC's pod: its protocols, and probes and metrics of all.

One event loop serves both protocols. They share the cluster with its watches,
the Secret with the BMC's state, its accounts and its log, so each sees at once
what the other has changed.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import prometheus

LOG = logging.getLogger(__name__)


class BmcPod:
    """The BMC of one VM, with one or both protocols.

    :param redfish: a `redfish_service.RedfishService`, or None
    :param ipmi: function that returns an `ipmi_service.IpmiService`, called in
        the event loop; None without IPMI, whose modules take 3 MiB
    :param address: IP address of the port for probes
    :param health_port: TCP port for probes and metrics; 0 for a free one
    """

    def __init__(self, redfish, ipmi, address, health_port) -> None:
        self._redfish = redfish
        self._ipmi = ipmi
        self._services = [] if redfish is None else [redfish]
        self._health = health.Server(
            address, health_port, self.liveness_problem,
            self.readiness_problem, self.metrics)

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT, then complete what is running.

        :raises: OSError if a port cannot be opened
        """
        stop_requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in signal.SIGTERM, signal.SIGINT:
            loop.add_signal_handler(signum, stop_requested.set)
        where = []
        if self._redfish is not None:
            where.append(f'Redfish on {self._redfish.url}')
        if self._ipmi is not None:
            ipmi = self._ipmi()
            self._services.append(ipmi)
            where.append(f'IPMI on {ipmi.address}, UDP port {ipmi.port}')
        self._health.start()
        LOG.info('%s; probes and metrics on %s', '; '.join(where),
                 self._health.url)
        running = [asyncio.create_task(one.run()) for one in self._services]
        await stop_requested.wait()
        for one in self._services:
            one.stop()
        await asyncio.gather(*running)
        self._health.close()
        for one in reversed(self._services):
            one.close()

    # Probes and metrics; called in the thread of `health`

    def liveness_problem(self):
        """:returns: why the process must be restarted; '' if it is healthy"""
        return _first(one.liveness_problem() for one in self._services)

    def readiness_problem(self):
        """:returns: why the BMC is not ready, a sentence; '' if it is"""
        return _first(one.readiness_problem() for one in self._services)

    def metrics(self):
        """:returns: bytes, in Prometheus' text format"""
        found = [metric for one in self._services for metric in one.metrics()]
        cluster = self._services[0].cluster
        if cluster is not None:
            found += prometheus.cluster(cluster)
        return prometheus.text(found + prometheus.process())


def _first(problems):
    return next(filter(None, problems), '')
