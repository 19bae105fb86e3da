# SPDX-License-Identifier: Apache-2.0
"""Event records, and Redfish's Event payload made of them.

See DSP0266, "Eventing", and the schema Event v1.11.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib

from sushy_kubevirt.redfish.services import system_id

TASKS = '/redfish/v1/TaskService/Tasks'

_TYPE = '#Event.v1_11_0.Event'

#: Largest number of characters of a message's argument. Messages from the
#: cluster are longer at times.
_MAX_ARGUMENT = 1000

#: The deprecated EventType of a record. A subscription to Alert receives all
#: records, as Alert, because Ironic subscribes to nothing else.
ALERT = 'Alert'
STATUS = 'StatusChange'
UPDATED = 'ResourceUpdated'
ADDED = 'ResourceAdded'
REMOVED = 'ResourceRemoved'
OTHER = 'Other'
TYPES = (ALERT, STATUS, UPDATED, ADDED, REMOVED, OTHER)


@dataclasses.dataclass(frozen=True)
class Record:
    """An event.

    :param id: EventId, the same in all processes that serve the VM
    :param time: time of the event, ISO 8601 in UTC
    :param type: deprecated EventType, one of `TYPES`
    :param message_id: such as ``ResourceEvent.1.3.ResourcePoweredOn``
    :param args: tuple of str, arguments of the message
    :param text: the message with its arguments
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param resolution: how to resolve the situation
    :param origin: path of the resource it is about, '' for none
    :param alias: that path with the system's UUID, if it is about a system
    :param resource_type: that resource's schema, such as ``ComputerSystem``
    :param system: namespace/name of the VM, '' for none
    :param uid: of that VM
    :param number: position in the order of publication; 0 until published
    """

    id: str
    time: str
    type: str
    message_id: str
    args: tuple
    text: str
    severity: str
    resolution: str
    origin: str = ''
    resource_type: str = ''
    system: str = ''
    uid: str = ''
    number: int = 0
    alias: str = ''

    @property
    def prefix(self):
        """Its registry, without the version."""
        return self.message_id.partition('.')[0]

    @property
    def key(self):
        """The message's key in its registry."""
        return self.message_id.rpartition('.')[2]


def now():
    """Return the current time in UTC in Redfish's format, ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec='milliseconds')


def make(message, type_, args=(), origin: str = '', resource_type: str = '',
         machine=None, seed=()):
    """Create a record for an event that has happened now.

    :param message: an `event_registry.Message`
    :param type_: one of `TYPES`
    :param args: arguments of the message
    :param origin: path of the resource it is about, '' for none
    :param resource_type: that resource's schema
    :param machine: the `machine.Machine` it is about, or None
    :param seed: values that identify the event and are the same in all
        processes that serve the VM, for its id; if empty, the time is used
    :returns: a `Record`
    """
    args = tuple(_shortened(arg) for arg in args)
    time = now()
    uid = alias = ''
    if machine is not None:
        uid = machine.uid
        alias = origin.replace(system_id.system_path(machine),
                               f'{system_id.SYSTEMS}/{machine.uuid}', 1)
    material = '\0'.join(map(str, (uid, message.id, *args,
                                   *(seed or (time,)))))
    return Record(
        id=hashlib.sha256(material.encode()).hexdigest()[:24], time=time,
        type=type_, message_id=message.id, args=args,
        text=message.format(args), severity=message.severity,
        resolution=message.resolution, origin=origin,
        resource_type=resource_type,
        system=machine.qualified_name if machine is not None else '',
        uid=uid, alias=alias)


def changed(record, args=(), **fields):
    """Copy a record with values from a client (SubmitTestEvent).

    :param args: sequence of str, the arguments of its message
    :param fields: str for fields of `Record`; None and '' are ignored
    :returns: a `Record`
    """
    return dataclasses.replace(
        record, args=tuple(map(_shortened, args)),
        **{name: _shortened(value) for name, value in fields.items()
           if value})


def _shortened(arg):
    text = ''.join(letter if letter.isprintable() else ' '
                   for letter in str(arg))
    return text if len(text) <= _MAX_ARGUMENT else text[:_MAX_ARGUMENT] + '…'


def event(records, context, types=()):
    """Build the payload of some records.

    :param records: non-empty list of `Record`
    :param context: Context of the subscription
    :param types: EventTypes of the subscription
    :returns: dict, an Event resource
    """
    body = {
        '@odata.type': _TYPE,
        'Id': records[-1].id,
        'Name': 'Event Array',
        'Events': [_member(number, record, types)
                   for number, record in enumerate(records)],
        'Events@odata.count': len(records),
    }
    if context:
        body['Context'] = context
    return body


def _member(number, record, types):
    member = {
        'MemberId': str(number),
        'EventType': _type(record, types),
        'EventId': record.id,
        'EventTimestamp': record.time,
        'Severity': record.severity,
        'MessageSeverity': record.severity,
        'Message': record.text,
        'MessageId': record.message_id,
        'MessageArgs': list(record.args),
        'Resolution': record.resolution,
    }
    if record.origin:
        member['OriginOfCondition'] = {'@odata.id': record.origin}
    return member


def _type(record, types):
    # See `ALERT`.
    if types and record.type not in types and ALERT in types:
        return ALERT
    return record.type
