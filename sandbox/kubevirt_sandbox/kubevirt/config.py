# SPDX-License-Identifier: Apache-2.0
"""Configuration of KubeVirt: feature gates and defaults.

Everything is read from the ``KubeVirt`` object at the moment it is asked
for, so a patch of that object takes effect at once.

Source: pkg/virt-config (KubeVirt 1.9).
"""

NAMESPACE = 'kubevirt'
NAME = 'kubevirt'

BETA = frozenset((
    'DeclarativeHotplugVolumes', 'DecentralizedLiveMigration',
    'ExternalNetResourceInjection', 'GPUsWithDRA', 'HostDevicesWithDRA',
    'ImageVolume', 'KubevirtSeccompProfile', 'NodeRestriction',
    'OptOutRoleAggregation', 'PasstBinding',
    'PodSecondaryInterfaceNamingUpgrade', 'RebootPolicy', 'Snapshot',
    'Template', 'WorkloadEncryptionSEV'))
"""Gates that are on unless switched off."""

GRADUATED = frozenset((
    'ExpandDisks', 'GPU', 'HotplugNICs', 'LiveMigration', 'LiveUpdateNADRef',
    'NUMA', 'PanicDevices', 'PersistentReservation', 'VMExport',
    'VMLiveUpdateFeatures', 'VMPersistentState', 'VideoConfig',
    'VolumeMigration', 'VolumesUpdateStrategy'))
"""Gates that are always on."""

_MACHINE_TYPES = {'amd64': 'q35', 'arm64': 'virt', 's390x': 's390-ccw-virtio'}
_EMULATED_MACHINES = {'amd64': ('q35*', 'pc-q35*'), 'arm64': ('virt*',),
                      's390x': ('s390-ccw-virtio*',)}


class ClusterConfig:
    """The cluster's configuration of KubeVirt.

    :param read: function that returns the KubeVirt object, or None.
    """

    def __init__(self, read):
        self._read = read

    def _configuration(self):
        return ((self._read() or {}).get('spec') or {}).get(
            'configuration') or {}

    @property
    def state(self) -> dict:
        """Return a value that is the same object until something changes."""
        return self._configuration()

    def enabled(self, gate):
        """Tell whether a feature gate is enabled."""
        developer = self._configuration().get('developerConfiguration') or {}
        if gate in GRADUATED or gate in (developer.get('featureGates') or ()):
            return True
        if gate in (developer.get('disabledFeatureGates') or ()):
            return False
        return gate in BETA

    @property
    def architecture(self):
        """Return the architecture of machines that specify none."""
        return 'amd64'

    def machine_type(self, architecture):
        """Return the machine type of machines that specify none."""
        own = self._configuration()
        per_arch = (own.get('architectureConfiguration') or {}).get(
            architecture) or {}
        return (per_arch.get('machineType') or own.get('machineType')
                or _MACHINE_TYPES.get(architecture, 'q35'))

    def emulated_machines(self, architecture):
        """Return the patterns of allowed machine types."""
        own = self._configuration()
        per_arch = (own.get('architectureConfiguration') or {}).get(
            architecture) or {}
        return tuple(per_arch.get('emulatedMachines')
                     or own.get('emulatedMachines')
                     or _EMULATED_MACHINES.get(architecture, ('q35*',)))

    @property
    def cpu_model(self):
        """Return the CPU model of VMs that specify none."""
        return self._configuration().get('cpuModel') or 'host-model'

    @property
    def eviction_strategy(self):
        """Return the eviction strategy of VMs that specify none, or None."""
        return self._configuration().get('evictionStrategy')

    @property
    def network_interface(self):
        """Return the binding of interfaces that KubeVirt adds."""
        network = self._configuration().get('network') or {}
        return network.get('defaultNetworkInterface') or 'bridge'

    @property
    def bridge_on_pod_network(self):
        """Tell whether the bridge binding is allowed on the pod network."""
        network = self._configuration().get('network') or {}
        return network.get('permitBridgeInterfaceOnPodNetwork', True)

    @property
    def live_update(self):
        """Tell whether changes are applied to running machines."""
        return (self._configuration().get('vmRolloutStrategy')
                or 'LiveUpdate') == 'LiveUpdate'

    def _live(self, key):
        return (self._configuration().get('liveUpdateConfiguration')
                or {}).get(key)

    @property
    def max_hotplug_ratio(self):
        """Return the ratio of maximum to initial sockets and memory."""
        return self._live('maxHotplugRatio') or 4

    @property
    def max_sockets(self):
        """Return the maximum number of CPU sockets; 0: not configured."""
        return self._live('maxCpuSockets') or 0

    @property
    def max_guest_memory(self):
        """Return the maximum guest memory as a quantity, or None."""
        return self._live('maxGuest')
