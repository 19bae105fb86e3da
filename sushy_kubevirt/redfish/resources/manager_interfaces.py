# SPDX-License-Identifier: Apache-2.0
"""EthernetInterface v1.12 of a manager: the BMC's own network interface.

It is the interface of this pod or host by which the client of the request is
reached; IPMI shows the same one. The cluster or the host configures it.
"""

from __future__ import annotations

import ipaddress
import socket
import typing

import flask

from sushy_kubevirt.bmc import interfaces
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

_NAME = 'EthernetInterfaces'

_SHAPE = payload.read_only(
    'Id', 'Name', 'Description', 'Status', 'InterfaceEnabled', 'LinkStatus',
    'MACAddress', 'PermanentMACAddress', 'MTUSize', 'MTUSizeBytes', 'HostName',
    'FQDN', 'AutoNeg', 'FullDuplex', 'SpeedMbps', 'DHCPv4', 'DHCPv6',
    'StatelessAddressAutoConfig', 'IPv4Addresses', 'IPv4StaticAddresses',
    'IPv6Addresses', 'IPv6StaticAddresses', 'IPv6DefaultGateway',
    'IPv6StaticDefaultGateways', 'NameServers', 'StaticNameServers', 'VLAN')


def _interface() -> interfaces.Interface:
    """Return the interface; without a name if there is none."""
    environ = flask.request.environ
    try:
        return interfaces.towards(
            (environ.get('REMOTE_ADDR', ''),
             int(environ.get('REMOTE_PORT') or 1)))
    except ValueError:
        return interfaces.Interface()   # a client of a Unix socket


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/Managers/<identity>/EthernetInterfaces"""
    name = _interface().name
    return responses.collection(
        'EthernetInterface', 'Ethernet Interfaces of the BMC',
        resource_paths.manager(machine, _NAME), [name] if name else [])


def resource(machine: machine.Machine, nic_id: str) -> responses.Json:
    """GET, PATCH …/Managers/<identity>/EthernetInterfaces/<nic_id>"""
    interface = _interface()
    if not interface.name or interface.name != nic_id:
        raise error_responses.resource_not_found('EthernetInterface', nic_id)
    if flask.request.method == 'PATCH':
        payload.properties(_SHAPE)
    return {
        '@odata.id': resource_paths.manager(machine, _NAME, nic_id),
        '@odata.type': '#EthernetInterface.v1_12_0.EthernetInterface',
        'Id': nic_id,
        'Name': f'BMC interface {nic_id}',
        'Description': 'Interface of the pod or host of this service; the '
        'cluster or the host configures it',
        'HostName': socket.gethostname(),
        'InterfaceEnabled': True,
        # The request has arrived.
        'LinkStatus': 'LinkUp',
        'Status': resource_paths.STATUS_OK,
        'IPv4Addresses': _ipv4(interface),
        'IPv6Addresses': [{
            'Address': address.address,
            'PrefixLength': address.prefix,
            'AddressOrigin': 'LinkLocal' if address.link_local else None,
            'AddressState': address.state,
        } for address in interface.ipv6],
        **responses.present(
            MACAddress=interface.mac.hex(':').upper() if any(interface.mac)
            else None, MTUSize=interface.mtu or None),
    }


def _ipv4(interface: interfaces.Interface) -> list[dict[str, str | None]]:
    if not any(interface.address):
        return []
    return [{
        'Address': str(ipaddress.IPv4Address(interface.address)),
        'SubnetMask': str(ipaddress.IPv4Address(interface.mask)),
        # The kernel does not know who has configured it.
        'AddressOrigin': None,
        'Gateway': (str(ipaddress.IPv4Address(interface.gateway))
                    if any(interface.gateway) else None),
    }]


_ROOT = resource_paths.MANAGERS + '/<identity>/' + _NAME

ROUTES = (
    routing.add(_ROOT, collection),
    routing.add(_ROOT + '/<nic_id>', resource, patch=resource),
)
