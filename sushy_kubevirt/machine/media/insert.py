# SPDX-License-Identifier: Apache-2.0
"""Inserting a medium, step by step.

1. Ask the image's server how large it is.
2. Write down, on the VM, what is about to be made.
3. Make the DataVolume, and its Secret if the server wants a password.
4. One patch of the VM: the medium is in its drive, the one before is to go.
5. Delete the one before.

Whoever dies in between leaves what `caretaker` recognises and cleans up; an
insert or eject that comes in between takes the reservation away, so that the
patch of step 4 finds it gone. Nothing here starts, stops or reboots anything,
and the boot order stays.
"""

import copy
import dataclasses
import logging

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import ca_certificates
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import image_size
from sushy_kubevirt.machine.media import manager
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import upload
from sushy_kubevirt.machine.media import url_policy

LOG = logging.getLogger(__name__)

#: What KubeVirt's admission says of an empty drive without its gate.
_GATE = 'DeclarativeHotplugVolumes'

#: Tries to delete what is left of another insert before another name is used.
_LEFTOVER_TRIES = 6


class _NameTaken(Exception):
    """The name of a DataVolume is taken by another object."""


class _NameBusy(Exception):
    """The claim of the DataVolume that had the name is still there."""


def insert(machine, device, source, wait=None):
    """See `machine.Machine.insert_media`.

    :param device: a `model.Device`
    """
    media = machine.cluster.media
    asked = url_policy.separate_credentials(source)
    # Into the cache as well: what another process did a moment ago, an eject
    # or a certificate, is to count.
    machine.write(lambda vm, vmi: None)
    verify = asked.verify
    if verify is None:
        verify = ca_certificates.verify(machine, device)
    asked = dataclasses.replace(asked, verify=verify)
    media.require_cdi()
    medium = _same(machine, device, asked)
    if medium is None:
        medium = _Insertion(machine, device, asked).run()
    if machine.options.media.wait if wait is None else wait:
        medium = _wait(machine, device, medium)
    return medium


def _same(machine, device, asked):
    """What is in the device, if it is what is asked for and did not fail."""
    media = machine.cluster.media
    vm, _ = machine.objects()
    entry = media_annotation.read(vm).media.get(device.id)
    medium = media.medium(machine, device)
    if medium is None or medium.state is model.State.FAILED or (
            entry.url, entry.verify, entry.credentials,
            entry.write_protected) != (
            asked.url, asked.verify, bool(asked.username),
            _protected(device, asked)):
        return None
    # Whether the password is another one cannot be told: nothing keeps it but
    # a Secret, which is not read. The one there has been tried (`image_size`).
    return medium


def _protected(device, asked):
    return device.kind is model.Kind.CD or asked.write_protected


def _wait(machine, device, medium):
    """Wait until a medium is usable.

    :raises: `errors.MediaUnreachable` if it failed
    """
    media = machine.cluster.media
    found = [medium]

    def done():
        found[0] = media.medium(machine, device)
        return (found[0] is None or found[0].task != medium.task
                or found[0].state in (model.State.READY, model.State.FAILED))

    media.wait(done, machine.options.media.wait_seconds)
    if found[0] is None or found[0].task != medium.task:
        raise _superseded(machine, device)
    if found[0].state is model.State.FAILED:
        raise errors.MediaUnreachable(
            '%s cannot be imported (%s): %s' % (
                found[0].url.partition('?')[0], found[0].reason,
                found[0].message), found[0].url.partition('?')[0])
    return found[0]


def _superseded(machine, device):
    return errors.WrongState(
        '%s of %s was ejected, or another medium inserted, while this one '
        'was being inserted' % (device.id, machine.qualified_name))


