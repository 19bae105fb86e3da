# SPDX-License-Identifier: Apache-2.0
"""What a client can look up and change in the setup of a machine's firmware.

Some attributes are fields of the VM (`VM_ATTRIBUTES`). All others are stored
in an annotation (`attributes`) for clients that set the attributes of real
machines and compare them. Both kinds take effect with the next VMI; until
then the current value is the one the VMI was created with.
"""

import dataclasses

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import attributes
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import run_strategy

BOOT_MODE = 'BootMode'
SECURE_BOOT = 'SecureBoot'
PERSISTENT_NVRAM = 'PersistentNvram'

_OFF_ON = ('Disabled', 'Enabled')


@dataclasses.dataclass(frozen=True)
class VmAttribute:
    """An attribute that is a field of the VM.

    :param name: in Redfish
    :param label: for people
    :param values: tuple of the texts it can be
    :param help: a sentence
    :param read_only: whether it cannot be changed by a BMC
    """

    name: str
    label: str
    values: tuple
    help: str
    read_only: bool = False


VM_ATTRIBUTES = (
    VmAttribute(
        BOOT_MODE,
        'Boot Mode',
        tuple(each.value for each in firmware.Mode),
        'Firmware the guest is started with: domain.firmware.bootloader.',
    ),
    VmAttribute(
        SECURE_BOOT,
        'Secure Boot',
        _OFF_ON,
        'UEFI Secure Boot; needs Boot Mode UEFI: '
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


def pending(vm, vmi):
    """The attributes from the next boot on.

    :param vmi: its VMI or None, see `firmware.mode`
    :returns: dict of strings, numbers, booleans
    """
    return {**attributes.get(vm), **_vm_attributes(vm, vmi)}


def current(vm, vmi):
    """The attributes of the boot that runs; of the next one while off."""
    if not run_strategy.is_active(vmi):
        return pending(vm, vmi)
    return {**attributes.current(vm, vmi),
            **_vm_attributes({'spec': {'template': vmi}}, None)}


def set(machine, values):
    """Change some attributes, from the next boot on.

    :param values: dict: name: string, number or boolean; None removes one
        that is no attribute
    :raises: `errors.InvalidValue`, `errors.WrongState` for secure boot under
        Legacy
    """
    chosen = {name: value for name, value in values.items()
              if name in _BY_NAME}
    vm, vmi = machine.write(lambda vm, vmi: (vm, vmi))
    present = pending(vm, vmi)
    for name, value in chosen.items():
        attribute = _BY_NAME[name]
        if value not in attribute.values:
            raise errors.InvalidValue(name, value, attribute.values)
        if attribute.read_only and value != present[name]:
            raise errors.InvalidValue(
                name, value, message=f'{name} cannot be changed by a BMC')
    mode, secure = chosen.get(BOOT_MODE), chosen.get(SECURE_BOOT)
    if (secure == 'Enabled'
            and (mode or present[BOOT_MODE]) == firmware.Mode.LEGACY.value):
        raise errors.InvalidValue(
            SECURE_BOOT, secure,
            message='Secure Boot needs Boot Mode UEFI')
    notes = {name: value for name, value in values.items()
             if name not in _BY_NAME}
    if notes:
        attributes.set(machine, notes)
    if mode is not None and mode != present[BOOT_MODE]:
        boot.set(machine, mode=firmware.Mode(mode))
    if secure is not None:
        boot.set_secure_boot(machine, secure == 'Enabled')


def reset(machine):
    """Remove what clients have noted. Knobs have no default to go back to:
    what a VM's owner chose is no client's to reset.
    """
    attributes.reset(machine)


def _vm_attributes(vm, vmi):
    template = vm['spec']['template']
    efi = firmware.bootloader(template).get('efi') or {}
    return {
        BOOT_MODE: firmware.mode(vm, vmi).value,
        SECURE_BOOT: _OFF_ON[firmware.secure_boot(vm, vmi)],
        PERSISTENT_NVRAM: _OFF_ON[efi.get('persistent') is True],
        'Tpm': tpm(template) or 'None',
    }


def tpm(template):
    """:returns: 'Volatile', 'Persistent'; None if there is no TPM

    :param template: a VM's template, or a VMI
    """
    domain = (template.get('spec') or {}).get('domain') or {}
    device = (domain.get('devices') or {}).get('tpm')
    if device is None or device.get('enabled') is False:
        return None
    return 'Persistent' if device.get('persistent') else 'Volatile'
