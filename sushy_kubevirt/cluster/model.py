# SPDX-License-Identifier: Apache-2.0
"""What a cluster file declares, checked and complete.

`config` makes these objects of a file; everything else in this package reads
them. Sizes are text as Kubernetes has it (``2Gi``), unless a unit is named.
All are immutable, and equal if they declare the same.
"""

from __future__ import annotations

import dataclasses
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


@dataclasses.dataclass(frozen=True)
class Volume:
    """A disk of a node.

    :param capacity: quantity of bytes, such as ``2G``; None for the size of
        its source
    :param source: one of ``blank``, ``http``, ``registry``, ``claim``,
        ``clone``
    :param location: URL (http, registry), or name, or namespace/name (claim,
        clone) of the source; '' for blank. ``claim`` uses an existing claim,
        whose name may contain ``{index}``, the node's index, and ``{node}``,
        its name.
    :param storage_class: name, or None for the cluster's default
    :param access_mode: such as ``ReadWriteOnce``; None for CDI's choice
    :param volume_mode: ``Block``, ``Filesystem`` or None for CDI's choice
    :param bus: ``virtio``, ``sata``, ``scsi``, ``usb`` or None for KubeVirt's
        default
    :param ephemeral: whether it is an ``emptyDisk``, which loses its content
        when the VM is stopped; blank only
    """

    capacity: str | None
    source: str = 'blank'
    location: str = ''
    storage_class: str | None = None
    access_mode: str | None = None
    volume_mode: str | None = None
    bus: str | None = None
    ephemeral: bool = False


@dataclasses.dataclass(frozen=True)
class Network:
    """A physical network.

    :param name: in the file, and ``physical_network`` of Ironic's ports
    :param attachment: NetworkAttachmentDefinition that VMs are connected to,
        as name or namespace/name; None for the pod network
    :param config: CNI configuration of a definition that is created and
        deleted with the cluster; None if it exists. If its ``type`` is
        ``bridge`` and ``bridge`` is missing, that is `identity.bridge_name`,
        which depends on the namespace.
    :param shared: whether clusters of one namespace use one created
        definition, which the last of them deletes; otherwise it is this
        cluster's own
    :param switch_id: MAC address, ``switch_id`` of local link information
    :param switch_info: likewise, the name of the switch
    :param switch_options: the switch's options for networking-generic-switch
    """

    name: str
    attachment: str | None = None
    config: objects.Json | None = None
    shared: bool = False
    switch_id: str = '00:00:00:00:00:00'
    switch_info: str = ''
    switch_options: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where VMs run, in Kubernetes' terms.

    :param node_selector: labels and their values
    :param tolerations: as in a pod
    :param affinity: merged into that of the VM
    :param spread: label of nodes over whose values VMs of the cluster are
        spread; None to leave it to the scheduler
    :param spread_required: whether a VM waits rather than exceed a difference
        of one
    :param dedicated_cpus: whether each vCPU has a CPU of its own
    :param huge_pages: size, such as ``2Mi``; None for none
    :param numa: whether the guest has the NUMA topology of its host; needs
        dedicated CPUs and huge pages
    """

    node_selector: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[objects.Json, ...] = ()
    affinity: objects.Json = dataclasses.field(default_factory=dict)
    spread: str | None = 'kubernetes.io/hostname'
    spread_required: bool = False
    dedicated_cpus: bool = False
    huge_pages: str | None = None
    numa: bool = False


@dataclasses.dataclass(frozen=True)
class NodeType:
    """The hardware of nodes.

    :param name: in the file
    :param vcpus: None with an instance type
    :param memory_mb: MiB; None with an instance type
    :param networks: names of `Cluster.networks`, in order of the interfaces
    :param driver: Ironic's hardware type: ``redfish``, ``ipmi``, ``snmp``
    :param boot_mode: ``uefi`` or ``bios``
    :param secure_boot: whether UEFI's secure boot is on
    :param tpm: None, ``ephemeral`` or ``persistent``
    :param console_log: whether KubeVirt logs the serial console; None for the
        cluster's default
    :param instancetype: KubeVirt's matcher with ``name`` and ``kind``; None
        without
    :param preference: likewise
    :param vm: is merged into the VirtualMachine (RFC 7386)
    :param bmc: is merged into the ``spec`` of the VirtualMachineBMC
    """

    name: str
    vcpus: int | None = None
    memory_mb: int | None = None
    volumes: tuple[Volume, ...] = ()
    networks: tuple[str, ...] = ()
    driver: str = 'ipmi'
    boot_mode: str = 'uefi'
    secure_boot: bool = False
    tpm: str | None = None
    console_log: bool | None = None
    instancetype: dict[str, str] | None = None
    preference: dict[str, str] | None = None
    placement: Placement = Placement()
    vm: objects.Json = dataclasses.field(default_factory=dict)
    bmc: objects.Json = dataclasses.field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """KubeVirt's name of the architecture; 'amd64' if ``vm`` has none."""
        value: typing.Any = self.vm
        for key in 'spec', 'template', 'spec', 'architecture':
            value = value.get(key) if isinstance(value, dict) else None
        return value if value and isinstance(value, str) else 'amd64'


