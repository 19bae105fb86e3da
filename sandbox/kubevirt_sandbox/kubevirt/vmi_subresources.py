# SPDX-License-Identifier: Apache-2.0
"""Subresources of VMIs: pause, unpause, reset, softreboot.

Source: pkg/virt-api/rest/lifecycle.go, subresource.go (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_subresources
from kubevirt_sandbox.kubevirt import vmi_status

_KIND = 'virtualmachineinstance'
_VM_NOT_RUNNING = 'VM is not running'
_NOT_RUNNING = 'VMI is not running'


class VmiSubresources:
    """The handlers of subresources of VirtualMachineInstances.

    :param kinds: the :class:`kubevirt_kinds.Kinds` of the cluster.
    :param controller: the VMIs' controller.
    """

    def __init__(self, kinds, controller):
        self._kinds = kinds
        self._controller = controller

    def handlers(self):
        """Return ``{subresource: (method, handler)}``."""
        return {
            'pause': ('PUT', self.pause), 'unpause': ('PUT', self.unpause),
            'reset': ('PUT', self.reset),
            'softreboot': ('PUT', self.soft_reboot)}

    def _find(self, request):
        vmi = request.store.find(self._kinds.vmi, request.namespace,
                                 request.name)
        if vmi is None:
            raise vm_subresources.not_found(_KIND, request.name)
        return vmi

    def _running(self, request, why):
        vmi = self._find(request)
        if vmi_status.phase(vmi) != vmi_status.RUNNING:
            raise vm_subresources.conflict(_KIND, request.name, why)
        return vmi

    def _done(self, vmi):
        self._controller.enqueue(paths.key(vmi))
        return 200, None

    async def pause(self, request):
        """Stop the CPUs."""
        dry = vm_subresources.dry(request.body)
        vmi = self._running(request, _VM_NOT_RUNNING)
        probe = vmi['spec'].get('livenessProbe')
        if probe is not None and probe.get('guestAgentPing') is None:
            raise errors.ApiError(
                403, 'Forbidden', f'{_KIND}.kubevirt.io "{request.name}" is '
                'forbidden: Pausing VMIs with a non-GuestAgentPing '
                'LivenessProbe is not supported')
        if conditions.find(vmi, 'Paused'):
            raise vm_subresources.conflict(
                _KIND, request.name, 'VMI is already paused')
        if not dry:
            self._controller.guests.pause(vmi['metadata']['uid'])
        return self._done(vmi)

    async def unpause(self, request):
        """Let the CPUs go on."""
        dry = vm_subresources.dry(request.body)
        vmi = self._running(request, _NOT_RUNNING)
        if not conditions.find(vmi, 'Paused'):
            raise vm_subresources.conflict(
                _KIND, request.name, 'VMI is not paused')
        if not dry:
            self._controller.guests.resume(vmi['metadata']['uid'])
        return self._done(vmi)

    async def reset(self, request):
        """Press the reset button."""
        vmi = self._find(request)
        phase = vmi_status.phase(vmi)
        if phase == vmi_status.SCHEDULED:
            raise errors.internal_error(
                f'Failed to reset non-running VMI with phase {phase}: the '
                'guest does not run')
        if phase != vmi_status.RUNNING:
            raise errors.bad_request(
                f'Failed to reset non-running VMI with phase {phase}: Unable '
                'to connect to VirtualMachineInstance because phase is '
                f'{phase} instead of Running or Scheduled')
        self._controller.guests.reset(vmi['metadata']['uid'])
        return self._done(vmi)

    async def soft_reboot(self, request):
        """Ask the guest to reboot, by its agent or by ACPI."""
        vmi = self._running(request, _VM_NOT_RUNNING)
        if conditions.is_true(vmi, 'Paused'):
            raise vm_subresources.conflict(
                _KIND, request.name, 'VMI is paused')
        acpi = paths.at(vmi, 'spec', 'domain', 'features', 'acpi') or {}
        if (not conditions.find(vmi, 'AgentConnected')
                and acpi.get('enabled') is False):
            raise vm_subresources.conflict(
                _KIND, request.name, 'VMI neither have the agent connected '
                'nor the ACPI feature enabled')
        self._controller.guests.soft_reboot(vmi['metadata']['uid'])
        return self._done(vmi)
