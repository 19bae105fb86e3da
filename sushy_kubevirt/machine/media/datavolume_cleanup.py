# SPDX-License-Identifier: Apache-2.0
"""Deletes the DataVolumes that the media record of a VM lists as obsolete.

Only a DataVolume with a reserved name that was made for this VM is deleted,
by its uid: never another object of the same name. Kubernetes deletes its claim
and its Secret with it. A DataVolume that a guest needs until it ends
(`drives.is_held`) is kept until then, one that KubeVirt can unplug is not.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import media_annotation

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import protocols as media_protocols
    from sushy_kubevirt.machine import protocols

LOG = logging.getLogger(__name__)


class Context(typing.Protocol):
    """Of `reconciler.Context`."""

    lapse: float
    searched: set[str]
    in_use: abc.Callable[[str], bool]

    def due(self, what: abc.Hashable, seconds: float) -> bool:
        """See `reconciler.Context.due`."""


def due(vm: objects.VirtualMachine, context: Context) -> bool:
    """Return whether the record lists something that can be deleted now."""
    record = media_annotation.read(vm)
    return bool(_unsearched(record, context) or _deletable(record, context))


def _unsearched(record: media_annotation.Record, context: Context
                ) -> list[str]:
    """Return the names without a uid that were not searched for yet.

    Such a DataVolume may or may not have been created.
    """
    return [name for name, uid in record.obsolete.items()
            if not uid and name not in context.searched]


def _deletable(record: media_annotation.Record, context: Context
               ) -> dict[str, str]:
    """Return what can be deleted and removed from the record: {name: uid}.

    A name without a uid stays for `lapse` seconds: the process that reserved
    it may still create the DataVolume.
    """
    return {name: uid for name, uid in record.obsolete.items()
            if not context.in_use(name)
            and (uid or context.due(('gone', name), context.lapse))}


def clean(machine: protocols.Machine, media: media_protocols.Media,
          vm: objects.VirtualMachine, context: Context) -> None:
    """Delete obsolete DataVolumes and update the record, in one attempt.

    :param vm: as it was read from the API
    :raises: `errors.MachineError`
    """
    record = media_annotation.read(vm)
    deletable = _deletable(record, context)
    for name in {*_unsearched(record, context), *deletable}:
        delete(machine, media, name, record.obsolete[name])
        if not record.obsolete[name]:
            context.searched.add(name)
    if deletable:
        remove_from_record(machine, vm, deletable)
        context.searched.difference_update(deletable)


def delete(machine: protocols.Machine, media: media_protocols.Media,
           name: str, uid: str = '') -> None:
    """Delete a DataVolume if it exists and was made for this machine.

    :param uid: its uid; '' for any
    """
    client = machine.cluster.client
    observed = media.volumes.get(machine.namespace, name, uid)
    if not uid or observed is None or observed.vm != machine.uid:
        # Anyone who may edit the VM can write the record, so check the owner.
        try:
            volume = client.get(api_resources.DATA_VOLUME, machine.namespace,
                                name)
        except errors.ObjectNotFound:
            return
        if not datavolumes.is_ours(volume, machine) or (
                uid and volume['metadata']['uid'] != uid):
            return
        uid = volume['metadata']['uid']
    try:
        client.delete(api_resources.DATA_VOLUME, machine.namespace, name,
                      {'preconditions': {'uid': uid}})
        LOG.info('DataVolume %s/%s deleted', machine.namespace, name)
    except errors.ObjectNotFound:
        pass
    except errors.Conflict:
        # The uid is another one by now, or the write conflicted.
        with contextlib.suppress(errors.ObjectNotFound):
            volume = client.get(
                api_resources.DATA_VOLUME, machine.namespace, name)
            if volume['metadata']['uid'] == uid:
                raise
    media.volumes.mark_deleted(machine.namespace, name, uid)


def remove_from_record(machine: protocols.Machine,
                       vm: objects.VirtualMachine, names: dict[str, str]
                       ) -> None:
    """Remove names from the record's list of obsolete DataVolumes.

    :param vm: as it was read from the API
    :param names: {name: uid} as the record lists them
    """
    edited = copy.deepcopy(vm)
    record = media_annotation.read(edited)
    for name, uid in names.items():
        if record.obsolete.get(name) == uid:
            del record.obsolete[name]
    media_annotation.write(edited, record)
    json_patch.send(machine, vm, edited)


def read(machine: protocols.Machine, media: media_protocols.Media,
         entry: media_annotation.Entry) -> None:
    """Read a DataVolume that no watch has reported into the cache."""
    try:
        media.volumes.put(machine.cluster.client.get(
            api_resources.DATA_VOLUME, machine.namespace, entry.volume))
    except errors.ObjectNotFound:
        media.volumes.mark_deleted(machine.namespace, entry.volume, entry.uid)
        media.refresh(machine)
