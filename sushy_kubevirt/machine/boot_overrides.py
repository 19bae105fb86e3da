# SPDX-License-Identifier: Apache-2.0
"""Boot overrides as layers on a VM, put on and taken off again.

Pure functions that edit a VM in place. The lowest layer is what the VM's
owner wrote; on it may lie a boot order of a BMC's, on that a lasting override,
on that one for a single boot.
Each layer carries the record of what it changed (see `annotations`), so that
taking it off brings back what was under it. When and why that happens is
said in `boot` and `keeper`.
"""

import uuid

from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import run_strategy

TERMINATE = 'Terminate'

_TARGETS = tuple(each.value for each in boot_order.Class)
_MODES = tuple(each.value for each in firmware.Mode)

#: Devices that a VM may not have until there is a medium for them.
_COME_AND_GO = (boot_order.Class.CD, boot_order.Class.HTTP)


def once(vm):
    """:returns: the one-time override on a VM, see `annotations`; or None"""
    return _layers(vm).get('once')


def continuous(vm):
    """:returns: the lasting override on a VM; or None"""
    return _layers(vm).get('continuous')


def active_continuous(vm):
    """:returns: the lasting override on a VM that has no one-time override,
    unless somebody has given the VM another order since; or None
    """
    layer = continuous(vm)
    if layer is not None:
        template = vm['spec']['template']
        first = boot_order.first(template)
        if first is not None and first.value == layer['target']:
            return layer
        class_ = boot_order.Class(layer['target'])
        if (class_ in _COME_AND_GO
                and class_ not in boot_order.classes(template)):
            return layer
    return None


def boot_started(vm, vmi):
    """Whether the boot that a one-time override was for has begun.

    It has as soon as a VMI that carries the override was handed to a node:
    before that a start may still fail and be tried again. It also has when
    such a VMI came and went while no BMC was looking: KubeVirt keeps the
    generation of the VM that the last VMI was made from, and whether the
    last VMIs failed before they ran.

    :param vm: a VM with a one-time override
    :param vmi: its VMI, or None
    """
    if _carries(vm, vmi):
        return _handed_over(vmi)
    status = vm.get('status') or {}
    return (not status.get('startFailure')
            and (status.get('observedGeneration') or 0)
            >= once(vm)['generation'])


def _carries(vm, vmi):
    return vmi is not None and annotations.boot_once_id(vmi) == once(vm)['id']


def _handed_over(vmi):
    # The node is written down in the step from Scheduling to Scheduled. Only
    # a VMI that Failed may have done so before.
    return bool((vmi.get('status') or {}).get('nodeName')
                or run_strategy.phase(vmi) in (
                    'Scheduled', 'Running', 'Unknown', 'Succeeded'))


def preserve_once(vm, vmi):
    """Keep a one-time override for the next VMI when the one that carries it
    is about to be ended before its guest ran.

    :param vm: a VM, which is changed
    :param vmi: its VMI
    """
    layer = once(vm)
    if layer is not None and _carries(vm, vmi) and not _handed_over(vmi):
        layer = dict(layer, id=new_id(),
                     generation=vm['metadata'].get('generation', 0) + 1)
        annotations.set_boot_once_id(vm['spec']['template'], layer['id'])
        _write(vm, 'once', layer)


def new_id():
    """:returns: a name for a one-time override that no other has"""
    return uuid.uuid4().hex[:8]


