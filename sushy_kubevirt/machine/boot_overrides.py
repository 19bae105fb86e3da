# SPDX-License-Identifier: Apache-2.0
"""Boot overrides as layers on a VM: applying and removing them.

Pure functions that edit a VM in place. The lowest layer is what the VM's
owner wrote. Above it may be, in this order, a persistent boot order set
through a BMC, a continuous override and a one-time override. Each layer is
stored with the record of what it changed (see `bmc_annotations`), so that
removing it restores the layer below. `boot` and `one_time_boot` decide when
layers are applied and removed.
"""

from __future__ import annotations

import contextlib
import typing
import uuid

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects


class Original(typing.TypedDict, total=False):
    """Settings before a one-time override, see `bmc_annotations`."""

    vmiUID: str
    bootOrders: dict[str, int]
    originalFirmware: str


class Layer(typing.TypedDict, total=False):
    """A layer of the annotation, see `bmc_annotations`.

    :ivar target: value of a `boot_order.Target`, not that of ``NONE``
    :ivar mode: value of a `firmware.Mode`
    :ivar original: of a one-time override; not checked here
    """

    id: str
    generation: int
    target: str
    mode: str
    changes: boot_order.Changes
    original: Original


_Name: typing.TypeAlias = typing.Literal['once', 'continuous', 'order']


class _Layers(typing.TypedDict, total=False):
    once: Layer
    continuous: Layer
    order: Layer


TERMINATE = 'Terminate'

_TARGETS = tuple(target.value for target in boot_order.Target
                 if target is not boot_order.Target.NONE)
_MODES = tuple(mode.value for mode in firmware.Mode)

#: Classes of devices that a VM may have only while a medium is inserted.
_REMOVABLE_CLASSES = (boot_order.Target.CD, boot_order.Target.USB,
                      boot_order.Target.UEFI_HTTP)


def once(vm: objects.VirtualMachine) -> Layer | None:
    """Return the one-time override of a VM."""
    return _layers(vm).get('once')


def continuous(vm: objects.VirtualMachine) -> Layer | None:
    """Return the continuous override of a VM."""
    return _layers(vm).get('continuous')


def active_continuous(vm: objects.VirtualMachine) -> Layer | None:
    """Return the continuous override of a VM if it is in effect; None if there
    is none, or if another client has changed the boot order since.

    :param vm: a VM without a one-time override
    """
    layer = continuous(vm)
    if layer is not None:
        template = vm['spec']['template']
        first = boot_order.first(template)
        class_ = boot_order.Target(layer['target'])
        if first is not None and first.is_a(class_):
            return layer
        if (class_ in _REMOVABLE_CLASSES
                and class_ not in boot_order.classes(template)):
            return layer
    return None


def boot_started(state: vm_state.VmState) -> bool:
    """Return whether the boot of a one-time override has started.

    It has started once a VMI that carries the override was assigned to a
    node: before that a start may still fail and be retried. It has also
    started if such a VMI was created and deleted while no BMC was running.
    This is read from the VM's status, where KubeVirt keeps the generation of
    the VM that the last VMI was made from, and whether the last VMIs failed
    before they ran.

    :returns: False for a VM without a one-time override
    """
    layer = once(state.vm)
    if layer is None:
        return False
    if _carries(state.vmi, layer):
        return _was_assigned(state.vmi)
    status = state.vm.get('status') or {}
    return (not status.get('startFailure')
            and (status.get('observedGeneration') or 0)
            >= layer['generation'])


def _carries(vmi: objects.VirtualMachineInstance | None, layer: Layer
             ) -> typing.TypeGuard[objects.VirtualMachineInstance]:
    return (vmi is not None
            and bmc_annotations.boot_once_id(vmi) == layer['id'])


def _was_assigned(vmi: objects.VirtualMachineInstance) -> bool:
    """Return whether a VMI was assigned to a node."""
    # KubeVirt sets nodeName in the transition from Scheduling to Scheduled.
    # Failed is not in the list: a VMI may fail before that transition.
    return bool((vmi.get('status') or {}).get('nodeName')
                or vm_state.phase(vmi) in (
                    'Scheduled', 'Running', 'Unknown', 'Succeeded'))


