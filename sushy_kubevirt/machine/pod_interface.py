# SPDX-License-Identifier: Apache-2.0
"""The pod interface that a preference keeps KubeVirt from adding.

A VM without interfaces gets one, unless ``autoattachPodInterface`` is false,
in the VM or as ``preferredAutoattachPodInterface`` of its preference
(``pkg/instancetype/preference/apply/device.go`` of KubeVirt 1.9). Of these
`boot_order.lacks_interfaces` sees the VM's.
"""

from __future__ import annotations

import copy
import typing

from sushy_kubevirt.machine import boot_order

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols
    from sushy_kubevirt.machine import vm_state


def is_excluded(machine: protocols.Machine, state: vm_state.VmState) -> bool:
    """Return whether only a preference keeps KubeVirt from adding it.

    While the VM is off, this may call the API, see `machine.Machine.sizes`.
    """
    vm = state.vm
    template = vm['spec']['template']
    # The VM's own value precedes that of the preference.
    if (not vm['spec'].get('preference')
            or not boot_order.lacks_interfaces(template)
            or 'autoattachPodInterface' in boot_order.hardware_of(template)):
        return False
    domain = state.vmi['spec']['domain'] if state.vmi else machine.sizes(vm)
    return (domain.get('devices') or {}).get(
        'autoattachPodInterface') is False


def shown(machine: protocols.Machine, state: vm_state.VmState
          ) -> objects.VirtualMachine:
    """Return the VM, as if it said itself what its preference says."""
    if not is_excluded(machine, state):
        return state.vm
    vm = copy.deepcopy(state.vm)
    # KubeVirt requires domain and devices.
    hardware = boot_order.hardware_of(vm['spec']['template'])
    hardware['autoattachPodInterface'] = False
    return vm
