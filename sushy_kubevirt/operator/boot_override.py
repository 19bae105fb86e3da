# SPDX-License-Identifier: Apache-2.0
"""The boot override of a VM, for the status of its BMCs.

It has the form of ``status.bootOverride`` of KubeVirtBMC (`BootOverrideStatus`
in ``api/bmc/v1beta1/virtualmachinebmc_types.go`` of its main branch, autumn
2026), and is what the VM's annotation says (`machine.bmc_annotations`).
"""

from __future__ import annotations

import re
import typing

from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import firmware

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

ONESHOT, PERSISTENT = 'Oneshot', 'Persistent'

#: Maximum number of devices of a VM: QEMU's virtual SCSI controller has 256
#: targets.
_MAX_DEVICES = 256

_DEVICE = re.compile(r'(disk|cdrom|interface):[A-Za-z0-9._-]{1,63}')
_UID = re.compile(r'[A-Za-z0-9-]{1,64}')
_MODES = tuple(mode.value for mode in firmware.Mode)


def of(vm: objects.VirtualMachine) -> objects.Json | None:
    """Return the boot override of a VM; None if it has none.

    Everyone who may edit the VM may have written it. Members that KubeVirtBMC
    would not write are omitted, and without ``mode`` there is no override.

    :param vm: its metadata is enough
    """
    once = boot_overrides.once(vm)
    if once is not None:
        return {'mode': ONESHOT, **_original(once.get('original'))}
    if boot_overrides.continuous(vm) is not None:
        return {'mode': PERSISTENT}
    return None


def _original(value: object) -> objects.Json:
    members = value if isinstance(value, dict) else {}
    return {name: members[name] for name, is_valid in _IS_VALID.items()
            if is_valid(members.get(name))}


def _is_uid(value: object) -> bool:
    return isinstance(value, str) and _UID.fullmatch(value) is not None


def _are_orders(value: object) -> bool:
    return (isinstance(value, dict) and len(value) <= _MAX_DEVICES and all(
        _DEVICE.fullmatch(device) and type(order) is int
        and 0 <= order < 2**31 for device, order in value.items()))


_IS_VALID = {
    'vmiUID': _is_uid,
    'bootOrders': _are_orders,
    'originalFirmware': lambda value: value in _MODES,
}
