# SPDX-License-Identifier: Apache-2.0
"""Boot mode (UEFI or Legacy BIOS) and secure boot of a VM.

KubeVirt's ``domain.firmware.bootloader`` is either ``bios`` or ``efi``. The
functions that change a VM edit it in place. The last bootloader of each type
is kept in an annotation, so that a change of mode and back restores its other
settings: persistent NVRAM, secure boot, the serial console of the BIOS.

Secure boot needs UEFI. In Legacy mode it is off and cannot be switched on; a
change to Legacy switches it off until the mode is UEFI again. It needs System
Management Mode, which is switched on with it. Switching secure boot off leaves
that on, because it is harmless.
"""

from __future__ import annotations

import copy
import enum
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import bmc_annotations

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


class Mode(enum.Enum):
    """Boot mode: Redfish's ``BootSourceOverrideMode``."""

    UEFI = 'UEFI'
    """``bootloader.efi``"""

    LEGACY = 'Legacy'
    """``bootloader.bios``"""


_KIND = {Mode.UEFI: 'efi', Mode.LEGACY: 'bios'}

#: Bootloaders to write if the annotation has none. In KubeVirt an ``efi``
#: without ``secureBoot`` has secure boot on.
_FRESH: dict[str, objects.Json] = {'efi': {'secureBoot': False}, 'bios': {}}


def bootloader(template: objects.VirtualMachineInstanceTemplate
               ) -> objects.Json:
    """Return the bootloader of a VM's template or of a VMI.

    :returns: has ``efi`` or ``bios``; {} if KubeVirt chooses
    """
    domain = (template.get('spec') or {}).get('domain') or {}
    return (domain.get('firmware') or {}).get('bootloader') or {}


def bootloader_type(loader: objects.Json | None) -> str | None:
    """Return the type of a bootloader: 'efi' or 'bios'; None if it is empty.

    :param loader: a bootloader as `bootloader` returns it, or None
    """
    for name in ('efi', 'bios'):
        if loader and loader.get(name) is not None:
            return name
    return None


def is_bootloader(value: object) -> bool:
    """Return whether a JSON value has the form of a bootloader."""
    return isinstance(value, dict) and all(
        isinstance(value.get(name, {}), dict) for name in ('efi', 'bios'))


def mode(vm: objects.VirtualMachine,
         vmi: objects.VirtualMachineInstance | None = None) -> Mode:
    """Return the boot mode of the VM's next VMI.

    :param vmi: the choice of a preference is visible only in the VMI
    """
    chosen = (bootloader_type(_chosen(vm, vmi))
              or architecture.of(vm).firmware[0])
    return Mode.UEFI if chosen == 'efi' else Mode.LEGACY


def modes(vm: objects.VirtualMachine) -> tuple[Mode, ...]:
    """Return the modes that the VM's architecture has."""
    supported = architecture.of(vm).firmware
    return tuple(mode_ for mode_ in Mode if _KIND[mode_] in supported)


def has_secure_boot(vm: objects.VirtualMachine) -> bool:
    """Return whether the VM's architecture has secure boot."""
    return architecture.of(vm).secure_boot


def set_mode(vm: objects.VirtualMachine, mode_: Mode
             ) -> list[objects.Json | None] | None:
    """Set the boot mode of a VM from its next start on.

    :param vm: is changed
    :returns: [old, new] bootloader, where old is None if there was none; None
        if nothing was changed
    """
    template = vm['spec']['template']
    old = bootloader(template)
    type_ = _KIND[mode_]
    if bootloader_type(old) == type_:
        return None
    if not old and not vm['spec'].get('preference') and mode(vm) is mode_:
        return None
    remembered = bmc_annotations.read(vm, stored_names.BOOTLOADERS)
    if not is_bootloader(remembered):
        remembered = {}       # malformed: not written by a BMC
    if old_type := bootloader_type(old):
        remembered[old_type] = old[old_type]
        bmc_annotations.write(vm, stored_names.BOOTLOADERS, remembered)
    new = {type_: copy.deepcopy(remembered.get(type_, _FRESH[type_]))}
    _put(template, new)
    if _secure(vm, new):
        _switch_on_smm(template)
    return [old or None, new]


