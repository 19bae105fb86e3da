# SPDX-License-Identifier: Apache-2.0
"""Deletes the DataVolumes that the media record of a VM lists as obsolete.

Only a DataVolume with a reserved name that was made for this VM is deleted,
by its uid: never another object of the same name. Kubernetes deletes its claim
and its Secret with it. A DataVolume that a guest needs until it ends
(`drives.is_held`) is kept until then, one that KubeVirt can unplug is not.
"""

from __future__ import annotations

import contextlib
import logging
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import media_annotation

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine.media import import_watcher
    from sushy_kubevirt.machine.media import reconciler
    from sushy_kubevirt.machine import protocols
    from sushy_kubevirt.machine import vm_state

LOG = logging.getLogger(__name__)


def due(state: vm_state.VmState, context: reconciler.Context) -> bool:
    """Return whether the record lists something that can be deleted now."""
    record = media_annotation.read(state.vm)
    return bool(_unsearched(record, context)
                or _deletable(record, state, context))


def _unsearched(record: media_annotation.Record,
                context: reconciler.Context) -> list[str]:
    """Return the names without a uid that were not searched for yet.

    Such a DataVolume may or may not have been created.
    """
    return [name for name, uid in record.obsolete.items()
            if not uid and name not in context.searched]


def _deletable(record: media_annotation.Record, state: vm_state.VmState,
               context: reconciler.Context) -> dict[str, str]:
    """Return what can be deleted and removed from the record: {name: uid}.

    A name without a uid stays for `lapse` seconds: the process that reserved
    it may still create the DataVolume.
    """
    return {name: uid for name, uid in record.obsolete.items()
            if not drives.is_held(state.vmi, name)
            and (uid or context.due(('gone', name), context.lapse))}


def clean(machine: protocols.Machine, volumes: import_watcher.ImportWatcher,
          state: vm_state.VmState, context: reconciler.Context) -> None:
    """Delete obsolete DataVolumes and update the record, in one attempt.

    :param state: as it was read from the API
    :raises: `errors.MachineError`
    """
    record = media_annotation.read(state.vm)
    deletable = _deletable(record, state, context)
    for name in {*_unsearched(record, context), *deletable}:
        delete(machine, volumes, name, record.obsolete[name])
        if not record.obsolete[name]:
            context.searched.add(name)
    if deletable:
        for name in deletable:
            del record.obsolete[name]
        json_patch.send(machine, state.vm,
                        media_annotation.with_record(state.vm, record))
        context.searched.difference_update(deletable)


def delete(machine: protocols.Machine, volumes: import_watcher.ImportWatcher,
           name: str, uid: str = '') -> None:
    """Delete a DataVolume if it exists and was made for this machine.

    :param uid: its uid; '' for any
    """
    client = machine.cluster.client
    observed = volumes.get(machine.namespace, name, uid)
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
    volumes.mark_deleted(machine.namespace, name, uid)
