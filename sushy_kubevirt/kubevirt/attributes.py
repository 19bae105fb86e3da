# SPDX-License-Identifier: Apache-2.0
"""What a BMC remembers for its machine that KubeVirt has no field for.

BIOS attributes and the indicator's state, kept in annotations of the VM, so
that every BMC of the VM shows the same and none of them has to remember.
"""

import copy
import json
import math

from sushy_kubevirt.kubevirt import changes
from sushy_kubevirt.kubevirt import errors
from sushy_kubevirt.kubevirt import resources

ATTRIBUTES = resources.PREFIX + 'bios-attributes'
INDICATOR = resources.PREFIX + 'indicator'

#: Attributes are a Redfish client's notes. Annotations of an object may have
#: 256 KiB together, which are not all for these.
LARGEST = 16 * 1024

LIT, BLINKING, OFF = 'Lit', 'Blinking', 'Off'
INDICATORS = (LIT, BLINKING, OFF)


def get(vm):
    """The BIOS attributes.

    :returns: dict of strings, numbers, booleans; {} by default
    """
    try:
        values = json.loads(_annotations(vm).get(ATTRIBUTES) or '{}')
    except (ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    # Whoever may edit the VM may have written it.
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

    def merged(vm):
        known = {**get(vm), **values}
        text = json.dumps({name: value for name, value in known.items()
                           if value is not None}, sort_keys=True)
        if len(text) > LARGEST:
            raise errors.InvalidValue(
                'Attributes', '...', message='The attributes are larger than '
                '%d bytes together' % LARGEST)
        return text

    _annotate(machine, ATTRIBUTES, merged)


def reset(machine):
    """Bring the BIOS attributes back to their defaults: none."""
    _annotate(machine, ATTRIBUTES, lambda vm: None)


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
    _annotate(machine, INDICATOR,
              lambda vm: None if state == OFF else state)


def _annotations(vm):
    return vm['metadata'].get('annotations') or {}


def _annotate(machine, key, text_of):
    """Set an annotation, or remove it.

    :param text_of: function of the VM: the text, None to remove
    """
    def step(vm, vmi):
        new = copy.copy(vm)
        new['metadata'] = dict(vm['metadata'])
        annotations = dict(_annotations(vm))
        text = text_of(vm)
        annotations.pop(key, None)
        if text is not None:
            annotations[key] = text
        if annotations == _annotations(vm):
            return
        new['metadata']['annotations'] = annotations
        machine.patch(changes.between(vm, new), guard=vm)

    machine.write(step)
