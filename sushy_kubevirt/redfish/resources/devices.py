# SPDX-License-Identifier: Apache-2.0
"""What a system is made of: processors, network interfaces, disks."""

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.redfish.resources import inventory as figures

_OK = {'State': 'Enabled', 'Health': 'OK'}


def _collection(machine, name, kind, title, ids):
    here = '%s/%s' % (computer_system.path(machine), name)
    return responses.collection(
        kind, title, here, ['%s/%s' % (here, one) for one in ids])


# Processors

def processors(machine):
    """GET …/Processors"""
    return _collection(machine, 'Processors', 'ProcessorCollection',
                       'Processors Collection',
                       figures.socket_names(machine.inventory().cpus))


def processor(machine, processor_id):
    """GET …/Processors/<processor_id>"""
    cpus = machine.inventory().cpus
    if processor_id not in figures.socket_names(cpus):
        raise errors.not_found('Processor', processor_id)
    body = {
        '@odata.id': '%s/Processors/%s' % (computer_system.path(machine),
                                           processor_id),
        '@odata.type': '#Processor.v1_7_0.Processor',
        'Id': processor_id,
        'Name': 'Processor',
        'Socket': processor_id,
        'ProcessorType': 'CPU',
        'TotalCores': cpus.cores,
        'TotalThreads': cpus.cores * cpus.threads,
        'Status': _OK,
    }
    if cpus.model:
        body['Model'] = cpus.model
    if cpus.architecture in figures.ARCHITECTURES:
        (body['ProcessorArchitecture'],
         body['InstructionSet']) = figures.ARCHITECTURES[cpus.architecture]
    return responses.resource(body)


# Network interfaces

def ethernet_interfaces(machine):
    """GET …/EthernetInterfaces"""
    return _collection(machine, 'EthernetInterfaces',
                       'EthernetInterfaceCollection',
                       'Ethernet Interface Collection',
                       [nic.name for nic in machine.inventory().nics])


def ethernet_interface(machine, nic_id):
    """GET …/EthernetInterfaces/<nic_id>"""
    for nic in machine.inventory().nics:
        if nic.name == nic_id:
            break
    else:
        raise errors.not_found('EthernetInterface', nic_id)
    body = {
        '@odata.id': '%s/EthernetInterfaces/%s'
        % (computer_system.path(machine), nic_id),
        '@odata.type': '#EthernetInterface.v1_9_0.EthernetInterface',
        'Id': nic.name,
        'Name': 'VNIC %s' % nic.name,
        'InterfaceEnabled': True,
        # Until the VM has started once, KubeVirt may not have made one up.
        'MACAddress': nic.mac or None,
        'PermanentMACAddress': nic.mac or None,
        'Status': _OK,
    }
    if nic.guest_name:
        body['Description'] = '%s in the guest' % nic.guest_name
    if nic.link:
        body['LinkStatus'] = 'LinkUp' if nic.link == 'up' else 'LinkDown'
    four = [{'Address': ip} for ip in nic.ips if ':' not in ip]
    six = [{'Address': ip} for ip in nic.ips if ':' in ip]
    if four:
        body['IPv4Addresses'] = four
    if six:
        body['IPv6Addresses'] = six
    return responses.resource(body)


# Disks

def simple_storage_collection(machine):
    """GET …/SimpleStorage"""
    return _collection(machine, 'SimpleStorage', 'SimpleStorageCollection',
                       'Simple Storage Collection',
                       figures.controllers(machine.inventory()))


def simple_storage(machine, simple_storage_id):
    """GET …/SimpleStorage/<simple_storage_id>: the disks on one bus"""
    disks = figures.controllers(machine.inventory()).get(simple_storage_id)
    if disks is None:
        raise errors.not_found('SimpleStorage', simple_storage_id)
    return responses.resource({
        '@odata.id': '%s/SimpleStorage/%s' % (computer_system.path(machine),
                                              simple_storage_id),
        '@odata.type': '#SimpleStorage.v1_3_0.SimpleStorage',
        'Id': simple_storage_id,
        'Name': '%s Controller' % simple_storage_id,
        'Status': _OK,
        'Devices': [_device(disk) for disk in disks],
    })


def _device(disk):
    device = {'Name': disk.name, 'Manufacturer': 'KubeVirt',
              'Model': disk.kind, 'Status': _OK}
    if not disk.source:
        # A drive without a medium.
        device['Status'] = {'State': 'Absent', 'Health': 'OK'}
    elif disk.capacity_bytes is not None:
        device['CapacityBytes'] = disk.capacity_bytes
    return device


def storage(machine, **_more):
    """…/Storage and all below: upstream's comes out of its config file, of
    a VM there is none; its disks are in SimpleStorage."""
    raise errors.missing()


ROUTES = (
    routing.replace('processors_collection', processors),
    routing.replace('processor', processor),
    routing.replace('ethernet_interfaces_collection',
                    ethernet_interfaces, 'vmedia'),
    routing.replace('ethernet_interface', ethernet_interface, 'vmedia'),
    routing.replace('simple_storage_collection', simple_storage_collection),
    routing.replace('simple_storage', simple_storage),
    routing.replace('storage_collection', storage),
    routing.replace('storage', storage),
    routing.replace('drive_resource', storage),
    routing.replace('volumes_collection', storage),
    routing.replace('volume', storage),
)
