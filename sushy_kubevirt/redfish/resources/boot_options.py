# SPDX-License-Identifier: Apache-2.0
"""Boot of ComputerSystem, BootOption v1.0 and the action SetDefaultBootOrder.

``Boot`` consists of the persistent ``BootOrder``, whose entries are references
of boot options, and of the override. Both are changed by a PATCH of the
system.
"""

from __future__ import annotations

import typing

import flask

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.resources import storage

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import boot_options
    from sushy_kubevirt.machine import machine

_ENABLED = tuple(value.value for value in boot.Enabled)

_NO_HTTP_BOOT = payload.ReadOnly(
    'This VM cannot be booted from a URI by HTTP.')

_TITLES = {boot_order.Target.PXE: 'Network interface ',
           boot_order.Target.HDD: 'Disk ',
           boot_order.Target.CD: 'CD-ROM drive ',
           boot_order.Target.USB: 'USB stick '}


# Boot of the system

def boot_property(machine: machine.Machine, full: bool) -> responses.Json:
    """Build the property ``Boot`` of a system.

    :param full: whether to include BootOptions and BootOrder
    """
    state = machine.boot()
    supported = machine.boot_targets()
    body: responses.Json = {
        'BootSourceOverrideEnabled': state.enabled.value,
        'BootSourceOverrideEnabled@Redfish.AllowableValues': list(_ENABLED),
        'BootSourceOverrideTarget': state.target.value,
        'BootSourceOverrideTarget@Redfish.AllowableValues':
            _targets(supported),
        'BootSourceOverrideMode': state.mode.value,
        'BootSourceOverrideMode@Redfish.AllowableValues': [
            mode.value for mode in machine.boot_modes()],
    }
    if boot.Target.UEFI_HTTP in supported:
        body['HttpBootUri'] = state.http_uri or None
    if full:
        body['BootOptions'] = responses.link(
            resource_paths.system(machine, 'BootOptions'))
        body['BootOrder'] = list(machine.boot_order())
    return body


def _targets(supported: abc.Iterable[boot.Target]) -> list[str]:
    none = boot.Target.NONE
    return [none.value] + [target.value for target in supported
                           if target is not none]


def patch_shape(machine: machine.Machine, full: bool) -> payload.Shape:
    """Build the shape of ``Boot`` in a PATCH, see `payload.properties`.

    :param full: whether BootOrder can be set
    """
    supported = machine.boot_targets()
    taken: dict[str, payload.Kind] = {
        'BootSourceOverrideTarget': tuple(_targets(supported)),
        'BootSourceOverrideEnabled': _ENABLED,
        'BootSourceOverrideMode': tuple(
            mode.value for mode in machine.boot_modes()),
        # sushy sends null with every other target.
        'HttpBootUri': str | None if boot.Target.UEFI_HTTP in supported
        else _NO_HTTP_BOOT,
    }
    if full:
        taken['BootOrder'] = payload.ListOf(str)
        taken['BootOptions'] = payload.ReadOnly()
    return taken


def validate(machine: machine.Machine, chosen: responses.Json) -> None:
    """Validate the constraints that the shape cannot express.

    :param chosen: ``Boot`` of a PATCH
    :raises: `error_responses.RedfishError`, 400
    """
    enabled = chosen.get('BootSourceOverrideEnabled')
    if enabled and enabled != boot.Enabled.DISABLED.value and not (
            chosen.keys() & {'BootSourceOverrideTarget', 'HttpBootUri',
                             'BootSourceOverrideMode'}
    ) and machine.boot().target is boot.Target.NONE:
        raise error_responses.base_error(
            400, 'PropertyMissing', 'BootSourceOverrideTarget',
            detail=f'{enabled} needs a boot target.',
            related=['#/Boot/BootSourceOverrideTarget'])


def settings(chosen: responses.Json) -> responses.Json:
    """Convert ``Boot`` of a PATCH to boot settings.

    :param chosen: validated properties
    :returns: parameters of `boot.Change`
    """
    target = chosen.get('BootSourceOverrideTarget')
    enabled = chosen.get('BootSourceOverrideEnabled')
    mode = chosen.get('BootSourceOverrideMode')
    more: responses.Json = {}
    if 'HttpBootUri' in chosen:
        more['http_uri'] = chosen['HttpBootUri'] or ''
    if 'BootOrder' in chosen:
        more['order'] = tuple(chosen['BootOrder'])
    return {'target': boot.Target(target) if target else None,
            'enabled': boot.Enabled(enabled) if enabled else None,
            'mode': boot.Mode(mode) if mode else None, **more}


def log(machine: machine.Machine, chosen: responses.Json) -> None:
    """Log that ``Boot`` was changed.

    :param chosen: properties of the PATCH
    """
    flask.current_app.logger.info(
        'Boot of %s set to %s', machine.qualified_name,
        ', '.join(f'{name}={value}' for name, value in sorted(chosen.items())
                  # The URI may contain a user and password.
                  if name != 'HttpBootUri') or 'HTTP')


# Boot options

def collection(machine: machine.Machine) -> responses.Json:
    """GET …/BootOptions"""
    return responses.collection(
        'BootOption', 'Boot Options', resource_paths.system(
            machine, 'BootOptions'),
        [option.reference for option in machine.boot_options()])


def resource(machine: machine.Machine, reference: str) -> responses.Json:
    """GET …/BootOptions/<reference>"""
    option = resource_paths.member('BootOption', reference, {
        option.reference: option for option in machine.boot_options()})
    body: responses.Json = {
        '@odata.id': resource_paths.system(machine, 'BootOptions', reference),
        '@odata.type': '#BootOption.v1_0_5.BootOption',
        'Id': reference,
        'Name': option.name,
        'DisplayName': _TITLES.get(option.class_, '') + option.name,
        'BootOptionReference': reference,
        'BootOptionEnabled': reference in machine.boot_order(),
        'Alias': option.class_.value,
    }
    device = _device(machine, option)
    if device:
        body['RelatedItem'] = [responses.link(device)]
        body['RelatedItem@odata.count'] = 1
    return body


def _device(machine: machine.Machine, option: boot_options.Option
            ) -> str | None:
    """Return the path of a device; None if the running guest lacks it."""
    if option.device.list == 'interfaces':
        if option.name in [nic.name for nic in machine.inventory().nics]:
            return resource_paths.system(
                machine, 'EthernetInterfaces', option.name)
    elif option.name in [disk.name for disks in
                         storage.drives(machine).values() for disk in disks]:
        return storage.drive_path(machine, option.name)
    return None


def set_default_boot_order(machine: machine.Machine) -> None:
    """POST …/Actions/ComputerSystem.SetDefaultBootOrder"""
    payload.parameters('ComputerSystem.SetDefaultBootOrder', {})
    machine.set_default_boot_order()
    flask.current_app.logger.info('Boot order of %s set to its default',
                                  machine.qualified_name)


_ROOT = resource_paths.SYSTEMS + '/<identity>'

ROUTES = (
    routing.add(_ROOT + '/BootOptions', collection, cached=True),
    routing.add(_ROOT + '/BootOptions/<reference>', resource, cached=True),
    routing.add(_ROOT + '/Actions/ComputerSystem.SetDefaultBootOrder',
                post=set_default_boot_order),
)
