# SPDX-License-Identifier: Apache-2.0
"""Boot overrides and boot mode: Redfish's ``Boot``, IPMI's boot flags.

An override changes the VM's template at once and never starts, stops or
reboots the VM. The next VMI boots with it, whether a BMC or another client
starts that VMI. A ``Continuous`` override stays until it is replaced, by
``Once`` too, or disabled. A ``Once`` override is removed by the one-time boot
reconciler (`one_time_boot`) as soon as its boot has started. A mode alone or
with ``Continuous`` is a permanent change; a mode with ``Once`` lasts one boot.
"""

from __future__ import annotations

import copy
import enum
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine import pod_interface
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

_ResultT = typing.TypeVar('_ResultT')

Mode = firmware.Mode
Target = boot_order.Target

#: KubeVirt's feature gate for ``rebootPolicy: Terminate``, which ends the VMI
#: when the guest reboots.
GATE = 'RebootPolicy'


class Enabled(enum.Enum):
    """Redfish's ``BootSourceOverrideEnabled``."""

    DISABLED = 'Disabled'
    """No override."""

    ONCE = 'Once'
    """Override for the next boot only."""

    CONTINUOUS = 'Continuous'
    """Override for all boots until it is changed."""


class BootState(typing.NamedTuple):
    """Boot settings of the next VMI.

    :param http_uri: URI of the image that `Target.UEFI_HTTP` boots, '' for
        none
    """

    target: Target
    enabled: Enabled
    mode: Mode
    http_uri: str = ''


def settings(state: vm_state.VmState) -> BootState:
    """Return the boot settings of the VM's next VMI."""
    vm = state.vm
    once = boot_overrides.once(vm)
    if once is not None:
        if not boot_overrides.boot_started(state):
            return BootState(Target(once.get('target', 'None')),
                             Enabled.ONCE, firmware.mode(vm, state.vmi))
        # The one-time boot reconciler is about to do the same to the VM.
        vm = copy.deepcopy(vm)
        boot_overrides.remove(vm, 'once')
    mode = firmware.mode(vm, state.vmi)
    continuous = boot_overrides.active_continuous(vm)
    if continuous is not None:
        return BootState(Target(continuous['target']), Enabled.CONTINUOUS,
                         mode)
    return BootState(Target.NONE, Enabled.DISABLED, mode)


def booted_from(vmi: objects.VirtualMachineInstance | None) -> Target | None:
    """Return the class of the device that the running VMI tried first.

    :returns: `Target.NONE` if there is no device; None if no guest runs
    """
    if (not vm_state.is_active(vmi)
            or vm_state.phase(vmi) not in ('Running', 'Unknown')):
        return None
    return boot_order.first_class(vmi)


def write(change: Change, send: abc.Callable[[], _ResultT]) -> _ResultT:
    """Write a change; again without the reboot policy if that is refused.

    :param send: writes it
    :returns: what it returned
    :raises: `errors.InvalidValue`, `errors.WrongState`, see `Change`;
        `errors.Rejected` by admission
    """
    try:
        return send()
    except errors.Rejected as e:
        # The feature gate was disabled after it was read.
        if not change.terminates or GATE.lower() not in str(e).lower():
            raise
        change.terminates = False
        return send()