def preserve_once(vm: objects.VirtualMachine,
                  vmi: objects.VirtualMachineInstance) -> None:
    """Keep a one-time override for the next VMI if the present VMI is about
    to be stopped before it was assigned to a node.

    The override gets a new ID, so that the stopped VMI no longer counts as
    its boot.

    :param vm: is changed
    """
    layer = once(vm)
    if layer is not None and _carries(vmi, layer) and not _was_assigned(vmi):
        layer = {**layer, 'id': new_id(),
                 'generation': vm['metadata'].get('generation', 0) + 1}
        bmc_annotations.set_boot_once_id(vm['spec']['template'], layer['id'])
        _write(vm, 'once', layer)


def new_id() -> str:
    """Return a unique ID for a one-time override, 8 hexadecimal digits."""
    return uuid.uuid4().hex[:8]


def apply_once(vm: objects.VirtualMachine, id_: str,
               target: boot_order.Target | None = None,
               mode: firmware.Mode | None = None, terminate: bool = False,
               vmi_uid: str | None = None) -> None:
    """Apply a one-time override to a VM that has none.

    :param vm: is changed
    :param id_: a unique ID, see `new_id`
    :param target: None leaves the order unchanged
    :param mode: None leaves the mode unchanged
    :param terminate: whether the guest's reboot ends the VMI
    :param vmi_uid: uid of the present VMI
    """
    changes: boot_order.Changes = {}
    template = vm['spec']['template']
    layer: Layer = {
        'id': id_, 'changes': changes,
        'generation': vm['metadata'].get('generation', 0) + 1,
        'original': {'bootOrders': boot_order.numbers(template),
                     'originalFirmware': firmware.mode(vm).value}}
    if vmi_uid:
        layer['original']['vmiUID'] = vmi_uid
    if mode:
        layer['mode'] = mode.value
        change = firmware.set_mode(vm, mode)
        if change:
            changes['bootloader'] = change
    if target:
        layer['target'] = target.value
        changes.update(_prioritize(vm, target))
    if terminate:
        domain = template['spec']['domain']
        changes['rebootPolicy'] = [domain.get('rebootPolicy'), TERMINATE]
        domain['rebootPolicy'] = TERMINATE
    bmc_annotations.set_boot_once_id(template, id_)
    _write(vm, 'once', layer)


def _prioritize(vm: objects.VirtualMachine, target: boot_order.Target
                ) -> boot_order.Changes:
    return boot_order.prioritize(vm['spec']['template'], target,
                                 media_annotation.drives(vm))


def apply_continuous(vm: objects.VirtualMachine, target: boot_order.Target
                     ) -> None:
    """Apply a continuous override to a VM that has no override.

    :param vm: is changed
    """
    _write(vm, 'continuous', {
        'target': target.value,
        'changes': _prioritize(vm, target)})


def apply_order(vm: objects.VirtualMachine, devices: list[boot_order.Device]
                ) -> None:
    """Apply a persistent boot order to a VM without one and without overrides.

    :param vm: is changed
    :param devices: those to try, in this order
    """
    _write(vm, 'order', {
        'changes': boot_order.apply(vm['spec']['template'], devices)})


@contextlib.contextmanager
def lifted(state: vm_state.VmState) -> abc.Iterator[None]:
    """Take the overrides off a VM for an edit of what is below them.

    A one-time override whose boot has started, and a continuous one that is
    not in effect, are not applied again.

    :param state: its VM is changed
    """
    vm = state.vm
    pending = None if boot_started(state) else once(vm)
    terminate = ends_at_reboot(vm)
    remove(vm, 'once')
    active = active_continuous(vm)
    remove(vm, 'continuous')
    yield
    if active is not None:
        apply_continuous(vm, boot_order.Target(active['target']))
    if pending is not None:
        reapply_once(vm, state.vmi, pending, terminate)


