# SPDX-License-Identifier: Apache-2.0
"""What a VM and its VMI show, and what KubeVirt does with them next.

Requests stay in ``status.stateChangeRequests`` until KubeVirt has carried
them out. The predictions are those of virt-controller (``syncRunStrategy`` in
``pkg/virt-controller/watch/vm/vm.go``, KubeVirt 1.9). `power_state` derives
the power state, `reset` contains the BMC's power actions.
"""

from __future__ import annotations

import copy
import typing

from sushy_kubevirt.machine import run_strategy

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

#: Annotation of a VMI: ``metadata.generation`` of the VM it was created from.
VM_GENERATION = 'kubevirt.io/vm-generation'


def requests(vm: objects.VirtualMachine) -> list[objects.Json]:
    """Return the list of requests that KubeVirt has not carried out yet."""
    return (vm.get('status') or {}).get('stateChangeRequests') or []


def start_requested(vm: objects.VirtualMachine) -> bool:
    """Return True if a start is among the `requests`."""
    return any(request.get('action') == 'Start' for request in requests(vm))


def stop_requested(vm: objects.VirtualMachine) -> bool:
    """Return True if a stop is the first of the `requests`.

    For a VM without a VMI it means that KubeVirt has not processed the stop
    yet. Until then it may create a VMI for a start before the stop.
    """
    return (requests(vm) or [{}])[0].get('action') == 'Stop'


def vmi_seen(vm: objects.VirtualMachine) -> bool:
    """Return True if KubeVirt has noticed that the VM has a VMI.

    Its controller reads from caches. While it does not know of a VMI, it
    treats a request to stop that VMI as carried out and drops it.
    """
    return bool((vm.get('status') or {}).get('created'))


def phase(vmi: objects.VirtualMachineInstance) -> str:
    """Return the VMI's phase, '' while it has none."""
    return (vmi.get('status') or {}).get('phase') or ''


def is_active(vmi: objects.VirtualMachineInstance | None
              ) -> typing.TypeGuard[objects.VirtualMachineInstance]:
    """Return True for a VMI that has not ended."""
    return vmi is not None and phase(vmi) not in ('Succeeded', 'Failed')


def has_run(vmi: objects.VirtualMachineInstance) -> bool:
    """Return True for a VMI that is, or was, in phase ``Running``.

    One that ends before is a failed start for KubeVirt (``startFailure``).
    """
    transitions = (vmi.get('status') or {}).get('phaseTransitionTimestamps')
    return phase(vmi) in ('Running', 'Unknown') or any(
        transition.get('phase') == 'Running'
        for transition in transitions or ())


def created_from(vmi: objects.VirtualMachineInstance) -> str | None:
    """Return the recorded generation of the VM that a VMI was created from.

    KubeVirt updates it after changes outside the template.
    """
    return (vmi['metadata'].get('annotations') or {}).get(VM_GENERATION)


def is_latest(vm: objects.VirtualMachine, vmi: objects.VirtualMachineInstance
              ) -> bool:
    """Return True for a VMI with the settings that a new one would get."""
    return created_from(vmi) == str(vm['metadata'].get('generation'))


def is_deleting(obj: objects.Object) -> bool:
    """Return True for an object that is being deleted."""
    return bool(obj['metadata'].get('deletionTimestamp'))


def grace_period(vmi: objects.VirtualMachineInstance) -> int | None:
    """Return the VMI's grace period in seconds; None for the default."""
    return vmi['spec'].get('terminationGracePeriodSeconds')


def observed(vm: objects.VirtualMachine) -> bool:
    """Return True if KubeVirt has observed the VM's run strategy."""
    strategy = run_strategy.of(vm)
    return (vm.get('status') or {}).get('runStrategy', strategy) == strategy


