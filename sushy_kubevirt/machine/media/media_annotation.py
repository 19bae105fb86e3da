# SPDX-License-Identifier: Apache-2.0
"""The media record: one annotation of the VM.

See `bmc_annotations` for its format. It is written before objects are created
and after they are deleted, so that any process can complete or clean up.
Anyone who may edit the VM can write it, so malformed parts are ignored, and
nothing is deleted because of the record alone.
"""

from __future__ import annotations

import copy
import hashlib
import re
import typing

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine.media import model

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

#: Number of DataVolume names of a device: for the one in the drive, its
#: replacement, and one whose claim is still being deleted.
SLOTS = 3

_KEYS = {model.CD.id: 'cd', model.USB_STICK.id: 'usb',
         model.HTTP_BOOT.id: 'http'}

#: KubeVirt and CDI put names derived from a DataVolume's into labels, which
#: hold 63 characters.
_LONGEST = 63


class Entry(typing.NamedTuple):
    """One medium, in a drive or being inserted.

    :param id: unique ID of the attempt
    :param url: URL of the image, without credentials
    :param volume: name of the DataVolume, one of `slots`
    :param uid: uid of the DataVolume, '' until it is created
    :param drive: name of the disk it is in
    :param since: time of the insert, ISO 8601
    :param write_protected: whether the guest may not write to it
    :param upload: whether the BMC fetches the image
    :param verify: whether the server's certificate is verified
    :param credentials: whether the server needs a password
    :param method: see `model.Source`
    :param protocol: see `model.Source`
    :param ready: whether the import is complete
    :param reason: why it failed permanently, one word; '' if it did not
    :param message: text that explains the reason
    """

    id: str
    url: str
    volume: str
    uid: str = ''
    drive: str = ''
    since: str = ''
    write_protected: bool = True
    upload: bool = False
    verify: bool = True
    credentials: bool = False
    method: str | None = None
    protocol: str | None = None
    ready: bool = False
    reason: str = ''
    message: str = ''


_NEEDED = ('id', 'url', 'volume')


class Record:
    """The content of the annotation.

    The keys are ids of devices if not said otherwise.

    :ivar media: what is in the drives
    :ivar reservations: media that are being inserted
    :ivar ejecting: ejected media that the running guest had
    :ivar obsolete: {name of a DataVolume: its uid}, obsolete DataVolumes to be
        deleted; the uid is '' if it may not have been created
    :ivar verify: whether servers' certificates are verified
    :ivar certificates: {device id: {certificate id: digest}}
    :ivar http_uri: the HttpBootUri, '' for none
    """

    def __init__(self) -> None:
        self.media: dict[str, Entry] = {}
        self.reservations: dict[str, Entry] = {}
        self.ejecting: dict[str, Entry] = {}
        self.obsolete: dict[str, str] = {}
        self.verify: dict[str, bool] = {}
        self.certificates: dict[str, dict[str, str]] = {}
        self.http_uri = ''

    def names(self) -> set[str]:
        """Return the names of all DataVolumes in the record."""
        entries = *self.media.values(), *self.reservations.values()
        return {entry.volume for entry in entries} | set(self.obsolete)

    def discard(self, entry: Entry | None) -> None:
        """List an entry's DataVolume as obsolete."""
        if entry is not None:
            self.obsolete[entry.volume] = entry.uid

    def attempts(self) -> set[str]:
        """Return the IDs of all entries."""
        return {entry.id for entry in (*self.media.values(),
                                       *self.reservations.values())}


def slots(vm_name: str, device_id: str) -> tuple[str, ...]:
    """Return the `SLOTS` names that the DataVolumes of a device may have.

    They are fixed so that access rights can name them.
    """
    return tuple(f'{name(vm_name, _KEYS[device_id])}-{number}'
                 for number in range(SLOTS))


def ca_config_map(vm_name: str, device_id: str) -> str:
    """Return the name of the ConfigMap with a device's certificates."""
    return name(vm_name, _KEYS[device_id]) + '-ca'