def reapply_once(vm: objects.VirtualMachine,
                 vmi: objects.VirtualMachineInstance | None, layer: Layer,
                 terminate: bool, id_: str | None = None) -> None:
    """Apply a one-time override again that was just removed.

    It keeps its ID, so that the VM may come out unchanged. If a VMI carries
    that ID already, the override gets the ID `id_` instead, because the
    request is for the VMI after that one.

    :param vm: is changed
    :param layer: the override as `once` returned it
    :param terminate: whether the guest's reboot ends the VMI
    :param id_: ID to use if a VMI carries the present one; None keeps the
        present ID in any case
    """
    carried = _carries(vmi, layer)
    if not carried or id_ is None:
        id_ = layer['id']
    target, mode = layer.get('target'), layer.get('mode')
    apply_once(vm, id_, boot_order.Target(target) if target else None,
               firmware.Mode(mode) if mode else None, terminate,
               vmi['metadata']['uid'] if vmi else None)
    applied = once(vm)
    if not carried and applied is not None:
        _write(vm, 'once', {**applied, 'generation': layer['generation']})


def remove(vm: objects.VirtualMachine, *names: _Name) -> None:
    """Remove layers, if they are there.

    :param vm: is changed
    :param names: upper layers first
    """
    template = vm['spec']['template']
    for name in names:
        layer = _layers(vm).get(name)
        if layer is None:
            continue
        changes = layer.get('changes') or {}
        boot_order.restore(template, changes)
        if name == 'once':
            if changes.get('bootloader'):
                firmware.restore_mode(vm, changes['bootloader'])
            if changes.get('rebootPolicy'):
                old, new = changes['rebootPolicy']
                domain = template['spec']['domain']
                if domain.get('rebootPolicy') == new:
                    domain.pop('rebootPolicy')
                    if old is not None:
                        domain['rebootPolicy'] = old
            bmc_annotations.set_boot_once_id(template, None)
        _write(vm, name, None)


def remove_overrides(vm: objects.VirtualMachine) -> None:
    """Remove all overrides; the persistent boot order stays.

    :param vm: is changed
    """
    remove(vm, 'once', 'continuous')


def add_interface(vm: objects.VirtualMachine,
                  vmi: objects.VirtualMachineInstance | None,
                  default_binding: abc.Callable[[], str]) -> None:
    """Write the interface that KubeVirt would add to the VM's VMIs, so that it
    can have a boot order; nothing if the VM has interfaces.

    :param vm: is changed
    :param default_binding: returns that of the cluster
    """
    spec = vm['spec']['template']['spec']
    if not boot_order.lacks_interfaces(vm['spec']['template']):
        return
    name = boot_order.POD_INTERFACE
    present = {key for interface in (
        boot_order.hardware_of(vmi).get('interfaces') if vmi else None) or ()
        if interface.get('name') == name for key in interface}
    binding = next((known for known in ('bridge', 'masquerade')
                    if known in present), None) or default_binding()
    interface = _interface(name, binding)
    spec.setdefault('domain', {}).setdefault('devices', {})[
        'interfaces'] = [interface]
    spec['networks'] = [{'name': name, 'pod': {}}]
    bmc_annotations.set_text(vm, stored_names.POD_INTERFACE, binding)


def _interface(name: str, binding: str) -> objects.Interface:
    # The member of a binding is named after it.
    return typing.cast('objects.Interface', {'name': name, binding: {}})


def _remove_unused_interface(vm: objects.VirtualMachine) -> None:
    # It stays while an override or an order of a BMC needs it, and if another
    # client has changed it.
    notes = vm['metadata'].get('annotations') or {}
    if stored_names.POD_INTERFACE not in notes or _layers(vm):
        return
    binding = notes.pop(stored_names.POD_INTERFACE)
    name, spec = boot_order.POD_INTERFACE, vm['spec']['template']['spec']
    devices = boot_order.hardware_of(vm['spec']['template'])
    # Components of the cluster may have given it an address.
    interfaces = [{key: value for key, value in interface.items()
                   if key != 'macAddress'}
                  for interface in devices.get('interfaces') or ()]
    if interfaces == [_interface(name, binding)] and spec.get('networks') == [
            {'name': name, 'pod': {}}]:
        del devices['interfaces'], spec['networks']


