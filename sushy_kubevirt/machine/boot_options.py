# SPDX-License-Identifier: Apache-2.0
"""Redfish's boot options and persistent boot order.

A boot option is one device that a machine can be booted from. The persistent
boot order is the layer of the VM's template below any override (see
`boot_overrides`). It can be read and set while an override is in force; the
override then applies on top of the new order.

A boot option is identified by a reference with four hexadecimal digits, as in
UEFI: disks have ``Boot0001`` and up, by their place in the template, network
interfaces ``Boot1001`` and up. A disk that is added at the end, as for virtual
media, does not change the references of others.
"""

from __future__ import annotations

import copy
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import vm_state

#: Number in the reference of the first device of each list.
_FIRST: dict[boot_order.List, int] = {'disks': 0x0001, 'interfaces': 0x1001}


class Option(typing.NamedTuple):
    """One device that can be booted from.

    :param reference: ``BootOptionReference``, such as 'Boot0001'
    """

    reference: str
    device: boot_order.Device

    @property
    def name(self) -> str:
        """The device's name in the VM."""
        return self.device.name

    @property
    def class_(self) -> boot_order.Target:
        """The device's class."""
        return self.device.class_


def options(vm: objects.VirtualMachine) -> tuple[Option, ...]:
    """Return the boot options of a VM, sorted by reference."""
    return tuple(sorted(_options(_without_overrides(vm)),
                        key=lambda option: option.reference))


def order(vm: objects.VirtualMachine) -> tuple[str, ...]:
    """Return the persistent boot order of a VM.

    If no device has a ``bootOrder``, libvirt boots the first disk; if there is
    no disk, the firmware tries the CD-ROMs. Network interfaces without a
    number have no boot ROM (KubeVirt's converter, libvirt's
    ``qemuProcessPrepareDeviceBootorder``).

    :returns: references of the devices that are tried, in this order
    """
    offered = _options(_without_overrides(vm))
    tried = [option for option in offered if option.device.order is not None]
    if not tried:
        tried = [option for option in offered if option.class_ in (
            boot_order.Target.HDD, boot_order.Target.USB)][:1]
    if not tried:
        tried = [option for option in offered
                 if option.class_ is boot_order.Target.CD]
    return tuple(option.reference for option in tried)


def edit(state: vm_state.VmState, references: abc.Sequence[str] | None
         ) -> None:
    """Replace the persistent boot order of a VM and keep its overrides.

    :param state: its VM is changed
    :param references: of the devices to try, in this order; None for the
        order that the VM's owner wrote
    :raises: `errors.InvalidValue` if a reference is unknown or occurs twice,
        or if there is none
    """
    vm = state.vm
    with boot_overrides.lifted(state):
        boot_overrides.remove(vm, 'order')
        if references is not None:
            boot_overrides.apply_order(vm, _chosen(vm, references))


def _chosen(vm: objects.VirtualMachine, references: abc.Sequence[str]
            ) -> list[boot_order.Device]:
    known = {option.reference: option.device for option in _options(vm)}
    if not references:
        raise errors.InvalidValue(
            'BootOrder', list(references), message='A boot order needs at '
            f'least one device; there are {", ".join(sorted(known))}')
    for reference in references:
        if reference not in known:
            raise errors.InvalidValue('BootOrder', reference, sorted(known))
        if references.count(reference) > 1:
            raise errors.InvalidValue(
                'BootOrder', reference,
                message=f'{reference} is in the boot order more than once')
    return [known[reference] for reference in references]


def _without_overrides(vm: objects.VirtualMachine) -> objects.VirtualMachine:
    if (boot_overrides.once(vm) is None
            and boot_overrides.continuous(vm) is None):
        # The usual case. A copy would cost more than everything else here.
        return vm
    vm = copy.deepcopy(vm)
    boot_overrides.remove_overrides(vm)
    return vm


def _options(vm: objects.VirtualMachine) -> list[Option]:
    """Return the boot options in the order in which they are tried."""
    template = vm['spec']['template']
    devices = boot_order.devices(template)
    domain = (template.get('spec') or {}).get('domain') or {}
    hardware = domain.get('devices') or {}
    references: dict[boot_order.List, dict[str, str]] = {}
    for list_, first in _FIRST.items():
        names = [item['name'] for item in hardware.get(list_) or ()]
        if list_ == 'interfaces' and boot_order.lacks_interfaces(template):
            names = [boot_order.POD_INTERFACE]
        if list_ == 'disks':
            implied = {device.name for device in devices
                       if not device.written}
            names += [volume['name'] for volume in
                      template['spec'].get('volumes') or ()
                      if volume['name'] in implied]
        references[list_] = {name: f'Boot{number:04X}'
                             for number, name in enumerate(names, first)}
    # The drive of HTTP boot exists only while its override does.
    return [Option(references[device.list][device.name], device)
            for device in devices if device.bootable
            and device.class_ is not boot_order.Target.UEFI_HTTP]
