# SPDX-License-Identifier: Apache-2.0
"""Annotations in which BMCs keep their state about power, boot and media.

All state is on the VM and its objects. Nothing is kept in a process or a
file: a BMC may be killed between any two requests, and a second one may serve
the same VM. If an annotation contradicts the VM it is on, the VM takes
precedence and the annotation is discarded.

``sushy-kubevirt.openstack.org/boot``
    The persistent boot order and the overrides in force, a JSON object with
    up to three members.

    ``order``
        The persistent boot order that was set through a BMC: ``changes``. It
        is the layer below the overrides.
    ``continuous``
        The continuous override: ``target`` and ``changes``.
    ``once``
        The one-time override, until its boot has started: ``target`` and
        ``mode`` (each may be missing), ``id``, ``generation`` (the first
        ``metadata.generation`` of the VM whose VMIs carry the override),
        ``changes`` and ``original``. It is the layer above ``continuous``.

    ``changes`` records what a layer changed in the template, with the old and
    the new value, so that exactly these changes can be undone and edits by
    other clients are kept: ``disks`` and ``interfaces`` (name: [old boot
    order, new boot order], null for none), ``added`` (names of disks that
    were added to the template for volumes without one), ``bootloader`` and
    ``rebootPolicy`` ([old, new], null for none).

    ``original`` is what the operator reports in ``status.bootOverride`` of
    the BMC, in KubeVirtBMC's form (`operator.boot_override`); no BMC reads
    it.

``sushy-kubevirt.openstack.org/pod-interface``
    Binding of the interface that was added for a boot order of a VM without
    interfaces, as KubeVirt would have done. The admission policies permit a
    BMC to remove only an interface with this annotation.

``sushy-kubevirt.openstack.org/boot-once`` (on the template, and so on VMIs)
    The ``id`` of the one-time override that a VMI was created with. A VMI
    that carries it boots with the override, whether a BMC or another client
    started it. The override is removed from the VM as soon as such a VMI has
    been assigned to a node.

``sushy-kubevirt.openstack.org/run-strategy``
    The run strategy that a BMC replaced and that is to be restored, a JSON
    object with ``runStrategy`` and ``vmi`` (uid of the VMI for which it was
    saved, or null).

    ``Always`` or ``Once``: the BMC powered the VM off, for which KubeVirt
    sets ``Halted``. The next power-on restores the strategy.
    ``RerunOnFailure`` or ``Manual``: the VM runs under ``Always`` for its
    one-time boot, so that KubeVirt starts it again after the guest's reboot
    (see :ref:`one-time-boot`), or the VM was halted because its start could
    not be cancelled otherwise.

``sushy-kubevirt.openstack.org/restart``
    A restart for which the BMC has set ``Manual``, a JSON object with ``vmi``
    (uid of the VMI to restart), ``force``, ``runStrategy`` (the run strategy
    to restore when the next VMI exists; null for ``running: true``) and
    ``startPending`` (true until the BMC, which stops the VMI itself, has
    requested the start behind the stop).

    Under ``Manual`` KubeVirt does not count a VMI that is restarted before
    its guest ran as a failed start, and it restarts a VM that had ``Once``.
    If the BMC ends before it has requested the restart, the next one does.

``sushy-kubevirt.openstack.org/media``
    Virtual media, a JSON object (`media.media_annotation`). It is written
    before a DataVolume is created and kept until that is deleted, so that any
    BMC process can complete or clean up. It holds no credentials.

    ``media``
        The media in the drives, by device (``Cd``, ``USBStick``,
        ``HttpBoot``): ``id`` of the attempt, ``url``, ``volume`` and ``uid``
        of the DataVolume, ``drive`` (the disk), ``since``, ``ready``, and
        the parameters of the request.
    ``next``
        Media that are being inserted and are not in a drive yet, in the same
        format. An insert that takes too long is abandoned by the first BMC
        process that sees it.
    ``ejecting``
        Ejected media that the running guest had, in the same format, until
        it has let go of them.
    ``gone``
        DataVolumes to be deleted: name and uid, '' for one that may not have
        been created.
    ``verify``, ``certificates``
        By device: whether servers' certificates are verified; the digests of
        the installed certificates.
    ``httpUri``
        URI of the image that HTTP boot boots.

``sushy-kubevirt.openstack.org/media-attempt`` (on DataVolumes and Secrets)
    The ``id`` of the attempt that created the object.

``sushy-kubevirt.openstack.org/upload`` (on DataVolumes)
    Progress of an upload, updated every few seconds by the BMC that uploads:
    ``progress``, and ``beat``, a value that differs at each update.

``sushy-kubevirt.openstack.org/bootloaders``
    The last bootloader of each firmware type, a JSON object with ``efi`` and
    ``bios`` in KubeVirt's format. It keeps persistent NVRAM and secure boot
    across a change from UEFI to Legacy and back.
"""

from __future__ import annotations

from collections import abc
import json
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names


def text(vm: objects.VirtualMachine, key: str) -> str:
    """Return an annotation of a VM, '' if it is missing."""
    return (vm['metadata'].get('annotations') or {}).get(key) or ''


def set_text(vm: objects.VirtualMachine, key: str, value: str) -> None:
    """Set an annotation of a VM, or remove it if the text is empty.

    :param vm: is changed
    """
    if value:
        vm['metadata']['annotations'] = {
            **(vm['metadata'].get('annotations') or {}), key: value}
    elif annotations := vm['metadata'].get('annotations'):
        annotations.pop(key, None)


def read(vm: objects.VirtualMachine, key: str) -> objects.Json:
    """Read one of the annotations that hold a JSON object.

    :param key: name of the annotation, such as `stored_names.BOOT`
    :returns: {} if the annotation is missing or malformed
    """
    written = text(vm, key)
    if not written:
        return {}       # the usual case, a dozen times in a request
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        # Anyone who may edit the VM may have written it.
        return {}
    return value if isinstance(value, dict) else {}


def write(vm: objects.VirtualMachine, key: str,
          value: abc.Mapping[str, typing.Any]) -> None:
    """Set an annotation of a VM, or remove it if the value is empty.

    :param vm: is changed
    :param key: name of the annotation, such as `stored_names.BOOT`
    :param value: what JSON can represent
    """
    set_text(vm, key, json.dumps(
        value, sort_keys=True, separators=(',', ':')) if value else '')


def boot_once_id(obj: objects.VirtualMachineInstanceTemplate) -> str | None:
    """Return the ``id`` of the one-time override that a VMI carries or that a
    template gives to its VMIs; None if there is none.

    :param obj: a VMI or the template of a VM
    """
    annotations = (obj.get('metadata') or {}).get('annotations') or {}
    return annotations.get(stored_names.BOOT_ONCE)


def set_boot_once_id(template: objects.VirtualMachineInstanceTemplate,
                     id_: str | None) -> None:
    """Set or remove the ``boot-once`` annotation of future VMIs.

    :param template: the template of a VM, which is changed
    :param id_: the override's ``id``; None removes the annotation
    """
    metadata = template.get('metadata') or {}
    annotations = metadata.get('annotations') or {}
    if id_:
        template['metadata'] = metadata
        metadata['annotations'] = annotations
        annotations[stored_names.BOOT_ONCE] = id_
    elif stored_names.BOOT_ONCE in annotations:
        del annotations[stored_names.BOOT_ONCE]
        if not annotations:
            del metadata['annotations']