def apply_once(vm, id_, target=None, mode=None, terminate=False):
    """Put a one-time override on a VM that has none.

    :param id_: a name for it that no other has
    :param target: a `boot_order.Class`; None leaves the order
    :param mode: a `firmware.Mode`; None leaves it
    :param terminate: let the guest's own reboot end the VMI
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
        changes.update(boot_order.prioritize(template, target))
    if terminate:
        domain = template['spec']['domain']
        changes['rebootPolicy'] = [domain.get('rebootPolicy'), TERMINATE]
        domain['rebootPolicy'] = TERMINATE
    annotations.set_boot_once_id(template, id_)
    _write(vm, 'once', layer)


def restore_generation(vm, layer):
    """Let a one-time override count from where it counted before.

    :param vm: a VM with a one-time override, which no VMI carries yet
    :param layer: what `once` said of it before
    """
    _write(vm, 'once', dict(once(vm), generation=layer['generation']))


def apply_continuous(vm, target):
    """Put a lasting override on a VM that has no override.

    :param target: a `boot_order.Class`
    """
    _write(vm, 'continuous', {
        'target': target.value,
        'changes': boot_order.prioritize(vm['spec']['template'], target)})


def apply_order(vm, devices):
    """Put a boot order on a VM that has neither one nor an override.

    :param devices: list of `boot_order.Device`: those that are tried
    """
    _write(vm, 'order', {
        'changes': boot_order.apply(vm['spec']['template'], devices)})


def remove_order(vm):
    """Take off the boot order, of a VM that has no override on it."""
    layer = _layers(vm).get('order')
    if layer is not None:
        boot_order.restore(vm['spec']['template'],
                           layer.get('changes') or {})
        _write(vm, 'order', None)


def reapply_once(vm, vmi, layer, terminate, id_=None):
    """Put a one-time override back on that was taken off a moment ago.

    It keeps its name, and so may come out unchanged, unless a VMI carries
    that already: what is asked for now is for the VMI after that one.

    :param layer: what `once` said of it
    :param id_: a name for it in that case; None keeps it in any case
    """
    carried = vmi is not None and annotations.boot_once_id(vmi) == layer['id']
    if not carried or id_ is None:
        id_ = layer['id']
    apply_once(
        vm, id_, layer.get('target') and boot_order.Class(layer['target']),
        layer.get('mode') and firmware.Mode(layer['mode']), terminate)
    if not carried:
        restore_generation(vm, layer)


def remove_once(vm):
    """Take off the one-time override, if there is one."""
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
    annotations.set_boot_once_id(template, None)
    _write(vm, 'once', None)


def remove_all(vm):
    """Take off all overrides; a boot order stays."""
    remove_once(vm)
    layer = continuous(vm)
    if layer is not None:
        boot_order.restore(vm['spec']['template'],
                           layer.get('changes') or {})
        _write(vm, 'continuous', None)


def remove_unused_http_drive(vm):
    """Remove the drive of HTTP boot if no override is about it any more."""
    if any(layer is not None and layer['target'] == boot_order.Class.HTTP.value
           for layer in (once(vm), continuous(vm))):
        return
    spec = vm['spec']['template']['spec']
    devices = (spec.get('domain') or {}).get('devices') or {}
    for place, list_ in ((spec, 'volumes'), (devices, 'disks')):
        if any(item.get('name') == boot_order.HTTP_DRIVE
               for item in place.get(list_) or ()):
            place[list_] = [item for item in place[list_]
                            if item.get('name') != boot_order.HTTP_DRIVE]


def ends_at_reboot(vm):
    """:returns: True if a one-time override waits for its boot, which the
    guest's own reboot will end
    """
    domain = vm['spec']['template']['spec'].get('domain') or {}
    return (once(vm) is not None
            and domain.get('rebootPolicy') == TERMINATE)


def _write(vm, name, layer):
    layers = _layers(vm)
    if layer is None:
        layers.pop(name, None)
    else:
        layers[name] = layer
    annotations.write(vm, annotations.BOOT, layers)


def _layers(vm):
    """The overrides on a VM, as far as they are what is written here.

    Whoever may edit a VM may write anything into its annotations. What no
    BMC would write counts as not there.

    :returns: dict with ``once``, ``continuous`` and ``order``, each may be
        missing
    """
    layers = annotations.read(vm, annotations.BOOT)
    found = {}
    for name, is_sound in (('once', _is_once), ('continuous', _is_lasting),
                           ('order', lambda layer: True)):
        layer = layers.get(name)
        if isinstance(layer, dict) and is_sound(layer) and _are_changes(
                layer.get('changes', {})):
            found[name] = layer
    return found


def _is_once(layer):
    return (isinstance(layer.get('id'), str) and layer['id'] != ''
            and _is_number(layer.get('generation'))
            and layer.get('target') in (None, *_TARGETS)
            and layer.get('mode') in (None, *_MODES))


def _is_lasting(layer):
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


def _is_pair(pair, is_sound):
    """Whether it is [old, new], each of which may be null."""
    return (isinstance(pair, list) and len(pair) == 2
            and all(value is None or is_sound(value) for value in pair))


def _is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)
