# SPDX-License-Identifier: Apache-2.0
"""One BMC of a process that serves many.

It has ports, a certificate, accounts, sessions, subscriptions and a state
Secret of its own, and a `cluster.Cluster` that is restricted to its VM. What
it shares with other BMCs is in `Common`.
"""

from __future__ import annotations

import asyncio
from collections import abc
from concurrent import futures
import dataclasses
import os
import socket
import typing

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.emulator import settings
from sushy_kubevirt.emulator import system_driver
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import fairness
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import options_file
from sushy_kubevirt.pod import secret_values
from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import service_context
from sushy_kubevirt.redfish.services import service_threads
from vbmc_kubevirt import backends
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import udp
from vbmc_kubevirt import ipmi_service
from vbmc_kubevirt import mounted_secret

#: Ports of the BMC in slot 0: Redfish, HTTP beside HTTPS, IPMI. The slot is
#: added to them.
REDFISH_PORT, HTTP_PORT, IPMI_PORT = 10000, 20000, 30000

#: IPMI datagrams of a BMC read before those of others, and seconds until the
#: next are read then.
READ_MAX, READ_SECONDS = 8, 0.001


class Problem(Exception):
    """The BMC cannot be served; the text says why, and has no secret."""


@dataclasses.dataclass(frozen=True)
class Common:
    """What all BMCs of the process share.

    :param app: sushy-emulator's application after `plugin.prepare`
    :param readers: executor of IPMI commands that read
    :param writers: executor of IPMI commands that change a VM
    :param address: IP address to listen on
    :param requests: counts Redfish's responses
    """

    shared: cluster.SharedCluster
    app: metrics.Application
    threads: service_threads.ServiceThreads
    readers: futures.Executor
    writers: futures.Executor
    address: str
    requests: metrics.Requests


