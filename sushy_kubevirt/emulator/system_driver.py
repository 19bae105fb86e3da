# SPDX-License-Identifier: Apache-2.0
"""The system driver: which VirtualMachines sushy-emulator serves.

The entry point ``kubevirt`` of ``sushy_tools.emulator.systems`` names it. The
views of `sushy_kubevirt.redfish` take machines from it; every access to a VM
passes `KubeVirtDriver.machine`, so a VM that it refuses cannot be reached on
any route. The driver holds no state besides the cluster and knows nothing of
HTTP.

sushy-tools' views, which would call the methods of `AbstractSystemsDriver`,
are all replaced (`redfish.routes`). Those methods raise NotSupportedError.
"""

from __future__ import annotations

from collections import abc
import contextlib
import logging
import typing
import uuid

from sushy_tools.emulator.resources.systems import base
from sushy_tools import error

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine as machine_
    from sushy_kubevirt.redfish.services import settings as service_settings


class KubeVirtDriver(base.AbstractSystemsDriver):
    """KubeVirt VirtualMachines as Redfish systems."""

    @classmethod
    def initialize(cls, config: abc.Mapping[str, typing.Any],
                   logger: logging.Logger) -> type[typing.Self]:
        """Store sushy-emulator's configuration.

        :param config: the config file's options
        :param logger: the application's
        :returns: the class; calling it creates the driver
        """
        super().initialize(config, logger)
        return cls

    def __init__(self, machines: cluster.Cluster | None = None,
                 given: service_settings.Settings | None = None,
                 access: connection.Access | None = None) -> None:
        """Create the driver without calling the cluster's API.

        :param machines: None creates what the configuration describes
        :param given: None reads the configuration
        :param access: that of ``machines``
        :raises: `settings.InvalidSettings`, `errors.ConfigError`
        """
        self.settings = given or settings.read(self._config)
        self._api_server: tuple[str | None, ...] = (
            (access.server, access.ca) if access else ())
        self.cluster = machines or self._connect()

    def _connect(self) -> cluster.Cluster:
        scope = self.settings
        api = connection.Connection.from_options(
            kubeconfig=scope.kubeconfig, context=scope.context)
        access = api.access()
        self._api_server = (access.server, access.ca)
        namespaces = scope.namespaces
        if namespaces is None:
            namespaces = (api.namespace or 'default',)
        return cluster.Cluster(
            api, namespaces=namespaces,
            label_selector=scope.label_selector, options=scope.machine,
            vm=scope.vm)

    @property
    def uuid_of_service(self) -> str:
        """The UUID of the Redfish service (``ServiceRoot.UUID``).

        Derived from the cluster and the scope that is served, so that a
        restart does not change it.
        """
        scope = self.settings
        return str(uuid.uuid5(uuid.NAMESPACE_URL, repr((
            'sushy-kubevirt', *self._api_server, scope.namespaces,
            scope.label_selector, scope.vm))))

    # Finding machines

    def machines(self) -> abc.Sequence[machine_.Machine]:
        """List the machines that clients may access.

        :returns: sorted by namespace and name; see `cluster.Cluster.machines`
        """
        machines = self.cluster.machines()
        if self.settings.allowed is None:
            return machines
        return list(filter(self.settings.allows, machines))

    def machine(self, identity: str) -> machine_.Machine:
        """Look up a machine that clients may access.

        A machine outside SUSHY_EMULATOR_ALLOWED_INSTANCES is treated like
        one that does not exist.

        :param identity: UUID, name, 'namespace/name' or 'namespace:name'
            (a URL path segment cannot hold a plain slash)
        :raises: `errors.MachineNotFound`, `errors.AmbiguousName`
        """
        try:
            machine = self.cluster.machine(
                identity.replace(':', '/', 1),
                wait=self.settings.allowed is None)
        except errors.MachineNotFound:
            raise errors.MachineNotFound(identity) from None
        except errors.AmbiguousName as exc:
            return self._choose(identity, exc.candidates)
        if not self.settings.allows(machine):
            self._logger.warning('Access to %s denied: it is not in %s',
                                 machine.qualified_name, settings.ALLOWED)
            raise errors.MachineNotFound(identity)
        return machine

    @property
    def only(self) -> str | None:
        """The identity of the VM of a single-VM service, else None.

        Set by SUSHY_EMULATOR_KUBEVIRT_VM. A scope that happens to hold one VM
        at the moment does not count.
        """
        return self.settings.vm

    def _choose(self, identity: str, candidates: abc.Iterable[str]
                ) -> machine_.Machine:
        """Return the only accessible machine among several of one name.

        :param candidates: of 'namespace/name'
        :raises: `errors.MachineNotFound` if none is accessible,
            `errors.AmbiguousName` if several are
        """
        accessible = []
        for candidate in candidates:
            with contextlib.suppress(errors.MachineNotFound):
                machine = self.cluster.machine(candidate, wait=False)
                if self.settings.allows(machine):
                    accessible.append(machine)
        if not accessible:
            raise errors.MachineNotFound(identity)
        if len(accessible) > 1:
            raise errors.AmbiguousName(
                identity, [machine.qualified_name for machine in accessible])
        return accessible[0]

    # AbstractSystemsDriver, sushy-tools 2.2.0

    @property
    def driver(self) -> str:
        """Return the name of the driver, for sushy-emulator's log."""
        return '<kubevirt>'

    def _unsupported(self, *_args: object) -> typing.NoReturn:
        """Refuse a call of a view that this project does not replace.

        :raises: `error.NotSupportedError`, which Redfish answers with 501
        """
        raise error.NotSupportedError(
            'sushy-kubevirt does not support this route of sushy-tools')

    # The abstract methods; the base class refuses the others alike.
    systems = property(_unsupported)
    uuid = name = _unsupported
    get_power_state = set_power_state = _unsupported
    get_boot_device = set_boot_device = _unsupported
