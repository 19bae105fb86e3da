# SPDX-License-Identifier: Apache-2.0
"""KubeVirt as a whole: kinds, webhooks, controllers and guests."""

import asyncio
import dataclasses
import functools

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import config
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import guest_routes
from kubevirt_sandbox.kubevirt import kubevirt_kinds
from kubevirt_sandbox.kubevirt import kubevirt_roles
from kubevirt_sandbox.kubevirt import network_attachments
from kubevirt_sandbox.kubevirt import nodes
from kubevirt_sandbox.kubevirt import samples
from kubevirt_sandbox.kubevirt import subresources
from kubevirt_sandbox.kubevirt import vm_controller
from kubevirt_sandbox.kubevirt import vmi_controller
from kubevirt_sandbox.scheduling import scheduler

DEFAULT_GATES = ('DeclarativeHotplugVolumes', 'RebootPolicy')
DEFAULT_VERSION = 'v1.9.0'
DEFAULT_BOOT_SECONDS = 0.2


@dataclasses.dataclass
class Options:
    """Options of KubeVirt.

    :param boot_seconds: seconds a machine takes to start.
    :param vms: number of sample machines to create.
    :param gates: names of the feature gates that are on; of
        :data:`DEFAULT_GATES` those that are not named are off.
    :param version: the version of KubeVirt that the cluster claims to have.
    :param qemu: the :class:`sandbox.qemu.settings.Settings` of guests that
        are real; None for simulated ones.
    :param lag: maximum delay of each reconciliation in seconds.
    :param deploying: whether KubeVirt's operator goes on deploying, although
        all works.
    """

    boot_seconds: float = DEFAULT_BOOT_SECONDS
    vms: int = 0
    gates: tuple[str, ...] = DEFAULT_GATES
    version: str = DEFAULT_VERSION
    qemu: object = None
    lag: float = 0
    deploying: bool = False


_READY = 'AllComponentsReady', 'All components are ready.'
_DEPLOYING = ('DeploymentInProgress',
              'Deploying version {} with registry quay.io/kubevirt')

#: By whether KubeVirt is being deployed: conditions of the KubeVirt object,
#: as (type, status, reason, message).
_CONDITIONS = {
    False: (('Available', True, *_READY), ('Progressing', False, *_READY),
            ('Degraded', False, *_READY),
            ('Created', True, 'AllResourcesCreated',
             'All resources were created.')),
    True: (('Available', False, *_DEPLOYING),
           ('Progressing', True, *_DEPLOYING),
           ('Degraded', False, *_DEPLOYING))}


def _status(version, deploying):
    """Return the status of the KubeVirt object, without conditions."""
    status = {'phase': 'Deploying' if deploying else 'Deployed',
              'operatorVersion': version, 'targetKubeVirtVersion': version,
              'targetKubeVirtRegistry': 'quay.io/kubevirt',
              'defaultArchitecture': 'amd64',
              'outdatedVirtualMachineInstanceWorkloads': 0}
    if not deploying:
        # Written when all components are ready.
        status.update(observedKubeVirtVersion=version,
                      observedKubeVirtRegistry='quay.io/kubevirt',
                      observedGeneration=1)
    return status


class ControlPlane:
    """KubeVirt in an API server.

    :param server: the :class:`sandbox.api.server.Server`; kinds and routes
        are registered at once.
    :param options: anything with the attributes of :class:`Options`; those
        that it lacks have their defaults.
    :param storage: storage of the claims' content, or None.
    """

    def __init__(self, server, options=None, storage=None):
        known = {f.name for f in dataclasses.fields(Options)}
        self._options = Options(**{
            name: getattr(options, name) for name in known
            if getattr(options, name, None) is not None})
        self._server = server
        self.store = server.store
        self.storage = storage
        self.config = config.ClusterConfig(self._kubevirt)
        self.kinds = kubevirt_kinds.build(self.config)
        for kind in self.kinds:
            server.register_kind(kind)
        for kind in self.kinds:
            if kind.group == kubevirt_kinds.GROUP:
                server.register_kind(kubevirt_kinds.older(kind))
        server.register_kind(network_attachments.KIND)
        self._parts = []
        kubevirt_roles.install(self.store)
        self._make_namespaces()
        self._describe()
        loop = asyncio.get_running_loop()
        recorder = events.Recorder(self.store)
        self.machines = vmi_controller.Controller(
            self.store, self.kinds.vmi, self.kinds.vm, recorder, loop,
            self._options.version, self._options.boot_seconds,
            server.provisioner, scheduler.of(server), server.quotas,
            self._options.qemu and self._qemu_guests(),
            self._options.lag)
        self._parts = [
            self.machines,
            vm_controller.Controller(self.store, self.kinds.vm,
                                     self.kinds.vmi, self.config, recorder,
                                     loop, self._options.lag)]
        subresources.install(server, self.kinds, self.config, self.machines,
                             self._options.version)
        guest_routes.Routes(self.store, self.kinds,
                            self.machines.guests).install(server)

    def _kubevirt(self):
        return self.store.find(self.kinds.kubevirt, config.NAMESPACE,
                               config.NAME)

    def _make_namespaces(self):
        try:
            self.store.create(core.NAMESPACE,
                              {'metadata': {'name': config.NAMESPACE}})
        except errors.ApiError as error:
            if error.code != 409:
                raise

    def _describe(self):
        """Create the KubeVirt object as its operator would."""
        gates = self._options.gates
        developer = {'featureGates': list(gates)}
        off = [gate for gate in DEFAULT_GATES if gate not in gates]
        if off:
            developer['disabledFeatureGates'] = off
        self.store.create(self.kinds.kubevirt, {
            'metadata': {'name': config.NAME, 'namespace': config.NAMESPACE},
            'spec': {'configuration': {'developerConfiguration': developer},
                     'imagePullPolicy': 'IfNotPresent'}})

        def change(kubevirt):
            kubevirt['status'] = _status(self._options.version,
                                         self._options.deploying)
            for kind, value, reason, message in _CONDITIONS[
                    self._options.deploying]:
                conditions.put(kubevirt, kind, value, reason, message.format(
                    self._options.version), probed=True)
        self.store.change(self.kinds.kubevirt, config.NAMESPACE, config.NAME,
                          change, subresource='status')

    def _qemu_guests(self):
        from kubevirt_sandbox.qemu import guests
        return functools.partial(guests.Guests, self._options.qemu,
                                 self.store, self.storage)

    async def start(self):
        """Make the nodes ready and the sample machines."""
        self._parts.append(nodes.Nodes(self.store))
        for number in range(self._options.vms):
            self.store.create(self.kinds.vm,
                              samples.sample_vm(f'vm-{number}'))
            if number % 20 == 19:
                await asyncio.sleep(0)

    async def stop(self):
        """End controllers and guests."""
        for part in reversed(self._parts):
            part.close()
