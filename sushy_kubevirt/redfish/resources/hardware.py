# SPDX-License-Identifier: Apache-2.0
"""Conversion of a VM's inventory to Redfish values: units, names, groups."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import inventory

#: GiB in bytes.
_GIB = 2 ** 30

#: Most processors that are listed one by one.
MAX_SOCKETS = 1024

#: Kubernetes' architecture: ProcessorArchitecture, InstructionSet
#: (Processor_v1.xml).
ARCHITECTURES = {
    'amd64': ('x86', 'x86-64'),
    'arm64': ('ARM', 'ARM-A64'),
    's390x': ('OEM', 'OEM'),
}


_HOST_MODELS = ('host-model', 'host-passthrough')


def to_gib(size: int) -> float:
    """Convert bytes to GiB.

    :returns: an `int` if it is a whole number, else with three decimals
    """
    if size % _GIB == 0:
        return size // _GIB
    return round(size / _GIB, 3)


def processor_model(cpus: inventory.Cpus) -> str:
    """Return the CPU model; '' if KubeVirt takes it from the host."""
    return '' if cpus.model in _HOST_MODELS else cpus.model


def socket_names(cpus: inventory.Cpus) -> list[str]:
    """Name the processors, one per socket: CPU0, CPU1 ...

    At most `MAX_SOCKETS`: KubeVirt accepts four billion sockets for a VM that
    is off.
    """
    return [f'CPU{number}'
            for number in range(min(cpus.sockets, MAX_SOCKETS))]


def disks_by_bus(disks: abc.Iterable[inventory.Disk]
                 ) -> dict[str, list[inventory.Disk]]:
    """Group disks by bus, in their order."""
    by_bus: dict[str, list[inventory.Disk]] = {}
    for disk in disks:
        by_bus.setdefault(disk.bus, []).append(disk)
    return by_bus
