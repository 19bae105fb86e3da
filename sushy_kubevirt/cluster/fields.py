# SPDX-License-Identifier: Apache-2.0
"""Every key of a cluster file: a table.

`checks` holds a file against it, and ``tools/cluster_reference.py`` prints it.
In paths, ``*`` stands for a name that the user chooses and ``[]`` for the
items of a list.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import enum
import fnmatch
import functools
import typing


class Kind(enum.Enum):
    """What a value is. The text completes "has to be …"."""

    #: With the keys that the table has below its path.
    MAPPING = 'a mapping'
    #: Of names to mappings, the keys of which the table has below ``*``.
    NAMED_MAPPINGS = 'a mapping of names to mappings'
    #: Of mappings, the keys of which the table has below ``[]``.
    LIST = 'a list of mappings'
    TEXT = 'text'
    INTEGER = 'a whole number'
    BOOLEAN = 'true or false'
    #: A Kubernetes quantity after Tenks' units are translated.
    SIZE = 'a size, such as 2GiB'
    MAC = 'a MAC address, such as 52:54:00:00:00:01'
    TEXTS = 'a list of texts'
    TRAITS = 'a list of traits, such as CUSTOM_GOLD'
    TEXT_MAPPING = 'a mapping of texts'
    #: Of a Kubernetes object.
    NAME = 'the name of an object: lower-case letters, digits, - and .'
    LABEL = 'the name of a label, such as kubernetes.io/hostname'
    LABELS = 'a mapping of labels to their values'
    #: Passed on as it is.
    ANY_MAPPING = 'a mapping of anything'
    ANY_LIST = 'a list of mappings of anything'


class Origin(enum.Enum):
    """Whose key it is."""

    TENKS = 'Tenks'
    #: Tenks', without an effect here.
    IGNORED = 'Tenks, ignored'
    OWN = 'sushy-kubevirt'


@dataclasses.dataclass(frozen=True)
class Field:
    """One key.

    :param path: such as ``node_types.*.volumes[].capacity``; of an ignored
        one, the last key may be a pattern of `fnmatch`
    :param kind: None of an ignored one
    :param text: documentation, in reStructuredText
    :param default: value if it is not given; null in a file counts as such
    :param required: whether it has to be given
    :param least: smallest permitted number
    :param most: largest, or number of characters
    :param expressions: whether it may contain ``{{`` and ``{%``
    """

    path: str
    kind: Kind | None
    text: str
    origin: Origin = Origin.OWN
    default: object = None
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    expressions: bool = False

    @property
    def parent(self) -> str:
        """Path of the mapping that has the key; '' for the file."""
        return self.path.rpartition('.')[0]

    @property
    def name(self) -> str:
        """The key."""
        return self.path.rpartition('.')[2]


def _tenks(path: str, kind: Kind, text: str, **more: typing.Any) -> Field:
    return Field(path, kind, text, origin=Origin.TENKS, **more)


def _ignored(path: str, text: str) -> Field:
    return Field(path, None, text, origin=Origin.IGNORED)


#: Word for the pod network, where a NetworkAttachmentDefinition is named.
POD = 'pod'

#: Word for no topology to spread VMs over.
NO_SPREAD = 'none'

#: Interfaces of Ironic nodes, as of Ironic 39.
INTERFACES = tuple(f'{kind}_interface' for kind in (
    'bios', 'boot', 'console', 'deploy', 'firmware', 'inspect', 'management',
    'network', 'power', 'raid', 'rescue', 'storage', 'vendor'))

_DRIVERS = 'ipmi', 'redfish', 'snmp'
_BOOT_MODES = 'uefi', 'bios'
_KINDS = 'VirtualMachineCluster{0}', 'VirtualMachine{0}'

_CLUSTER = (
    Field('cluster', Kind.MAPPING, 'The cluster as a whole.', default={}),
    Field('cluster.name', Kind.TEXT,
          'Name of the cluster, lower-case letters, digits and hyphens. Give '
          'clusters that share a network or an Ironic different names, as MAC '
          'addresses follow from it. Without it, the name is that of the '
          'file, up to its first dot; files of the same name in one namespace '
          'are then the same cluster, whose nodes are those of the file that '
          'was applied last. Give a name where others use the namespace, too.',
          most=40),
    Field('cluster.namespace', Kind.TEXT,
          'Namespace of the VMs and BMCs. Without it, that of the '
          'kubeconfig\'s context.', most=63),
    Field('cluster.credentials_generation', Kind.INTEGER,
          'Change this number to give all BMCs new passwords.', default=0,
          least=0, most=2 ** 31 - 1),
    _tenks('node_name_prefix', Kind.TEXT,
           'Beginning of the names of nodes, followed by the number of the '
           'node among those with the same prefix, from 0. Without it, '
           '``tk`` as in Tenks; if the cluster is given a name, that and a '
           'hyphen.', most=60),
    _tenks('vol_name_prefix', Kind.TEXT,
           'Names of volumes are the name of the node, this, and the number '
           'of the volume, from 0.', default='vol', most=40),
    _tenks('default_ironic_driver', Kind.TEXT,
           'Ironic\'s hardware type of nodes, unless their type has another. '
           'For ``snmp``, see ``pdu``.',
           default='ipmi', choices=_DRIVERS),
    Field('pdu', Kind.MAPPING,
          'Where virtualpdu-kubevirt serves the outlets of nodes with the '
          'hardware type ``snmp``, as Ironic\'s conductors reach it. The '
          'nodes have the outlets 1 to 24 of the first PDU, and so on, in the '
          'order of the file; ``inventory --format virtualpdu`` prints the '
          'configuration of the PDUs. Ironic has this hardware type until '
          '35.1.0.', default={}),
    Field('pdu.address', Kind.TEXT,
          'IPv4 address or name. Required with such nodes.', most=253),
    Field('pdu.port', Kind.INTEGER,
          'UDP port of the first PDU. The next one has the port after it.',
          default=161, least=1, most=65535),
    Field('pdu.community', Kind.TEXT,
          'Community of SNMP v2c. Required with such nodes. It is stored in '
          'Ironic\'s nodes, where users who may read them see it.', most=255),
    _tenks('default_boot_mode', Kind.TEXT,
           'Firmware of VMs, unless their type has another.',
           default='uefi', choices=_BOOT_MODES),
    _tenks('deploy_kernel', Kind.TEXT,
           'Kernel of Ironic\'s deployment agent: an image in Glance, by name '
           'or UUID, or a URL.'),
    _tenks('deploy_ramdisk', Kind.TEXT, 'Its ramdisk, likewise.'),
    _tenks('wait_for_placement', Kind.BOOLEAN,
           'Whether to wait until Placement knows the resources of enrolled '
           'nodes. Set to false where there is no Placement.', default=True),
)

_NETWORKS = (
    _tenks('physnet_mappings', Kind.TEXT_MAPPING,
           'For each physical network, the NetworkAttachmentDefinition that '
           'VMs are connected to, as ``name`` or ``namespace/name``; '
           f'``{POD}`` for the pod network. Where Tenks has an interface or '
           'bridge of the hypervisor, this is the one value to change.',
           default={}),
    Field('networks', Kind.NAMED_MAPPINGS,
          'Physical networks by name: more about those of '
          '``physnet_mappings``, and others. One without an attachment is '
          'created, and deleted with the cluster.', default={}),
    Field('networks.*.attachment', Kind.TEXT,
          'As the value in ``physnet_mappings``, and instead of it.'),
    Field('networks.*.config', Kind.ANY_MAPPING,
          'CNI configuration of a network that is created. Without it, that '
          'of the bridge plugin, with a bridge for this network alone. Such a '
          'bridge connects the VMs of one Kubernetes node only. For several '
          'nodes, give a configuration that has an uplink.'),
    Field('networks.*.shared', Kind.BOOLEAN,
          'Whether all clusters of the namespace with a network of this name '
          'use one definition, named like the network, which the last of them '
          'deletes. Otherwise each cluster has its own.', default=False),
    Field('networks.*.node_selector', Kind.LABELS,
          'Labels of the Kubernetes nodes on which the network is available. '
          'VMs with an interface in it run on these only.', default={}),
    Field('networks.*.switch_id', Kind.MAC,
          '``switch_id`` in the local link information of Ironic\'s ports.',
          default='00:00:00:00:00:00'),
    Field('networks.*.switch_info', Kind.TEXT,
          '``switch_info`` in it, such as the name of the switch in '
          'networking-generic-switch. Without it, the name of the network.'),
    Field('networks.*.switch_options', Kind.TEXT_MAPPING,
          'Options of that switch for the command ``switch``, such as '
          '``device_type``, ``ip``, ``username`` and ``key_file``. Without '
          'it, the device is ``netmiko_fake``, which has no switch behind '
          'it.', default={}),
)

_TYPES = (
    _tenks('node_types', Kind.NAMED_MAPPINGS,
           'The types of nodes, by name.', default={}),
    _tenks('node_types.*.memory_mb', Kind.INTEGER,
           'Memory in MiB. Required, unless ``instancetype`` is given.',
           least=1, most=2 ** 31 - 1),
    _tenks('node_types.*.vcpus', Kind.INTEGER,
           'Number of virtual CPUs. Required, unless ``instancetype`` is '
           'given.', least=1, most=4096),
    _tenks('node_types.*.physical_networks', Kind.TEXTS,
           'Names of physical networks; the VM has an interface in each, in '
           'this order.', default=()),
    _tenks('node_types.*.ironic_driver', Kind.TEXT,
           'Ironic\'s hardware type. Without it, ``default_ironic_driver``.',
           choices=_DRIVERS),
    _tenks('node_types.*.console_log_enabled', Kind.BOOLEAN,
           'Whether KubeVirt writes the serial console to the log of the VM\'s'
           ' pod. Without it, as KubeVirt is configured.'),
    _tenks('node_types.*.volumes', Kind.LIST, 'Disks of the VM.', default=()),
    _tenks('node_types.*.volumes[].capacity', Kind.SIZE,
           'Size: a number of bytes, or a number and a unit, such as ``MB``, '
           'or ``GB`` for 10^9 bytes, and ``GiB`` for 2^30. As in Tenks, '
           '``G`` is ``GiB``, and so is ``Gi``. Required, unless ``claim`` or '
           '``clone`` is given.'),
    _tenks('node_types.*.volumes[].image', Kind.TEXT,
           'URL of the image with which the volume is filled: ``http://``, '
           '``https://``, or ``docker://`` for one in a registry. Without '
           '``image``, ``claim`` and ``clone``, the volume is blank.'),
    Field('node_types.*.volumes[].claim', Kind.TEXT,
          'Existing PersistentVolumeClaim of the namespace, which is used and '
          'not deleted. ``{node}`` in it is replaced by the name of the node '
          'and ``{index}`` by its number.'),
    Field('node_types.*.volumes[].clone', Kind.TEXT,
          'PersistentVolumeClaim of which each node has a copy, as ``name`` '
          'or ``namespace/name``.'),
    Field('node_types.*.volumes[].storage_class', Kind.NAME,
          'StorageClass. Without it, the default of the Kubernetes cluster.'),
    Field('node_types.*.volumes[].access_mode', Kind.TEXT,
          'Without it, CDI chooses.',
          choices=('ReadWriteOnce', 'ReadWriteMany', 'ReadWriteOncePod')),
    Field('node_types.*.volumes[].volume_mode', Kind.TEXT,
          'Without it, CDI chooses.', choices=('Block', 'Filesystem')),
    Field('node_types.*.volumes[].bus', Kind.TEXT,
          'Bus of the disk. Without it, KubeVirt chooses.',
          choices=('virtio', 'sata', 'scsi', 'usb')),
    Field('node_types.*.volumes[].ephemeral', Kind.BOOLEAN,
          'Whether the volume is empty again after each time that the VM was '
          'off. Blank volumes only; needs no storage class.', default=False),
    Field('node_types.*.boot_mode', Kind.TEXT,
          'Firmware. Without it, ``default_boot_mode``. As in Tenks, '
          '``boot_mode`` among the capabilities of a node takes precedence.',
          choices=_BOOT_MODES),
    Field('node_types.*.secure_boot', Kind.BOOLEAN,
          'Whether UEFI verifies what it boots.', default=False),
    Field('node_types.*.tpm', Kind.TEXT,
          'TPM of the VM, and whether it keeps its content while the VM is '
          'off. Without it, there is none.',
          choices=('ephemeral', 'persistent')),
    Field('node_types.*.instancetype', Kind.MAPPING,
          'KubeVirt\'s instance type, instead of ``vcpus`` and '
          '``memory_mb``.'),
    Field('node_types.*.instancetype.name', Kind.NAME, 'Its name.',
          required=True),
    Field('node_types.*.instancetype.kind', Kind.TEXT, 'Its kind.',
          default=_KINDS[0].format('Instancetype'),
          choices=tuple(kind.format('Instancetype') for kind in _KINDS)),
    Field('node_types.*.preference', Kind.MAPPING, 'KubeVirt\'s preference.'),
    Field('node_types.*.preference.name', Kind.NAME, 'Its name.',
          required=True),
    Field('node_types.*.preference.kind', Kind.TEXT, 'Its kind.',
          default=_KINDS[0].format('Preference'),
          choices=tuple(kind.format('Preference') for kind in _KINDS)),
    Field('node_types.*.placement', Kind.MAPPING,
          'On which nodes of Kubernetes the VMs run.', default={}),
    Field('node_types.*.placement.node_selector', Kind.LABELS,
          'Labels that they have.', default={}),
    Field('node_types.*.placement.tolerations', Kind.ANY_LIST,
          'Tolerations of their taints, as in a pod.', default=()),
    Field('node_types.*.placement.affinity', Kind.ANY_MAPPING,
          'Affinity and anti-affinity, as in a pod.', default={}),
    Field('node_types.*.placement.spread', Kind.LABEL,
          'Label over whose values the VMs are spread evenly, such as '
          '``topology.kubernetes.io/zone`` for failure domains; '
          f'``{NO_SPREAD}`` to leave it to the scheduler.',
          default='kubernetes.io/hostname'),
    Field('node_types.*.placement.spread_required', Kind.BOOLEAN,
          'Whether a VM waits if it could only run where there are more of '
          'them already.', default=False),
    Field('node_types.*.placement.dedicated_cpus', Kind.BOOLEAN,
          'Whether each virtual CPU has a CPU of its own.', default=False),
    Field('node_types.*.placement.huge_pages', Kind.SIZE,
          'Size of the huge pages that the memory is made of, such as '
          '``2Mi``.'),
    Field('node_types.*.placement.numa', Kind.BOOLEAN,
          'Whether the VM has the NUMA topology of the CPUs it runs on. Needs '
          '``dedicated_cpus`` and ``huge_pages``.', default=False),
    Field('node_types.*.vm', Kind.ANY_MAPPING,
          'Fields that are merged into the VirtualMachine, as by JSON merge '
          'patch (RFC 7386). The only key whose texts may contain ``{{`` and '
          '``{%``.', default={}, expressions=True),
    Field('node_types.*.bmc', Kind.ANY_MAPPING,
          'Fields that are merged into ``spec`` of the VirtualMachineBMC, '
          'likewise, except for ``virtualMachine``.', default={}),
)

# Interfaces that Tenks does not know.
_NEWER = 'firmware_interface', 'rescue_interface'

_CONFIG = 'specs[].ironic_config'

_SPECS = (
    _tenks('specs', Kind.LIST, 'What nodes there are.', default=()),
    _tenks('specs[].type', Kind.TEXT, 'Their type, of ``node_types``.',
           required=True),
    _tenks('specs[].count', Kind.INTEGER, 'Their number.', required=True,
           least=0, most=10_000),
    _tenks('specs[].node_name_prefix', Kind.TEXT,
           'As ``node_name_prefix`` of the file, and instead of it. Nodes '
           'that share a prefix are numbered in the order of the specs: if '
           'the count of one changes, nodes of the following ones get other '
           'names. Give each a prefix of its own.', most=60),
    Field('specs[].node_names', Kind.TEXTS,
          'Names of the nodes, as many as ``count``, instead of prefix and '
          'number.'),
    _tenks('specs[].vol_name_prefix', Kind.TEXT,
           'As ``vol_name_prefix`` of the file, and instead of it.', most=40),
    _tenks(_CONFIG, Kind.MAPPING,
           'How they are enrolled in Ironic. Without it, they are not.'),
    _tenks(f'{_CONFIG}.resource_class', Kind.TEXT, 'Resource class.',
           required=True, most=80),
    _tenks(f'{_CONFIG}.traits', Kind.TRAITS, 'Traits.', default=()),
    _tenks(f'{_CONFIG}.properties', Kind.ANY_MAPPING,
           'Properties, in addition to those that follow from the type '
           '(``cpus``, ``memory_mb``, ``local_gb``, ``cpu_arch``), or instead '
           'of them. ``capabilities`` in it is text such as '
           '``boot_mode:bios,raid_level:1``.', default={}),
    *(Field(f'{_CONFIG}.{interface}', Kind.TEXT,
            f'``{interface}`` of the nodes. Without it, Ironic\'s default.',
            origin=Origin.OWN if interface in _NEWER else Origin.TENKS,
            most=255)
      for interface in INTERFACES),
    _tenks(f'{_CONFIG}.conductor_group', Kind.TEXT, 'Conductor group.',
           most=255),
    _tenks(f'{_CONFIG}.shard', Kind.TEXT, 'Shard.', most=255),
    Field(f'{_CONFIG}.owner', Kind.TEXT, 'Project that owns the nodes.',
          most=255),
    Field(f'{_CONFIG}.lessee', Kind.TEXT, 'Project that may use them.',
          most=255),
    Field(f'{_CONFIG}.description', Kind.TEXT, 'Description.', most=4096),
    Field(f'{_CONFIG}.extra', Kind.ANY_MAPPING, '``extra`` of the nodes.',
          default={}),
    Field(f'{_CONFIG}.capabilities', Kind.TEXT_MAPPING,
          'Capabilities, in addition to those that follow from the type, or '
          'instead of them.', default={}),
    Field(f'{_CONFIG}.deploy_kernel', Kind.TEXT,
          'As ``deploy_kernel`` of the file, and instead of it.'),
    Field(f'{_CONFIG}.deploy_ramdisk', Kind.TEXT, 'Likewise.'),
    Field(f'{_CONFIG}.port_group', Kind.MAPPING,
          'Port group, whose members are the ports of a node in its first '
          'physical network, as Ironic permits one. Without it, there is '
          'none.'),
    Field(f'{_CONFIG}.port_group.mode', Kind.TEXT,
          'Mode of bonding in Linux, such as ``active-backup`` or '
          '``802.3ad``.', default='active-backup'),
    Field(f'{_CONFIG}.port_group.properties', Kind.ANY_MAPPING,
          'Properties of the bond, such as ``miimon``.', default={}),
    Field(f'{_CONFIG}.pxe_networks', Kind.TEXTS,
          'Physical networks whose ports have ``pxe_enabled``. Without it, '
          'all.'),
    Field(f'{_CONFIG}.verify_ca', Kind.BOOLEAN,
          'Whether Ironic verifies the certificates of BMCs; redfish only.',
          default=True),
    Field(f'{_CONFIG}.ca_file', Kind.TEXT,
          'File with the CA certificate by which it verifies them, at '
          'Ironic\'s conductors. Without it, by the CAs that they trust. '
          'All BMCs have that of the operator, unless it is configured '
          'otherwise: ``ca.crt`` of any ConfigMap ``NODE-virtbmc-ca``.'),
    Field(f'{_CONFIG}.inspect', Kind.BOOLEAN,
          'Whether nodes are inspected before they are made available.',
          default=False),
    Field(f'{_CONFIG}.provide', Kind.BOOLEAN,
          'Whether nodes are made available. Otherwise they stay manageable.',
          default=True),
)

_FLAVORS = (
    _tenks('nova_flavors', Kind.LIST, 'Flavors of Nova.', default=()),
    _tenks('nova_flavors[].resource_class', Kind.TEXT,
           'Resource class of the Ironic nodes that it selects.',
           required=True, most=80),
    _tenks('nova_flavors[].node_type', Kind.TEXT,
           'Type, of ``node_types``, whose size the flavor shows.',
           required=True),
    _tenks('nova_flavors[].name', Kind.TEXT,
           'Name. Without it, the resource class.', most=255),
    _tenks('nova_flavors[].required_traits', Kind.TRAITS,
           'Traits that a node must have.', default=()),
    _tenks('nova_flavors[].forbidden_traits', Kind.TRAITS,
           'Traits that a node must not have.', default=()),
    _tenks('nova_flavors[].custom_specs', Kind.TEXT_MAPPING,
           'More extra specs.', default={}),
)

_HOST = 'Kubernetes runs the VMs; no host is set up.'
_CNI = 'The CNI plugin of the NetworkAttachmentDefinition makes links.'
_BMC = ('Each node has a BMC with an address of its own, and the operator '
        'generates its credentials.')
_DISK = 'Storage classes determine how a volume is stored.'
_SOURCE = 'For a disk that has data already, use ``claim`` or ``clone``.'
_MACHINE = 'KubeVirt determines it; ``vm`` can change it.'

_IGNORED = (
    _ignored('cmd', 'The subcommand says what to do.'),
    _ignored('state_file_path', 'No state is kept in files.'),
    _ignored('bmc_emulators', _BMC),
    *(_ignored(key, _BMC) for key in (
        'ipmi_address', 'ipmi_port_range_start', 'ipmi_port_range_end',
        'ipmi_username', 'ipmi_password', 'redfish_address',
        'redfish_username', 'redfish_password', 'sushy_*', 'vbmc*')),
    *(_ignored(key, _CNI) for key in (
        'bridge_type', 'bridge_prefix', 'veth_*')),
    _ignored('log_directory', 'KubeVirt logs consoles in the pods of VMs.'),
    *(_ignored(key, _HOST) for key in (
        'libvirt_*', 'virtualenv_path', 'python_upper_constraints_url',
        'system_requirements', 'ansible_*')),
    _ignored('wait_for_resources_*', '``--timeout`` limits waits.'),
    *(_ignored(f'node_types.*.{key}', _MACHINE) for key in (
        'machine', 'cpu_mode', 'clock_offset', 'enable_vnc', 'enable_spice',
        'enable_guest_virtio', 'usb_devices', 'xml_file', 'console_log_path',
        'console_log_append', 'uuid', 'uuid_deterministic')),
    *(_ignored(f'node_types.*.volumes[].{key}', _DISK) for key in (
        'name', 'pool', 'format', 'target', 'file_path', 'type', 'device',
        'discard', 'remote_src', 'checksum')),
    *(_ignored(f'node_types.*.volumes[].{key}', _SOURCE) for key in (
        'backing_image', 'dev', 'source', 'auth')),
)

#: All of them, in the order of the reference.
FIELDS = (*_CLUSTER, *_TYPES, *_NETWORKS, *_SPECS, *_FLAVORS, *_IGNORED)


@functools.cache
def children(path: str) -> abc.Mapping[str, Field]:
    """List the keys of a mapping that have an effect.

    :param path: in the table; '' for the file
    """
    return {field.name: field for field in FIELDS
            if field.parent == path and field.origin is not Origin.IGNORED}


def ignored(path: str, key: str) -> Field | None:
    """Find a key that Tenks has, without an effect here.

    :param path: of its mapping, in the table
    """
    return next((field for field in FIELDS
                 if field.origin is Origin.IGNORED and field.parent == path
                 and fnmatch.fnmatchcase(key, field.name)), None)


def elsewhere(key: str) -> list[str]:
    """List the paths in the table of keys with this name.

    Those that are ignored are left out.
    """
    return [field.path for field in FIELDS
            if field.name == key and field.origin is not Origin.IGNORED]
