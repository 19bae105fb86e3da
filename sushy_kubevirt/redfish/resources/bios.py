# SPDX-License-Identifier: Apache-2.0
"""Bios v1.2, its attribute registry, and SecureBoot v1.1.

The registry describes the attributes of the VM (`machine.bios`). Attributes
with other names are stored for clients and have no effect. Changes are made to
the settings object and take effect at the next boot. The resources are served
below ``Bios``, the standard's path, and ``BIOS``, sushy-emulator's.
"""

from __future__ import annotations

import math
import typing

import flask

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import boot
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

REGISTRY = 'BiosAttributeRegistryKubeVirt'

_VERSION = '1.0.0'

#: ApplyTime of changes. They take effect at once while the VM is off.
_ON_RESET = 'OnReset'

_APPLY_TIME = '@Redfish.SettingsApplyTime'


def _is_primitive(value: typing.Any) -> bool:
    # Bios_v1.xml: attributes are of primitive types. Python's parser accepts
    # NaN and Infinity, which are not JSON.
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, bool, int))


def bios_resource(machine: machine.Machine) -> flask.Response:
    """GET …/Bios: the attributes of the running boot

    While the system is off, those of the next boot.
    """
    here = resource_paths.system(machine, 'Bios')
    return responses.resource({
        '@odata.id': here,
        '@odata.type': '#Bios.v1_2_1.Bios',
        'Id': 'Bios',
        'Name': 'BIOS Configuration Current Settings',
        'AttributeRegistry': f'{REGISTRY}.{_VERSION}',
        'Attributes': machine.current_attributes(),
        '@Redfish.Settings': _settings(machine, here),
        'Actions': {'#Bios.ResetBios': {
            'target': here + '/Actions/Bios.ResetBios'}},
    })


def _settings(machine: machine.Machine, here: str) -> responses.Json:
    # The optional ETag is left out: sushy sends it as If-Match with PATCH of
    # the settings object, which has a different ETag.
    body: responses.Json = {
        '@odata.type': '#Settings.v1_3_5.Settings',
        'SettingsObject': responses.link(here + '/Settings'),
        'SupportedApplyTimes': [_ON_RESET],
    }
    started = machine.inventory().started
    if started:
        # The settings were applied when the VMI was created.
        body.update(Time=started, Messages=[messages.message('Success')])
    return body


def bios_settings(machine: machine.Machine) -> flask.Response:
    """GET, PATCH …/Bios/Settings: the attributes of the next boot"""
    if flask.request.method == 'PATCH':
        return _patch_bios(machine)
    return responses.resource({
        '@odata.id': resource_paths.system(machine, 'Bios', 'Settings'),
        '@odata.type': '#Bios.v1_2_1.Bios',
        'Id': 'Settings',
        'Name': 'BIOS Configuration Pending Settings',
        'AttributeRegistry': f'{REGISTRY}.{_VERSION}',
        'Attributes': machine.attributes(),
    })


def _patch_bios(machine: machine.Machine) -> flask.Response:
    given = payload.body()
    values = given.get('Attributes')
    problems = _apply_time(given.get(_APPLY_TIME))
    problems += [
        messages.message('PropertyUnknown', name, related=['#/' + name])
        for name in given
        if name != 'Attributes' and not payload.is_annotation(name)]
    if 'Attributes' not in given:
        problems.append(messages.message('PropertyMissing', 'Attributes'))
    elif not isinstance(values, dict):
        problems.append(messages.message(
            'PropertyValueTypeError', values, 'Attributes',
            related=['#/Attributes']))
    else:
        problems += [entry for name, value in values.items()
                     for entry in _attribute(machine, name, value)]
    if problems:
        raise error_responses.RedfishError(400, *problems)
    if not values:
        raise error_responses.RedfishError(400, messages.message(
            'NoOperation', detail='Attributes is empty.'))
    try:
        machine.set_attributes(values)
    except errors.InvalidValue as exc:
        raise error_responses.RedfishError(400, messages.message(
            'PropertyValueIncorrect', exc.property, exc.value,
            detail=str(exc),
            related=[f'#/Attributes/{exc.property}'])) from exc
    # Values are not logged, because an attribute may be a password.
    flask.current_app.logger.info(
        'BIOS attributes of %s set: %r', machine.qualified_name,
        sorted(values))
    return responses.no_content()


def _apply_time(given: typing.Any) -> list[messages.Message]:
    """Validate @Redfish.SettingsApplyTime.

    :param given: its value
    :returns: error messages, none if it is valid
    """
    if given is None:
        return []
    where = ['#/' + _APPLY_TIME]
    if not isinstance(given, dict):
        return [messages.message('PropertyValueTypeError', given,
                                 _APPLY_TIME, related=where)]
    wanted = given.get('ApplyTime', _ON_RESET)
    if wanted != _ON_RESET:
        return [messages.message(
            'PropertyValueNotInList', wanted, 'ApplyTime',
            detail=f'Allowed value: {_ON_RESET}.',
            related=[where[0] + '/ApplyTime'])]
    return []


