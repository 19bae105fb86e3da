# SPDX-License-Identifier: Apache-2.0
"""What a BMC remembers about power and boot, all of it on the VM itself.

Nothing is kept in a process or a file: a BMC may be killed between any two
requests, and a second one may serve the same VM. Every annotation is
advice to the next BMC that looks; where one contradicts the VM it stands on,
the VM is right and the annotation is forgotten.

``sushy-kubevirt.openstack.org/boot``
    The boot order and the overrides in force, a JSON object with up to three
    members.

    ``order``
        The persistent boot order that a BMC was given: ``changes``. It lies
        under the overrides.
    ``continuous``
        The lasting override: ``target`` and ``changes``.
    ``once``
        The override for one boot, as long as that boot has not begun:
        ``target`` and ``mode`` (each may be missing), ``id``, ``generation``
        (the VM's ``metadata.generation`` from which on its VMIs carry the
        override) and ``changes``. It lies on top of ``continuous``.

    ``changes`` tells what an override changed in the template, each with
    what was there before and what was put there, so that exactly this can be
    taken back and an edit of somebody else's survives: ``disks`` and
    ``interfaces`` (name: [old boot order, new boot order], null for none),
    ``added`` (disks that were written out for volumes without one),
    ``bootloader`` and ``rebootPolicy`` ([old, new], null for none).

``sushy-kubevirt.openstack.org/boot-once`` (on the template, and so on VMIs)
    The ``id`` of the one-time override that a VMI was made with. A VMI that
    carries it boots with the override, whoever started it; as soon as one
    does, the override is taken back from the VM.

``sushy-kubevirt.openstack.org/run-strategy``
    The run strategy that a BMC replaced and that is to come back, a JSON
    object with ``runStrategy`` and ``vmi`` (uid of the VMI this is about, or
    null).

    ``Always`` or ``Once``: the BMC powered the VM off, for which KubeVirt
    sets ``Halted``. The next power-on gives the strategy back.
    ``RerunOnFailure`` or ``Manual``: the VM runs under ``Always`` for its
    one-time boot, so that the guest's own reboot brings it back (see
    `keeper`), or it was halted because its start could not be called off
    otherwise.

``sushy-kubevirt.openstack.org/media``
    Virtual media (`media.record`), a JSON object. It is written before a
    DataVolume is made and until it is gone, so that whoever comes next can
    finish or clean up. No credentials stand in it.

    ``media``
        What is in the drives, by device (``Cd``, ``USBStick``,
        ``HttpBoot``): ``id`` of the attempt, ``url``, ``volume`` and ``uid``
        of the DataVolume, ``drive`` (the disk), ``since``, ``ready``, and
        what was asked for.
    ``next``
        What somebody is inserting, the same: not in a drive yet. What stays
        so for too long is given up by whoever sees it.
    ``gone``
        DataVolumes to be deleted: name and uid, '' for one that may not even
        have been made.
    ``verify``, ``certificates``
        By device: whether servers' certificates are checked; the digests of
        those that were installed.
    ``httpUri``
        What HTTP boot is to boot.

``sushy-kubevirt.openstack.org/media-attempt`` (on DataVolumes and Secrets)
    The ``id`` of the attempt that one was made in.

``sushy-kubevirt.openstack.org/upload`` (on DataVolumes)
    How far an upload is, renewed every few seconds by the BMC that makes it:
    ``progress``, and ``beat``, which is another each time.

``sushy-kubevirt.openstack.org/bootloaders``
    The last bootloader of each firmware, a JSON object with ``efi`` and
    ``bios`` as KubeVirt words them. A change from UEFI to Legacy and back
    keeps persistent NVRAM and secure boot that way.
"""

import json

from sushy_kubevirt.kube import api_resources

BOOT = api_resources.PREFIX + 'boot'
BOOT_ONCE = api_resources.PREFIX + 'boot-once'
RUN_STRATEGY = api_resources.PREFIX + 'run-strategy'
BOOTLOADERS = api_resources.PREFIX + 'bootloaders'
MEDIA = api_resources.PREFIX + 'media'
MEDIA_ATTEMPT = api_resources.PREFIX + 'media-attempt'
UPLOAD = api_resources.PREFIX + 'upload'


def read(obj, key):
    """Read one of the annotations above that hold JSON.

    :param obj: a VM
    :returns: dict; {} when there is none or it is not what a BMC writes
    """
    text = (obj['metadata'].get('annotations') or {}).get(key)
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # Whoever may edit the VM may have written it.
        return {}
    return value if isinstance(value, dict) else {}


def write(obj, key, value):
    """Set or, with an empty value, remove an annotation.

    :param obj: a VM that may be changed
    :param value: dict
    """
    annotations = obj['metadata'].get('annotations')
    if value:
        if annotations is None:
            annotations = obj['metadata']['annotations'] = {}
        annotations[key] = json.dumps(value, sort_keys=True,
                                      separators=(',', ':'))
    elif annotations:
        annotations.pop(key, None)


def boot_once_id(obj):
    """:returns: the one-time override a VMI carries, or a template would
    give, an ``id``; None if there is none

    :param obj: a VMI or the template of a VM
    """
    annotations = (obj.get('metadata') or {}).get('annotations') or {}
    return annotations.get(BOOT_ONCE)


def set_boot_once_id(template, id_):
    """Mark the VMIs to come.

    :param template: the template of a VM that may be changed
    :param id_: the override's ``id``; None takes the mark away
    """
    metadata = template.get('metadata') or {}
    annotations = metadata.get('annotations') or {}
    if id_:
        template['metadata'] = metadata
        metadata['annotations'] = annotations
        annotations[BOOT_ONCE] = id_
    elif BOOT_ONCE in annotations:
        del annotations[BOOT_ONCE]
        if not annotations:
            del metadata['annotations']
