# SPDX-License-Identifier: Apache-2.0
"""Processor v1.18, Memory v1.19 and EthernetInterface v1.12 of a VM.

There is one processor per socket, at most `MAX_SOCKETS`. The guest's memory is
one module: KubeVirt reports only the total size, and the modules in the
guest's SMBIOS depend on the QEMU release. MAC addresses, IP addresses and link
state are those that KubeVirt reports.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import inventory
    from sushy_kubevirt.machine import machine

#: Most processors that are listed one by one: KubeVirt accepts four billion
#: sockets for a VM that is off.
MAX_SOCKETS = 1024

#: Kubernetes' architecture: ProcessorArchitecture, InstructionSet
#: (Processor_v1.xml).
ARCHITECTURES = {
    'amd64': ('x86', 'x86-64'),
    'arm64': ('ARM', 'ARM-A64'),
    's390x': ('OEM', 'OEM'),
}

_HOST_MODELS = ('host-model', 'host-passthrough')

#: Id of the only memory module.
MEMORY = 'RAM'

_MIB, _GIB = 2 ** 20, 2 ** 30


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


# Processors

def _socket_names(cpus: inventory.Cpus) -> list[str]:
    return [f'CPU{number}'
            for number in range(min(cpus.sockets, MAX_SOCKETS))]


def processors(machine: machine.Machine) -> responses.Json:
    """GET …/Processors"""
    return responses.collection(
        'Processor', 'Processors Collection',
        resource_paths.system(machine, 'Processors'),
        _socket_names(machine.inventory().cpus))


def processor(machine: machine.Machine, processor_id: str) -> responses.Json:
    """GET …/Processors/<processor_id>

    TotalCores and TotalThreads are those of one socket.
    """
    cpus = machine.inventory().cpus
    resource_paths.member('Processor', processor_id,
                          dict.fromkeys(_socket_names(cpus)))
    architecture, instructions = ARCHITECTURES.get(
        cpus.architecture, (None, None))
    return {
        '@odata.id': resource_paths.system(
            machine, 'Processors', processor_id),
        '@odata.type': '#Processor.v1_18_0.Processor',
        'Id': processor_id,
        'Name': 'Processor',
        'Socket': processor_id,
        'ProcessorType': 'CPU',
        'TotalCores': cpus.cores,
        'TotalEnabledCores': cpus.cores,
        'TotalThreads': cpus.cores * cpus.threads,
        'Status': resource_paths.STATUS_OK,
        'Links': {'Chassis': responses.link(resource_paths.chassis(machine))},
        **responses.present(
            Model=processor_model(cpus), ProcessorArchitecture=architecture,
            InstructionSet=instructions),
    }


# Memory

def memory_modules(machine: machine.Machine) -> responses.Json:
    """GET …/Memory"""
    # The size may be unknown while a VM with an instance type is off.
    ids = [MEMORY] if machine.inventory().memory_bytes else []
    return responses.collection(
        'Memory', 'Memory Collection',
        resource_paths.system(machine, 'Memory'), ids)


def memory_module(machine: machine.Machine, memory_id: str) -> responses.Json:
    """GET …/Memory/<memory_id>

    :param memory_id: `MEMORY`; 404 for others and if the size is unknown
    """
    size = machine.inventory().memory_bytes
    if memory_id != MEMORY or not size:
        raise error_responses.resource_not_found('Memory', memory_id)
    return {
        '@odata.id': resource_paths.system(machine, 'Memory', MEMORY),
        '@odata.type': '#Memory.v1_19_0.Memory',
        'Id': MEMORY,
        'Name': 'Memory of the guest',
        'CapacityMiB': size // _MIB,
        'Status': resource_paths.STATUS_OK,
        'Links': {'Chassis': responses.link(resource_paths.chassis(machine))},
    }


# Network interfaces

def interfaces(machine: machine.Machine) -> responses.Json:
    """GET …/EthernetInterfaces"""
    return responses.collection(
        'EthernetInterface', 'Ethernet Interface Collection',
        resource_paths.system(machine, 'EthernetInterfaces'),
        [nic.name for nic in machine.inventory().nics])


def interface(machine: machine.Machine, nic_id: str) -> responses.Json:
    """GET …/EthernetInterfaces/<nic_id>

    :param nic_id: name of the interface in the VM
    """
    nic = resource_paths.member('EthernetInterface', nic_id, {
        nic.name: nic for nic in machine.inventory().nics})
    full = application.current().feature_set == 'full'
    chassis = {'Chassis': responses.link(resource_paths.chassis(machine))}
    return {
        '@odata.id': resource_paths.system(
            machine, 'EthernetInterfaces', nic_id),
        '@odata.type': '#EthernetInterface.v1_12_0.EthernetInterface',
        'Id': nic.name,
        'Name': f'VNIC {nic.name}',
        'InterfaceEnabled': nic.plugged,
        # KubeVirt may generate the address only at the first start.
        'MACAddress': nic.guest_mac or nic.mac or None,
        'PermanentMACAddress': nic.mac or None,
        'Status': resource_paths.STATUS_OK if nic.plugged
        else {'State': 'Disabled', 'Health': 'OK'},
        **responses.present(
            Description=nic.guest_name and f'{nic.guest_name} in the guest',
            LinkStatus=nic.link and (
                'LinkUp' if nic.link == 'up' else 'LinkDown'),
            IPv4Addresses=[{'Address': address} for address in nic.ips
                           if ':' not in address],
            IPv6Addresses=[{'Address': address} for address in nic.ips
                           if ':' in address],
            Links=chassis if full else None),
    }


_MEMORY = resource_paths.SYSTEMS + '/<identity>/Memory'

ROUTES = (
    routing.replace('processors_collection', processors, cached=True),
    routing.replace('processor', processor, cached=True),
    routing.add(_MEMORY, memory_modules, cached=True),
    routing.add(_MEMORY + '/<memory_id>', memory_module, cached=True),
    routing.replace('ethernet_interfaces_collection', interfaces, 'vmedia',
                    cached=True),
    routing.replace('ethernet_interface', interface, 'vmedia', cached=True),
)
