# SPDX-License-Identifier: Apache-2.0
"""What a system boots from: its ``Boot``, BootOptions, SetDefaultBootOrder.

``Boot`` has the persistent order (``BootOrder``, of `bootoptions`) and the
override that lies on it; both are changed with a PATCH of the system.
"""

import flask

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.resources import storage

_ENABLED = tuple(value.value for value in boot.Enabled)
_MODES = tuple(value.value for value in boot.Mode)

_NO_HTTP_BOOT = payload.ReadOnly(
    'This VM cannot be booted from a URI by HTTP.')

_TITLES = {boot_order.Class.PXE: 'Network interface %s',
           boot_order.Class.HDD: 'Disk %s',
           boot_order.Class.CD: 'CD-ROM drive %s'}


# The system's Boot

def boot_property(machine, full):
    """A system's ``Boot``.

    :param full: with boot options and order
    """
    state = machine.boot()
    found = machine.boot_targets()
    body = {
        'BootSourceOverrideEnabled': state.enabled.value,
        'BootSourceOverrideEnabled@Redfish.AllowableValues': list(_ENABLED),
        'BootSourceOverrideTarget': state.target.value,
        'BootSourceOverrideTarget@Redfish.AllowableValues':
            _targets(found),
        'BootSourceOverrideMode': state.mode.value,
        'BootSourceOverrideMode@Redfish.AllowableValues': list(_MODES),
    }
    if boot.Target.UEFI_HTTP in found:
        body['HttpBootUri'] = state.http_uri or None
    if full:
        body['BootOptions'] = responses.link(
            resource_paths.system(machine, 'BootOptions'))
        body['BootOrder'] = list(machine.boot_order())
    return body


def targets(machine):
    """Values of BootSourceOverrideTarget that this VM can take."""
    return _targets(machine.boot_targets())


def _targets(found):
    none = boot.Target.NONE
    return [none.value] + [target.value for target in found
                           if target is not none]


def patch_shape(machine, full):
    """What a PATCH of ``Boot`` may have, see `payload.properties`."""
    http = boot.Target.UEFI_HTTP in machine.boot_targets()
    taken = {
        'BootSourceOverrideTarget': tuple(targets(machine)),
        'BootSourceOverrideEnabled': _ENABLED,
        'BootSourceOverrideMode': _MODES,
        # sushy sends null with every other target.
        'HttpBootUri': str | None if http else _NO_HTTP_BOOT,
    }
    if full:
        taken['BootOrder'] = list
        taken['BootOptions'] = payload.ReadOnly()
    return taken


def validate(machine, chosen):
    """Refuse what the shape cannot tell to be wrong.

    :param chosen: ``Boot`` of a PATCH
    :raises: `errors.RedfishError`, 400
    """
    enabled = chosen.get('BootSourceOverrideEnabled')
    if enabled and enabled != boot.Enabled.DISABLED.value and not (
            chosen.keys() & {'BootSourceOverrideTarget', 'HttpBootUri',
                             'BootSourceOverrideMode'}
    ) and machine.boot().target is boot.Target.NONE:
        raise errors.RedfishError(400, messages.message(
            'PropertyMissing', 'BootSourceOverrideTarget',
            detail=f'There is none to be used {enabled}.',
            related=['#/Boot/BootSourceOverrideTarget']))
    for place, reference in enumerate(chosen.get('BootOrder', ())):
        if not isinstance(reference, str):
            raise errors.RedfishError(400, messages.message(
                'PropertyValueTypeError', reference, 'BootOrder',
                related=['#/Boot/BootOrder/%d' % place]))


def apply(machine, chosen):
    """Carry out a PATCH of ``Boot``, as one change.

    :param chosen: properties to values, checked
    """
    target = chosen.get('BootSourceOverrideTarget')
    enabled = chosen.get('BootSourceOverrideEnabled')
    mode = chosen.get('BootSourceOverrideMode')
    more = {}
    if 'HttpBootUri' in chosen:
        more['http_uri'] = chosen['HttpBootUri'] or ''
    if 'BootOrder' in chosen:
        more['order'] = tuple(chosen['BootOrder'])
    name = next(iter(chosen))
    with resource_paths.property_errors(machine, 'Boot/' + name, chosen[name]):
        machine.set_boot(
            target=boot.Target(target) if target else None,
            enabled=boot.Enabled(enabled) if enabled else None,
            mode=boot.Mode(mode) if mode else None, **more)
    flask.current_app.logger.info(
        'Boot of %s set to %s', machine.qualified_name,
        ', '.join('%s=%s' % item for item in sorted(chosen.items())
                  # It may have a user and a password.
                  if item[0] != 'HttpBootUri') or 'HTTP')


# Boot options

def collection(machine):
    """GET …/BootOptions"""
    return resource_paths.collection(
        'BootOption', 'Boot Options', resource_paths.system(
            machine, 'BootOptions'),
        [option.reference for option in machine.boot_options()])


def resource(machine, reference):
    """GET …/BootOptions/<reference>"""
    for option in machine.boot_options():
        if option.reference == reference:
            break
    else:
        raise errors.resource_not_found('BootOption', reference)
    body = {
        '@odata.id': resource_paths.system(machine, 'BootOptions', reference),
        '@odata.type': '#BootOption.v1_0_5.BootOption',
        'Id': reference,
        'Name': option.name,
        'DisplayName': _TITLES.get(option.class_, '%s') % option.name,
        'BootOptionReference': reference,
        'BootOptionEnabled': reference in machine.boot_order(),
        'Alias': option.class_.value,
    }
    device = _device(machine, option)
    if device:
        body['RelatedItem'] = [responses.link(device)]
        body['RelatedItem@odata.count'] = 1
    return responses.resource(body)


def _device(machine, option):
    """Path of the device that boots; None while the guest does not have it.
    """
    if option.device.list == 'interfaces':
        if option.name in [nic.name for nic in machine.inventory().nics]:
            return resource_paths.system(
                machine, 'EthernetInterfaces', option.name)
    elif option.name in [disk.name for disks in
                         storage.drives(machine).values() for disk in disks]:
        return storage.drive_path(machine, option.name)
    return None


def set_default_boot_order(machine):
    """POST …/Actions/ComputerSystem.SetDefaultBootOrder"""
    payload.parameters('ComputerSystem.SetDefaultBootOrder', {})
    machine.set_default_boot_order()
    flask.current_app.logger.info('Boot order of %s set to its default',
                                  machine.qualified_name)
    return responses.no_content()


_ROOT = resource_paths.SYSTEMS + '/<identity>'

ROUTES = (
    routing.add(_ROOT + '/BootOptions', collection),
    routing.add(_ROOT + '/BootOptions/<reference>', resource),
    routing.add(_ROOT + '/Actions/ComputerSystem.SetDefaultBootOrder',
                set_default_boot_order, ('POST',)),
)
