# SPDX-License-Identifier: Apache-2.0
"""Redfish's records of events, with times in UTC, and its Event payload.

See DSP0266, "Eventing", and the schema Event v1.11.
"""

from __future__ import annotations

from collections import abc
import datetime
import typing

from sushy_kubevirt.bmc import log_record
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import event_registry
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import machine as machine_

TASKS = '/redfish/v1/TaskService/Tasks'

_TYPE = '#Event.v1_11_0.Event'

#: The deprecated EventType of a record. A subscription to Alert receives all
#: records, as Alert, because Ironic subscribes to nothing else.
ALERT = 'Alert'
STATUS = 'StatusChange'
UPDATED = 'ResourceUpdated'
ADDED = 'ResourceAdded'
REMOVED = 'ResourceRemoved'
OTHER = 'Other'
TYPES = (ALERT, STATUS, UPDATED, ADDED, REMOVED, OTHER)

#: An event, whose time is in UTC.
Record: typing.TypeAlias = log_record.Record


def now() -> str:
    """Return the current time in UTC in Redfish's format, ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec='milliseconds')


def make(message: event_registry.Message, type_: str,
         args: abc.Iterable[object] = (), origin: str = '',
         resource_type: str = '', machine: machine_.Machine | None = None,
         seed: abc.Iterable[object] = ()) -> Record:
    """Create a record for an event that has happened now.

    :param type_: one of `TYPES`
    :param args: arguments of the message
    :param origin: path of the resource it is about, '' for none
    :param resource_type: that resource's schema
    :param machine: that it is about
    :param seed: values that identify the event and are the same in all
        processes that serve the VM, for its id; if empty, the time is used
    """
    texts = tuple(map(log_record.shortened, args))
    time = now()
    uid = alias = ''
    if machine is not None:
        uid = machine.uid
        alias = origin.replace(system_id.system_path(machine),
                               f'{system_id.SYSTEMS}/{machine.uuid}', 1)
    return log_record.make(
        message, texts, time=time, origin=origin, uid=uid,
        system=machine.qualified_name if machine is not None else '',
        id=log_record.id_of(uid, message.id, *texts, *(seed or (time,))),
        type=type_, resource_type=resource_type, alias=alias)


def changed(record: Record, args: abc.Iterable[str] = (),
            **fields: str | None) -> Record:
    """Copy a record with values from a client (SubmitTestEvent).

    :param args: the arguments of its message
    :param fields: of `Record`; None and '' are ignored
    """
    changes: dict[str, typing.Any] = {
        name: log_record.shortened(value)
        for name, value in fields.items() if value}
    return record._replace(
        args=tuple(map(log_record.shortened, args)), **changes)


def event(records: abc.Sequence[Record], context: str,
          types: abc.Collection[str] = ()) -> objects.Json:
    """Build the payload of some records.

    :param records: at least one
    :param context: Context of the subscription
    :param types: EventTypes of the subscription
    :returns: an Event resource
    """
    body: objects.Json = {
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


def _member(number: int, record: Record, types: abc.Collection[str]
            ) -> objects.Json:
    member: objects.Json = {
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


def _type(record: Record, types: abc.Collection[str]) -> str:
    # See `ALERT`.
    if types and record.type not in types and ALERT in types:
        return ALERT
    return record.type
