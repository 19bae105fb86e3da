# SPDX-License-Identifier: Apache-2.0
"""Ejects a medium, in whatever state it is.

One patch takes it out of its drive and lists its DataVolume as obsolete; then
that is deleted. A running guest loses the medium at once where KubeVirt can
unplug it; else KubeVirt sets RestartRequired and the next guest is without
it. A concurrent insert finds its reservation gone and undoes its steps.
"""

import copy
import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import insert
from sushy_kubevirt.machine.media import media_annotation

LOG = logging.getLogger(__name__)

#: KubeVirt's feature gate for CD-ROMs without a medium.
_GATE = 'DeclarativeHotplugVolumes'


def eject(machine, device):
    """Eject a medium, see `machine.Machine.eject_media`.

    :param machine: a `machine.Machine`
    :param device: a `model.Device`
    """
    media = machine.cluster.media
    ejected = []

    def step(vm, vmi):
        found = media_annotation.read(vm)
        entry = found.media.pop(device.id, None)
        coming = found.nexts.pop(device.id, None)
        if entry is None and coming is None:
            return
        found.discard(coming)
        found.discard(entry)
        keep = machine.gates.enabled(_GATE)
        try:
            _take_out(machine, device, vm, vmi, entry, found, keep)
        except errors.Rejected as e:
            # The feature gate was switched off: drives may not be empty.
            if _GATE not in str(e):
                raise
            _take_out(machine, device, vm, vmi, entry, found, False, True)
        ejected.extend(each for each in (entry, coming) if each)

    machine.write(step)
    for entry in ejected:
        upload = media.uploads.get(entry.id)
        if upload is not None:
            upload.stop()
        LOG.info('%s of %s: DataVolume %s ejected', device.id,
                 machine.qualified_name, entry.volume)
    media.refresh(machine)
    insert.delete_obsolete(machine)


def _take_out(machine, device, vm, vmi, entry, found, keep, any_drive=False):
    edited = copy.deepcopy(vm)
    if entry is not None:
        drives.empty(edited, vmi, device, entry.drive, entry.volume, keep)
        if any_drive and not drives.source_of(
                edited['spec']['template']['spec'], entry.drive):
            drives.remove(edited, vmi, entry.drive)
    media_annotation.write(edited, found)
    json_patch.send(machine, vm, edited)
