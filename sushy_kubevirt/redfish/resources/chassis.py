# SPDX-License-Identifier: Apache-2.0
"""Chassis: the container of systems that Redfish's model wants.

No VM has one. It is named in the config file (SUSHY_EMULATOR_CHASSIS) or is
upstream's default, and shows nothing that is not so: no temperatures, no
serial numbers. It keeps no indicator either, for which upstream has a
database.
"""

import flask

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.redfish.resources import manager

ROOT = '/redfish/v1/Chassis'

_SHAPE = payload.read_only(
    'Id', 'Name', 'UUID', 'ChassisType', 'Description', 'Status', 'Links',
    'IndicatorLED', 'LocationIndicatorActive')


def collection():
    """GET /redfish/v1/Chassis"""
    return responses.collection(
        'ChassisCollection', 'Chassis Collection', ROOT,
        ['%s/%s' % (ROOT, uuid)
         for uuid in flask.current_app.chassis.chassis])


def resource(identity):
    """GET, PATCH /redfish/v1/Chassis/<identity>

    :param identity: UUID; the guard has sent names there
    """
    if flask.request.method == 'PATCH':
        payload.properties(_SHAPE)
    app = flask.current_app
    uuid = app.chassis.uuid(identity)
    # As upstream has it: the first holds everything.
    machines = (app.systems.machines()
                if uuid == app.chassis.chassis[0] else [])
    return responses.resource({
        '@odata.id': '%s/%s' % (ROOT, uuid),
        '@odata.type': '#Chassis.v1_23_0.Chassis',
        'Id': uuid,
        'Name': app.chassis.name(uuid),
        'UUID': uuid,
        'ChassisType': 'Other',
        'Description': 'Stands for no hardware',
        'Status': {'State': 'Enabled', 'Health': 'OK'},
        'Links': {
            'ComputerSystems': [
                responses.link(computer_system.path(machine))
                for machine in machines],
            'ManagedBy': [
                responses.link('%s/%s' % (manager.ROOT, machine.uuid))
                for machine in machines],
        },
    })


def thermal(identity):
    """…/Thermal: there is nothing to measure."""
    raise errors.missing()


ROOT_LINKS = {'Chassis': ROOT}

ROUTES = (
    routing.replace('chassis_collection_resource', collection),
    routing.replace('chassis_resource', resource),
    routing.replace('thermal_resource', thermal),
)
