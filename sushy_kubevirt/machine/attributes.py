# SPDX-License-Identifier: Apache-2.0
"""What a BMC remembers for its machine that KubeVirt has no field for.

A client's own BIOS attributes, the indicator's state and the asset tag, kept
in annotations of the VM, so that every BMC of the VM shows the same and none
of them has to remember. Attributes that KubeVirt has a field for are in
`bios`.
"""

import copy
import json
import math

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import run_strategy

ATTRIBUTES = api_resources.PREFIX + 'bios-attributes'

#: What the attributes were for the VMI that ran when they were changed: a
#: JSON object with its uid, ``vmi``, and ``values``.
BEFORE = api_resources.PREFIX + 'bios-attributes-before'

INDICATOR = api_resources.PREFIX + 'indicator'
ASSET_TAG = api_resources.PREFIX + 'asset-tag'

#: Characters of an asset tag.
LONGEST_TAG = 255

#: Attributes are a Redfish client's notes. Annotations of an object may have
#: 256 KiB together, which are not all for these.
LARGEST = 16 * 1024

LIT, BLINKING, OFF = 'Lit', 'Blinking', 'Off'
INDICATORS = (LIT, BLINKING, OFF)


def get(vm):
    """The attributes from the next boot on.

    :returns: dict of strings, numbers, booleans; {} by default
    """
    return _sound(_loaded(vm, ATTRIBUTES))


def current(vm, vmi):
    """The attributes as they were when the machine booted.

    :returns: like `get`, which it is while the machine is off
    """
    before = _loaded(vm, BEFORE)
    if (run_strategy.is_active(vmi)
            and before.get('vmi') == vmi['metadata']['uid']
            and isinstance(before.get('values'), dict)):
        return _sound(before['values'])
    return get(vm)


def _loaded(vm, key):
    # Whoever may edit the VM may have written it.
    try:
        values = json.loads(_annotations(vm).get(key) or '{}')
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _sound(values):
    return {name: value for name, value in values.items()
            if _is_primitive(value)}


def _is_primitive(value):
    # JSON has no NaN and no Infinity, though Python reads and writes them.
    return isinstance(value, (str, int)) or (
        isinstance(value, float) and math.isfinite(value))


def set(machine, values):
    """Change some BIOS attributes.

    :param values: dict: name: string, number or boolean; None removes
    :raises: `errors.InvalidValue`
    """
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(
                value, (str, int, float, bool, type(None))):
            raise errors.InvalidValue(str(name), value)

    _change(machine, lambda known: {**known, **values})


def reset(machine):
    """Bring the BIOS attributes back to their defaults: none."""
    _change(machine, lambda known: {})


def _change(machine, changed):
    """Change the attributes from the next boot on."""
    def texts(vm, vmi):
        known = get(vm)
        new = {name: value for name, value in changed(known).items()
               if value is not None}
        text = json.dumps(new, sort_keys=True)
        if len(text) > LARGEST:
            raise errors.InvalidValue(
                'Attributes', '...', message='The attributes are larger than '
                '%d bytes together' % LARGEST)
        before = None
        if run_strategy.is_active(vmi) and current(vm, vmi) != new:
            before = json.dumps({'vmi': vmi['metadata']['uid'],
                                 'values': current(vm, vmi)}, sort_keys=True)
        return {ATTRIBUTES: text if new else None, BEFORE: before}

    _annotate(machine, texts)


def indicator(vm):
    """The state of the indicator.

    :returns: one of `INDICATORS`
    """
    state = _annotations(vm).get(INDICATOR)
    return state if state in INDICATORS else OFF


def set_indicator(machine, state):
    """Switch the indicator.

    :param state: one of `INDICATORS`
    :raises: `errors.InvalidValue`
    """
    if state not in INDICATORS:
        raise errors.InvalidValue('IndicatorLED', state, INDICATORS)
    _annotate(machine, lambda vm, vmi: {
        INDICATOR: None if state == OFF else state})


def asset_tag(vm):
    """:returns: what a client has named the machine for its own books; ''"""
    return _annotations(vm).get(ASSET_TAG, '')


def set_asset_tag(machine, tag):
    """:param tag: text; '' removes it
    :raises: `errors.InvalidValue` if it is too long
    """
    if len(tag) > LONGEST_TAG:
        raise errors.InvalidValue(
            'AssetTag', tag, message='An asset tag has at most %d characters'
            % LONGEST_TAG)
    _annotate(machine, lambda vm, vmi: {ASSET_TAG: tag or None})


def _annotations(vm):
    return vm['metadata'].get('annotations') or {}


def _annotate(machine, texts_of):
    """Set annotations, or remove them.

    :param texts_of: function of the VM and its VMI: dict of annotation to
        its text, None to remove it
    """
    def step(vm, vmi):
        new = copy.copy(vm)
        new['metadata'] = dict(vm['metadata'])
        annotations = dict(_annotations(vm))
        for key, text in texts_of(vm, vmi).items():
            annotations.pop(key, None)
            if text is not None:
                annotations[key] = text
        if annotations == _annotations(vm):
            return
        new['metadata']['annotations'] = annotations
        machine.patch(json_patch.diff(vm, new), guard=vm)

    machine.write(step)
