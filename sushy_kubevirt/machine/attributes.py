# SPDX-License-Identifier: Apache-2.0
"""Settings of a machine that KubeVirt has no field for.

These are the state of the indicator LED, the asset tag, and names of IPMI.
They are kept in annotations of the VM, so that every BMC of the VM shows the
same values and none needs storage.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import changes
    from sushy_kubevirt.machine import vm_state

#: Maximum length of a text, in characters.
LONGEST = 255

LIT, BLINKING, OFF = 'Lit', 'Blinking', 'Off'
INDICATORS = (LIT, BLINKING, OFF)

#: Annotations with a text that a client set: field and subject, for messages.
_TEXTS = {stored_names.ASSET_TAG: ('AssetTag', 'An asset tag'),
          stored_names.CONTROLLER_NAME: ('name', 'A name')}


def indicator(vm: objects.VirtualMachine) -> str:
    """Return the state of the indicator LED, one of `INDICATORS`."""
    state = bmc_annotations.text(vm, stored_names.INDICATOR)
    return state if state in INDICATORS else OFF


def indicator_change(led: str) -> changes.Change:
    """Return a change of the state of the indicator LED, see `changes`.

    :param led: one of `INDICATORS`
    :raises: `errors.InvalidValue` for another state
    """
    if led not in INDICATORS:
        raise errors.InvalidValue('IndicatorLED', led, INDICATORS)
    return lambda state: bmc_annotations.set_text(
        state.vm, stored_names.INDICATOR, '' if led == OFF else led)


def text_change(annotation: str, text: str) -> changes.Change:
    """Return a change of the asset tag or the BMC's name, see `changes`.

    :param annotation: `stored_names.ASSET_TAG` or
        `stored_names.CONTROLLER_NAME`
    :param text: '' removes it
    :raises: `errors.InvalidValue` if it is longer than `LONGEST`
    """
    _check_length(text, *_TEXTS[annotation])
    return lambda state: bmc_annotations.set_text(state.vm, annotation, text)


def system_info(vm: objects.VirtualMachine, name: str) -> str:
    """Return a system info parameter that a client wrote; '' for none.

    :param name: of the parameter in `stored_names.SYSTEM_INFO`, a JSON object
    """
    text = bmc_annotations.read(vm, stored_names.SYSTEM_INFO).get(name)
    return text if isinstance(text, str) else ''


def system_info_change(name: str, text: str) -> changes.Change:
    """Return a change of a system info parameter, see `changes`.

    :param name: see `system_info`
    :param text: '' removes it
    :raises: `errors.InvalidValue` if it is longer than `LONGEST`
    """
    _check_length(text, name, 'A system info parameter')

    def change(state: vm_state.VmState) -> None:
        known = {**bmc_annotations.read(state.vm, stored_names.SYSTEM_INFO),
                 name: text}
        bmc_annotations.write(state.vm, stored_names.SYSTEM_INFO, {
            key: value for key, value in known.items() if value})

    return change


def _check_length(text: str, field: str, subject: str) -> None:
    if len(text) > LONGEST:
        raise errors.InvalidValue(
            field, text, message=f'{subject} has at most {LONGEST} characters')
