# SPDX-License-Identifier: Apache-2.0
"""One thing that happened, and how Redfish tells it (Event.v1, DSP0266
"Eventing").
"""

import dataclasses
import datetime
import hashlib

SYSTEMS = '/redfish/v1/Systems'
TASKS = '/redfish/v1/TaskService/Tasks'

_TYPE = '#Event.v1_11_0.Event'

#: How far apart workers of one host notice the same thing, at most.
NEAR_SECONDS = 3.0

#: Longest argument of a message; the cluster's words may be long.
_LONGEST = 1000

#: The deprecated EventType of each record. To those who subscribe by it every
#: record is an Alert as well: it is all that Ironic ever asks for.
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

    :param id: EventId, the same in every worker
    :param time: when, ISO 8601 in UTC
    :param type: its deprecated EventType
    :param message_id: such as ``ResourceEvent.1.3.ResourcePoweredOn``
    :param args: tuple of texts
    :param text: the message with its arguments in it
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param resolution: what to do
    :param origin: path of the resource it is about, '' for none
    :param resource_type: that resource's schema, such as ``ComputerSystem``
    :param system: namespace/name of the VM, '' if it is about none
    :param uid: of that VM
    :param number: the order in which the workers heard of it; 0 until then
    :param stable: whether its id is the same for every worker that notices
        it: some things show in two watches, of which either may be the
        faster
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
    stable: bool = True

    @property
    def prefix(self):
        """The registry, without its version."""
        return self.message_id.partition('.')[0]

    @property
    def key(self):
        """The message's name in its registry."""
        return self.message_id.rpartition('.')[2]

    def is_same(self, other):
        """Whether two workers have made them of the same happening."""
        return self.id == other.id or (
            not self.stable
            and (self.uid, self.message_id) == (other.uid, other.message_id)
            and abs(self.seconds - other.seconds) < NEAR_SECONDS)

    @property
    def seconds(self):
        """Its time, since the epoch."""
        return datetime.datetime.fromisoformat(self.time).timestamp()

    def packed(self):
        """:returns: dict, for JSON"""
        return dataclasses.asdict(self)


def unpacked(data):
    """:param data: what `Record.packed` returned, from JSON"""
    return Record(**{**data, 'args': tuple(data['args'])})


def now():
    """The time, as Redfish writes it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec='milliseconds')


def make(message, type_, args=(), origin='', resource_type='', machine=None,
         seed=(), stable=True):
    """Make a record.

    :param message: a `messages.Message`
    :param type_: one of `TYPES`
    :param args: of the message
    :param machine: the `machine.Machine` it is about
    :param seed: texts that every worker knows alike and that tell this
        happening from others; without any, the time does
    :param stable: see `Record`
    """
    args = tuple(_shortened(arg) for arg in args)
    time = now()
    uid = machine.uid if machine is not None else ''
    material = '\0'.join(map(str, (uid, message.id, *args,
                                   *(seed or (time,)))))
    return Record(
        id=hashlib.sha256(material.encode()).hexdigest()[:24], time=time,
        type=type_, message_id=message.id, args=args,
        text=message.filled(args), severity=message.severity,
        resolution=message.resolution, origin=origin,
        resource_type=resource_type,
        system=machine.qualified_name if machine is not None else '',
        uid=uid, stable=stable)


def changed(record, args=(), **fields):
    """A record that says what a client wants it to.

    :param args: sequence of texts
    :param fields: texts, of `Record`; None and '' leave as it is
    """
    return dataclasses.replace(
        record, args=tuple(map(_shortened, args)),
        **{name: _shortened(value) for name, value in fields.items()
           if value})


def _shortened(arg):
    text = ''.join(letter if letter.isprintable() else ' '
                   for letter in str(arg))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + '…'


def event(records, context, types=()):
    """The payload that holds some records.

    :param records: `Record`s
    :param context: of the subscription
    :param types: the EventTypes that were subscribed to
    :returns: dict, an Event
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
    # Somebody who asked for Alerts is sent Alerts.
    if types and record.type not in types and ALERT in types:
        return ALERT
    return record.type
