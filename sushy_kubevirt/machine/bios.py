# SPDX-License-Identifier: Apache-2.0
"""BIOS attributes of a machine.

Some attributes are fields of the VM (`VM_ATTRIBUTES`). All others are stored
in an annotation for clients that set the attributes of real machines and
compare them. Both kinds take effect with the next VMI; until then the current
value is the one the VMI was created with.
"""

from __future__ import annotations

import json
import math
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

#: Value of a BIOS attribute.
Value: typing.TypeAlias = str | int | float | bool

#: Maximum size of the annotation's attributes as JSON, in characters (ASCII).
#: Kubernetes limits the annotations of an object to 256 KiB in total, and
#: there are others.
LARGEST = 16 * 1024

BOOT_MODE = 'BootMode'
SECURE_BOOT = 'SecureBoot'
PERSISTENT_NVRAM = 'PersistentNvram'

_OFF_ON = ('Disabled', 'Enabled')


class VmAttribute(typing.NamedTuple):
    """An attribute that is a field of the VM.

    :param name: its name in Redfish
    :param label: its display name
    :param values: those it can have
    :param help: one sentence that explains it
    :param read_only: True if a BMC cannot change it
    """

    name: str
    label: str
    values: tuple[str, ...]
    help: str
    read_only: bool = False


VM_ATTRIBUTES = (
    VmAttribute(
        BOOT_MODE,
        'Boot Mode',
        tuple(mode.value for mode in firmware.Mode),
        'Firmware the guest is started with, of those that its architecture '
        'has: domain.firmware.bootloader.',
    ),
    VmAttribute(
        SECURE_BOOT,
        'Secure Boot',
        _OFF_ON,
        'UEFI Secure Boot; needs Boot Mode UEFI, and x86: '
        'domain.firmware.bootloader.efi.secureBoot.',
    ),
    VmAttribute(
        PERSISTENT_NVRAM,
        'Persistent NVRAM',
        _OFF_ON,
        'Whether UEFI variables outlive the VMI: '
        'domain.firmware.bootloader.efi.persistent.',
        True,
    ),
    VmAttribute(
        'Tpm',
        'TPM',
        ('None', 'Volatile', 'Persistent'),
        'Whether there is a TPM 2.0, and whether what it holds outlives the '
        'VMI: domain.devices.tpm.',
        True,
    ),
)

_BY_NAME = {attribute.name: attribute for attribute in VM_ATTRIBUTES}


def values_of(attribute: VmAttribute, vm: objects.VirtualMachine
              ) -> tuple[str, ...]:
    """Return the values that an attribute can have in a VM.

    The architecture of the VM may lack some.
    """
    if attribute.name == BOOT_MODE:
        return tuple(mode.value for mode in firmware.modes(vm))
    if attribute.name == SECURE_BOOT and not firmware.has_secure_boot(vm):
        return _OFF_ON[:1]
    return attribute.values


def pending(state: vm_state.VmState) -> dict[str, Value]:
    """Return the attributes that apply from the next boot on, by name."""
    return {**_others(state.vm), **_vm_attributes(state)}


def current(state: vm_state.VmState) -> dict[str, Value]:
    """Return the attributes of the present boot, by name; of the next boot
    while the machine is off.
    """
    if not vm_state.is_active(state.vmi):
        return pending(state)
    return {**_current_others(state), **_vm_attributes(
        vm_state.VmState({'spec': {'template': state.vmi}}))}


