# SPDX-License-Identifier: Apache-2.0
"""HTTP boot: fetches an image into a drive for one boot.

A VM's firmware could fetch it only from the guest's network, and KubeVirt has
no way to pass it the URL. So the image is inserted like a virtual medium, into
a drive of its own that the boot override puts first. The drive is removed
with the override (`one_time_boot`), the image when no guest has it any more
(`reconciler`).
"""

import copy

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine.media import eject
from sushy_kubevirt.machine.media import insert
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import url_policy


def uri(vm):
    """Return the HttpBootUri of a VM, '' for none."""
    return media_annotation.read(vm).http_uri


def prepare(machine, target, enabled, mode, http_uri):
    """Store the HttpBootUri, and insert the image if HTTP boot is requested.

    Call it before the override is set.

    :param machine: the `machine.Machine`
    :param target: a `boot.Target`, or None to leave it, as in `boot.set`
    :param enabled: a `boot.Enabled` or None, as in `boot.set`
    :param mode: a `boot.Mode` or None, as in `boot.set`
    :param http_uri: the URL; None leaves it, '' removes it
    :raises: see `machine.Machine.insert_media`
    """
    if http_uri is not None or target is boot.Target.UEFI_HTTP:
        # Update the cache with what other processes wrote a moment ago.
        machine.write(lambda vm, vmi: None)
    try:
        _prepare(machine, target, enabled, mode, http_uri)
    except errors.InvalidValue as e:
        if e.property != url_policy.IMAGE:
            raise
        raise errors.InvalidValue('HttpBootUri', e.value,
                                  message=str(e)) from None


def _prepare(machine, target, enabled, mode, http_uri):
    vm, vmi = machine.objects()
    if http_uri:
        source = url_policy.separate_credentials(model.Source(http_uri))
        if source.username:
            raise errors.InvalidValue(
                'HttpBootUri', source.url,
                message='HttpBootUri may not contain credentials')
        http_uri = source.url
    if http_uri is not None and http_uri != uri(vm):
        machine.write(lambda vm, _vmi: _store_uri(machine, vm, http_uri))
        vm, vmi = machine.objects()
    if not _is_requested(vm, vmi, target, enabled):
        return
    requested_uri = uri(vm)
    if not requested_uri:
        raise errors.InvalidValue(
            'BootSourceOverrideTarget', boot.Target.UEFI_HTTP,
            message='UefiHttp needs an HttpBootUri; set both in one request')
    if (mode or boot.state(vm, vmi).mode) is not boot.Mode.UEFI:
        raise errors.WrongState(
            f'HTTP boot needs UEFI, and {machine.qualified_name} boots in '
            'Legacy mode; set its BootSourceOverrideMode to UEFI too')
    insert.insert(machine, model.HTTP_BOOT, model.Source(requested_uri))


def undo(machine):
    """Eject the image of an override that could not be set."""
    if boot.state(*machine.objects()).target is not boot.Target.UEFI_HTTP:
        eject.eject(machine, model.HTTP_BOOT)


def _is_requested(vm, vmi, target, enabled):
    if enabled is boot.Enabled.DISABLED:
        return False
    if target is None:
        return boot.state(vm, vmi).target is boot.Target.UEFI_HTTP
    return target is boot.Target.UEFI_HTTP


def _store_uri(machine, vm, http_uri):
    edited = copy.deepcopy(vm)
    record = media_annotation.read(edited)
    record.http_uri = http_uri
    media_annotation.write(edited, record)
    json_patch.send(machine, vm, edited)
