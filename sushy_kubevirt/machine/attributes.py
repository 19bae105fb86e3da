# SPDX-License-Identifier: Apache-2.0
"""Settings of a machine that KubeVirt has no field for.

These are a client's own BIOS attributes, the state of the indicator LED, the
asset tag, and names of IPMI. They are kept in annotations of the VM, so that
every BMC of the VM shows the same values and none needs storage. Attributes
that KubeVirt has a field for are in `bios`.
"""

import copy
import json
import math

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import run_strategy

ATTRIBUTES = api_resources.PREFIX + 'bios-attributes'

#: Attributes of the VMI that was running when they were last changed: a JSON
#: object with ``vmi``, the uid of that VMI, and ``values``.
BEFORE = api_resources.PREFIX + 'bios-attributes-before'

INDICATOR = api_resources.PREFIX + 'indicator'
ASSET_TAG = api_resources.PREFIX + 'asset-tag'
CONTROLLER_NAME = api_resources.PREFIX + 'controller-name'

#: System info parameters that IPMI clients have written: a JSON object.
SYSTEM_INFO = api_resources.PREFIX + 'system-info'

#: Maximum length of an asset tag, in characters.
LONGEST_TAG = 255

#: Maximum size of all attributes as JSON, in characters (ASCII). Kubernetes
#: limits the annotations of an object to 256 KiB in total, and there are
#: others.
LARGEST = 16 * 1024

LIT, BLINKING, OFF = 'Lit', 'Blinking', 'Off'
INDICATORS = (LIT, BLINKING, OFF)


def get(vm):
    """Return the attributes that apply from the next boot on.

    :param vm: the VM
    :returns: dict: name: string, number or boolean; {} by default
    """
    return _primitives(_load(vm, ATTRIBUTES))


def current(vm, vmi):
    """Return the attributes as they were when the machine booted.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: dict like that of `get`; the same as `get` while the machine is
        off
    """
    before = _load(vm, BEFORE)
    if (run_strategy.is_active(vmi)
            and before.get('vmi') == vmi['metadata']['uid']
            and isinstance(before.get('values'), dict)):
        return _primitives(before['values'])
    return get(vm)


def _load(vm, key):
    # Anyone who may edit the VM may have written the annotation.
    try:
        values = json.loads(_annotations(vm).get(key) or '{}')
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _primitives(values):
    return {name: value for name, value in values.items()
            if _is_primitive(value)}


def _is_primitive(value):
    # JSON has no NaN and no Infinity, although Python's json module reads and
    # writes them.
    return isinstance(value, (str, int)) or (
        isinstance(value, float) and math.isfinite(value))


def set(machine, values):
    """Change some BIOS attributes, from the next boot on.

    :param machine: a `machine.Machine`
    :param values: dict: name: string, number or boolean; None removes the
        attribute
    :raises: `errors.InvalidValue` for a value of another type, or if all
        attributes together exceed `LARGEST`
    """
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(
                value, (str, int, float, bool, type(None))):
            raise errors.InvalidValue(str(name), value)

    _change(machine, lambda known: {**known, **values})


def reset(machine):
    """Reset the BIOS attributes to their default, which is to have none.

    :param machine: a `machine.Machine`
    """
    _change(machine, lambda known: {})


def _change(machine, changed):
    """Change the attributes that apply from the next boot on.

    :param machine: a `machine.Machine`
    :param changed: function of the present attributes, a dict; returns the new
        ones, in which None removes an attribute
    """
    def texts(vm, vmi):
        known = get(vm)
        new = {name: value for name, value in changed(known).items()
               if value is not None}
        text = json.dumps(new, sort_keys=True)
        if len(text) > LARGEST:
            raise errors.InvalidValue(
                'Attributes', '...', message='All attributes together are '
                f'larger than {LARGEST} bytes')
        before = None
        if run_strategy.is_active(vmi) and current(vm, vmi) != new:
            before = json.dumps({'vmi': vmi['metadata']['uid'],
                                 'values': current(vm, vmi)}, sort_keys=True)
        return {ATTRIBUTES: text if new else None, BEFORE: before}

    _annotate(machine, texts)


def indicator(vm):
    """Return the state of the indicator LED.

    :param vm: the VM
    :returns: one of `INDICATORS`
    """
    state = _annotations(vm).get(INDICATOR)
    return state if state in INDICATORS else OFF


def set_indicator(machine, state):
    """Set the state of the indicator LED.

    :param machine: a `machine.Machine`
    :param state: one of `INDICATORS`
    :raises: `errors.InvalidValue` for another state
    """
    if state not in INDICATORS:
        raise errors.InvalidValue('IndicatorLED', state, INDICATORS)
    _annotate(machine, lambda vm, vmi: {
        INDICATOR: None if state == OFF else state})


def asset_tag(vm):
    """Return the asset tag that a client set; '' for none."""
    return _annotations(vm).get(ASSET_TAG, '')


def set_asset_tag(machine, tag):
    """Set the asset tag.

    :param machine: a `machine.Machine`
    :param tag: text; '' removes the tag
    :raises: `errors.InvalidValue` if it is longer than `LONGEST_TAG`
    """
    _set_text(machine, ASSET_TAG, tag, 'AssetTag', 'An asset tag')


def controller_name(vm):
    """Return the name that a client gave to the BMC; '' for none."""
    return _annotations(vm).get(CONTROLLER_NAME, '')


def set_controller_name(machine, name):
    """Set the name of the BMC.

    :param machine: a `machine.Machine`
    :param name: text; '' removes the name
    :raises: `errors.InvalidValue` if it is longer than `LONGEST_TAG`
    """
    _set_text(machine, CONTROLLER_NAME, name, 'name', 'A name')


def system_info(vm, name):
    """Return a system info parameter that a client wrote.

    :param vm: the VM
    :param name: the parameter's name in the annotation `SYSTEM_INFO`
    :returns: text; '' for none
    """
    text = _load(vm, SYSTEM_INFO).get(name)
    return text if isinstance(text, str) else ''


def set_system_info(machine, name, text):
    """Write a system info parameter.

    :param machine: a `machine.Machine`
    :param name: see `system_info`
    :param text: '' removes it
    :raises: `errors.InvalidValue` if it is longer than `LONGEST_TAG`
    """
    _check_length(text, name, 'A system info parameter')

    def texts(vm, vmi):
        known = {**_load(vm, SYSTEM_INFO), name: text}
        known = {key: value for key, value in known.items() if value}
        return {SYSTEM_INFO: json.dumps(known, sort_keys=True)
                if known else None}

    _annotate(machine, texts)


def _check_length(text, field, subject):
    if len(text) > LONGEST_TAG:
        raise errors.InvalidValue(
            field, text,
            message=f'{subject} has at most {LONGEST_TAG} characters')


def _set_text(machine, annotation, text, field, subject):
    _check_length(text, field, subject)
    _annotate(machine, lambda vm, vmi: {annotation: text or None})


def _annotations(vm):
    return vm['metadata'].get('annotations') or {}


def _annotate(machine, texts_of):
    """Set or remove annotations of a machine's VM.

    :param machine: a `machine.Machine`
    :param texts_of: function of (vm, vmi) that returns a dict: annotation:
        its text, or None to remove it
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