class VmState(typing.NamedTuple):
    """A VM, its VMI and what is known of both.

    The objects are shared and must not be changed, but for the VM of
    `copy_vm`.

    :param vmi_gone: whether the VMI is known to be gone, although the VM's
        status may still count it
    """

    vm: objects.VirtualMachine
    vmi: objects.VirtualMachineInstance | None = None
    vmi_gone: bool = False

    def with_vm(self, vm: objects.VirtualMachine) -> VmState:
        """Return the state with another version of the VM."""
        return VmState(vm, self.vmi, self.vmi_gone)

    def copy_vm(self) -> VmState:
        """Return the state with a copy of the VM, to be edited."""
        return self.with_vm(copy.deepcopy(self.vm))

    def stop_pending(self) -> bool:
        """Return True if a stop is requested, not of a VMI known to have
        ended.

        The state's VMI is None or has ended.
        """
        if not stop_requested(self.vm):
            return False
        if self.vmi is not None:
            return not self._stop_requested()
        return not (self.vmi_gone and requests(self.vm)[0].get('uid'))

    def _stop_requested(self) -> bool:
        """Return True if a stop of this VMI is requested."""
        return (self.vmi is not None and stop_requested(self.vm)
                and requests(self.vm)[0].get('uid')
                == self.vmi['metadata']['uid'])

    def stopping(self) -> bool:
        """Return True for an active VMI that is being stopped."""
        return is_active(self.vmi) and (
            is_deleting(self.vmi) or is_deleting(self.vm)
            or run_strategy.of(self.vm) == run_strategy.HALTED
            or self._stop_requested())

    def starting(self) -> bool:
        """Return True if KubeVirt will create a VMI without a further request.

        If the VMI has ended or is being stopped, the question is about its
        successor.
        """
        vm, vmi = self.vm, self.vmi
        if is_deleting(vm):
            return False
        if start_requested(vm) or run_strategy.start_pending(vm):
            return True
        strategy = run_strategy.of(vm)
        if strategy == run_strategy.ALWAYS:
            return True
        if strategy == run_strategy.ONCE:
            # KubeVirt keeps a VMI that has ended and replaces a deleted one.
            return vmi is None or is_deleting(vmi)
        if strategy == run_strategy.RERUN_ON_FAILURE:
            if vmi is None:
                # KubeVirt creates a VMI when it first observes this strategy.
                status = vm.get('status') or {}
                return status.get('runStrategy') != strategy
            return phase(vmi) == 'Failed' and not is_deleting(vmi)
        return False

    def starting_without_retry(self) -> bool:
        """Return True if KubeVirt will attempt the coming start only once.

        KubeVirt starts a VM that has just got ``RerunOnFailure`` when it
        observes the change. If that start fails, or has to wait for a
        DataVolume or for KubeVirt to see the previous VMI gone, the change
        counts as observed nevertheless, and the VM stays off. A start request,
        in contrast, remains until it is carried out.
        """
        return (self.vmi is None
                and run_strategy.of(self.vm) == run_strategy.RERUN_ON_FAILURE
                and not start_requested(self.vm) and self.starting())

    def is_idle(self) -> bool:
        """Return True for a VM that is off, with nothing in progress.

        KubeVirt does nothing with it until the VM changes: it has processed
        all requests and counts no VMI. So as long as the VM has this version,
        no VMI comes into existence, and no old one is being stopped.
        """
        status = self.vm.get('status') or {}
        return (self.vmi is None and not self.vmi_gone
                and not is_deleting(self.vm)
                and run_strategy.of(self.vm) in (
                    run_strategy.HALTED, *run_strategy.OFF_AFTER_SHUTDOWN)
                and not self.starting() and observed(self.vm)
                and status.get('printableStatus') == 'Stopped'
                and not any(status.get(field) for field in (
                    'created', 'stateChangeRequests', 'startFailure')))

    def shows(self, action: str, before: str | None) -> bool:
        """Return True if the effect of an action of KubeVirt can be seen.

        :param action: ``start``, ``stop`` or ``restart``
        :param before: uid of the VMI that existed before, or None
        """
        if action == 'start':
            return (is_active(self.vmi) or start_requested(self.vm)
                    or run_strategy.of(self.vm) == run_strategy.ALWAYS)
        return (not is_active(self.vmi)
                or self.vmi['metadata']['uid'] != before or self.stopping())
