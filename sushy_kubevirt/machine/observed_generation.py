# SPDX-License-Identifier: Apache-2.0
"""Lets a VM's ``status.observedGeneration`` catch up after a one-time boot.

KubeVirt copies it from an annotation of the VMI, the generation of the VM that
the VMI was created from. It updates that annotation only while the VM's
template is the one that the VMI was created from
(conditionallyBumpGenerationAnnotationOnVmi and syncGenerationInfo in
pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9). After the template was
restored during a one-time boot it is not, so ``observedGeneration`` stays
behind ``generation`` until the VMI ends. Then ``kubectl wait
--for=condition=Ready vm/NAME`` does not succeed, and tools that compare the
two wait as well. So the BMC updates the annotation. virt-api lets others than
KubeVirt change a VMI's annotations, but not its spec (VMIUpdateAdmitter in
pkg/virt-api/webhooks/validating-webhook/admitters/vmi-update-admitter.go).
"""

from __future__ import annotations

import typing

from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

_PATH = '/metadata/annotations/' + vm_state.VM_GENERATION.replace(
    '/', '~1')


def lags(state: vm_state.VmState) -> bool:
    """Return whether the VMI's annotation has to be updated.

    :returns: True for a VMI in its one-time boot, of a VM whose settings have
        been restored. While another one-time boot is pending,
        ``observedGeneration`` tells whether a VMI was created with it.
    """
    vmi = state.vmi
    return (vm_state.is_active(vmi)
            and bmc_annotations.boot_once_id(vmi) is not None
            and boot_overrides.once(state.vm) is None
            and _recorded(vmi) is not None
            and not vm_state.is_latest(state.vm, vmi))


def update(machine: protocols.Machine, vm: objects.VirtualMachine,
           vmi: objects.VirtualMachineInstance) -> None:
    """Update the VMI's annotation. Sends one request without retries.

    :param vmi: its VMI, for which `lags` is true
    :raises: `errors.AccessDenied` or `errors.Rejected` without the right to
        patch VMIs
    """
    machine.patch_vmi(vmi, [
        {'op': 'test', 'path': _PATH, 'value': _recorded(vmi)},
        {'op': 'replace', 'path': _PATH,
         'value': str(vm['metadata']['generation'])}])


def _recorded(vmi: objects.VirtualMachineInstance) -> str | None:
    return vmi['metadata']['annotations'].get(vm_state.VM_GENERATION)
