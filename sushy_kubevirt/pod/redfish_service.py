# SPDX-License-Identifier: Apache-2.0
"""Redfish of one BMC, or of all VMs: servers, probes and metrics.

Serves sushy-emulator's application with `http_server`. The process that runs
it, its signals and its port for probes are `vbmc_kubevirt.bmc_pod`'s.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import os
import typing

from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import redfish_probe

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import cluster as clusters
    from sushy_kubevirt.pod import prometheus
    from sushy_kubevirt.redfish.services import service_context
    from sushy_kubevirt.redfish.services import settings as settings_

LOG = logging.getLogger(__name__)

#: Maximum number of connections of a service for several VMs.
MAX_CONNECTIONS = 512


class RedfishService:
    """Redfish of one BMC.

    :param http_port: TCP port of HTTP beside HTTPS, 0 for a free one; None for
        none
    :raises: OSError if a port or the certificate cannot be used
    :ivar address: the pod's IP address
    :ivar url: base URL of the service
    """

    def __init__(self, app: metrics.Application,
                 http_port: int | None = None) -> None:
        self._app = app
        config = app.config
        self.address: str = config.get('SUSHY_EMULATOR_LISTEN_IP') or '0.0.0.0'
        cert = config.get('SUSHY_EMULATOR_SSL_CERT')
        key = config.get('SUSHY_EMULATOR_SSL_KEY')
        tls = certificate.Certificate(cert, key) if cert and key else None
        most = (MAX_CONNECTIONS if app.systems.only is None
                else http_server.MAX_CONNECTIONS)
        listen = listen_address(self.address)
        counter = metrics.Requests()
        find = app.sushy_kubevirt.responses.find
        self._servers = [http_server.Server(
            listen, config.get('SUSHY_EMULATOR_LISTEN_PORT', 8000), app, tls,
            most, find, counter.count)]
        if http_port is not None and tls is not None:
            # HTTP beside HTTPS.
            self._servers.append(http_server.Server(
                listen, http_port, app, max_connections=most // 2,
                find=find, count=counter.count))
        self._probes = [redfish_probe.Probe(
            self.address, server.port, server.tls,
            functools.partial(setattr, server, 'probe_port'))
            for server in self._servers]
        self._metrics: tuple[prometheus.Metric, ...] = (
            counter, *metrics.gauges(
                [app.sushy_kubevirt.services],
                lambda: sum(server.connections for server in self._servers)))
        self.url = self._url(self._servers[0])
        for server in self._servers[1:]:
            LOG.info('Redfish without TLS on %s', self._url(server))

    def _url(self, server: http_server.Server) -> str:
        host = f'[{self.address}]' if ':' in self.address else self.address
        return f"{'https' if server.tls else 'http'}://{host}:{server.port}"

    @property
    def settings(self) -> settings_.Settings:
        """Settings of the application."""
        return self._app.systems.settings

    @property
    def cluster(self) -> clusters.Cluster:
        """The cluster with the VM."""
        return self._app.systems.cluster

    @property
    def services(self) -> service_context.Services:
        """Services of the application."""
        return self._app.sushy_kubevirt.services

    async def run(self) -> None:
        """Serve until `stop`, then complete running requests."""
        await asyncio.gather(*(server.run() for server in self._servers))

    def stop(self) -> None:
        """Make `run` return; thread-safe."""
        for server in self._servers:
            server.stop()

    def close(self) -> None:
        """Stop watches and threads; may block."""
        self._app.sushy_kubevirt.close()

    # Probes and metrics; called in the thread of `health`

    def liveness_problem(self) -> str:
        """Return why the process must be restarted; '' if it is healthy."""
        return health.first(probe.live() for probe in self._probes)

    def readiness_problem(self) -> str:
        """Return why Redfish is not ready, a sentence; '' if it is."""
        login = self.services.login
        if login.required and not login.configured():
            return (
                'No login is possible: no usable account in '
                f'{", ".join(self.settings.accounts)}; correct the Secret '
                'that is mounted there.')
        return (health.first(probe.ready() for probe in self._probes)
                or self.cluster.cache.problem)

    def metrics(self) -> tuple[prometheus.Metric, ...]:
        """Return the metrics of Redfish."""
        return self._metrics


def listen_address(address: str) -> str:
    """Choose the address to listen on.

    A pod's own address becomes the wildcard address, as ``kubectl
    port-forward`` connects to the pod's loopback address. A loopback address
    is for this machine only, and stays as it is.

    :param address: configured IP address
    """
    ip = ipaddress.ip_address(address)
    if ip.is_loopback or address != os.environ.get('POD_IP'):
        return address
    return '0.0.0.0' if ip.version == 4 else '::'