class SharedBmc:
    """One BMC.

    :param name: of the BMC
    :param entry: its value in the membership ConfigMap, decoded
    """

    def __init__(self, common: Common, name: str,
                 entry: objects.Json) -> None:
        self.name = name
        self._common = common
        self.entry = entry
        self._auth = self._secret(entry['auth']['secret'])
        tls = (entry['redfish'] or {}).get('tls')
        self._tls = tls and self._secret(tls['secret'])
        self._certificate: certificate.CertificateInMemory | None = None
        self._account = mounted_secret.SecretAccount(self._auth)
        self._source = account_files.SecretSource(self._auth)
        # These three are set by `prepare`.
        self._cluster: cluster.Cluster | None = None
        self._services: service_context.Services | None = None
        self._app: metrics.Application
        # Set by `start`, if the BMC has IPMI.
        self._ipmi: bmc.Bmc | None = None
        self._socket: socket.socket
        self._watch: asyncio.Task[None] | None = None
        self._fairness = fairness.Fairness()
        self._servers: list[http_server.Server] = []
        self._serving: list[asyncio.Task[None]] = []

    def _secret(self, name: str) -> secret_values.SecretValues:
        shared = self._common.shared
        return secret_values.SecretValues(
            shared.client, shared.namespaces[0], name)

    # Start and stop

    def prepare(self) -> None:
        """Read the Secrets and make what the servers need; may block.

        :raises: `Problem`
        """
        try:
            self._read(self._auth)
            if self._tls is not None:
                self._read(self._tls)
                self._certificate = certificate.CertificateInMemory(self._tls)
            self._make()
        except (settings.InvalidSettings, errors.MachineError, OSError) as exc:
            raise Problem(_sentence(exc)) from None

    @staticmethod
    def _read(secret: secret_values.SecretValues) -> None:
        try:
            secret.read()
        except errors.MachineError as exc:
            raise Problem(f'Secret {secret} cannot be read: '
                          f'{_sentence(exc)}') from None

    def _make(self) -> None:
        common, entry = self._common, self.entry
        folder = os.environ.get(options_file.FOLDER_VARIABLE,
                                options_file.FOLDER)
        # Those of an older operator are among the options.
        config = {'SUSHY_EMULATOR_KUBEVIRT_OPTION_NAMES':
                  entry.get('option_names'),
                  **options_file.check(entry['options'], folder),
                  'SUSHY_EMULATOR_KUBEVIRT_VM': entry['vm']}
        given = settings.read(config)
        self._cluster = cluster.Cluster(
            common.shared.connection, options=given.machine, vm=entry['vm'],
            shared=common.shared)
        self._services = service_context.Services(
            given, self._cluster, common.threads, [self._source])
        driver = system_driver.KubeVirtDriver(
            self._cluster, given, common.shared.connection.access())
        self._app = plugin.clone(common.app, config, driver, self._services)

    def start(self) -> None:
        """Open the ports and serve; call it in the event loop.

        :raises: `Problem`
        """
        machines, services = self._cluster, self._services
        assert machines is not None and services is not None    # prepared
        try:
            self._open(machines, services)
        except OSError as exc:
            raise Problem(_sentence(exc)) from None
        machines.start()
        if self._servers:
            services.start()
        self._serving = [asyncio.create_task(http.run())
                         for http in self._servers]
        if self._ipmi is not None:
            self._ipmi.start(self._socket, self.entry['ipmi']['port'])
            self._watch = asyncio.create_task(
                self._ipmi.watch(self._common.readers))

    def _open(self, machines: cluster.Cluster,
              services: service_context.Services) -> None:
        entry, slot = self.entry, self.entry['slot']
        if entry['redfish'] is not None:
            self._serve(REDFISH_PORT + slot, self._certificate)
            if self._certificate is not None and entry['redfish']['http']:
                self._serve(HTTP_PORT + slot, None)
        if entry['ipmi'] is not None:
            self._socket = udp.open_socket(self._common.address,
                                           IPMI_PORT + slot)
            backend = backends.SharedBackend(
                machines, services.state, services.events.log,
                # Without Redfish nothing else logs their changes.
                services.accounts if self._servers else None,
                constants.CLUSTER_DEADLINES)
            self._ipmi = bmc.Bmc(
                command_table.commands, lambda: backend, self.name,
                entry['vm'], bmc_users.BmcUsers(
                    self._account.users, entry['account_management']),
                self._common.readers, self._common.writers)
            self._ipmi.server.read_max = READ_MAX
            self._ipmi.server.read_pause = READ_SECONDS

    def _serve(self, port: int,
               tls: certificate.CertificateInMemory | None) -> None:
        try:
            self._servers.append(http_server.Server(
                self._common.address, port, self._app, tls,
                find=self._app.sushy_kubevirt.responses.find,
                count=self._common.requests.count,
                fairness=self._fairness))
        except OSError as exc:
            raise OSError(exc.errno, f'TCP port {port}: {exc.strerror}'
                          ) from None

    async def stop(self) -> None:
        """Complete running requests and commands, then stop."""
        for http in self._servers:
            http.stop()
        ending: list[abc.Awaitable[None]] = list(self._serving)
        if self._ipmi is not None and self._watch is not None:
            self._watch.cancel()
            ending.append(self._ipmi.server.finish(
                ipmi_service.GRACE_SECONDS))
        elif self._ipmi is not None:
            self._socket.close()
        await asyncio.gather(*ending, return_exceptions=True)
        if not self._serving:
            for http in self._servers:
                http.socket.close()

    def close(self) -> None:
        """Release what `prepare` has made; may block."""
        if self._services is not None:
            self._services.close()
        if self._cluster is not None:
            self._cluster.close()

    # Changes while it is served

    def renew(self, entry: objects.Json) -> None:
        """Read changed Secrets again, without an interruption; may block.

        :param entry: differs from the present one in the versions
            of Secrets only
        :raises: `Problem`
        """
        self._read(self._auth)
        if self._tls is not None:
            self._read(self._tls)
        self.entry = entry
        _accounts, problems = self._source.read()
        if problems:
            raise Problem(problems[0])

    def problem(self) -> str:
        """Tell why present Secrets cannot be used; call it in the loop.

        :returns: a sentence; '' if they can
        """
        problem = self._account.problem if self.entry['ipmi'] else ''
        if not problem and self._certificate is not None:
            problem = self._certificate.problem
        return problem

    # For metrics

    @property
    def connections(self) -> int:
        """Number of open connections of Redfish's clients."""
        return sum(http.connections for http in self._servers)

    @property
    def services(self) -> service_context.Services | None:
        """None before `prepare`."""
        return self._services

    @property
    def ipmi(self) -> server.Server | None:
        """None without IPMI."""
        return None if self._ipmi is None else self._ipmi.server


def differs_by_secrets_only(entry: objects.Json,
                            other: objects.Json) -> bool:
    """Tell whether two entries differ in the versions of Secrets only."""
    return _without_versions(entry) == _without_versions(other)


def _without_versions(value: typing.Any) -> typing.Any:
    if isinstance(value, dict):
        return {key: _without_versions(part) for key, part in value.items()
                if key != 'version'}
    return value


def _sentence(exc: Exception) -> str:
    return ' '.join(str(exc.strerror if isinstance(exc, OSError)
                        and exc.strerror else exc).split())
