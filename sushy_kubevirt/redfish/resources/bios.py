# SPDX-License-Identifier: Apache-2.0
"""Bios v1.2, its attribute registry, and SecureBoot v1.1.

The registry describes the attributes of the VM (`machine.bios`). Attributes
with other names are stored for clients and have no effect. Changes are made to
the settings object and take effect at the next boot. The resources are served
below ``Bios``, the standard's path, and ``BIOS``, sushy-emulator's.
"""

from __future__ import annotations

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
_APPLY_TIMES: payload.Shape = {_APPLY_TIME: {
    'ApplyTime': (_ON_RESET,), 'MaintenanceWindowStartTime': object,
    'MaintenanceWindowDurationInSeconds': object}}


def bios_resource(machine: machine.Machine) -> responses.Json:
    """GET …/Bios: the attributes of the running boot

    While the system is off, those of the next boot.
    """
    here = resource_paths.system(machine, 'Bios')
    return {
        '@odata.id': here,
        '@odata.type': '#Bios.v1_2_1.Bios',
        'Id': 'Bios',
        'Name': 'BIOS Configuration Current Settings',
        'AttributeRegistry': f'{REGISTRY}.{_VERSION}',
        'Attributes': machine.current_attributes(),
        '@Redfish.Settings': _settings(machine, here),
        'Actions': {'#Bios.ResetBios': {
            'target': here + '/Actions/Bios.ResetBios'}},
    }


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


def bios_settings(machine: machine.Machine) -> responses.Json:
    """GET …/Bios/Settings: the attributes of the next boot"""
    return {
        '@odata.id': resource_paths.system(machine, 'Bios', 'Settings'),
        '@odata.type': '#Bios.v1_2_1.Bios',
        'Id': 'Settings',
        'Name': 'BIOS Configuration Pending Settings',
        'AttributeRegistry': f'{REGISTRY}.{_VERSION}',
        'Attributes': machine.attributes(),
    }


def patch_settings(machine: machine.Machine) -> None:
    """PATCH …/Bios/Settings"""
    given = payload.body()
    attributes = given.get('Attributes')
    values = payload.validated(given, {
        'Attributes': {name: _kind(machine, name, value)
                       for name, value in attributes.items()}
        if isinstance(attributes, dict) else dict,
        **({} if given.get(_APPLY_TIME) is None else _APPLY_TIMES),
    }, required=['Attributes'])['Attributes']
    if not values:
        raise error_responses.base_error(
            400, 'NoOperation', detail='Attributes is empty.')
    try:
        machine.set_attributes(values)
    except errors.InvalidValue as exc:
        raise error_responses.base_error(
            400, 'PropertyValueIncorrect', exc.property, exc.value,
            detail=str(exc),
            related=['#/Attributes/' + exc.property]) from exc
    # Values are not logged, because an attribute may be a password.
    flask.current_app.logger.info(
        'BIOS attributes of %s set: %r', machine.qualified_name,
        sorted(values))


def _kind(machine: machine.Machine, name: str, value: typing.Any
          ) -> payload.Kind:
    """Return what is accepted for an attribute, as in a shape."""
    for attribute in bios.VM_ATTRIBUTES:
        if attribute.name == name:
            if attribute.read_only and value != machine.attributes().get(name):
                return payload.ReadOnly()
            return tuple(machine.attribute_values(attribute))
    # Bios_v1.xml: attributes are of primitive types.
    return str | bool | int | float | None


def reset_bios(machine: machine.Machine) -> None:
    """POST …/Bios/Actions/Bios.ResetBios

    Removes the attributes stored for clients. The attributes of the VM have
    no default values and stay unchanged.
    """
    payload.parameters('Bios.ResetBios', {})
    machine.reset_attributes()
    flask.current_app.logger.info(
        'BIOS attributes of %s reset', machine.qualified_name)


def secure_boot(machine: machine.Machine) -> responses.Json:
    """GET …/SecureBoot

    SecureBootEnable applies to the next boot, SecureBootCurrentBoot to the
    running one.
    """
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
    return body


def patch_secure_boot(machine: machine.Machine) -> None:
    """PATCH …/SecureBoot"""
    values = payload.properties({
        'SecureBootEnable': bool,
        **payload.read_only('Id', 'Name', 'SecureBootCurrentBoot',
                            'SecureBootMode')})
    enable = values['SecureBootEnable']
    with resource_paths.property_errors(machine, 'SecureBootEnable', enable):
        machine.set_secure_boot(enable)
    flask.current_app.logger.info(
        'Secure Boot of %s set to %s', machine.qualified_name, enable)


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
    routing.replace('bios_settings', bios_settings, patch=patch_settings),
    routing.replace('system_reset_bios', post=reset_bios),
    routing.replace('secure_boot', secure_boot, patch=patch_secure_boot),
    routing.add(_SYSTEM + '/Bios', bios_resource),
    routing.add(_SYSTEM + '/Bios/Settings', bios_settings,
                patch=patch_settings),
    routing.add(_SYSTEM + '/Bios/Actions/Bios.ResetBios', post=reset_bios),
)
