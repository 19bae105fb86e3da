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
import dataclasses
import enum
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
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

#: KubeVirt's feature gate for ``rebootPolicy: Terminate``, which ends the VMI
#: when the guest reboots.
GATE = 'RebootPolicy'


class Target(enum.Enum):
    """Redfish's ``BootSourceOverrideTarget``: the values a VM supports."""

    NONE = 'None'
    """No override: the VM's persistent boot order."""

    PXE = 'Pxe'
    """Network interfaces first."""

    HDD = 'Hdd'
    """Disks first."""

    CD = 'Cd'
    """CD-ROMs first."""

    USB = 'Usb'
    """Disks on the USB bus first."""

    UEFI_HTTP = 'UefiHttp'
    """The image of ``HttpBootUri`` first, in a separate CD-ROM."""


class Enabled(enum.Enum):
    """Redfish's ``BootSourceOverrideEnabled``."""

    DISABLED = 'Disabled'
    """No override."""

    ONCE = 'Once'
    """Override for the next boot only."""

    CONTINUOUS = 'Continuous'
    """Override for all boots until it is changed."""


@dataclasses.dataclass(frozen=True)
class BootState:
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
        boot_overrides.remove_once(vm)
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
    device = boot_order.first(vmi)
    class_ = device.class_ if device else boot_order.unnumbered(vmi)
    return Target.NONE if class_ is None else Target(class_.value)


def targets(vm: objects.VirtualMachine) -> tuple[Target, ...]:
    """Return the targets that the VM has a device for."""
    return tuple(Target(class_.value)
                 for class_ in boot_order.classes(vm['spec']['template']))


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
        self.http_uri = http_uri
        #: Whether a one-time boot may get KubeVirt's reboot policy.
        self.terminates = True
        self._mode = mode
        self._order = order
        self._media_targets = media_targets
        self._id = boot_overrides.new_id()

    def __call__(self, state: vm_state.VmState) -> None:
        with pod_interface.showing(self.machine, state):
            self._change(state)

    def _change(self, state: vm_state.VmState) -> None:
        vm = state.vm
        pending = boot_overrides.once(vm)
        if pending is not None and pending['id'] == self._id:
            return      # an earlier attempt was applied, its response lost
        terminate = (
            self.terminates
            and _needs_once(pending, self.target, self.enabled, self._mode)
            and _may_terminate(self.machine, vm))
        modes = firmware.modes(vm)
        if self._mode not in (None, *modes):
            raise errors.InvalidValue(
                'BootSourceOverrideMode', self._mode, modes)
        http = _is_http(vm)
        if (self.target is Target.PXE or self._order is not None) and (
                Target.PXE in targets(vm)):
            boot_overrides.add_interface(
                vm, state.vmi, self.machine.gates.pod_interface)
        if self._order is not None:
            boot_options.edit(state, self._order)
        _edit(state, self.target, self.enabled, self._mode, self._id,
              terminate, self._media_targets)
        if self.http_uri is not None:
            record = media_annotation.read(vm)
            record.http_uri = self.http_uri
            media_annotation.write(vm, record)
        if _is_http(vm):
            self._check_http(state)
        elif http:
            boot_overrides.remove_unused_http_drive(vm)
        boot_overrides.remove_unused_interface(vm)

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
        return (self._order is not None
                or boot_overrides.once(vm) is not None
                or boot_order.lacks_interfaces(vm['spec']['template']))


def set_default_order(machine: protocols.Machine) -> None:
    """Restore the persistent boot order that the VM's owner wrote."""
    def step(state: vm_state.VmState) -> None:
        edited = state.copy_vm()
        http = _is_http(edited.vm)
        boot_options.edit(edited, None)
        if http:
            boot_overrides.remove_unused_http_drive(edited.vm)
        boot_overrides.remove_unused_interface(edited.vm)
        json_patch.send(machine, state.vm, edited.vm)

    machine.write(step)


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
        boot_overrides.remove_once(vm)
        firmware.edit_secure_boot(vm, enabled, state.vmi)
        if not started:
            boot_overrides.reapply_once(vm, state.vmi, pending, terminate)

    return change


