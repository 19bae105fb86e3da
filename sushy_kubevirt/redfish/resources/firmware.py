# SPDX-License-Identifier: Apache-2.0
"""A system's firmware settings: BIOS attributes and Secure Boot.

The attributes are kept on the VM for clients that want to set and compare
them; none of them changes what the VM does. Secure Boot does.

The standard's path is ``Bios``; upstream's, ``BIOS``, answers as well.
"""

import math

import flask

from sushy_kubevirt.kubevirt import errors as machine_errors
from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system


def _primitive(value):
    # Bios_v1.xml: the attributes are of primitive types. Python reads NaN
    # and Infinity, which JSON does not have.
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, bool, int))


def bios(machine):
    """GET …/Bios"""
    here = computer_system.path(machine) + '/Bios'
    return responses.resource({
        '@odata.id': here,
        '@odata.type': '#Bios.v1_2_0.Bios',
        'Id': 'Bios',
        'Name': 'BIOS Configuration Current Settings',
        'Attributes': machine.attributes(),
        '@Redfish.Settings': {
            '@odata.type': '#Settings.v1_3_0.Settings',
            'SettingsObject': responses.link(here + '/Settings'),
        },
        'Actions': {'#Bios.ResetBios': {
            'target': here + '/Actions/Bios.ResetBios'}},
    })


def bios_settings(machine):
    """GET, PATCH …/Bios/Settings: changes are in effect at once"""
    if flask.request.method == 'PATCH':
        return _patch_bios(machine)
    return responses.resource({
        '@odata.id': computer_system.path(machine) + '/Bios/Settings',
        '@odata.type': '#Bios.v1_2_0.Bios',
        'Id': 'Settings',
        'Name': 'BIOS Configuration Pending Settings',
        'Attributes': machine.attributes(),
    })


def _patch_bios(machine):
    given = payload.body()
    found = [messages.message('PropertyUnknown', name, related=['#/' + name])
             for name in given
             if name != 'Attributes' and not payload.annotation(name)]
    values = given.get('Attributes')
    if 'Attributes' not in given:
        found.append(messages.message('PropertyMissing', 'Attributes'))
    elif not isinstance(values, dict):
        found.append(messages.message(
            'PropertyValueTypeError', values, 'Attributes',
            related=['#/Attributes']))
    else:
        found += [messages.message('PropertyValueTypeError', value, name,
                                   related=['#/Attributes/' + name])
                  for name, value in values.items()
                  if not _primitive(value)]
    if found:
        raise errors.RedfishError(400, *found)
    if not values:
        raise errors.RedfishError(400, messages.message(
            'NoOperation', detail='Attributes is empty.'))
    try:
        machine.set_attributes(values)
    except machine_errors.InvalidValue as exc:
        raise errors.RedfishError(400, messages.message(
            'PropertyValueIncorrect', exc.property, exc.value,
            detail=str(exc),
            related=['#/Attributes/%s' % exc.property])) from exc
    # Names only: one of them may be a password.
    flask.current_app.logger.info(
        'BIOS attributes of %s set: %r', machine.qualified_name,
        sorted(values))
    return responses.done()


def reset_bios(machine):
    """POST …/Bios/Actions/Bios.ResetBios"""
    payload.parameters('Bios.ResetBios', {})
    machine.reset_attributes()
    flask.current_app.logger.info(
        'BIOS attributes of %s reset', machine.qualified_name)
    return responses.done()


def secure_boot(machine):
    """GET, PATCH …/SecureBoot"""
    if flask.request.method == 'PATCH':
        return _patch_secure_boot(machine)
    enabled = machine.secure_boot()
    return responses.resource({
        '@odata.id': computer_system.path(machine) + '/SecureBoot',
        '@odata.type': '#SecureBoot.v1_1_0.SecureBoot',
        'Id': 'SecureBoot',
        'Name': 'UEFI Secure Boot',
        'SecureBootEnable': enabled,
        'SecureBootCurrentBoot': 'Enabled' if enabled else 'Disabled',
        'SecureBootMode': 'UserMode',
    })


def _patch_secure_boot(machine):
    values = payload.properties({
        'SecureBootEnable': bool,
        **payload.read_only('Id', 'Name', 'SecureBootCurrentBoot',
                            'SecureBootMode')})
    enable = values['SecureBootEnable']
    with computer_system.refusals(machine, 'SecureBootEnable', enable):
        machine.set_secure_boot(enable)
    flask.current_app.logger.info(
        'Secure Boot of %s set to %s', machine.qualified_name, enable)
    return responses.done()


_SYSTEM = computer_system.ROOT + '/<identity>'

ROUTES = (
    routing.replace('bios', bios),
    routing.replace('bios_settings', bios_settings),
    routing.replace('system_reset_bios', reset_bios),
    routing.replace('secure_boot', secure_boot),
    routing.add(_SYSTEM + '/Bios',
                bios),
    routing.add(_SYSTEM + '/Bios/Settings',
                bios_settings, ('GET', 'PATCH')),
    routing.add(_SYSTEM + '/Bios/Actions/Bios.ResetBios',
                reset_bios, ('POST',)),
)