@dataclasses.dataclass(frozen=True)
class IronicConfig:
    """How nodes are enrolled.

    :param properties: merged over what follows from the type
    :param capabilities: merged over what follows from the type
    :param interfaces: ``boot_interface`` and the like; those that are left out
        are Ironic's default
    :param attributes: other attributes of a node: ``conductor_group``,
        ``shard``, ``owner``, ``lessee``, ``description``, ``extra``
    :param deploy_kernel: URL, or Glance's name or UUID; None for none
    :param deploy_ramdisk: likewise
    :param port_group: ``mode`` and ``properties``; None without
    :param pxe_networks: names of the networks whose ports have ``pxe_enabled``
        true; None for all
    :param verify: whether Ironic verifies the BMC's certificate
    :param ca_file: path at Ironic's conductors of the CA's certificates; None
        to verify by those that they trust
    :param inspect: whether nodes are inspected before they are provided
    :param provide: whether nodes are made available; otherwise manageable
    """

    resource_class: str
    traits: tuple[str, ...] = ()
    properties: objects.Json = dataclasses.field(default_factory=dict)
    capabilities: dict[str, str] = dataclasses.field(default_factory=dict)
    interfaces: dict[str, str] = dataclasses.field(default_factory=dict)
    attributes: objects.Json = dataclasses.field(default_factory=dict)
    deploy_kernel: str | None = None
    deploy_ramdisk: str | None = None
    port_group: objects.Json | None = None
    pxe_networks: tuple[str, ...] | None = None
    verify: bool = True
    ca_file: str | None = None
    inspect: bool = False
    provide: bool = True


@dataclasses.dataclass(frozen=True)
class Interface:
    """A network interface of a node.

    :param name: of the interface and network in the VM
    :param mac: MAC address, which depends on the cluster, the node and the
        network only
    """

    name: str
    network: Network
    mac: str


@dataclasses.dataclass(frozen=True)
class Outlet:
    """A power outlet, by SNMP v2c.

    :param address: of its PDU: IPv4 address or name
    :param port: likewise, of UDP
    :param community: likewise
    :param number: from 1
    """

    address: str
    port: int
    community: str = dataclasses.field(repr=False)
    number: int


@dataclasses.dataclass(frozen=True)
class Node:
    """One machine.

    :param name: of VM, VirtualMachineBMC and Ironic node
    :param index: its number among those with the same prefix, from 0
    :param volume_names: names of the volumes of its type
    :param ironic: None if it is not enrolled
    :param outlet: of an enrolled one with the driver ``snmp``, else None
    """

    name: str
    index: int
    type: NodeType
    interfaces: tuple[Interface, ...] = ()
    volume_names: tuple[str, ...] = ()
    ironic: IronicConfig | None = None
    outlet: Outlet | None = None


@dataclasses.dataclass(frozen=True)
class Flavor:
    """A Nova flavor.

    :param name: of the flavor
    :param resource_class: of Ironic nodes
    :param type: whose size it shows
    :param custom_specs: extra specs besides those of the other parameters
    """

    name: str
    resource_class: str
    type: NodeType
    required_traits: tuple[str, ...] = ()
    forbidden_traits: tuple[str, ...] = ()
    custom_specs: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A whole file.

    :param name: of the cluster, a label's value
    :param namespace: of its objects; None for that of the kubeconfig's context
    :param types: by name
    :param networks: by name
    :param nodes: in the order of the file
    :param credentials: generation of the BMCs' passwords; another number
        rotates them
    :param wait_for_placement: whether enrolling waits until Placement has the
        nodes' resources
    :param warnings: about keys that have no effect here
    """

    name: str
    namespace: str | None = None
    types: dict[str, NodeType] = dataclasses.field(default_factory=dict)
    networks: dict[str, Network] = dataclasses.field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    flavors: tuple[Flavor, ...] = ()
    credentials: int = 0
    wait_for_placement: bool = True
    warnings: tuple[str, ...] = ()