def restore_mode(vm: objects.VirtualMachine,
                 change: list[objects.Json | None]) -> None:
    """Undo a `set_mode` if the mode is still the one that it set.

    :param vm: is changed
    :param change: the [old, new] that `set_mode` returned
    """
    old, new = change
    template = vm['spec']['template']
    now = bootloader(template)
    if bootloader_type(now) != bootloader_type(new):
        return
    if bootloader_type(old) != bootloader_type(new):
        _put(template, copy.deepcopy(old))
    if old and _secure(vm, old):
        _switch_on_smm(template)


def secure_boot(vm: objects.VirtualMachine,
                vmi: objects.VirtualMachineInstance | None = None) -> bool:
    """Return True if the VM starts with secure boot.

    :param vmi: see `mode`
    """
    return _secure(vm, _chosen(vm, vmi))


def _chosen(vm: objects.VirtualMachine,
            vmi: objects.VirtualMachineInstance | None) -> objects.Json:
    """Return the bootloader of the VM, else that of its preference."""
    loader = bootloader(vm['spec'].get('template') or {})
    if (bootloader_type(loader) is None and vmi is not None
            and vm['spec'].get('preference')
            and bmc_annotations.boot_once_id(vmi) is None):
        return bootloader(vmi)
    return loader


def edit_secure_boot(vm: objects.VirtualMachine, enabled: bool,
                     vmi: objects.VirtualMachineInstance | None = None
                     ) -> None:
    """Switch secure boot on or off, from the next start on.

    :param vm: is changed
    :param enabled: True switches it on
    :param vmi: see `mode`
    :raises: `errors.WrongState` if it is switched on in Legacy mode, or on an
        architecture without it
    """
    if secure_boot(vm, vmi) == enabled:
        return
    why = None
    if enabled and not has_secure_boot(vm):
        encrypted = architecture.encryption(vm)
        why = f'KubeVirt has none for {architecture.name(vm)}' + (
            f' with {encrypted}' if encrypted else
            ', as it needs System Management Mode')
    elif mode(vm, vmi) is Mode.LEGACY:
        why = 'it boots in Legacy mode; set its boot mode to UEFI first'
    if why:
        metadata = vm['metadata']
        raise errors.WrongState(
            f'Secure boot of {metadata.get("namespace")}/{metadata["name"]} '
            f'cannot be switched on: {why}')
    template = vm['spec']['template']
    new = copy.deepcopy(bootloader(template)) or {'efi': {}}
    new['efi']['secureBoot'] = enabled
    _put(template, new)
    if enabled:
        _switch_on_smm(template)


def _secure(vm: objects.VirtualMachine, loader: objects.Json) -> bool:
    efi = loader.get('efi')
    return efi is not None and efi.get(
        'secureBoot', has_secure_boot(vm)) is not False


def _put(template: objects.VirtualMachineInstanceTemplate,
         loader: objects.Json | None) -> None:
    domain = template.setdefault('spec', {}).setdefault('domain', {})
    if loader:
        domain.setdefault('firmware', {})['bootloader'] = loader
    elif domain.get('firmware'):
        domain['firmware'].pop('bootloader', None)
        if not domain['firmware']:
            del domain['firmware']


def _switch_on_smm(template: objects.VirtualMachineInstanceTemplate) -> None:
    domain = template['spec']['domain']
    if 'tdx' in (domain.get('launchSecurity') or {}):
        # Its firmware needs no SMM, and KubeVirt refuses it (amd64.go of 1.9).
        return
    features = domain.setdefault('features', {})
    smm = features.get('smm')
    if smm is None or smm.get('enabled') is False:
        features['smm'] = {'enabled': True}
