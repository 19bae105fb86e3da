# SPDX-License-Identifier: Apache-2.0
"""Inserts a medium, step by step.

1. Ask the image server for the size of the image.
2. Reserve a DataVolume name in the VM's annotation.
3. Create the DataVolume, and its Secret if the server needs a password.
4. Patch the VM once: put the new medium into the drive, list the previous
   DataVolume as obsolete.
5. Delete the obsolete DataVolume.

After a crash in between, `reconciler` cleans up. A concurrent insert or eject
removes the reservation, so that the patch of step 4 finds it gone. No step
starts, stops or reboots the VM or changes its boot order.
"""

from __future__ import annotations

import logging
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import changes as vm_changes
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
from sushy_kubevirt.machine import option_hints
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import options

LOG = logging.getLogger(__name__)

#: Attempts to delete an abandoned DataVolume before another name is used.
_LEFTOVER_TRIES = 6


def _set_proxy(options: options.MediaOptions) -> str:
    return option_hints.hint(options, 'upload_proxy_url', '; set {}')


class _NameTaken(Exception):
    """The name of the DataVolume is used by another object."""


class _NameBusy(Exception):
    """The claim of an earlier DataVolume of this name still exists."""


def insert(machine: manager.Machine, device: model.Device,
           source: model.Source,
           changes: abc.Sequence[vm_changes.Change] = ()) -> model.Medium:
    """Insert a medium, see `machine.Machine.insert_media`.

    :param changes: of the VM, to be made in the same patch
    """
    media = machine.cluster.media
    source = url_policy.separate_credentials(source)
    # Update the cache with what other processes wrote a moment ago, such as
    # an eject or a certificate.
    machine.write(lambda _state: None)
    if source.verify is None:
        source = source._replace(
            verify=ca_certificates.verify(machine, device))
    media.cdi.require()
    medium = _present_medium(machine, device, source)
    if medium is None:
        medium = _Insertion(machine, device, source, changes=changes).run()
    elif changes:
        vm_changes.write(machine, changes, waits=True)
    return medium


def require_upload(machine: manager.Machine) -> None:
    """Check that a client can upload an image.

    :raises: `errors.Unsupported`
    """
    options = machine.options.media
    if not options.upload_proxy_url:
        raise errors.Unsupported(
            'Images cannot be uploaded, because no upload proxy of CDI is '
            'configured' + _set_proxy(options))
    machine.cluster.media.cdi.require()


def upload_image(machine: manager.Machine, device: model.Device,
                 image: model.ClientImage, probe: image_size.Probe,
                 write_protected: bool) -> model.Medium:
    """Insert an image that a client sends.

    See `machine.Machine.upload_media`.
    """
    # Update the cache, see `insert`.
    machine.write(lambda _state: None)
    return _Insertion(machine, device, model.Source(
        image.url, write_protected=write_protected, verify=True,
        method='Upload'), image, probe).run()


def _present_medium(machine: manager.Machine, device: model.Device,
                    source: model.Source) -> model.Medium | None:
    """Return the medium in the device if it is the requested one and usable.
    """
    media = machine.cluster.media
    vm = machine.state().vm
    entry = media_annotation.read(vm).media.get(device.id)
    medium = media.medium(machine, device)
    if medium is None or entry is None or medium.state in (
            model.State.FAILED, model.State.EJECTING) or (
            entry.url, entry.verify, entry.credentials,
            entry.write_protected) != (
            source.url, source.verify, bool(source.username),
            _is_protected(device, source)):
        return None
    # A changed password cannot be detected: it is only in a Secret, which is
    # not read. The password there was checked by `image_size`.
    return medium


def _is_protected(device: model.Device, source: model.Source) -> bool:
    return device.kind is model.Kind.CD or source.write_protected