class Change:
    """A change of boot settings, see `changes`. None leaves a setting.

    :param target: without `enabled` it means
        `Enabled.CONTINUOUS`, or `Enabled.ONCE` if a one-time override is
        pending, which it then replaces (Ironic omits ``Enabled`` when it
        already has the value it needs)
    :param enabled: without `target` it applies to the present target
    :param order: the persistent boot order, see `boot_options.edit`
    :param http_uri: URL of the image that `Target.UEFI_HTTP` boots; '' for
        none
    :param media_targets: those whose device is added when a medium is
        inserted, and which are therefore valid without a device
    :raises: when it is called, `errors.InvalidValue` if the VM has no device
        for the target, its architecture lacks the mode, or there are no such
        boot options; `errors.WrongState` for HTTP boot in Legacy mode
    """

    def __init__(self, machine: protocols.Machine,
                 target: Target | None = None, enabled: Enabled | None = None,
                 mode: Mode | None = None,
                 order: abc.Sequence[str] | None = None,
                 http_uri: str | None = None,
                 media_targets: abc.Sequence[Target] = ()) -> None:
        self.machine = machine
        self.target = target
        self.enabled = enabled
        self.mode = mode
        self.order = order
        self.http_uri = http_uri
        self.media_targets = media_targets
        #: Whether a one-time boot may get KubeVirt's reboot policy.
        self.terminates = True
        self._id = boot_overrides.new_id()

    def __call__(self, state: vm_state.VmState) -> None:
        pending = boot_overrides.once(state.vm)
        if pending is not None and pending['id'] == self._id:
            return      # an earlier attempt was applied, its response lost
        excluded = pod_interface.is_excluded(self.machine, state)
        hardware = boot_order.hardware_of(state.vm['spec']['template'])
        if excluded:
            # While it is edited; a refusal discards the edited VM.
            hardware['autoattachPodInterface'] = False
        self._change(state)
        if excluded:
            del hardware['autoattachPodInterface']

    def _change(self, state: vm_state.VmState) -> None:
        vm = state.vm
        terminate = self._terminate(vm)
        modes = firmware.modes(vm)
        if self.mode not in (None, *modes):
            raise errors.InvalidValue(
                'BootSourceOverrideMode', self.mode, modes)
        had_http = boot_overrides.has_http(vm)
        if (self.target is Target.PXE or self.order is not None) and (
                Target.PXE in boot_order.classes(vm['spec']['template'])):
            boot_overrides.add_interface(
                vm, state.vmi, self.machine.gates.pod_interface)
        if self.order is not None:
            boot_options.edit(state, self.order)
        self._edit(state, terminate)
        if self.http_uri is not None:
            record = media_annotation.read(vm)
            record.http_uri = self.http_uri
            media_annotation.write(vm, record)
        if boot_overrides.has_http(vm):
            self._check_http(state)
        boot_overrides.remove_unused_devices(vm, had_http)

    def _terminate(self, vm: objects.VirtualMachine) -> bool:
        """Return whether the guest's reboot ends the VMI of a one-time boot.
        """
        # Under run strategies Once and WaitAsReceiver KubeVirt would start no
        # VMI after the one that the reboot ends.
        return (self.terminates
                and (self.enabled is Enabled.ONCE
                     or boot_overrides.once(vm) is not None
                     and (self.mode is not None or self.target is not None))
                and self.machine.options.reboot_policy
                and run_strategy.of(vm) not in (run_strategy.ONCE,
                                                run_strategy.WAIT_AS_RECEIVER)
                and self.machine.gates.enabled(GATE))

    def _edit(self, state: vm_state.VmState, terminate: bool) -> None:
        vm, mode = state.vm, self.mode
        if boot_overrides.boot_started(state):
            boot_overrides.remove(vm, 'once')
        pending = boot_overrides.once(vm)
        removes = self.target is Target.NONE or (
            self.enabled is Enabled.DISABLED)
        if not removes and self.target is None and self.enabled is None:
            if mode:
                boot_overrides.remove(vm, 'once')
                firmware.set_mode(vm, mode)
                if pending is not None and pending.get('target'):
                    boot_overrides.apply_once(
                        vm, self._id, Target(pending['target']),
                        terminate=terminate, vmi_uid=self._vmi_uid(state))
            return
        target = None if removes else self._effective_target(vm, pending)
        if not removes and (self.enabled is Enabled.ONCE
                            or self.enabled is None and pending is not None):
            self._edit_once(state, pending, target, terminate)
            return
        boot_overrides.remove_overrides(vm)
        if mode:
            firmware.set_mode(vm, mode)
        if target:
            boot_overrides.apply_continuous(vm, target)

    def _edit_once(self, state: vm_state.VmState,
                   pending: boot_overrides.Layer | None,
                   target: Target | None, terminate: bool) -> None:
        vm, mode = state.vm, self.mode
        if pending is not None and mode is None and pending.get('mode'):
            mode = Mode(pending['mode'])
        if pending is not None and (
                (target and target.value) == pending.get('target')
                and (mode and mode.value) == pending.get('mode')):
            boot_overrides.remove(vm, 'once')
            boot_overrides.reapply_once(
                vm, state.vmi, pending, terminate, self._id)
        elif target or mode:
            # It replaces a continuous override: after a boot with Once,
            # Enabled is Disabled (ComputerSystem, BootSourceOverrideEnabled).
            boot_overrides.remove_overrides(vm)
            boot_overrides.apply_once(vm, self._id, target, mode, terminate,
                                      self._vmi_uid(state))

    def _vmi_uid(self, state: vm_state.VmState) -> str | None:
        """Return the uid of the VMI, for `boot_overrides.Original`: that in
        the cache if the state is without the VMI, see `needs_vmi`."""
        known = state if state.vmi else self.machine.cached_state()
        return known.vmi['metadata']['uid'] if known and known.vmi else None

    def _effective_target(self, vm: objects.VirtualMachine,
                          pending: boot_overrides.Layer | None
                          ) -> Target | None:
        """Return the target, the present one if it is None; None if there is
        neither.
        """
        if self.target is None:
            layer = pending or boot_overrides.continuous(vm)
            present = layer.get('target') if layer else None
            return Target(present) if present else None
        known = {Target.NONE, *self.media_targets,
                 *boot_order.classes(vm['spec']['template'])}
        if self.target not in known:
            raise errors.InvalidValue(
                'BootSourceOverrideTarget', self.target,
                [member for member in Target if member in known])
        return self.target

    def _check_http(self, state: vm_state.VmState) -> None:
        if not media_annotation.read(state.vm).http_uri:
            raise errors.InvalidValue(
                'BootSourceOverrideTarget', Target.UEFI_HTTP,
                message='UefiHttp needs an HttpBootUri; set both in one '
                'request')
        if firmware.mode(state.vm, state.vmi) is not Mode.UEFI:
            raise errors.WrongState(
                f'HTTP boot needs UEFI, and {self.machine.qualified_name} '
                'boots in Legacy mode; set its BootSourceOverrideMode to UEFI '
                'too')

    def needs_vmi(self, vm: objects.VirtualMachine) -> bool:
        """Return whether the change depends on the VMI.

        It does if an override may have started to boot, an order is set, or
        an interface may be added.
        """
        return (self.order is not None
                or boot_overrides.once(vm) is not None
                or boot_order.lacks_interfaces(vm['spec']['template']))