class _Insertion:
    """One medium on its way into a drive.

    :param asked: `model.Source`, checked, with ``verify``
    """

    def __init__(self, machine, device, asked):
        self._machine = machine
        self._device = device
        self._asked = asked
        self._media = machine.cluster.media
        self._taken_names = set()         # names that are taken
        self._busy_names = set()  # names whose last claim is still there
        self._reserved = False
        self._uid = ''              # of the DataVolume that was made
        self._may_exist = False         # whether one may have been made
        self._leftovers = 0         # how often one was in the way
        self._wait_for_claim = False  # for a claim to go: all names have one
        self._ca_config_map = None
        self._entry = media_annotation.Entry(
            id=boot_overrides.new_id(), url=asked.url, volume='-',
            since=manager.now(), verify=asked.verify,
            write_protected=_protected(device, asked),
            upload=self._is_upload(), credentials=bool(asked.username),
            method=asked.method, protocol=asked.protocol)

    def _is_upload(self):
        options = self._machine.options.media
        if options.mode == 'upload' and not options.upload_proxy_url:
            raise errors.Unsupported(
                'Images are to be uploaded, but nothing says where to: set '
                'MEDIA_UPLOAD_PROXY_URL')
        return options.mode == 'upload' or bool(
            options.mode == 'auto' and options.upload_proxy_url
            and (not self._asked.verify or self._asked.method == 'Upload'))

    def run(self):
        """:returns: the `model.Medium`"""
        machine = self._machine
        pem = ca_certificates.pem(machine, self._device)
        size = image_size.probe(self._asked, machine.options.media,
                                self._asked.verify, pem)
        if self._asked.verify and not self._entry.upload:
            self._ca_config_map = ca_certificates.publish(
                machine, self._device)
        self._media.inserting.add(self._entry.id)
        try:
            volume = self._create_objects(size)
            machine.write(self._put_into_drive)
        except Exception:
            self._roll_back()
            raise
        finally:
            self._media.inserting.discard(self._entry.id)
        self._media.volumes.put(volume)
        self._media.look(machine)
        LOG.info('%s of %s: %s is being imported into %s',
                 self._device.id, machine.qualified_name,
                 url_policy.parse(self._entry.url).shown, self._entry.volume)
        if self._entry.upload:
            upload.start(machine, self._entry, self._asked, pem, size)
        delete_obsolete(machine)
        medium = self._media.medium(machine, self._device)
        if medium is None:
            raise _superseded(machine, self._device)
        return medium

    # Step 2

    def _reserve(self, vm, vmi):
        found = media_annotation.read(vm)
        mine = found.nexts.get(self._device.id)
        if (mine is not None and mine.id == self._entry.id
                and mine.volume not in self._taken_names | self._busy_names):
            self._entry = mine      # the answer was lost, the write was not
            self._reserved = True
            return
        if self._reserved and (mine is None or mine.id != self._entry.id):
            raise _superseded(self._machine, self._device)
        if mine is not None and mine.id != self._entry.id:
            found.discard(mine)
        names = [name for name in media_annotation.slots(
            self._machine.name, self._device.id)
            if name not in self._taken_names]
        if not names:
            raise errors.WrongState(
                'All names for a DataVolume of %s of %s are taken by others: '
                '%s. Delete what has these names and is not needed' % (
                    self._device.id, self._machine.qualified_name,
                    ', '.join(sorted(self._taken_names))))
        if mine is not None and mine.id == self._entry.id:
            del found.nexts[self._device.id]
        # Those that are kept for somebody who may be late come late, those
        # whose claim is still there last.
        taken = found.names() - {
            name for name, uid in found.gone.items() if not uid}
        free = sorted((name for name in names if name not in taken),
                      key=lambda name: (name in self._busy_names,
                                        name in found.gone))
        if not free:
            delete_obsolete(self._machine)
            raise errors.Conflict(
                'What was in %s of %s before is still being deleted'
                % (self._device.id, self._machine.qualified_name))
        found.gone.pop(free[0], None)
        self._wait_for_claim = free[0] in self._busy_names
        self._busy_names.discard(free[0])
        self._entry = dataclasses.replace(self._entry, volume=free[0])
        found.nexts[self._device.id] = self._entry
        edited = copy.deepcopy(vm)
        media_annotation.write(edited, found)
        json_patch.send(self._machine, vm, edited)
        self._reserved = True

    # Step 3

    def _create_objects(self, size):
        while True:
            self._machine.write(self._reserve)
            try:
                volume = self._create(size.bytes)
                self._uid = volume['metadata']['uid']
                self._check(volume)
                image_credentials.create(
                    self._machine,
                    self._device,
                    self._entry,
                    volume,
                    self._asked,
                )
                return volume
            except _NameTaken as e:
                LOG.info('%s of %s: the name %s is taken: %s',
                         self._device.id, self._machine.qualified_name,
                         self._entry.volume, e)
                self._taken_names.add(self._entry.volume)
            except _NameBusy:
                self._busy_names.add(self._entry.volume)

    def _retry(self, step):
        return retry.run(step, self._machine.options,
                         self._machine.cluster.closing)

    def _create(self, size):
        client = self._machine.cluster.client
        body = datavolumes.body(self._machine, self._device, self._entry,
                                size, self._ca_config_map)
        place = (api_resources.DATA_VOLUME, self._machine.namespace)

        def step():
            if not self._may_exist:
                if there := self._check_claim():
                    return there
                self._check_secret()
            self._may_exist = True
            try:
                return client.create(
                    *place,
                    body,
                    named=image_credentials.is_named(self._machine),
                )
            except errors.Conflict as e:
                return self._existing_volume(e)
            except errors.Rejected as e:
                self._may_exist = False
                # CDI's webhook, of a claim that has the name.
                if 'already exists' not in str(e):
                    raise
                raise _NameTaken(str(e)) from None
            except errors.AccessDenied:
                self._may_exist = False
                raise

        return self._retry(step)

    def _check_claim(self):
        """See to it that there is no claim of the name.

        :returns: the DataVolume, if it is that of this insert; else None

        CDI takes a claim for that of a new DataVolume of the same name until
        the garbage collector has removed it, and so says that the image is
        complete while what is there is the one before (main of 2026-08,
        ``controller-base.go``, updateStatus).
        """
        machine, name = self._machine, self._entry.volume
        try:
            claim = machine.cluster.client.get(
                api_resources.CLAIM, machine.namespace, name)
        except errors.ObjectNotFound:
            return None
        if not datavolumes.is_claim_of(claim, name):
            raise _NameTaken('a claim that is not ours has it')
        lingers = errors.Conflict(
            'The claims of what was in %s of %s before are still there'
            % (self._device.id, machine.qualified_name))
        try:
            machine.cluster.client.get(
                api_resources.DATA_VOLUME, machine.namespace, name)
        except errors.ObjectNotFound:
            pass
        else:
            # Its claim goes with it, and nobody else may delete it.
            return self._existing_volume(lingers)
        self._name_busy(lingers)

    def _check_secret(self):
        """See to it that there is no Secret of the name."""
        try:
            image_credentials.check_name(self._machine, self._entry)
        except image_credentials.ForeignSecret:
            raise _NameTaken('a Secret that is not ours has it') from None
        except image_credentials.StaleSecret:
            self._name_busy(errors.Conflict(
                'The password of what was in %s of %s before is still there'
                % (self._device.id, self._machine.qualified_name)))

    def _name_busy(self, lingers):
        """Something of before is still there: another name, or wait."""
        if not self._wait_for_claim:
            raise _NameBusy
        raise lingers

    def _existing_volume(self, conflict):
        """What has the name that is to be created."""
        machine = self._machine
        try:
            there = machine.cluster.client.get(
                api_resources.DATA_VOLUME,
                machine.namespace,
                self._entry.volume,
            )
        except errors.ObjectNotFound:
            self._may_exist = False
            raise conflict from None        # it has just gone: once more
        if not datavolumes.is_ours(there, machine):
            raise _NameTaken('it is not ours')
        attempt = datavolumes.attempt(there)
        if attempt == self._entry.id:
            return there
        vm, _ = machine.fetch()
        if attempt in media_annotation.read(vm).attempts():
            raise _NameTaken('another insert has it')
        self._leftovers += 1
        if self._leftovers > _LEFTOVER_TRIES:
            raise _NameTaken('what is left of another insert does not go')
        # Made by somebody who died, or is late: nothing speaks of it.
        datavolume_cleanup.delete(machine, self._media, self._entry.volume,
                                  there['metadata']['uid'])
        self._may_exist = False
        raise conflict

    def _check(self, volume):
        if datavolumes.ignores_verify_option(volume, self._entry):
            raise errors.Unsupported(
                'This CDI always verifies certificates. Set '
                'MEDIA_UPLOAD_PROXY_URL, so that the BMC can upload what '
                'CDI cannot import')

    # Step 4

    def _put_into_drive(self, vm, vmi):
        hot = self._machine.gates.fills_drives()
        try:
            self._patch_vm(vm, vmi, hot)
        except errors.Rejected as e:
            # The gate was switched off a moment ago.
            if not hot or _GATE not in str(e):
                raise
            self._patch_vm(vm, vmi, False)

    def _patch_vm(self, vm, vmi, hot):
        found = media_annotation.read(vm)
        before = found.media.get(self._device.id)
        if before is not None and before.id == self._entry.id:
            self._entry = before
            return              # the answer was lost, the write was not
        mine = found.nexts.pop(self._device.id, None)
        if mine is None or mine.id != self._entry.id:
            raise _superseded(self._machine, self._device)
        edited = copy.deepcopy(vm)
        drive = None
        if before is not None and drives.holds(vm, before.drive,
                                               before.volume):
            drive = before.drive
        if drive is not None and drives.would_migrate(vm, vmi, drive):
            drives.empty(edited, vmi, self._device, drive, before.volume,
                         False)
            drive = None
        if drive is None:
            drive = drives.choose(edited, vmi, self._device)
        if (self._device is model.HTTP_BOOT
                and drive != drives.ADDED_DRIVES[self._device.id]):
            raise errors.WrongState(
                '%s of %s is taken; switch it off, and on again when the '
                'image is there' % (drives.ADDED_DRIVES[self._device.id],
                                    self._machine.qualified_name))
        if self._device is model.USB_STICK and before is not None:
            # Another disk: whether it may be written to may differ.
            drives.empty(edited, vmi, self._device, drive, before.volume,
                         False)
        drives.fill(edited, vmi, self._device, drive, self._entry.volume, hot,
                    self._entry.write_protected)
        found.discard(before)
        self._entry = found.media[self._device.id] = dataclasses.replace(
            self._entry, uid=self._uid, drive=drive)
        media_annotation.write(edited, found)
        json_patch.send(self._machine, vm, edited)

    # After a failure

    def _roll_back(self):
        """Take back what was done; what cannot be is left to others."""
        if self._entry.volume == '-':
            return
        machine, volume = self._machine, self._entry.volume
        try:
            if self._uid:
                datavolume_cleanup.delete(
                    machine, self._media, volume, self._uid)
                self._may_exist = False
            machine.write(self._remove_reservation)
            delete_obsolete(machine)
        except errors.MachineError as e:
            LOG.warning('What was begun for %s of %s is cleaned up later: %s',
                        self._device.id, machine.qualified_name, e)

    def _remove_reservation(self, vm, _vmi):
        found = media_annotation.read(vm)
        mine = found.nexts.get(self._device.id)
        if mine is not None and mine.id == self._entry.id:
            del found.nexts[self._device.id]
            if self._may_exist:
                found.discard(mine)
        elif found.gone.get(self._entry.volume) == '' and not self._may_exist:
            # Noted by whoever has overtaken this.
            del found.gone[self._entry.volume]
        edited = copy.deepcopy(vm)
        media_annotation.write(edited, found)
        json_patch.send(self._machine, vm, edited)


def delete_obsolete(machine):
    """Delete what is to go, at once if it can be; else it is done later."""
    media = machine.cluster.media
    try:
        media.delete_obsolete(machine)
    except errors.MachineNotFound:
        pass
    except errors.Unavailable as e:
        LOG.info('Media of %s are deleted later: %s',
                 machine.qualified_name, e)
    except errors.MachineError as e:
        LOG.warning('Media of %s cannot be deleted: %s',
                    machine.qualified_name, e)
