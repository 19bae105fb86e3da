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

import uuid

from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine import run_strategy

TERMINATE = 'Terminate'

_TARGETS = tuple(each.value for each in boot_order.Class)
_MODES = tuple(each.value for each in firmware.Mode)

#: Classes of devices that a VM may have only while a medium is inserted.
_REMOVABLE_CLASSES = (boot_order.Class.CD, boot_order.Class.USB,
                      boot_order.Class.HTTP)


def once(vm):
    """Return the one-time override of a VM as a dict, see `bmc_annotations`;
    None if there is none.
    """
    return _layers(vm).get('once')


def continuous(vm):
    """Return the continuous override of a VM as a dict, see `bmc_annotations`;
    None if there is none.
    """
    return _layers(vm).get('continuous')


def active_continuous(vm):
    """Return the continuous override of a VM if it is in effect; None if there
    is none, or if another client has changed the boot order since.

    :param vm: a VM without a one-time override
    """
    layer = continuous(vm)
    if layer is not None:
        template = vm['spec']['template']
        first = boot_order.first(template)
        class_ = boot_order.Class(layer['target'])
        if first is not None and first.is_a(class_):
            return layer
        if (class_ in _REMOVABLE_CLASSES
                and class_ not in boot_order.classes(template)):
            return layer
    return None


def boot_started(vm, vmi):
    """Return whether the boot of a one-time override has started.

    It has started once a VMI that carries the override was assigned to a
    node: before that a start may still fail and be retried. It has also
    started if such a VMI was created and deleted while no BMC was running.
    This is read from the VM's status, where KubeVirt keeps the generation of
    the VM that the last VMI was made from, and whether the last VMIs failed
    before they ran.

    :param vm: a VM with a one-time override
    :param vmi: its VMI, or None
    """
    if _carries(vm, vmi):
        return _was_assigned(vmi)
    status = vm.get('status') or {}
    return (not status.get('startFailure')
            and (status.get('observedGeneration') or 0)
            >= once(vm)['generation'])


def _carries(vm, vmi):
    return (vmi is not None
            and bmc_annotations.boot_once_id(vmi) == once(vm)['id'])


def _was_assigned(vmi):
    """Return whether a VMI was assigned to a node."""
    # KubeVirt sets nodeName in the transition from Scheduling to Scheduled.
    # Failed is not in the list: a VMI may fail before that transition.
    return bool((vmi.get('status') or {}).get('nodeName')
                or run_strategy.phase(vmi) in (
                    'Scheduled', 'Running', 'Unknown', 'Succeeded'))


def preserve_once(vm, vmi) -> None:
    """Keep a one-time override for the next VMI if the present VMI is about
    to be stopped before it was assigned to a node.

    The override gets a new ID, so that the stopped VMI no longer counts as
    its boot.

    :param vm: a VM, which is changed
    :param vmi: its VMI
    """
    layer = once(vm)
    if layer is not None and _carries(vm, vmi) and not _was_assigned(vmi):
        layer = dict(layer, id=new_id(),
                     generation=vm['metadata'].get('generation', 0) + 1)
        bmc_annotations.set_boot_once_id(vm['spec']['template'], layer['id'])
        _write(vm, 'once', layer)


def new_id():
    """Return a unique ID for a one-time override, 8 hexadecimal digits."""
    return uuid.uuid4().hex[:8]


def apply_once(vm, id_, target=None, mode=None,
               terminate: bool = False) -> None:
    """Apply a one-time override to a VM that has none.

    :param vm: a VM, which is changed
    :param id_: a unique ID, see `new_id`
    :param target: a `boot_order.Class`; None leaves the order unchanged
    :param mode: a `firmware.Mode`; None leaves the mode unchanged
    :param terminate: whether the guest's reboot ends the VMI
    """
    changes = {}
    template = vm['spec']['template']
    layer = {'id': id_, 'changes': changes,
             'generation': vm['metadata'].get('generation', 0) + 1}
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


def _prioritize(vm, target):
    return boot_order.prioritize(vm['spec']['template'], target,
                                 media_annotation.drives(vm))


