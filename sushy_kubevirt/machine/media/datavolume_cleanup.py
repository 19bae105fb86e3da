# SPDX-License-Identifier: Apache-2.0
"""Deletes the DataVolumes that a VM's record says are to go.

What is deleted is a DataVolume of a reserved name that was made for this VM,
by its uid: never somebody else's that has come by the same name. Its claim
goes with it, and its Secret. What a guest has until it ends stays as long
(`drives.is_held`); what KubeVirt can unplug does not have to.
"""

import copy
import logging

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import media_annotation

LOG = logging.getLogger(__name__)


def due(vm, context):
    """Whether a VM's record holds something that is to be deleted now.

    :param context: a `reconciler.Context`
    """
    found = media_annotation.read(vm)
    return bool(_unsearched(found, context) or _deletable(found, context))


def _unsearched(found, context):
    """Names of what may or may not have been made, and was not looked for."""
    return [name for name, uid in found.gone.items()
            if not uid and name not in context.searched]


def _deletable(found, context):
    """What may be deleted and forgotten: {name: uid}.

    What may not have been made yet is remembered for a while: whoever is late
    may still make it.
    """
    return {name: uid for name, uid in found.gone.items()
            if not context.in_use(name)
            and (uid or context.due(('gone', name), context.lapse))}


def clean(machine, media, vm, context):
    """Delete what is to go, and forget it. One try.

    :param vm: the VM, fresh
    """
    found = media_annotation.read(vm)
    deletable = _deletable(found, context)
    for name in {*_unsearched(found, context), *deletable}:
        delete(machine, media, name, found.gone[name])
        if not found.gone[name]:
            context.searched.add(name)
    if deletable:
        remove_from_record(machine, vm, deletable)
        context.searched.difference_update(deletable)


def delete(machine, media, name, uid=''):
    """Delete a DataVolume, if it is there and ours.

    :param uid: its uid; '' for whichever was made for this machine
    """
    client = machine.cluster.client
    observed = media.volumes.get(machine.namespace, name, uid)
    if not uid or observed is None or observed.vm != machine.uid:
        # The record alone proves nothing: any editor of the VM can write it.
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
        LOG.info('DataVolume %s/%s is deleted', machine.namespace, name)
    except errors.ObjectNotFound:
        pass
    except errors.Conflict:
        # Another one is there by now; or it could not be done this time.
        try:
            there = client.get(
                api_resources.DATA_VOLUME,
                machine.namespace,
                name)
        except errors.ObjectNotFound:
            there = None
        if there is not None and there['metadata']['uid'] == uid:
            raise
    media.volumes.mark_deleted(machine.namespace, name, uid)


def remove_from_record(machine, vm, names):
    """Take names off the record of what is to go. One try.

    :param names: {name: uid} as the record had it
    """
    edited = copy.deepcopy(vm)
    found = media_annotation.read(edited)
    for name, uid in names.items():
        if found.gone.get(name) == uid:
            del found.gone[name]
    media_annotation.write(edited, found)
    json_patch.send(machine, vm, edited)


def read(machine, media, entry):
    """Find out about a DataVolume that no watch has told of."""
    try:
        media.volumes.put(machine.cluster.client.get(
            api_resources.DATA_VOLUME, machine.namespace, entry.volume))
    except errors.ObjectNotFound:
        media.volumes.mark_deleted(machine.namespace, entry.volume, entry.uid)
        media.refresh(machine)
