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

from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import redfish_probe

LOG = logging.getLogger(__name__)

#: Maximum number of connections of a service for several VMs.
MAX_CONNECTIONS = 512


class RedfishService:
    """Redfish of one BMC.

    :param app: sushy-emulator's application with the kubevirt driver
    :param http_port: TCP port of HTTP beside HTTPS, 0 for a free one; None for
        none
    :raises: OSError if a port or the certificate cannot be used
    :ivar address: the pod's IP address
    :ivar url: base URL of the service
    """

    def __init__(self, app, http_port=None) -> None:
        self._app = app
        config = app.config
        self.address = config.get('SUSHY_EMULATOR_LISTEN_IP') or '0.0.0.0'
        cert = config.get('SUSHY_EMULATOR_SSL_CERT')
        key = config.get('SUSHY_EMULATOR_SSL_KEY')
        tls = certificate.Certificate(cert, key) if cert and key else None
        most = (MAX_CONNECTIONS if app.systems.only is None
                else http_server.MAX_CONNECTIONS)
        options = {'find': app.sushy_kubevirt.responses.find}
        listen = listen_address(self.address)
        self._servers = [http_server.Server(
            listen, config.get('SUSHY_EMULATOR_LISTEN_PORT', 8000), app, tls,
            most, **options)]
        if http_port is not None and tls is not None:
            # HTTP beside HTTPS.
            self._servers.append(http_server.Server(
                listen, http_port, app, max_connections=most // 2,
                **options))
        self._probes = [redfish_probe.Probe(
            self.address, one.port, one.tls,
            functools.partial(setattr, one, 'probe_port'))
            for one in self._servers]
        self._metrics = metrics.Metrics(app, lambda: sum(
            one.connections for one in self._servers))
        self.url = self._url(self._servers[0])
        for one in self._servers[1:]:
            LOG.info('Redfish without TLS on %s', self._url(one))

    def _url(self, server) -> str:
        host = f'[{self.address}]' if ':' in self.address else self.address
        return f"{'https' if server.tls else 'http'}://{host}:{server.port}"

    @property
    def settings(self):
        """The `settings.Settings` of the application."""
        return self._app.systems.settings

    @property
    def cluster(self):
        """The `cluster.Cluster` with the VM."""
        return self._app.systems.cluster

    @property
    def services(self):
        """The `service_context.Services` of the application."""
        return self._app.sushy_kubevirt.services

    async def run(self) -> None:
        """Serve until `stop`, then complete running requests."""
        await asyncio.gather(*(one.run() for one in self._servers))

    def stop(self) -> None:
        """Make `run` return; thread-safe."""
        for one in self._servers:
            one.stop()

    def close(self) -> None:
        """Stop watches and threads; may block."""
        self._app.sushy_kubevirt.close()

    # Probes and metrics; called in the thread of `health`

    def liveness_problem(self):
        """:returns: why the process must be restarted; '' if it is healthy"""
        return _first(probe.live() for probe in self._probes)

    def readiness_problem(self):
        """:returns: why Redfish is not ready, a sentence; '' if it is"""
        login = self.services.login
        if login.required and not login.configured():
            return (
                'No login is possible: no usable account in '
                f'{", ".join(self.settings.accounts)}; correct the Secret '
                'that is mounted there.')
        return (_first(probe.ready() for probe in self._probes)
                or self.cluster.watch_problem)

    def metrics(self):
        """:returns: tuple of `prometheus.Counter` and `prometheus.Gauge`"""
        return self._metrics.all


def listen_address(address):
    """Choose the address to listen on: in a pod, all of its addresses.

    ``kubectl port-forward`` connects to a pod's loopback address. In the
    sandbox, pods are processes of one machine, each with a loopback address
    of its own, and listen on that one only.

    :param address: configured IP address
    :returns: IP address; for that of a pod the wildcard address, unless it is
        a loopback one
    """
    found = ipaddress.ip_address(address)
    if found.is_loopback or address != os.environ.get('POD_IP'):
        return address
    return '0.0.0.0' if found.version == 4 else '::'


def _first(problems):
    return next(filter(None, problems), '')