def set_default_order(machine: protocols.Machine) -> None:
    """Restore the persistent boot order that the VM's owner wrote."""
    def change(state: vm_state.VmState) -> None:
        had_http = boot_overrides.has_http(state.vm)
        boot_options.edit(state, None)
        boot_overrides.remove_unused_devices(state.vm, had_http)

    changes.write(machine, (change,))


def secure_boot_change(enabled: bool) -> protocols.Step[None]:
    """Return a change that switches secure boot on or off, see `changes`.

    It takes effect from the next start on. Switching it on also switches on
    SMM, which it needs.

    :param enabled: True switches it on
    :raises: when it is called, `errors.WrongState` if it is switched on in
        Legacy mode
    """
    def change(state: vm_state.VmState) -> None:
        vm = state.vm
        pending = boot_overrides.once(vm)
        if pending is None or not pending.get('mode'):
            firmware.edit_secure_boot(vm, enabled, state.vmi)
            return
        # The pending override changes the mode for one boot; secure boot
        # belongs to the mode that is restored after it.
        started = boot_overrides.boot_started(state)
        terminate = boot_overrides.ends_at_reboot(vm)
        boot_overrides.remove(vm, 'once')
        firmware.edit_secure_boot(vm, enabled, state.vmi)
        if not started:
            boot_overrides.reapply_once(vm, state.vmi, pending, terminate)

    return change