def restore_generation(vm, layer) -> None:
    """Restore the ``generation`` of a one-time override that was reapplied.

    :param vm: a VM with a one-time override that no VMI carries yet; is
        changed
    :param layer: the override as `once` returned it before
    """
    _write(vm, 'once', dict(once(vm), generation=layer['generation']))


def apply_continuous(vm, target) -> None:
    """Apply a continuous override to a VM that has no override.

    :param vm: a VM, which is changed
    :param target: a `boot_order.Class`
    """
    _write(vm, 'continuous', {
        'target': target.value,
        'changes': _prioritize(vm, target)})


def apply_order(vm, devices) -> None:
    """Apply a persistent boot order to a VM without one and without overrides.

    :param vm: a VM, which is changed
    :param devices: list of `boot_order.Device`: those to try, in this order
    """
    _write(vm, 'order', {
        'changes': boot_order.apply(vm['spec']['template'], devices)})


def remove_order(vm) -> None:
    """Remove the persistent boot order from a VM that has no override.

    :param vm: a VM, which is changed
    """
    layer = _layers(vm).get('order')
    if layer is not None:
        boot_order.restore(vm['spec']['template'],
                           layer.get('changes') or {})
        _write(vm, 'order', None)


def reapply_once(vm, vmi, layer, terminate, id_=None) -> None:
    """Apply a one-time override again that was just removed.

    It keeps its ID, so that the VM may come out unchanged. If a VMI carries
    that ID already, the override gets the ID `id_` instead, because the
    request is for the VMI after that one.

    :param vm: a VM, which is changed
    :param vmi: its VMI, or None
    :param layer: the override as `once` returned it
    :param terminate: whether the guest's reboot ends the VMI
    :param id_: ID to use if a VMI carries the present one; None keeps the
        present ID in any case
    """
    carried = (vmi is not None
               and bmc_annotations.boot_once_id(vmi) == layer['id'])
    if not carried or id_ is None:
        id_ = layer['id']
    apply_once(
        vm, id_, layer.get('target') and boot_order.Class(layer['target']),
        layer.get('mode') and firmware.Mode(layer['mode']), terminate)
    if not carried:
        restore_generation(vm, layer)


def remove_once(vm) -> None:
    """Remove the one-time override, if there is one.

    :param vm: a VM, which is changed
    """
    layer = once(vm)
    if layer is None:
        return
    changes = layer.get('changes') or {}
    template = vm['spec']['template']
    boot_order.restore(template, changes)
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
    _write(vm, 'once', None)


def remove_all(vm) -> None:
    """Remove all overrides; the persistent boot order stays.

    :param vm: a VM, which is changed
    """
    remove_once(vm)
    layer = continuous(vm)
    if layer is not None:
        boot_order.restore(vm['spec']['template'],
                           layer.get('changes') or {})
        _write(vm, 'continuous', None)


def add_interface(vm, vmi, binding) -> None:
    """Write the interface that KubeVirt would add to the VM's VMIs, so that it
    can have a boot order; nothing if the VM has interfaces.

    :param vm: a VM, which is changed
    :param vmi: its VMI, or None
    :param binding: function that returns the cluster's default
    """
    spec = vm['spec']['template']['spec']
    if not boot_order.lacks_interfaces(vm['spec']['template']):
        return
    name = boot_order.POD_INTERFACE
    present = {key for interface in _devices((vmi or {}).get(
        'spec') or {}).get('interfaces') or ()
        if interface.get('name') == name for key in interface}
    binding = next((each for each in ('bridge', 'masquerade')
                    if each in present), None) or binding()
    interface = {'name': name, binding: {}}
    spec.setdefault('domain', {}).setdefault('devices', {})[
        'interfaces'] = [interface]
    spec['networks'] = [{'name': name, 'pod': {}}]
    vm['metadata']['annotations'] = {
        **(vm['metadata'].get('annotations') or {}),
        bmc_annotations.POD_INTERFACE: binding}


