# SPDX-License-Identifier: Apache-2.0
"""EthernetInterface v1.12: the network interfaces of a VM.

MAC addresses, IP addresses and link state are those that KubeVirt reports.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/EthernetInterfaces"""
    return responses.collection(
        'EthernetInterface', 'Ethernet Interface Collection',
        resource_paths.system(machine, 'EthernetInterfaces'),
        [nic.name for nic in machine.inventory().nics])


def resource(machine: machine.Machine, nic_id: str) -> responses.Json:
    """GET …/EthernetInterfaces/<nic_id>

    :param nic_id: name of the interface in the VM
    """
    nic = resource_paths.member('EthernetInterface', nic_id, {
        nic.name: nic for nic in machine.inventory().nics})
    body: responses.Json = {
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
    }
    if nic.guest_name:
        body['Description'] = f'{nic.guest_name} in the guest'
    if nic.link:
        body['LinkStatus'] = 'LinkUp' if nic.link == 'up' else 'LinkDown'
    for address in nic.ips:
        body.setdefault('IPv6Addresses' if ':' in address else 'IPv4Addresses',
                        []).append({'Address': address})
    if application.current().feature_set == 'full':
        body['Links'] = {
            'Chassis': responses.link(resource_paths.chassis(machine))}
    return body


ROUTES = (
    routing.replace('ethernet_interfaces_collection', collection, 'vmedia',
                    cached=True),
    routing.replace('ethernet_interface', resource, 'vmedia',
                    cached=True),
)