def has_http(vm: objects.VirtualMachine) -> bool:
    """Return whether an override has the target of HTTP boot."""
    return any(layer is not None and layer.get('target')
               == boot_order.Target.UEFI_HTTP.value
               for layer in (once(vm), continuous(vm)))


def remove_unused_devices(vm: objects.VirtualMachine, had_http: bool) -> None:
    """Remove the drive of HTTP boot, and the interface that `add_interface`
    wrote, if no override needs them any more.

    :param vm: is changed
    :param had_http: `has_http` before the edit
    """
    if had_http and not has_http(vm):
        spec = vm['spec']['template']['spec']
        devices = boot_order.hardware_of(vm['spec']['template'])
        if spec.get('volumes'):
            spec['volumes'] = [volume for volume in spec['volumes']
                               if volume.get('name') != boot_order.HTTP_DRIVE]
        if devices.get('disks'):
            devices['disks'] = [disk for disk in devices['disks']
                                if disk.get('name') != boot_order.HTTP_DRIVE]
    _remove_unused_interface(vm)


def ends_at_reboot(vm: objects.VirtualMachine) -> bool:
    """Return True if the VM has a one-time override with which the guest's
    reboot ends the VMI (``rebootPolicy: Terminate``).
    """
    domain = vm['spec']['template']['spec'].get('domain') or {}
    return (once(vm) is not None
            and domain.get('rebootPolicy') == TERMINATE)


def _write(vm: objects.VirtualMachine, name: _Name, layer: Layer | None
           ) -> None:
    layers = _layers(vm)
    if layer is None:
        layers.pop(name, None)
    else:
        layers[name] = layer
    bmc_annotations.write(vm, stored_names.BOOT, layers)


def _layers(vm: objects.VirtualMachine) -> _Layers:
    """Read the layers of a VM and drop those that are malformed.

    Anyone who may edit a VM may write anything into its annotations. A layer
    that a BMC would not write is ignored.
    """
    layers = bmc_annotations.read(vm, stored_names.BOOT)
    valid = {name: layer for name, is_valid in _IS_VALID.items()
             if isinstance(layer := layers.get(name), dict)
             and is_valid(layer) and _are_changes(layer.get('changes', {}))}
    return typing.cast(_Layers, valid)


def _is_once(layer: objects.Json) -> bool:
    return (isinstance(layer.get('id'), str) and layer['id'] != ''
            and _is_number(layer.get('generation'))
            and layer.get('target') in (None, *_TARGETS)
            and layer.get('mode') in (None, *_MODES))


def _is_continuous(layer: objects.Json) -> bool:
    return layer.get('target') in _TARGETS


_IS_VALID: dict[str, abc.Callable[[objects.Json], bool]] = {
    'once': _is_once,
    'continuous': _is_continuous,
    'order': lambda layer: True,
}


def _are_changes(changes: object) -> bool:
    if not isinstance(changes, dict):
        return False
    added = changes.get('added', [])
    orders = [changes.get(list_, {}) for list_ in ('disks', 'interfaces')]
    return (isinstance(added, list)
            and all(isinstance(name, str) for name in added)
            and all(isinstance(order, dict) for order in orders)
            and all(_is_pair(pair, _is_number)
                    for order in orders for pair in order.values())
            and _is_pair(changes.get('bootloader', [None, None]),
                         firmware.is_bootloader)
            and _is_pair(changes.get('rebootPolicy', [None, None]),
                         lambda value: isinstance(value, str)))


def _is_pair(pair: object, is_valid: abc.Callable[[object], bool]) -> bool:
    """Return whether a JSON value is [old, new], each of which may be null.

    :param is_valid: checks a value that is not null
    """
    return (isinstance(pair, list) and len(pair) == 2
            and all(value is None or is_valid(value) for value in pair))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
