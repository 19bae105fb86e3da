# SPDX-License-Identifier: Apache-2.0
"""The sushy-tools system driver: Redfish words to machine words and back.

Everything that reaches a VM passes `KubeVirtDriver.machine`, so what that
does not hand out cannot be reached on any route. The driver holds no state
of its own and knows nothing of HTTP; the routes this project owns
(`sushy_kubevirt.redfish`) ask it for machines, the others use the methods of
`AbstractSystemsDriver`.
"""

import contextlib
import uuid

from sushy_tools.emulator.resources.systems import base
from sushy_tools import error

from sushy_kubevirt.emulator import settings
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.redfish.resources import inventory


@contextlib.contextmanager
def translated():
    """Raise what goes wrong as upstream's errors.

    The cause stays with them: the error handler answers that one.
    """
    try:
        yield
    except errors.MachineNotFound as exc:
        raise error.NotFound(str(exc)) from exc
    except errors.Unsupported as exc:
        raise error.NotSupportedError(str(exc)) from exc
    except (errors.WrongState, errors.AmbiguousName,
            errors.Rejected) as exc:
        raise error.Conflict(str(exc)) from exc
    except errors.InvalidValue as exc:
        raise error.BadRequest(str(exc)) from exc
    except errors.MediaUnreachable as exc:
        raise error.FishyError(
            str(exc), code=502 if exc.kind == 'server' else 400) from exc
    except errors.Unavailable as exc:
        raise error.FishyError(str(exc), code=503) from exc
    except errors.MachineError as exc:
        raise error.FishyError(str(exc)) from exc


def _enum(kind, property, value):
    """The member of an enum, or the error that says which there are."""
    try:
        return kind(value)
    except ValueError:
        raise errors.InvalidValue(property, value, tuple(kind)) from None


