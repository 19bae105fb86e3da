# SPDX-License-Identifier: Apache-2.0
"""Manager v1.19: this service as the BMC of one system.

Each system has its own manager with the system's Id, as in sushy-emulator.
"""

from __future__ import annotations

import re
import socket
import typing

import flask

from sushy_kubevirt.bmc import clock
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import product
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import machine

ROOT = resource_paths.MANAGERS

RESET_TYPES = ('ForceRestart', 'GracefulRestart')

_SHAPE: payload.Shape = {
    'DateTime': str,
    'DateTimeLocalOffset': str,
    **payload.read_only(
        'Id', 'Name', 'UUID', 'ManagerType', 'Status', 'PowerState',
        'FirmwareVersion', 'Model', 'Manufacturer', 'Description', 'Links',
        'VirtualMedia', 'LogServices', 'EthernetInterfaces',
        'NetworkProtocol', 'GraphicalConsole', 'SerialConsole',
        'ServiceEntryPointUUID', 'Actions'),
}

# The pattern of DateTimeLocalOffset's schema.
_OFFSET = '([-+])([01][0-9]):([0-5][0-9])'


def collection() -> responses.Document:
    """GET /redfish/v1/Managers"""
    return resource_paths.machine_collection(
        'Manager', 'Manager Collection', ROOT)


def _clocks() -> clock.Clocks:
    return authentication.services().events.log.clocks


def patch(machine: machine.Machine) -> None:
    """PATCH /redfish/v1/Managers/<identity>: set the clock (`bmc.clock`)"""
    values = payload.properties(_SHAPE)
    text, offset = values.get('DateTime'), values.get('DateTimeLocalOffset')
    seconds = None if text is None else _seconds(text)
    minutes = None if offset is None else _minutes(offset)
    wrong = [messages.message('PropertyValueFormatError', values[name], name,
                              related=['#/' + name])
             for name, parsed in (('DateTime', seconds),
                                  ('DateTimeLocalOffset', minutes))
             if name in values and parsed is None]
    if wrong:
        raise error_responses.RedfishError(400, *wrong)
    _clocks().set(machine, seconds, minutes)
    flask.current_app.logger.info(
        'Clock of the BMC of %s set: %s', machine.qualified_name, values)


def _seconds(text: str) -> float | None:
    """Return a date-time in seconds since the epoch; None if invalid."""
    when = payload.date_time(text)
    if when is None:
        return None
    seconds = when.timestamp()
    if not clock.MIN_SECONDS <= seconds <= clock.MAX_SECONDS:
        return None
    return seconds


def _minutes(text: str) -> int | None:
    """Return a UTC offset in minutes; None if invalid."""
    match = re.fullmatch(_OFFSET, text)
    return None if match is None else int(match[1] + '1') * (
        60 * int(match[2]) + int(match[3]))


def resource(machine: machine.Machine) -> responses.Json:
    """GET /redfish/v1/Managers/<identity>"""
    app = application.current()
    here = resource_paths.manager(machine)
    system = [responses.link(resource_paths.system(machine))]
    body: responses.Json = {
        '@odata.id': here,
        '@odata.type': '#Manager.v1_19_0.Manager',
        'Id': system_id.of(machine),
        'Name': f'{machine.name}-Manager',
        'UUID': machine.uuid,
        'ManagerType': 'BMC',
        'Links': {'ManagerForServers': system,
                  'ManagerForServers@odata.count': 1},
        # Served by other modules, not in every feature set.
        **resource_paths.links(here, ROOT + '/<identity>',
                               ('VirtualMedia', 'LogServices',
                                'EthernetInterfaces')),
    }
    if app.feature_set == 'full':
        now = _clocks().of(machine).now().isoformat(timespec='seconds')
        chassis = responses.link(resource_paths.chassis(machine))
        inventory = machine.inventory()
        body.update({
            'Description':
                f'BMC of KubeVirt VirtualMachine {machine.qualified_name}',
            'Manufacturer': product.NAME,
            'Model': product.NAME,
            'FirmwareVersion': product.version(),
            'ServiceEntryPointUUID': app.systems.uuid_of_service,
            'DateTime': now,
            'DateTimeLocalOffset': now[-len('+00:00'):],
            'PowerState': 'On',
            'Status': resource_paths.STATUS_OK,
            'GraphicalConsole': _console(inventory.graphics),
            'SerialConsole': _console(
                inventory.serial_console,
                ['IPMI'] if 'IPMI' in dict(
                    app.systems.settings.service_ports) else []),
            'NetworkProtocol': responses.link(here + '/NetworkProtocol'),
            'Actions': {'#Manager.Reset': {
                'target': here + '/Actions/Manager.Reset',
                '@Redfish.ActionInfo': here + '/ResetActionInfo',
                'ResetType@Redfish.AllowableValues': list(RESET_TYPES),
            }},
        })
        body['Links'].update({
            'ManagerForChassis': [chassis],
            'ManagerForChassis@odata.count': 1,
            'ManagerInChassis': chassis,
        })
    return body