def _attribute(machine: machine.Machine, name: str, value: typing.Any
               ) -> list[messages.Message]:
    """Validate a new value of an attribute.

    :param name: name of the attribute
    :param value: requested value
    :returns: error messages, none if it is valid
    """
    where = '#/Attributes/' + name
    for attribute in bios.VM_ATTRIBUTES:
        if attribute.name == name:
            break
    else:
        if _is_primitive(value):
            return []
        return [messages.message('PropertyValueTypeError', value, name,
                                 related=[where])]
    if attribute.read_only and value != machine.attributes().get(name):
        return [messages.message('PropertyNotWritable', name,
                                 related=[where])]
    if not isinstance(value, str):
        return [messages.message('PropertyValueTypeError', value, name,
                                 related=[where])]
    allowed = machine.attribute_values(attribute)
    if value not in allowed:
        return [payload.not_in_list(name, value, allowed, where)]
    return []


def reset_bios(machine: machine.Machine) -> flask.Response:
    """POST …/Bios/Actions/Bios.ResetBios

    Removes the attributes stored for clients. The attributes of the VM have
    no default values and stay unchanged.
    """
    payload.parameters('Bios.ResetBios', {})
    machine.reset_attributes()
    flask.current_app.logger.info(
        'BIOS attributes of %s reset', machine.qualified_name)
    return responses.no_content()


def secure_boot(machine: machine.Machine) -> flask.Response:
    """GET, PATCH …/SecureBoot

    SecureBootEnable applies to the next boot, SecureBootCurrentBoot to the
    running one.
    """
    if flask.request.method == 'PATCH':
        return _patch_secure_boot(machine)
    now = machine.secure_boot_now()
    body = {
        '@odata.id': resource_paths.system(machine, 'SecureBoot'),
        '@odata.type': '#SecureBoot.v1_1_1.SecureBoot',
        'Id': 'SecureBoot',
        'Name': 'UEFI Secure Boot',
        'SecureBootEnable': machine.secure_boot(),
        'SecureBootCurrentBoot': 'Enabled' if now else 'Disabled',
    }
    attributes = machine.current_attributes()
    if (machine.has_secure_boot()
            and attributes[bios.BOOT_MODE] == boot.Mode.UEFI.value
            and attributes[bios.PERSISTENT_NVRAM] != 'Enabled'):
        # KubeVirt's OVMF has enrolled keys only with secure boot. Left out
        # with a persistent NVRAM, whose keys the guest can change.
        body['SecureBootMode'] = 'UserMode' if now else 'SetupMode'
    return responses.resource(body)


def _patch_secure_boot(machine: machine.Machine) -> flask.Response:
    values = payload.properties({
        'SecureBootEnable': bool,
        **payload.read_only('Id', 'Name', 'SecureBootCurrentBoot',
                            'SecureBootMode')})
    enable = values['SecureBootEnable']
    with resource_paths.property_errors(machine, 'SecureBootEnable', enable):
        machine.set_secure_boot(enable)
    flask.current_app.logger.info(
        'Secure Boot of %s set to %s', machine.qualified_name, enable)
    return responses.no_content()


# Attribute registry

def registry() -> responses.Json:
    """Build the attribute registry, which has the attributes of the VM."""
    return {
        '@odata.type': '#AttributeRegistry.v1_3_8.AttributeRegistry',
        'Id': f'{REGISTRY}.{_VERSION}',
        'Name': 'BIOS attributes of KubeVirt VMs',
        'Description': 'Attributes with other names are stored for clients '
                       'and have no effect.',
        'Language': 'en',
        'OwningEntity': 'sushy-kubevirt',
        'RegistryVersion': _VERSION,
        'RegistryEntries': {
            'Attributes': [_entry(attribute)
                           for attribute in bios.VM_ATTRIBUTES],
            'Menus': [],
            'Dependencies': [],
        },
    }


def _entry(attribute: bios.VmAttribute) -> responses.Json:
    return {
        'AttributeName': attribute.name,
        'DisplayName': attribute.label,
        'HelpText': attribute.help,
        'Type': 'Enumeration',
        'Value': [{'ValueName': value, 'ValueDisplayName': value}
                  for value in attribute.values],
        'ReadOnly': attribute.read_only,
        'ResetRequired': not attribute.read_only,
    }


REGISTRIES = (routing.Registry(
    f'{REGISTRY}.{_VERSION}', f'{REGISTRY}.{_VERSION}',
    'BIOS Attribute Registry', registry),)

_SYSTEM = resource_paths.SYSTEMS + '/<identity>'

ROUTES = (
    routing.replace('bios', bios_resource),
    routing.replace('bios_settings', bios_settings),
    routing.replace('system_reset_bios', reset_bios),
    routing.replace('secure_boot', secure_boot),
    routing.add(_SYSTEM + '/Bios',
                bios_resource),
    routing.add(_SYSTEM + '/Bios/Settings',
                bios_settings, ('GET', 'PATCH')),
    routing.add(_SYSTEM + '/Bios/Actions/Bios.ResetBios',
                reset_bios, ('POST',)),
)