def wait(machine: manager.Machine, device: model.Device,
         medium: model.Medium) -> model.Medium:
    """Wait until a medium is ready or failed, at most `wait_seconds`.

    :returns: the medium, which may still be importing
    :raises: `errors.MediaUnreachable` if the import failed,
        `errors.WrongState` if the medium was replaced
    """
    media = machine.cluster.media
    latest: list[model.Medium | None] = [medium]

    def done() -> bool:
        latest[0] = present = media.medium(machine, device)
        return (present is None or present.task != medium.task
                or present.state in (model.State.READY, model.State.FAILED))

    media.wait(done, machine.options.media.wait_seconds)
    present = latest[0]
    if present is None or present.task != medium.task:
        raise _superseded(machine, device)
    if present.state is model.State.FAILED:
        shown = present.url.partition('?')[0]
        raise errors.MediaUnreachable(
            f'{shown} cannot be imported ({present.reason}): '
            f'{present.message}', shown)
    return present


def _superseded(machine: manager.Machine, device: model.Device
                ) -> errors.WrongState:
    return errors.WrongState(
        f'{device.id} of {machine.qualified_name} was ejected, or another '
        'medium inserted, while this one was being inserted')


class _Insertion:
    """One insert.

    :param source: without credentials in its URL, ``verify`` set
    :param image: None for an image at a URL
    :param probe: of ``image``
    :param changes: see `insert`
    """

    def __init__(self, machine: manager.Machine, device: model.Device,
                 source: model.Source,
                 image: model.ClientImage | None = None,
                 probe: image_size.Probe | None = None,
                 changes: abc.Sequence[vm_changes.Change] = ()) -> None:
        self._changes = changes
        self._image = image
        self._probe = probe
        self._machine = machine
        self._device = device
        self._source = source
        self._media = machine.cluster.media
        # Names that other objects have, and whose previous claim still exists.
        self._taken_names: set[str] = set()
        self._busy_names: set[str] = set()
        self._reserved = False
        self._uid = ''              # of the DataVolume that was created
        self._may_exist = False     # whether the DataVolume may exist
        self._leftovers = 0         # abandoned DataVolumes found under a name
        # Whether to wait until a claim is deleted, as all names have one.
        self._wait_for_claim = False
        self._ca_config_map: str | None = None
        self._entry = media_annotation.Entry(
            id=boot_overrides.new_id(), url=source.url, volume='-',
            since=manager.now(), verify=bool(source.verify),
            write_protected=_is_protected(device, source),
            upload=self._is_upload(), credentials=bool(source.username),
            method=source.method, protocol=source.protocol)

    def _is_upload(self) -> bool:
        if self._image is not None:
            return True
        options = self._machine.options.media
        if options.mode == 'upload' and not options.upload_proxy_url:
            raise errors.Unsupported(
                'Images are to be uploaded'
                + option_hints.hint(options, 'mode', ' ({} is upload)')
                + ', but no upload proxy is configured'
                + _set_proxy(options))
        return options.mode == 'upload' or bool(
            options.mode == 'auto' and options.upload_proxy_url
            and (not self._source.verify or self._source.method == 'Upload'))

    def run(self) -> model.Medium:
        """Run all steps; undo them after a failure."""
        machine = self._machine
        bundle = ca_certificates.bundle(machine) if (
            self._entry.verify and self._image is None) else ''
        pem = ca_certificates.pem(machine, self._device) + bundle
        size = self._probe or image_size.probe(
            self._source, machine.options.media, self._entry.verify, pem)
        if self._entry.verify and not self._entry.upload:
            self._ca_config_map = ca_certificates.publish(
                machine, self._device, bundle)
        self._media.inserting.add(self._entry.id)
        try:
            volume = self._create_objects(size)
            machine.write(self._put_into_drive, self._put_cached)
        except Exception:
            self._roll_back()
            raise
        finally:
            self._media.inserting.discard(self._entry.id)
        self._media.volumes.put(volume)
        self._media.refresh(machine)
        LOG.info('%s: %s inserted into %s, import into DataVolume %s started',
                 machine.qualified_name,
                 self._entry.url.partition('?')[0], self._device.id,
                 self._entry.volume)
        if self._image is not None:
            self._receive(self._image, size)
        elif self._entry.upload:
            upload.start(machine, self._entry, self._source, pem, size)
        delete_obsolete(machine)
        medium = self._media.medium(machine, self._device)
        if medium is None:
            raise _superseded(machine, self._device)
        return medium

    def _receive(self, image: model.ClientImage, probe: image_size.Probe
                 ) -> None:
        """Upload the client's image.

        :raises: `errors.MachineError`
        """
        machine = self._machine
        # What the image replaces does not wait for the upload.
        delete_obsolete(machine)
        try:
            upload.receive(machine, self._entry, image, probe)
        except (errors.MachineNotFound, errors.InvalidValue,
                errors.AccessDenied):
            raise
        except errors.MachineError as e:
            machine.write(lambda _state: None)
            medium = self._media.medium(machine, self._device)
            if medium is None or medium.task != self._entry.id:
                raise _superseded(machine, self._device) from None
            if isinstance(e, errors.Unavailable):
                raise
            raise errors.WrongState(
                f'{image.name} cannot be uploaded: {e}') from None

    # Step 2

    def _reserve(self, state: vm_state.VmState) -> None:
        record = media_annotation.read(state.vm)
        reservation = record.reservations.pop(self._device.id, None)
        own = reservation is not None and reservation.id == self._entry.id
        if reservation is not None and own and reservation.volume not in (
                self._taken_names | self._busy_names):
            self._entry = reservation   # an earlier attempt was carried out
            self._reserved = True
            return
        if self._reserved and not own:
            raise _superseded(self._machine, self._device)
        if not own:
            record.discard(reservation)
        names = [name for name in media_annotation.slots(
            self._machine.name, self._device.id)
            if name not in self._taken_names]
        if not names:
            raise errors.WrongState(
                f'All DataVolume names for {self._device.id} of '
                f'{self._machine.qualified_name} are used by other objects: '
                f'{", ".join(sorted(self._taken_names))}. Delete those that '
                'are not needed')
        # Prefer names that are not listed as obsolete: a late process may
        # still create those. Names whose claim still exists come last.
        taken = record.names() - {
            name for name, uid in record.obsolete.items() if not uid}
        free = sorted((name for name in names if name not in taken),
                      key=lambda name: (name in self._busy_names,
                                        name in record.obsolete))
        if not free:
            delete_obsolete(self._machine)
            raise errors.Conflict(
                f'The previous media of {self._device.id} of '
                f'{self._machine.qualified_name} are still being deleted')
        record.obsolete.pop(free[0], None)
        self._wait_for_claim = free[0] in self._busy_names
        self._busy_names.discard(free[0])
        self._entry = self._entry._replace(volume=free[0])
        record.reservations[self._device.id] = self._entry
        json_patch.send(self._machine, state.vm,
                        media_annotation.with_record(state.vm, record))
        self._reserved = True

    # Step 3

    def _reserve_cached(self, state: vm_state.VmState) -> tuple[None]:
        # The patch is refused if the record of media has changed.
        self._reserve(state)
        return (None,)

    def _create_objects(self, size: image_size.Probe) -> objects.DataVolume:
        while True:
            self._machine.write(self._reserve, self._reserve_cached)
            try:
                volume = self._create(size.bytes)
                self._uid = volume['metadata']['uid']
                self._check(volume)
                image_credentials.create(
                    self._machine, self._device, self._entry, volume,
                    self._source)
                return volume
            except _NameTaken as e:
                LOG.info('%s: DataVolume name %s cannot be used, trying the '
                         'next: %s', self._machine.qualified_name,
                         self._entry.volume, e)
                self._taken_names.add(self._entry.volume)
            except _NameBusy:
                self._busy_names.add(self._entry.volume)

    def _create(self, size: int) -> objects.DataVolume:
        client = self._machine.cluster.client
        body = datavolumes.body(self._machine, self._device, self._entry,
                                size, self._ca_config_map)

        def step() -> objects.DataVolume:
            if not self._may_exist:
                if volume := self._check_claim():
                    return volume
                self._check_secret()
            self._may_exist = True
            try:
                return client.create(
                    api_resources.DATA_VOLUME, self._machine.namespace, body,
                    named=image_credentials.is_named(self._machine))
            except errors.Conflict as e:
                return self._existing_volume(e)
            except errors.Rejected as e:
                self._may_exist = False
                # CDI's webhook refuses a name that a claim has.
                if 'already exists' not in str(e):
                    raise
                raise _NameTaken(str(e)) from None
            except errors.AccessDenied:
                self._may_exist = False
                raise

        return retry.run(step, self._machine.options.write_deadline,
                         self._machine.cluster.closing)

    def _check_claim(self) -> objects.DataVolume | None:
        """Check that no claim has the name of the new DataVolume.

        CDI takes an existing claim for that of a new DataVolume of the same
        name until the garbage collector has removed it, and then reports the
        image as complete while the claim holds the previous one (main of
        2026-08, ``controller-base.go``, updateStatus).

        :returns: the DataVolume if this insert created it already; else None
        :raises: `_NameTaken`, `_NameBusy`, `errors.Conflict`
        """
        machine, name = self._machine, self._entry.volume
        try:
            claim = machine.cluster.client.get(
                api_resources.CLAIM, machine.namespace, name)
        except errors.ObjectNotFound:
            return None
        if not datavolumes.is_claim_of(claim, name):
            raise _NameTaken('a PersistentVolumeClaim not made by CDI has it')
        conflict = errors.Conflict(
            f'The claims of the previous media of {self._device.id} of '
            f'{machine.qualified_name} still exist')
        try:
            machine.cluster.client.get(
                api_resources.DATA_VOLUME, machine.namespace, name)
        except errors.ObjectNotFound:
            pass
        else:
            # The claim is deleted with its DataVolume, which is deleted here.
            return self._existing_volume(conflict)
        self._name_busy(conflict)

    def _check_secret(self) -> None:
        """Check that no other Secret has the name that CDI will read."""
        secret = image_credentials.conflicting(self._machine, self._entry)
        if secret is None:
            return
        if secret.get('type') != stored_names.IMAGE_SERVER:
            raise _NameTaken('a Secret not made by a BMC has it')
        self._name_busy(errors.Conflict(
            f'The Secret of the previous medium of {self._device.id} of '
            f'{self._machine.qualified_name} still exists'))

    def _name_busy(self, conflict: errors.Conflict) -> typing.NoReturn:
        """Try another name; when all have claims, wait for this one."""
        if not self._wait_for_claim:
            raise _NameBusy
        raise conflict

    def _existing_volume(self, conflict: errors.Conflict
                         ) -> objects.DataVolume:
        """Handle an existing DataVolume of the name.

        :param conflict: raised for another attempt
        :returns: the DataVolume if this insert created it
        :raises: `_NameTaken`, or conflict
        """
        machine = self._machine
        try:
            volume = machine.cluster.client.get(
                api_resources.DATA_VOLUME, machine.namespace,
                self._entry.volume)
        except errors.ObjectNotFound:
            self._may_exist = False
            raise conflict from None    # deleted in the meantime: try again
        if not datavolumes.is_ours(volume, machine):
            raise _NameTaken('a DataVolume not made for this VM has it')
        attempt = datavolumes.attempt(volume)
        if attempt == self._entry.id:
            return volume
        if attempt in media_annotation.read(machine.fetch().vm).attempts():
            raise _NameTaken('a concurrent insert uses it')
        self._leftovers += 1
        if self._leftovers > _LEFTOVER_TRIES:
            raise _NameTaken(
                'an abandoned DataVolume has it and cannot be deleted')
        # Created by a process that crashed or is late: no record lists it.
        datavolume_cleanup.delete(
            machine, self._media.volumes, self._entry.volume,
            volume['metadata']['uid'])
        self._may_exist = False
        raise conflict

    def _check(self, volume: objects.DataVolume) -> None:
        if datavolumes.ignores_verify_option(volume, self._entry):
            raise errors.Unsupported(
                'This CDI always verifies certificates, and no upload proxy '
                'is configured with which the BMC could upload such images'
                + _set_proxy(self._machine.options.media))

    # Step 4

    def _put_cached(self, state: vm_state.VmState) -> tuple[None] | None:
        # Only a VM that is off: a guard of the VM does not cover its VMI.
        if not state.is_idle():
            return None
        self._put_into_drive(state, True)
        return (None,)

    def _put_into_drive(self, state: vm_state.VmState,
                        strict: bool = False) -> None:
        hotplug = self._machine.gates.hotplugs_cdroms()
        try:
            self._patch_vm(state, hotplug, strict)
        except errors.Rejected as e:
            # The feature gate was disabled after it was read.
            if not hotplug or drives.GATE not in str(e):
                raise
            self._patch_vm(state, False, strict)

    def _patch_vm(self, state: vm_state.VmState, hotplug: bool,
                  strict: bool) -> None:
        record = media_annotation.read(state.vm)
        before = record.media.get(self._device.id)
        if before is not None and before.id == self._entry.id:
            self._entry = before
            return              # an earlier attempt was carried out
        reservation = record.reservations.pop(self._device.id, None)
        if reservation is None or reservation.id != self._entry.id:
            raise _superseded(self._machine, self._device)
        edited = state.copy_vm()
        drives.edit(edited, lambda: self._fill(
            edited, before, record, hotplug))
        awaited = vm_changes.apply(self._changes, edited)
        if awaited is not None:
            raise errors.Conflict(
                f'{self._machine.qualified_name} still waits for '
                f'{awaited.what}; try again later')
        json_patch.send(self._machine, state.vm, edited.vm, strict)

    def _fill(self, state: vm_state.VmState,
              before: media_annotation.Entry | None,
              record: media_annotation.Record, hotplug: bool) -> None:
        """Put the medium into its drive and into the record.

        :param state: its VM is changed
        :param before: the previous medium
        :param record: is changed
        :param hotplug: see `drives.fill`
        """
        vm = state.vm
        drive = None
        if before is not None and drives.holds(vm, before.drive,
                                               before.volume):
            if drives.would_migrate(state, before.drive):
                drives.empty(vm, self._device, before.drive, before.volume,
                             False)
            else:
                drive = before.drive
        if drive is None:
            drive = drives.choose(state, self._device)
        if (self._device is model.HTTP_BOOT
                and drive != drives.ADDED_DRIVES[self._device.id]):
            raise errors.WrongState(
                f'Drive {drives.ADDED_DRIVES[self._device.id]} of '
                f'{self._machine.qualified_name} is in use; power the VM off '
                'and try again')
        if self._device is model.USB_STICK and before is not None:
            # Replace the disk too: write protection may differ.
            drives.empty(vm, self._device, drive, before.volume, False)
        drives.fill(state, self._device, drive, self._entry.volume, hotplug,
                    self._entry.write_protected)
        record.discard(before)
        self._entry = record.media[self._device.id] = (
            self._entry._replace(uid=self._uid, drive=drive))
        media_annotation.write(vm, record)

    # After a failure

    def _roll_back(self) -> None:
        """Undo what was done; `reconciler` does the rest if this fails."""
        if self._entry.volume == '-':
            return
        machine, volume = self._machine, self._entry.volume
        try:
            if self._uid:
                datavolume_cleanup.delete(
                    machine, self._media.volumes, volume, self._uid)
                self._may_exist = False
            machine.write(self._remove_reservation)
            delete_obsolete(machine)
        except errors.MachineError as e:
            LOG.warning('%s: insert into %s failed and its objects could not '
                        'be deleted, they will be deleted later: %s',
                        machine.qualified_name, self._device.id, e)

    def _remove_reservation(self, state: vm_state.VmState) -> None:
        record = media_annotation.read(state.vm)
        reservation = record.reservations.get(self._device.id)
        if reservation is not None and reservation.id == self._entry.id:
            del record.reservations[self._device.id]
            if self._may_exist:
                record.discard(reservation)
        elif (record.obsolete.get(self._entry.volume) == ''
                and not self._may_exist):
            # Listed by the operation that replaced this one.
            del record.obsolete[self._entry.volume]
        json_patch.send(self._machine, state.vm,
                        media_annotation.with_record(state.vm, record))


def delete_obsolete(machine: manager.Machine) -> None:
    """Delete obsolete DataVolumes now if possible; else `reconciler` does."""
    media = machine.cluster.media
    try:
        media.delete_obsolete(machine)
    except errors.MachineNotFound:
        pass
    except errors.Unavailable as e:
        LOG.info('%s: obsolete DataVolumes will be deleted later: %s',
                 machine.qualified_name, e)
    except errors.MachineError as e:
        LOG.warning('%s: obsolete DataVolumes cannot be deleted: %s',
                    machine.qualified_name, e)