def remove_unused_interface(vm) -> None:
    """Remove the interface that `add_interface` wrote.

    It stays while an override or an order of a BMC needs it, and if another
    client has changed it.

    :param vm: a VM, which is changed
    """
    notes = vm['metadata'].get('annotations') or {}
    if bmc_annotations.POD_INTERFACE not in notes or _layers(vm):
        return
    binding = notes.pop(bmc_annotations.POD_INTERFACE)
    name, spec = boot_order.POD_INTERFACE, vm['spec']['template']['spec']
    devices = _devices(spec)
    # Components of the cluster may have given it an address.
    found = [{key: value for key, value in interface.items()
              if key != 'macAddress'}
             for interface in devices.get('interfaces') or ()]
    if found == [{'name': name, binding: {}}] and spec.get('networks') == [
            {'name': name, 'pod': {}}]:
        del devices['interfaces'], spec['networks']


def _devices(spec):
    return (spec.get('domain') or {}).get('devices') or {}


def remove_unused_http_drive(vm) -> None:
    """Remove the drive of HTTP boot if no override has that target any more.

    :param vm: a VM, which is changed
    """
    if any(layer is not None and layer['target'] == boot_order.Class.HTTP.value
           for layer in (once(vm), continuous(vm))):
        return
    spec = vm['spec']['template']['spec']
    devices = _devices(spec)
    for place, list_ in ((spec, 'volumes'), (devices, 'disks')):
        if any(item.get('name') == boot_order.HTTP_DRIVE
               for item in place.get(list_) or ()):
            place[list_] = [item for item in place[list_]
                            if item.get('name') != boot_order.HTTP_DRIVE]


def ends_at_reboot(vm):
    """Return True if the VM has a one-time override with which the guest's
    reboot ends the VMI (``rebootPolicy: Terminate``).
    """
    domain = vm['spec']['template']['spec'].get('domain') or {}
    return (once(vm) is not None
            and domain.get('rebootPolicy') == TERMINATE)


def _write(vm, name, layer) -> None:
    layers = _layers(vm)
    if layer is None:
        layers.pop(name, None)
    else:
        layers[name] = layer
    bmc_annotations.write(vm, bmc_annotations.BOOT, layers)


def _layers(vm):
    """Read the layers of a VM and drop those that are malformed.

    Anyone who may edit a VM may write anything into its annotations. A layer
    that a BMC would not write is ignored.

    :returns: dict with ``once``, ``continuous`` and ``order``, each of which
        may be missing
    """
    layers = bmc_annotations.read(vm, bmc_annotations.BOOT)
    found = {}
    for name, is_valid in (('once', _is_once), ('continuous', _is_continuous),
                           ('order', lambda layer: True)):
        layer = layers.get(name)
        if isinstance(layer, dict) and is_valid(layer) and _are_changes(
                layer.get('changes', {})):
            found[name] = layer
    return found


def _is_once(layer):
    return (isinstance(layer.get('id'), str) and layer['id'] != ''
            and _is_number(layer.get('generation'))
            and layer.get('target') in (None, *_TARGETS)
            and layer.get('mode') in (None, *_MODES))


def _is_continuous(layer) -> bool:
    return layer.get('target') in _TARGETS


def _are_changes(changes):
    if not isinstance(changes, dict):
        return False
    added = changes.get('added', [])
    orders = [changes.get(each, {}) for each in ('disks', 'interfaces')]
    return (isinstance(added, list)
            and all(isinstance(name, str) for name in added)
            and all(isinstance(order, dict) for order in orders)
            and all(_is_pair(pair, _is_number)
                    for order in orders for pair in order.values())
            and _is_pair(changes.get('bootloader', [None, None]),
                         firmware.is_bootloader)
            and _is_pair(changes.get('rebootPolicy', [None, None]),
                         lambda value: isinstance(value, str)))


def _is_pair(pair, is_valid):
    """Return whether a JSON value is [old, new], each of which may be null.

    :param is_valid: function that checks a value that is not null
    """
    return (isinstance(pair, list) and len(pair) == 2
            and all(value is None or is_valid(value) for value in pair))


def _is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)
