# SPDX-License-Identifier: Apache-2.0
"""Settings of a machine that KubeVirt has no field for.

These are a client's own BIOS attributes, the state of the indicator LED, the
asset tag, and names of IPMI. They are kept in annotations of the VM, so that
every BMC of the VM shows the same values and none needs storage. Attributes
that KubeVirt has a field for are in `bios`.
"""

from __future__ import annotations

import json
import math
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

#: Value of a BIOS attribute.
Value: typing.TypeAlias = str | int | float | bool

#: Maximum length of an asset tag, in characters.
LONGEST_TAG = 255

#: Maximum size of all attributes as JSON, in characters (ASCII). Kubernetes
#: limits the annotations of an object to 256 KiB in total, and there are
#: others.
LARGEST = 16 * 1024

LIT, BLINKING, OFF = 'Lit', 'Blinking', 'Off'
INDICATORS = (LIT, BLINKING, OFF)


def get(vm: objects.VirtualMachine) -> dict[str, Value]:
    """Return the attributes that apply from the next boot on, by name."""
    return _primitives(_load(vm, stored_names.ATTRIBUTES))


def current(state: vm_state.VmState) -> dict[str, Value]:
    """Return the attributes as they were when the machine booted.

    :returns: the same as `get` while the machine is off
    """
    before = _load(state.vm, stored_names.ATTRIBUTES_BEFORE)
    if (vm_state.is_active(state.vmi)
            and before.get('vmi') == state.vmi['metadata']['uid']
            and isinstance(before.get('values'), dict)):
        return _primitives(before['values'])
    return get(state.vm)


def _load(vm: objects.VirtualMachine, key: str) -> objects.Json:
    # Anyone who may edit the VM may have written the annotation.
    try:
        values = json.loads(_annotations(vm).get(key) or '{}')
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _primitives(values: objects.Json) -> dict[str, Value]:
    return {name: value for name, value in values.items()
            if _is_primitive(value)}


def _is_primitive(value: object) -> bool:
    # JSON has no NaN and no Infinity, although Python's json module reads and
    # writes them.
    return isinstance(value, (str, int)) or (
        isinstance(value, float) and math.isfinite(value))


def change(values: abc.Mapping[str, Value | None]) -> changes.Change:
    """Return a change of some BIOS attributes, see `changes`.

    It takes effect from the next boot on.

    :param values: by name; None removes the attribute
    :raises: `errors.InvalidValue` for a value of another type; when it is
        called, if all attributes together exceed `LARGEST`
    """
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(
                value, (str, int, float, bool, type(None))):
            raise errors.InvalidValue(str(name), value)
    return lambda state: _replace(state, {**get(state.vm), **values})


def reset(machine: protocols.Machine) -> None:
    """Reset the BIOS attributes to their default, which is to have none."""
    changes.write(machine, (lambda state: _replace(state, {}),))


def _replace(state: vm_state.VmState,
             values: abc.Mapping[str, Value | None]) -> None:
    """Replace the attributes that apply from the next boot on.

    :param state: its VM is changed
    :param values: all attributes; one that is None is removed
    """
    new = {name: value for name, value in values.items() if value is not None}
    text = json.dumps(new, sort_keys=True)
    if len(text) > LARGEST:
        raise errors.InvalidValue(
            'Attributes', '...', message='All attributes together are '
            f'larger than {LARGEST} bytes')
    before = None
    if vm_state.is_active(state.vmi) and current(state) != new:
        before = json.dumps({'vmi': state.vmi['metadata']['uid'],
                             'values': current(state)}, sort_keys=True)
    _annotate(state.vm, stored_names.ATTRIBUTES, text if new else None)
    _annotate(state.vm, stored_names.ATTRIBUTES_BEFORE, before)


def indicator(vm: objects.VirtualMachine) -> str:
    """Return the state of the indicator LED, one of `INDICATORS`."""
    state = _annotations(vm).get(stored_names.INDICATOR)
    return state if state in INDICATORS else OFF


def indicator_change(led: str) -> changes.Change:
    """Return a change of the state of the indicator LED, see `changes`.

    :param led: one of `INDICATORS`
    :raises: `errors.InvalidValue` for another state
    """
    if led not in INDICATORS:
        raise errors.InvalidValue('IndicatorLED', led, INDICATORS)
    return lambda state: _annotate(
        state.vm, stored_names.INDICATOR, None if led == OFF else led)


def asset_tag(vm: objects.VirtualMachine) -> str:
    """Return the asset tag that a client set; '' for none."""
    return _annotations(vm).get(stored_names.ASSET_TAG, '')


def asset_tag_change(tag: str) -> changes.Change:
    """Return a change of the asset tag, see `changes`.

    :param tag: '' removes the tag
    :raises: `errors.InvalidValue` if it is longer than `LONGEST_TAG`
    """
    return _text_change(
        stored_names.ASSET_TAG, tag, 'AssetTag', 'An asset tag')


def controller_name(vm: objects.VirtualMachine) -> str:
    """Return the name that a client gave to the BMC; '' for none."""
    return _annotations(vm).get(stored_names.CONTROLLER_NAME, '')


def controller_name_change(name: str) -> changes.Change:
    """Return a change of the name of the BMC, see `changes`.

    :param name: '' removes the name
    :raises: `errors.InvalidValue` if it is longer than `LONGEST_TAG`
    """
    return _text_change(
        stored_names.CONTROLLER_NAME, name, 'name', 'A name')


def system_info(vm: objects.VirtualMachine, name: str) -> str:
    """Return a system info parameter that a client wrote; '' for none.

    :param name: of the parameter in `stored_names.SYSTEM_INFO`, a JSON object
    """
    text = _load(vm, stored_names.SYSTEM_INFO).get(name)
    return text if isinstance(text, str) else ''


def system_info_change(name: str, text: str) -> changes.Change:
    """Return a change of a system info parameter, see `changes`.

    :param name: see `system_info`
    :param text: '' removes it
    :raises: `errors.InvalidValue` if it is longer than `LONGEST_TAG`
    """
    _check_length(text, name, 'A system info parameter')

    def change(state: vm_state.VmState) -> None:
        known = {**_load(state.vm, stored_names.SYSTEM_INFO), name: text}
        known = {key: value for key, value in known.items() if value}
        _annotate(state.vm, stored_names.SYSTEM_INFO,
                  json.dumps(known, sort_keys=True) if known else None)

    return change


def _check_length(text: str, field: str, subject: str) -> None:
    if len(text) > LONGEST_TAG:
        raise errors.InvalidValue(
            field, text,
            message=f'{subject} has at most {LONGEST_TAG} characters')


def _text_change(annotation: str, text: str, field: str, subject: str
                 ) -> changes.Change:
    _check_length(text, field, subject)
    return lambda state: _annotate(state.vm, annotation, text or None)


def _annotations(vm: objects.VirtualMachine) -> dict[str, str]:
    return vm['metadata'].get('annotations') or {}


def _annotate(vm: objects.VirtualMachine, annotation: str, text: str | None
              ) -> None:
    """Set an annotation, or remove it if the text is None.

    :param vm: is changed
    """
    if text is not None:
        if not vm['metadata'].get('annotations'):
            vm['metadata']['annotations'] = {}
        vm['metadata']['annotations'][annotation] = text
    else:
        _annotations(vm).pop(annotation, None)
