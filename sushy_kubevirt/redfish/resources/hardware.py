# SPDX-License-Identifier: Apache-2.0
"""An inventory's figures in Redfish's words: names, units, groups."""

#: GiB in bytes.
_GIB = 2 ** 30

#: Processors that are told one by one.
MAX_SOCKETS = 1024

#: KubeVirt's word for an architecture: ProcessorArchitecture,
#: InstructionSet (Processor_v1.xml).
ARCHITECTURES = {
    'amd64': ('x86', 'x86-64'),
    'arm64': ('ARM', 'ARM-A64'),
    's390x': ('OEM', 'OEM'),
}


_HOST_MODELS = ('host-model', 'host-passthrough')


def to_gib(size):
    """Bytes to GiB.

    :returns: `int` when it is a whole number, else `float` to three places
    """
    if size % _GIB == 0:
        return size // _GIB
    return round(size / _GIB, 3)


def processor_model(cpus):
    """The processor's model; '' where KubeVirt names but a way to choose
    one.
    """
    return '' if cpus.model in _HOST_MODELS else cpus.model


def socket_names(cpus):
    """Names of the processors, one a socket: CPU0, CPU1 …

    No more than could be real: KubeVirt takes four billion sockets of a VM
    that is off.
    """
    return ['CPU%d' % number
            for number in range(min(cpus.sockets, MAX_SOCKETS))]


def disks_by_bus(inventory):
    """The disks by the bus they are on, in the order of the VM's spec.

    :returns: dict of bus to list of `inventory.Disk`
    """
    found = {}
    for disk in inventory.disks:
        found.setdefault(disk.bus, []).append(disk)
    return found


def bios_version(inventory):
    """What the guest's firmware is and where it comes from."""
    kind = 'UEFI' if inventory.firmware == 'efi' else 'BIOS'
    if inventory.kubevirt_version:
        return f'{kind} of KubeVirt {inventory.kubevirt_version}'
    return f'{kind} of KubeVirt'
