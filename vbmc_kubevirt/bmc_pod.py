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
import typing

from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import prometheus

if typing.TYPE_CHECKING:
    from sushy_kubevirt.pod import redfish_service
    from vbmc_kubevirt import ipmi_service

LOG = logging.getLogger(__name__)

#: A protocol of the BMC.
Service: typing.TypeAlias = (
    'redfish_service.RedfishService | ipmi_service.IpmiService')


class BmcPod:
    """The BMC of one VM, with one or both protocols.

    :param ipmi: None without IPMI, whose modules take 3 MiB
    :param address: IP address of the port for probes
    :param health_port: TCP port for probes and metrics; 0 for a free one
    """

    def __init__(self, redfish: redfish_service.RedfishService | None,
                 ipmi: ipmi_service.Settings | None,
                 address: str, health_port: int) -> None:
        self._redfish = redfish
        self._ipmi = ipmi
        self._services: list[Service] = [] if redfish is None else [redfish]
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
            from vbmc_kubevirt import ipmi_service
            ipmi = ipmi_service.IpmiService(self._ipmi, self._redfish)
            self._services.append(ipmi)
            where.append(f'IPMI on {ipmi.address}, UDP port {ipmi.port}')
        self._health.start()
        LOG.info('%s; probes and metrics on %s', '; '.join(where),
                 self._health.url)
        running = [asyncio.create_task(service.run())
                   for service in self._services]
        await stop_requested.wait()
        for service in self._services:
            service.stop()
        await asyncio.gather(*running)
        self._health.close()
        for service in reversed(self._services):
            service.close()

    # Probes and metrics; called in the thread of `health`

    def liveness_problem(self) -> str:
        """Return why the process must be restarted; '' if it is healthy."""
        return health.first(service.liveness_problem()
                            for service in self._services)

    def readiness_problem(self) -> str:
        """Return why the BMC is not ready, a sentence; '' if it is."""
        return health.first(service.readiness_problem()
                            for service in self._services)

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        metrics = [metric for service in self._services
                   for metric in service.metrics()]
        machines = self._services[0].cluster
        if machines is not None:
            metrics += prometheus.cluster(machines.client.calls,
                                          machines.cache.age)
        return prometheus.text(metrics + prometheus.process())
