# SPDX-License-Identifier: Apache-2.0
"""What a BMC remembers about media: one annotation of the VM.

See `annotations` for its words. It is written before anything is made and
after everything is gone, so that whoever comes next can finish or clean up.
Whoever may edit the VM may write anything into it: what no BMC would write
counts as not there, and nothing is ever deleted by its word alone.
"""

import dataclasses
import hashlib

from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine.media import model

#: DataVolumes that a device of a VM may have: the one in the drive, the one
#: that is to replace it, and one whose claim is not gone yet.
SLOTS = 3

_KEYS = {model.CD.id: 'cd', model.USB_STICK.id: 'usb',
         model.HTTP_BOOT.id: 'http'}

#: Names of what KubeVirt and CDI make of a DataVolume end up in labels, which
#: hold 63 letters.
_LONGEST = 63


@dataclasses.dataclass(frozen=True)
class Entry:
    """One medium, in a drive or on its way there.

    :param id: name of the attempt, which no other has
    :param url: without credentials
    :param volume: name of the DataVolume, one of `slots`
    :param uid: uid of the DataVolume, '' until it is made
    :param drive: name of the disk it is in
    :param since: ISO 8601
    :param write_protected: whether the guest may not write to it
    :param upload: whether the BMC fetches it
    :param verify: whether the server's certificate is checked
    :param credentials: whether the server is given any
    :param method: see `model.Source`
    :param protocol: see `model.Source`
    :param ready: whether it is complete
    :param reason: why it failed for good, one word; '' if it did not
    :param message: the sentence to that
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


_FIELDS = {field.name: field for field in dataclasses.fields(Entry)}
_NEEDED = ('id', 'url', 'volume')


class Record:
    """The annotation, read.

    :ivar media: {device id: `Entry`}, what is in the drives
    :ivar nexts: {device id: `Entry`}, what somebody is about to insert
    :ivar gone: {name of a DataVolume: its uid}, what is to be deleted; the
        uid is '' when it may not even have been made
    :ivar verify: {device id: bool}
    :ivar certificates: {device id: {certificate id: digest}}
    :ivar http_uri: what HTTP boot is to boot, '' for none
    """

    def __init__(self):
        self.media = {}
        self.nexts = {}
        self.gone = {}
        self.verify = {}
        self.certificates = {}
        self.http_uri = ''

    def names(self):
        """:returns: set of the DataVolumes that are spoken of"""
        return {entry.volume for entry in (
            *self.media.values(), *self.nexts.values())} | set(self.gone)

    def discard(self, entry):
        """Remember to delete what an entry has."""
        if entry is not None:
            self.gone[entry.volume] = entry.uid

    def attempts(self):
        """:returns: set of the attempts that are spoken of"""
        return {entry.id for entry in (*self.media.values(),
                                       *self.nexts.values())}


def slots(vm_name, device_id):
    """The names that the DataVolumes of a device may have.

    Fixed, so that access rights can name them.

    :returns: tuple of `SLOTS` names
    """
    return tuple('%s-%d' % (name(vm_name, _KEYS[device_id]), number)
                 for number in range(SLOTS))


def ca_config_map(vm_name, device_id):
    """:returns: name of the ConfigMap with a device's certificates"""
    return name(vm_name, _KEYS[device_id]) + '-ca'


def name(vm_name, key):
    """What the objects of a device are called, without their last part."""
    whole = f'{vm_name}-bmc-{key}'
    if len(whole) <= _LONGEST - 4:
        return whole
    digest = hashlib.sha256(vm_name.encode()).hexdigest()[:10]
    return '%s-%s-bmc-%s' % (
        vm_name[:_LONGEST - 4 - len('--bmc-') - len(digest) - len(key)],
        digest, key)


def read(vm):
    """:returns: `Record`; an empty one if there is none"""
    found = Record()
    value = annotations.read(vm, annotations.MEDIA)
    if not value:
        return found
    vm_name = vm['metadata']['name']
    for id_ in _KEYS:
        names = slots(vm_name, id_)
        for member, entries in (('media', found.media),
                                ('next', found.nexts)):
            entry = _entry(_dict(value.get(member)).get(id_))
            if entry is not None and entry.volume in names:
                entries[id_] = entry
        found.gone.update(
            (slot, uid) for slot, uid in _dict(value.get('gone')).items()
            if slot in names and isinstance(uid, str))
        verify = _dict(value.get('verify')).get(id_)
        if isinstance(verify, bool):
            found.verify[id_] = verify
        kept = {number: digest for number, digest in _dict(_dict(
            value.get('certificates')).get(id_)).items()
            if number.isdecimal() and isinstance(digest, str)}
        if kept:
            found.certificates[id_] = kept
    if isinstance(value.get('httpUri'), str):
        found.http_uri = value['httpUri']
    return found


def write(vm, record):
    """Put a record on a VM that may be changed."""
    value = {
        'media': {id_: _json(entry) for id_, entry in record.media.items()},
        'next': {id_: _json(entry) for id_, entry in record.nexts.items()},
        'gone': record.gone,
        'verify': record.verify,
        'certificates': {id_: kept for id_, kept in
                         record.certificates.items() if kept},
        'httpUri': record.http_uri,
    }
    annotations.write(vm, annotations.MEDIA, {
        member: content for member, content in value.items() if content})


def _json(entry):
    return {field: value for field, value in
            dataclasses.asdict(entry).items()
            if field in _NEEDED or value != _FIELDS[field].default}


def _entry(value):
    if not isinstance(value, dict) or not all(
            isinstance(value.get(field), str) and value[field]
            for field in _NEEDED):
        return None
    fields = {}
    for field, declared in _FIELDS.items():
        if field not in value:
            continue
        wanted = bool if isinstance(declared.default, bool) else str
        if not isinstance(value[field], wanted):
            return None
        fields[field] = value[field]
    return Entry(**fields)


def _dict(value):
    return value if isinstance(value, dict) else {}