def name(vm_name: str, key: str) -> str:
    """Return the common prefix of the names of a device's objects.

    A long VM name is cut, without a dot at its end, and gets a digest.

    :param key: a value of `_KEYS`
    """
    prefix = f'{vm_name}-bmc-{key}'
    if len(prefix) <= _LONGEST - 4:
        return prefix
    digest = hashlib.sha256(vm_name.encode()).hexdigest()[:10]
    length = _LONGEST - 4 - len('--bmc-') - len(digest) - len(key)
    cut = re.sub('[.]$', '-', vm_name[:length])
    return f'{cut}-{digest}-bmc-{key}'


def read(vm: objects.VirtualMachine) -> Record:
    """Return the `Record` of a VM; an empty one without the annotation."""
    record = Record()
    value = bmc_annotations.read(vm, stored_names.MEDIA)
    if not value:
        return record
    vm_name = vm['metadata']['name']
    for id_ in _KEYS:
        names = slots(vm_name, id_)
        for member, entries in (('media', record.media),
                                ('next', record.reservations),
                                ('ejecting', record.ejecting)):
            entry = _entry(_dict(value.get(member)).get(id_))
            if entry is not None and entry.volume in names:
                entries[id_] = entry
        record.obsolete.update(
            (slot, uid) for slot, uid in _dict(value.get('gone')).items()
            if slot in names and isinstance(uid, str))
        verify = _dict(value.get('verify')).get(id_)
        if isinstance(verify, bool):
            record.verify[id_] = verify
        kept = {number: digest for number, digest in _dict(_dict(
            value.get('certificates')).get(id_)).items()
            if number.isdecimal() and isinstance(digest, str)}
        if kept:
            record.certificates[id_] = kept
    if isinstance(value.get('httpUri'), str):
        record.http_uri = value['httpUri']
    return record


def write(vm: objects.VirtualMachine, record: Record) -> None:
    """Write a record to a VM, which is changed."""
    value = {
        'media': {id_: _json(entry) for id_, entry in record.media.items()},
        'next': {id_: _json(entry)
                 for id_, entry in record.reservations.items()},
        'ejecting': {id_: _json(entry)
                     for id_, entry in record.ejecting.items()},
        'gone': record.obsolete,
        'verify': record.verify,
        'certificates': {id_: kept for id_, kept in
                         record.certificates.items() if kept},
        'httpUri': record.http_uri,
    }
    bmc_annotations.write(vm, stored_names.MEDIA, {
        member: content for member, content in value.items() if content})


def with_record(vm: objects.VirtualMachine, record: Record
                ) -> objects.VirtualMachine:
    """Return a copy of a VM with another record, to be sent as a patch."""
    edited = copy.deepcopy(vm)
    write(edited, record)
    return edited


def drives(vm: objects.VirtualMachine) -> set[str]:
    """Return the names of the drives with virtual media.

    Media that a user removed from the template do not count.
    """
    volumes = {volume.get('name'): (volume.get('dataVolume') or {}).get('name')
               for volume in (vm['spec']['template'].get('spec') or {}).get(
                   'volumes') or ()}
    return {entry.drive for entry in read(vm).media.values()
            if volumes.get(entry.drive) == entry.volume}


def _json(entry: Entry) -> objects.Json:
    return {field: value for field, value in
            entry._asdict().items()
            if field in _NEEDED or value != Entry._field_defaults[field]}


def _entry(value: typing.Any) -> Entry | None:
    if not isinstance(value, dict) or not all(
            isinstance(value.get(field), str) and value[field]
            for field in _NEEDED):
        return None
    fields = {}
    for field in Entry._fields:
        if field not in value:
            continue
        wanted = bool if isinstance(
            Entry._field_defaults.get(field), bool) else str
        if not isinstance(value[field], wanted):
            return None
        fields[field] = value[field]
    return Entry(**fields)


def _dict(value: typing.Any) -> objects.Json:
    return value if isinstance(value, dict) else {}