def _console(there: bool, protocols: abc.Iterable[str] = ()) -> responses.Json:
    """Describe a console, also available through KubeVirt's API (``virtctl``).

    :param there: whether the VM has the device
    :param protocols: ConnectTypes of this BMC
    """
    if not there:
        return {'ServiceEnabled': False, 'ConnectTypesSupported': []}
    return {'ServiceEnabled': True, 'MaxConcurrentSessions': 1,
            'ConnectTypesSupported': [*protocols, 'Oem']}


def network_protocol(machine: machine.Machine) -> responses.Json:
    """GET …/NetworkProtocol: the ports that clients use

    In a BMC's pod those of its Service, else that of this request.
    """
    ports = dict(application.current().systems.settings.service_ports) or {
        flask.request.scheme.upper(): _port(flask.request)}
    body: responses.Json = {
        '@odata.id': resource_paths.manager(machine, 'NetworkProtocol'),
        '@odata.type': '#ManagerNetworkProtocol.v1_10_0'
                       '.ManagerNetworkProtocol',
        'Id': 'NetworkProtocol',
        'Name': 'Manager Network Protocol',
        'HostName': socket.gethostname(),
        'Status': resource_paths.STATUS_OK,
        'HTTP': {'ProtocolEnabled': False},
        'HTTPS': {'ProtocolEnabled': False},
    }
    for protocol, port in ports.items():
        body[protocol] = {'ProtocolEnabled': True, 'Port': port}
    return body


def _port(request: flask.Request) -> int:
    """Return the TCP port to which a client sent its request.

    That of the header Host, because a proxy may be in between; without the
    header, that of the server.
    """
    # Empty without a valid header. Without the port if it is the scheme's.
    host = request.host
    port = (host.rpartition(':')[2] if host
            else request.environ.get('SERVER_PORT', ''))
    if re.fullmatch('[0-9]{1,5}', port) and 0 < int(port) < 65536:
        return int(port)
    return 443 if request.scheme == 'https' else 80


def reset(machine: machine.Machine) -> None:
    """POST …/Actions/Manager.Reset

    Discards cached state of the VM and its cluster and reads it again.
    """
    kind = payload.parameters('Manager.Reset', {'ResetType': RESET_TYPES})
    machine.cluster.refresh(machine)
    flask.current_app.logger.info(
        '%s of the BMC of %s', kind.get('ResetType', RESET_TYPES[0]),
        machine.qualified_name)


def reset_info(machine: machine.Machine) -> responses.Json:
    """GET …/ResetActionInfo: parameters of Manager.Reset"""
    return responses.action_info(
        resource_paths.manager(machine, 'ResetActionInfo'),
        'Reset Action Info',
        responses.parameter('ResetType', False, values=RESET_TYPES))


_RULE = ROOT + '/<identity>'

ROOT_LINKS = {'Managers': ROOT}

ROUTES = (
    routing.replace('manager_collection_resource', collection, 'vmedia'),
    routing.replace('manager_resource', resource, 'vmedia', patch=patch),
    routing.add(_RULE + '/NetworkProtocol', network_protocol),
    routing.add(_RULE + '/ResetActionInfo', reset_info),
    routing.add(_RULE + '/Actions/Manager.Reset', post=reset),
)
