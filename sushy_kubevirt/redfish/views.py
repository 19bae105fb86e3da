# SPDX-License-Identifier: Apache-2.0
"""Every route that is answered here, and how they get into an application.

A service that upstream does not have brings a blueprint of its own: it is
registered in `install`, guarded and given its error bodies like all others.
"""

import functools

import flask

from sushy_kubevirt.redfish import access
from sushy_kubevirt.redfish import chassis
from sushy_kubevirt.redfish import computer_system
from sushy_kubevirt.redfish import devices
from sushy_kubevirt.redfish import errors
from sushy_kubevirt.redfish import firmware
from sushy_kubevirt.redfish import manager
from sushy_kubevirt.redfish import payload
from sushy_kubevirt.redfish import services

# SUSHY_EMULATOR_FEATURE_SET, from the least.
_FEATURES = ('minimum', 'vmedia', 'full')

#: Upstream's endpoint (sushy-tools 2.2.0): the least feature set it is part
#: of, and our view.
VIEWS = {
    'system_collection_resource': ('minimum', computer_system.collection),
    'system_resource': ('minimum', computer_system.resource),
    'system_reset_action': ('minimum', computer_system.reset),
    'processors_collection': ('full', devices.processors),
    'processor': ('full', devices.processor),
    'ethernet_interfaces_collection': ('vmedia',
                                       devices.ethernet_interfaces),
    'ethernet_interface': ('vmedia', devices.ethernet_interface),
    'simple_storage_collection': ('full', devices.simple_storage_collection),
    'simple_storage': ('full', devices.simple_storage),
    'storage_collection': ('full', devices.storage),
    'storage': ('full', devices.storage),
    'drive_resource': ('full', devices.storage),
    'volumes_collection': ('full', devices.storage),
    'volume': ('full', devices.storage),
    'bios': ('full', firmware.bios),
    'bios_settings': ('full', firmware.bios_settings),
    'system_reset_bios': ('full', firmware.reset_bios),
    'secure_boot': ('full', firmware.secure_boot),
    'manager_collection_resource': ('vmedia', manager.collection),
    'manager_resource': ('vmedia', manager.resource),
    'chassis_collection_resource': ('full', chassis.collection),
    'chassis_resource': ('full', chassis.resource),
    'thermal_resource': ('full', chassis.thermal),
    'UpdateService.update_service_resource': ('full',
                                              services.update_service),
    'UpdateService.update_service_simple_update': ('full',
                                                   services.simple_update),
    'CertificateService.certificate_service_replace_certificate':
        ('full', services.replace_certificate),
}

#: Routes upstream does not have: rule below a system, endpoint, methods, the
#: least feature set, view.
ROUTES = (
    ('Bios', 'kubevirt_bios', ('GET',), 'full', firmware.bios),
    ('Bios/Settings', 'kubevirt_bios_settings', ('GET', 'PATCH'), 'full',
     firmware.bios_settings),
    ('Bios/Actions/Bios.ResetBios', 'kubevirt_reset_bios', ('POST',), 'full',
     firmware.reset_bios),
)


def _adapted(feature, view):
    """Our view in the form Flask calls it.

    One that is about a system is given the machine that the guard found, and
    never an identity.
    """
    least = _FEATURES.index(feature)

    @functools.wraps(view)
    def adapted(identity=None, **arguments):
        if least and _FEATURES.index(
                flask.current_app.feature_set) < least:
            raise errors.missing()
        if flask.g.machine is not None:
            return view(flask.g.machine, **arguments)
        if identity is not None:
            return view(identity, **arguments)
        return view(**arguments)

    return adapted


def install(app):
    """Put our views, the guard and the error bodies into an application.

    :param app: sushy-emulator's application, before its first request
    :raises: `RuntimeError` if it is not the one this was written for
    """
    moved = sorted(set(VIEWS) - set(app.view_functions))
    if moved:
        raise RuntimeError('This sushy-tools has no endpoint %s; see '
                           'sushy_kubevirt.plugin' % ', '.join(moved))
    for endpoint, (feature, view) in VIEWS.items():
        app.view_functions[endpoint] = _adapted(feature, view)
    for rule, endpoint, methods, feature, view in ROUTES:
        app.add_url_rule('%s/<identity>/%s' % (computer_system.ROOT, rule),
                         endpoint, _adapted(feature, view), methods=methods)
    app.before_request(access.guard)
    app.before_request(payload.check)
    # In place of upstream's handler, which knows one message and puts
    # Python's words into it.
    app.register_error_handler(Exception, errors.answer)
