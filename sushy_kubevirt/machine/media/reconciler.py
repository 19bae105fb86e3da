# SPDX-License-Identifier: Apache-2.0
"""Finishes or cleans up what an insert or eject has left.

Every BMC process has one. What it does is decided by the VM's annotation, the
VM and its VMI alone, and done by guarded patches and deletions of a known
uid: of several that do the same, one wins and the others find it done.

An insert that was begun and is not done is given up after
`options.MediaOptions.lapse_seconds`: nobody else has the password that it
may need, and its client was told nothing. What it may have made is deleted
then, by its reserved name.
"""

import copy
import dataclasses
import logging
import random
import threading

from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import run_strategy

LOG = logging.getLogger(__name__)

#: Seconds before the next try: at first, twice as many each time, and at
#: most; and after a refusal.
_AGAIN = 0.05
_AGAIN_AT_MOST = 5.0
_AGAIN_REFUSED = 60.0

#: Seconds that whoever ejects has to delete what it has ejected.
_COURTESY = 0.5

#: A DataVolume that no watch has told of for so long is asked for.
_UNSEEN_SECONDS = 3.0

#: An upload whose maker is silent for so long has come to its end.
UPLOAD_SECONDS = 30.0


class Look:
    """What is known when a VM is looked at.

    :param seen: function of a `media_annotation.Entry`: `import_watcher.Seen`
        or None
    :param age: function of anything hashable: seconds since it was first
        seen
    :param lapse: seconds after which an insert counts as given up
    :param uploading: attempts that this process uploads
    :param inserting: attempts that this process is inserting
    :param tried: set of names of DataVolumes that were looked for, to be
        deleted if they are there; is added to
    :param held: function of the name of a DataVolume: whether a guest has
        it until it ends
    """

    def __init__(self, seen, age, lapse, uploading=(), inserting=(),
                 tried=None, held=lambda name: False):
        self.seen = seen
        self.age = age
        self.lapse = lapse
        self.uploading = uploading
        self.inserting = inserting
        self.tried = set() if tried is None else tried
        self.held = held
        #: Seconds after which to look again, or None.
        self.again = None
        #: Entries whose DataVolume nothing has told of.
        self.unseen = []

    def due(self, what, seconds):
        """Whether something has been so for this long; if not, look again
        when it has.
        """
        left = seconds - self.age(what)
        if left <= 0:
            return True
        self.again = left if self.again is None else min(self.again, left)
        return False


def put_right(vm, vmi, look):
    """Say what a VM should be like.

    :param look: a `Look`
    :returns: an edited copy of the VM; None if it is right as it is
    """
    if run_strategy.deleted(vm):
        return None
    found = media_annotation.read(vm)
    edited = copy.deepcopy(vm)
    for id_, entry in list(found.nexts.items()):
        if entry.id not in look.inserting and look.due(
                ('next', entry.id), look.lapse):
            found.discard(found.nexts.pop(id_))
    for id_, entry in list(found.media.items()):
        if not drives.holds(vm, entry.drive, entry.volume):
            # Somebody has taken it out; it stays for a guest that has it.
            if not drives.uses(vmi, entry.volume):
                found.discard(found.media.pop(id_))
            continue
        if id_ == model.HTTP_BOOT.id and not _wanted(vm) and look.due(
                ('http', entry.id), look.lapse):
            drives.take(edited, vmi, model.HTTP_BOOT, entry.drive,
                        entry.volume, False)
            continue
        source = drives.source_of(vm['spec']['template']['spec'],
                                  entry.drive)
        if (source.get('hotpluggable') and run_strategy.living(vmi)
                and not drives.has_drive(vmi['spec'], entry.drive)):
            # This guest was being made when the drive was added.
            drives.cool(edited, entry.drive)
        found.media[id_] = _checked(entry, look)
    media_annotation.write(edited, found)
    return None if edited == vm else edited


def _wanted(vm):
    return any((layer or {}).get('target') == 'UefiHttp' for layer in (
        boot_overrides.once(vm), boot_overrides.continuous(vm)))


def _checked(entry, look):
    """An entry with what has become of it."""
    if entry.ready or entry.reason:
        return entry
    seen = look.seen(entry)
    if seen is None:
        if look.due(('unseen', entry.id), _UNSEEN_SECONDS):
            look.unseen.append(entry)
        return entry
    if seen.status.state is model.State.READY:
        return dataclasses.replace(entry, ready=True)
    if entry.upload and entry.id not in look.uploading:
        beat = seen.annotations.get(annotations.UPLOAD)
        if look.due(('beat', entry.id, beat), UPLOAD_SECONDS):
            return dataclasses.replace(
                entry, reason='UploadInterrupted', message='The BMC that '
                'uploaded it has stopped; insert it again')
    return entry


class Caretaker:
    """Looks after the media of all machines of a cluster.

    :param room: a `room.Room`
    """

    def __init__(self, room):
        self._room = room
        self._agenda = delaying_queue.Agenda()
        self._pauses = {}           # VM's uid: seconds before its next try
        self._active = room.cluster.options.keeper

    def start(self):
        if self._active:
            threading.Thread(target=self._run, daemon=True,
                             name='media').start()

    def close(self):
        self._agenda.close()

    def consider(self, machine, vm, vmi):
        """Look at a machine, and leave what is to be done to the thread."""
        if not self._active:
            return
        look = self.look_at(machine, vm, vmi)
        if put_right(vm, vmi, look) is not None or look.unseen:
            self._agenda.put(machine.uid, machine)
        if datavolume_cleanup.due(vm, look):
            # Whoever has written that does it itself, if it lives.
            self._agenda.put(machine.uid, machine, _COURTESY)
        if look.again is not None:
            self._agenda.put((machine.uid, 'again'), machine,
                             look.again + 0.01)

    def look_at(self, machine, vm, vmi):
        """:returns: a `Look` at a machine"""
        room = self._room
        return Look(
            lambda entry: room.seen(vm, entry),
            lambda what: room.age(machine.uid, what),
            machine.options.media.lapse_seconds, room.uploads,
            room.inserting, room.tried(machine.uid),
            lambda name: drives.is_held(vmi, name))

    def _run(self):
        while True:
            machine = self._agenda.next()
            if machine is None:
                return
            # One try a turn, see `keeper.Keeper`.
            pause = self._pauses.pop(machine.uid, _AGAIN)
            try:
                self._keep(machine, *machine.fetch())
            except errors.MachineNotFound:
                pass
            except errors.Unavailable as e:
                LOG.info('Media of %s are put right later: %s',
                         machine.qualified_name, e)
                self._pauses[machine.uid] = min(pause * 2, _AGAIN_AT_MOST)
                self._agenda.put(
                    machine.uid, machine,
                    max(pause * random.uniform(0.5, 1.0),
                        e.retry_after or 0))
            except Exception as e:
                LOG.warning('Media of %s could not be put right: %s',
                            machine.qualified_name, e,
                            exc_info=not isinstance(e, errors.MachineError))
                self._agenda.put(machine.uid, machine, _AGAIN_REFUSED)

    def _keep(self, machine, vm, vmi):
        look = self.look_at(machine, vm, vmi)
        edited = put_right(vm, vmi, look)
        for entry in look.unseen:
            datavolume_cleanup.ask(machine, self._room, entry)
        if edited is not None:
            vm = json_patch.send(machine, vm, edited)
            LOG.info('The media of %s are as they should be',
                     machine.qualified_name)
        datavolume_cleanup.clean(machine, self._room, vm, look)
        if look.again is not None:
            self._agenda.put((machine.uid, 'again'), machine,
                             look.again + 0.01)
