# SPDX-License-Identifier: Apache-2.0
"""Manager: this service, as the BMC of one system.

Each system has a manager of its own with the system's UUID, as upstream has
it.
"""

import datetime
import functools
from importlib import metadata

import flask

from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system

ROOT = '/redfish/v1/Managers'

_SHAPE = payload.read_only(
    'Id', 'Name', 'UUID', 'ManagerType', 'Status', 'PowerState',
    'FirmwareVersion', 'Model', 'Description', 'Links', 'VirtualMedia',
    # The clock is that of the host this runs on.
    'DateTime', 'DateTimeLocalOffset')


@functools.cache
def _version():
    return metadata.version('sushy-kubevirt')


def collection():
    """GET /redfish/v1/Managers"""
    return responses.collection(
        'ManagerCollection', 'Manager Collection', ROOT,
        ['%s/%s' % (ROOT, machine.uuid)
         for machine in flask.current_app.systems.machines()])


def resource(machine):
    """GET, PATCH /redfish/v1/Managers/<identity>"""
    if flask.request.method == 'PATCH':
        payload.properties(_SHAPE)
    return responses.resource(_body(machine, flask.current_app))


def _body(machine, app):
    system = computer_system.path(machine)
    full = app.feature_set == 'full'
    body = {
        '@odata.id': '%s/%s' % (ROOT, machine.uuid),
        '@odata.type': '#Manager.v1_17_0.Manager',
        'Id': machine.uuid,
        'Name': '%s-Manager' % machine.name,
        'UUID': machine.uuid,
        'ManagerType': 'BMC',
        'VirtualMedia': responses.link(system + '/VirtualMedia'),
        'Links': {'ManagerForServers': [responses.link(system)]},
    }
    if full:
        now = datetime.datetime.now(datetime.timezone.utc)
        body.update({
            'Description': 'BMC of KubeVirt VirtualMachine %s'
            % machine.qualified_name,
            'Model': 'sushy-kubevirt',
            'FirmwareVersion': _version(),
            'DateTime': now.isoformat(timespec='seconds'),
            'DateTimeLocalOffset': '+00:00',
            'PowerState': 'On',
            'Status': {'State': 'Enabled', 'Health': 'OK'},
        })
        body['Links']['ManagerForChassis'] = [
            responses.link('/redfish/v1/Chassis/' + uuid)
            for uuid in app.chassis.chassis[:1]]
    return body


ROOT_LINKS = {'Managers': ROOT}

ROUTES = (
    routing.replace('manager_collection_resource', collection, 'vmedia'),
    routing.replace('manager_resource', resource, 'vmedia'),
)