class KubeVirtDriver(base.AbstractSystemsDriver):
    """KubeVirt VirtualMachines as Redfish systems."""

    @classmethod
    def initialize(cls, config, logger):
        """Take sushy-emulator's configuration.

        :returns: the class; calling it makes the driver
        """
        super().initialize(config, logger)
        return cls

    def __init__(self, machines=None):
        """Make the driver. Nothing is asked of the cluster yet.

        :param machines: a `cluster.Cluster`, for tests; None makes the one
            the configuration describes
        :raises: `settings.InvalidSettings`, `errors.ConfigError`
        """
        self.settings = settings.read(self._config)
        self._place = ()
        self.cluster = machines or self._connect()

    def _connect(self):
        wanted = self.settings
        way = connection.Connection.from_options(
            kubeconfig=wanted.kubeconfig, context=wanted.context)
        access = way.access()
        self._place = (access.server, access.ca)
        namespaces = wanted.namespaces
        if namespaces is None:
            namespaces = (way.namespace or 'default',)
        return cluster.Cluster(
            way, namespaces=namespaces,
            label_selector=wanted.label_selector, options=wanted.machine,
            vm=wanted.vm)

    @property
    def uuid_of_service(self):
        """What tells this service from others, and stays as it is.

        Made of the cluster and of the part of it that is served, so that
        all workers and those that come after them have the same.
        """
        wanted = self.settings
        return str(uuid.uuid5(uuid.NAMESPACE_URL, repr((
            'sushy-kubevirt', *self._place, wanted.namespaces,
            wanted.label_selector, wanted.vm))))

    def start(self):
        """Begin to serve: see `cluster.Cluster.start`."""
        self.cluster.start()

    def close(self):
        self.cluster.close()

    # Finding machines

    def machines(self):
        """The machines that may be reached.

        :returns: list of `machine.Machine`, by namespace and name
        """
        return [machine for machine in self.cluster.machines()
                if self.settings.allows(machine)]

    def machine(self, identity):
        """Find a machine that may be reached.

        One that may not is answered like one that is not there.

        :param identity: UUID, name, 'namespace/name' or 'namespace:name'
            (a slash cannot stand in a segment of a path as it is)
        :raises: `errors.MachineNotFound`, `errors.AmbiguousName`
        """
        wanted = identity.replace(':', '/', 1)
        try:
            machine = self.cluster.machine(
                wanted, patient=self.settings.allowed is None)
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
    def only(self):
        """The identity of the machine that alone may be reached, or None.

        Not of one that has no others beside it just now.
        """
        return self.settings.vm

    def _choose(self, identity, candidates):
        """Of several machines, the one that may be reached."""
        found = []
        for candidate in candidates:
            with contextlib.suppress(errors.MachineNotFound):
                machine = self.cluster.machine(candidate, patient=False)
                if self.settings.allows(machine):
                    found.append(machine)
        if not found:
            raise errors.MachineNotFound(identity)
        if len(found) > 1:
            raise errors.AmbiguousName(
                identity, [machine.qualified_name for machine in found])
        return found[0]

    @contextlib.contextmanager
    def _at(self, identity):
        """The machine of an identity, errors translated."""
        with translated():
            yield self.machine(identity)

    # AbstractSystemsDriver, sushy-tools 2.2.0

    @property
    def driver(self):
        """:returns: driver information as `str`"""
        return '<kubevirt>'

    @property
    def systems(self):
        """:returns: list of UUIDs of the systems that may be reached"""
        with translated():
            return [machine.uuid for machine in self.machines()]

    def uuid(self, identity):
        """The UUID of a system.

        :raises: `error.AliasAccessError` with the UUID when asked by a name
        """
        with self._at(identity) as machine:
            if identity.lower() != machine.uuid:
                raise error.AliasAccessError(machine.uuid)
            return machine.uuid

    def name(self, identity):
        """The name of a system, without its namespace."""
        with self._at(identity) as machine:
            return machine.name

    def get_power_state(self, identity):
        """:returns: a value of Redfish's PowerState"""
        with self._at(identity) as machine:
            return machine.power_state().value

    def set_power_state(self, identity, state):
        """:param state: a value of Redfish's ResetType"""
        with self._at(identity) as machine:
            machine.reset(_enum(power_state.ResetType, 'ResetType', state))

    def get_boot_device(self, identity):
        """:returns: a value of BootSourceOverrideTarget"""
        with self._at(identity) as machine:
            return machine.boot().target.value

    def set_boot_device(self, identity, boot_source):
        """Boot from this class of devices first, until told otherwise."""
        with self._at(identity) as machine:
            machine.set_boot(target=_enum(
                boot.Target, 'BootSourceOverrideTarget', boot_source))

    def get_boot_mode(self, identity):
        """:returns: 'UEFI' or 'Legacy'"""
        with self._at(identity) as machine:
            return machine.boot().mode.value

    def set_boot_mode(self, identity, boot_mode):
        """:param boot_mode: 'UEFI' or 'Legacy'"""
        with self._at(identity) as machine:
            machine.set_boot(mode=_enum(
                boot.Mode, 'BootSourceOverrideMode', boot_mode))

    def get_secure_boot(self, identity):
        """:returns: whether the next start uses UEFI Secure Boot"""
        with self._at(identity) as machine:
            return machine.secure_boot()

    def set_secure_boot(self, identity, secure):
        """:param secure: bool"""
        with self._at(identity) as machine:
            machine.set_secure_boot(secure)

    def get_total_memory(self, identity):
        """:returns: memory in GiB, an `int` when it is a whole number"""
        with self._at(identity) as machine:
            return inventory.gib(machine.inventory().memory_bytes)

    def get_total_cpus(self, identity):
        """:returns: number of vCPUs the guest sees"""
        with self._at(identity) as machine:
            return machine.inventory().cpus.total

    def get_processors(self, identity):
        """:returns: list of dicts, one a socket"""
        with self._at(identity) as machine:
            cpus = machine.inventory().cpus
            return [{'id': name, 'socket': name,
                     # KubeVirt does not tell whose processor it is.
                     'vendor': 'N/A', 'model': cpus.model or 'N/A',
                     'cores': cpus.cores,
                     'threads': cpus.cores * cpus.threads}
                    for name in inventory.socket_names(cpus)]

    def get_nics(self, identity):
        """:returns: list of dicts; ``mac`` is '' until KubeVirt made it"""
        with self._at(identity) as machine:
            return [{'id': nic.name, 'mac': nic.mac}
                    for nic in machine.inventory().nics]

    def get_simple_storage_collection(self, identity):
        """:returns: dict of controllers, one a bus, with their disks"""
        with self._at(identity) as machine:
            return {
                bus: {'Id': bus, 'Name': bus, 'DeviceList': [
                    {'Name': disk.name, 'CapacityBytes': disk.capacity_bytes}
                    for disk in disks]}
                for bus, disks in inventory.controllers(
                    machine.inventory()).items()}

    def get_bios(self, identity):
        """:returns: dict of the BIOS attributes kept on the VM"""
        with self._at(identity) as machine:
            return machine.attributes()

    def set_bios(self, identity, attributes):
        """:param attributes: dict of those to change"""
        with self._at(identity) as machine:
            machine.set_attributes(attributes)

    def reset_bios(self, identity):
        """Bring the BIOS attributes back to their defaults."""
        with self._at(identity) as machine:
            machine.reset_attributes()

    def get_versions(self, identity):
        """:returns: dict with BiosVersion"""
        with self._at(identity) as machine:
            return {'BiosVersion':
                    inventory.bios_version(machine.inventory())}

    # A VM's firmware comes with KubeVirt's images; its disks and media are
    # not this driver's. set_versions, reset_versions, get_boot_image,
    # set_boot_image, find_or_create_storage_volume and the HTTP boot URI
    # stay as the base class has them: NotSupportedError.
