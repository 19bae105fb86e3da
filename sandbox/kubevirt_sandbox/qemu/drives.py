# SPDX-License-Identifier: Apache-2.0
"""The disks and CD-ROM drives of a VMI, and the files of their volumes.

The file of a claim is in the sandbox's storage, the file of a container image
is named on the command line, and the file of an empty disk is created here.

Source: pkg/virt-launcher/virtwrap/converter/storage (KubeVirt 1.9).
"""

import dataclasses
import os
import pathlib

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt import paths

_QCOW2 = b'QFI\xfb'
_PLUGGED = ('MountedToPod', 'Ready')


class UnknownVolume(Exception):
    """A volume has no file; the message has its name and the reason."""


@dataclasses.dataclass(frozen=True)
class Medium:
    """A file to put into a drive.

    :param volume: name of the volume in the VMI.
    :param path: the file.
    :param format: ``raw`` or ``qcow2``.
    :param keep: whether the guest's writes are stored in the file; otherwise
        they are lost when the VMI ends.
    """

    volume: str
    path: str
    format: str = 'raw'
    keep: bool = True


@dataclasses.dataclass(frozen=True)
class Drive:
    """A disk or CD-ROM drive.

    :param name: name of the disk in the VMI.
    :param bus: ``sata``, ``scsi``, ``usb`` or ``virtio``.
    :param cdrom: whether it is a CD-ROM drive with a changeable medium.
    :param medium: a :class:`Medium`, or None.
    :param boot: its position in the boot order, or None.
    :param writable: whether the guest may write.
    :param serial: serial number, or ''.
    :param shared: whether other machines may write at the same time.
    :param plugged: whether it was hot-plugged into the running machine.
    """

    name: str
    bus: str
    cdrom: bool
    medium: Medium | None
    boot: int | None
    writable: bool
    serial: str = ''
    shared: bool = False
    plugged: bool = False

    @property
    def id(self):
        """Return QEMU's id of the device, the same as libvirt's alias."""
        return f'ua-{self.name}'


class DriveStore:
    """Finds the files of volumes, and the drives of VMIs.

    :param store: the store, to look up the sizes of claims.
    :param storage: the :class:`kubevirt_sandbox.cdi.storage.Storage`.
    :param images: dictionary of the files of container images by reference.
    """

    def __init__(self, store, storage, images):
        self._store = store
        self._storage = storage
        self._images = images

    def missing_image(self, vmi):
        """Return the first container image without a file, or None."""
        for volume in paths.volumes(vmi['spec']):
            image = paths.at(volume, 'containerDisk', 'image')
            if image and image not in self._images:
                return image
        return None

    def medium(self, vmi, volume, folder):
        """Return the medium of a volume and create its file if necessary.

        It creates the files that KubeVirt creates as well.

        :param folder: folder for files that are deleted with the VMI; None
            only checks whether the file could be created.
        :raises UnknownVolume: the volume has no file.
        """
        name = volume['name']
        image = paths.at(volume, 'containerDisk', 'image')
        if image:
            path = self._images[image]
            return Medium(name, path, _format(path), keep=False)
        if volume.get('emptyDisk') is not None:
            size = paths.at(volume, 'emptyDisk', 'capacity')
            return Medium(name, _blank(folder, name, size))
        claim = paths.claim_name(volume)
        if claim and volume.get('memoryDump') is None:
            namespace = vmi['metadata']['namespace']
            obj = self._store.find(core.CLAIM, namespace, claim)
            size = paths.at(obj, 'status', 'capacity', 'storage') or paths.at(
                obj, 'spec', 'resources', 'requests', 'storage') or '1Gi'
            path = (self._storage.path(namespace, claim) if folder is None
                    else self._storage.provide(namespace, claim,
                                               int(quantity.value(size))))
            return Medium(name, str(path),
                          keep=volume.get('ephemeral') is None)
        kinds = ', '.join(sorted(set(volume) - {'name'}))
        raise UnknownVolume(f'volume {name}: guests of the sandbox that are '
                            f'QEMU\'s have no disks of the kind {kinds}')

    def drives(self, vmi, folder):
        """Return the current drives of a VMI.

        :param folder: see :meth:`medium`.
        :returns: a list of :class:`Drive`, in the order of the VMI.
        :raises UnknownVolume: a volume has no file.
        """
        spec = vmi['spec']
        volumes = paths.named(paths.volumes(spec))
        status = paths.named(paths.at(vmi, 'status', 'volumeStatus') or ())
        order = boot_order(spec)
        found = []
        for disk in paths.disks(spec):
            name = disk['name']
            volume = volumes.get(name)
            kind = next((k for k in ('cdrom', 'lun', 'disk')
                         if disk.get(k) is not None), 'disk')
            plugged = paths.at(status, name, 'hotplugVolume') is not None
            if plugged and paths.at(
                    status, name, 'phase') not in _PLUGGED:
                volume = None
            if volume is None and kind != 'cdrom':
                continue
            target = disk.get(kind) or {}
            found.append(Drive(
                name, target.get('bus') or 'sata', kind == 'cdrom',
                volume and self.medium(vmi, volume, folder), order.get(name),
                kind != 'cdrom' and not target.get('readonly'),
                disk.get('serial') or '', bool(disk.get('shareable')),
                plugged))
        return found


def boot_order(spec):
    """Return the boot order of disks by name.

    If no disk or card has a ``bootOrder``, only the first hard disk is tried,
    as with libvirt.
    """
    disks = paths.disks(spec)
    if any(item.get('bootOrder') for item in (
            *disks, *paths.interfaces(spec))):
        return {d['name']: d['bootOrder'] for d in disks
                if d.get('bootOrder')}
    return {d['name']: 1 for d in [
        d for d in disks if d.get('cdrom') is None][:1]}


def _format(path):
    with open(path, 'rb') as stream:
        return 'qcow2' if stream.read(4) == _QCOW2 else 'raw'


def _blank(folder, name, size):
    if folder is None:
        return ''
    path = pathlib.Path(folder, f'disk-{name}')
    if not path.exists():
        path.touch(mode=0o600)
        os.truncate(path, int(quantity.value(size)))
    return str(path)