def set(machine: protocols.Machine,
        values: abc.Mapping[str, Value | None]) -> None:
    """Change some attributes, from the next boot on.

    :param values: by name; None removes an attribute that is not one of
        `VM_ATTRIBUTES`
    :raises: `errors.InvalidValue` for a value that an attribute cannot have,
        for a change of a read-only one and for secure boot in Legacy mode;
        `errors.WrongState` if the VM turns out to be in Legacy mode when
        secure boot is switched on, see `boot.secure_boot_change`
    """
    chosen = {name: value for name, value in values.items()
              if name in _BY_NAME}
    state = machine.write(lambda state: state)
    present = pending(state)
    for name, value in chosen.items():
        attribute = _BY_NAME[name]
        allowed = values_of(attribute, state.vm)
        if value not in allowed:
            raise errors.InvalidValue(name, value, allowed)
        if attribute.read_only and value != present[name]:
            raise errors.InvalidValue(
                name, value, message=f'{name} cannot be changed by a BMC')
    mode, secure = chosen.get(BOOT_MODE), chosen.get(SECURE_BOOT)
    if (secure == 'Enabled'
            and (mode or present[BOOT_MODE]) == firmware.Mode.LEGACY.value):
        raise errors.InvalidValue(
            SECURE_BOOT, secure,
            message='Secure Boot needs Boot Mode UEFI')
    others = {name: value for name, value in values.items()
              if name not in _BY_NAME}
    parts: list[changes.Change] = []
    for name, value in others.items():
        if not isinstance(name, str) or not isinstance(
                value, (str, int, float, type(None))):
            raise errors.InvalidValue(str(name), value)
    if others:
        parts.append(lambda state: _replace_others(
            state, {**_others(state.vm), **others}))
    if mode == present[BOOT_MODE]:
        mode = None
    boot_change = boot.Change(
        machine, mode=firmware.Mode(mode) if mode else None)
    if mode is not None:
        parts.append(boot_change)
    if secure is not None:
        parts.append(boot.secure_boot_change(secure == 'Enabled'))
    boot.write(boot_change, lambda: changes.write(machine, parts))


def reset(machine: protocols.Machine) -> None:
    """Remove the attributes that clients have set in the annotation.

    `VM_ATTRIBUTES` are left unchanged: they have no default, and a client may
    not reset what the VM's owner chose.
    """
    changes.write(machine, (lambda state: _replace_others(state, {}),))


def _others(vm: objects.VirtualMachine) -> dict[str, Value]:
    """Return the annotation's attributes, from the next boot on."""
    return _primitives(bmc_annotations.read(vm, stored_names.ATTRIBUTES))


def _current_others(state: vm_state.VmState) -> dict[str, Value]:
    """Return the annotation's attributes as they were when the machine booted;
    from the next boot on while it is off.
    """
    before = bmc_annotations.read(state.vm, stored_names.ATTRIBUTES_BEFORE)
    if (vm_state.is_active(state.vmi)
            and before.get('vmi') == state.vmi['metadata']['uid']
            and isinstance(before.get('values'), dict)):
        return _primitives(before['values'])
    return _others(state.vm)


def _primitives(values: objects.Json) -> dict[str, Value]:
    # JSON has no NaN and no Infinity, although Python's json module reads and
    # writes them.
    return {name: value for name, value in values.items()
            if isinstance(value, (str, int))
            or isinstance(value, float) and math.isfinite(value)}


def _replace_others(state: vm_state.VmState,
                    values: abc.Mapping[str, Value | None]) -> None:
    """Replace the annotation's attributes, from the next boot on.

    :param state: its VM is changed
    :param values: all of them; one that is None is removed
    """
    new = {name: value for name, value in values.items() if value is not None}
    if len(json.dumps(new)) > LARGEST:
        raise errors.InvalidValue(
            'Attributes', '...', message='All attributes together are '
            f'larger than {LARGEST} bytes')
    before: objects.Json = {}
    if vm_state.is_active(state.vmi) and _current_others(state) != new:
        before = {'vmi': state.vmi['metadata']['uid'],
                  'values': _current_others(state)}
    bmc_annotations.write(state.vm, stored_names.ATTRIBUTES, new)
    bmc_annotations.write(state.vm, stored_names.ATTRIBUTES_BEFORE, before)


def _vm_attributes(state: vm_state.VmState) -> dict[str, Value]:
    template = state.vm['spec']['template']
    efi = firmware.bootloader(template).get('efi') or {}
    return {
        BOOT_MODE: firmware.mode(state.vm, state.vmi).value,
        SECURE_BOOT: _OFF_ON[firmware.secure_boot(state.vm, state.vmi)],
        PERSISTENT_NVRAM: _OFF_ON[efi.get('persistent') is True],
        'Tpm': tpm(template) or 'None',
    }


def tpm(template: objects.VirtualMachineInstanceTemplate) -> str | None:
    """Return the type of the TPM of a VM's template or of a VMI: 'Volatile',
    'Persistent' or None.
    """
    domain = (template.get('spec') or {}).get('domain') or {}
    device = (domain.get('devices') or {}).get('tpm')
    if device is None or device.get('enabled') is False:
        return None
    return 'Persistent' if device.get('persistent') else 'Volatile'