def _needs_once(pending: boot_overrides.Layer | None, target: Target | None,
                enabled: Enabled | None, mode: Mode | None) -> bool:
    return enabled is Enabled.ONCE or pending is not None and (
        mode is not None or target is not None)


def _may_terminate(machine: protocols.Machine, vm: objects.VirtualMachine
                   ) -> bool:
    # Under run strategies Once and WaitAsReceiver KubeVirt would start no VMI
    # after the one that the reboot ends.
    return (machine.options.reboot_policy
            and run_strategy.of(vm) not in (run_strategy.ONCE,
                                            run_strategy.WAIT_AS_RECEIVER)
            and machine.gates.enabled(GATE))


def _is_http(vm: objects.VirtualMachine) -> bool:
    return any(
        layer is not None and layer.get('target') == Target.UEFI_HTTP.value
        for layer in (boot_overrides.once(vm), boot_overrides.continuous(vm))
    )


def _edit(state: vm_state.VmState, target: Target | None,
          enabled: Enabled | None, mode: Mode | None, id_: str,
          terminate: bool, media_targets: abc.Sequence[Target]) -> None:
    """Edit a VM in place; the parameters are those of `Change`.

    :param id_: ID of a new one-time override
    :param terminate: whether the guest's reboot ends the VMI of that override
    """
    vm = state.vm
    pending = boot_overrides.once(vm)
    if pending is not None and boot_overrides.boot_started(state):
        boot_overrides.remove_once(vm)
        pending = None
    if target is Target.NONE or enabled is Enabled.DISABLED:
        boot_overrides.remove_all(vm)
        if mode:
            firmware.set_mode(vm, mode)
        return
    if target is None and enabled is None:
        if mode:
            _edit_mode(vm, pending, mode, id_, terminate)
        return
    class_ = _class(vm, target, pending, media_targets)
    if enabled is Enabled.ONCE or enabled is None and pending is not None:
        _edit_once(state, pending, class_, mode, id_, terminate)
        return
    boot_overrides.remove_all(vm)
    if mode:
        firmware.set_mode(vm, mode)
    if class_:
        boot_overrides.apply_continuous(vm, class_)


def _edit_mode(vm: objects.VirtualMachine,
               pending: boot_overrides.Layer | None, mode: Mode, id_: str,
               terminate: bool) -> None:
    boot_overrides.remove_once(vm)
    firmware.set_mode(vm, mode)
    if pending is not None and pending.get('target'):
        boot_overrides.apply_once(vm, id_, boot_order.Class(pending['target']),
                                  terminate=terminate)


def _edit_once(state: vm_state.VmState, pending: boot_overrides.Layer | None,
               class_: boot_order.Class | None, mode: Mode | None, id_: str,
               terminate: bool) -> None:
    vm = state.vm
    if pending is None:
        if class_ or mode:
            # It replaces a continuous override: after a boot with Once,
            # Enabled is Disabled (ComputerSystem, BootSourceOverrideEnabled).
            boot_overrides.remove_all(vm)
            boot_overrides.apply_once(vm, id_, class_, mode, terminate)
        return
    if mode is None and pending.get('mode'):
        mode = Mode(pending['mode'])
    same = (class_ and class_.value) == pending.get('target') and (
        mode and mode.value) == pending.get('mode')
    boot_overrides.remove_once(vm)
    if same:
        boot_overrides.reapply_once(
            vm, state.vmi, pending, terminate, id_)
    elif class_ or mode:
        boot_overrides.apply_once(vm, id_, class_, mode, terminate)


def _class(vm: objects.VirtualMachine, target: Target | None,
           pending: boot_overrides.Layer | None,
           media_targets: abc.Sequence[Target]) -> boot_order.Class | None:
    """Return the class of a target, or of the present target if that is None;
    None if there is neither.
    """
    if target is None:
        layer = pending or boot_overrides.continuous(vm)
        present = layer.get('target') if layer else None
        return boot_order.Class(present) if present else None
    known = {Target.NONE, *targets(vm), *media_targets}
    if target not in known:
        raise errors.InvalidValue(
            'BootSourceOverrideTarget', target,
            [member for member in Target if member in known])
    return boot_order.Class(target.value)
