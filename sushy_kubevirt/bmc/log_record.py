# SPDX-License-Identifier: Apache-2.0
"""Records of events, for the log of a machine and for Redfish."""

from __future__ import annotations

from collections import abc
import hashlib
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import event_registry

#: Largest number of characters of a message's argument. Messages from the
#: cluster are longer at times.
_MAX_ARGUMENT = 1000


class Record(typing.NamedTuple):
    """An event. The last four are of Redfish, see `event_record`.

    :param id: the same in all processes that see the event
    :param time: ISO 8601, with a time zone
    :param message_id: such as ``ResourceEvent.1.3.ResourcePoweredOn``
    :param args: arguments of the message
    :param text: the message with its arguments
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param resolution: how to resolve the situation
    :param origin: path of the Redfish resource it is about, '' for none
    :param system: namespace/name of the VM, '' for none
    :param uid: of that VM
    :param type: deprecated EventType, one of `event_record.TYPES`
    :param resource_type: schema of the resource at ``origin``, such as
        ``ComputerSystem``
    :param alias: ``origin`` with the system's UUID, if it is about a system
    :param number: position in the order of publication; 0 until published
    """

    id: str
    time: str
    message_id: str
    args: tuple[str, ...]
    text: str
    severity: str
    resolution: str
    origin: str = ''
    system: str = ''
    uid: str = ''
    type: str = ''
    resource_type: str = ''
    alias: str = ''
    number: int = 0

    @property
    def key(self) -> str:
        """The message's key in its registry."""
        return self.message_id.rpartition('.')[2]

    @property
    def prefix(self) -> str:
        """Its registry, without the version."""
        return self.message_id.partition('.')[0]


def make(message: event_registry.Message, args: abc.Iterable[object],
         **fields: typing.Any) -> Record:
    """Make the record of a message.

    :param args: arguments of the message
    :param fields: of `Record`, with ``id`` and ``time``
    """
    texts = tuple(map(shortened, args))
    return Record(
        message_id=message.id, args=texts, text=message.format(texts),
        severity=message.severity, resolution=message.resolution, **fields)


def id_of(*material: object) -> str:
    """Derive an id from values that identify an event."""
    return hashlib.sha256(
        '\0'.join(map(str, material)).encode()).hexdigest()[:24]


def shortened(arg: object) -> str:
    """Return an argument of a message without control characters."""
    text = ''.join(letter if letter.isprintable() else ' '
                   for letter in str(arg))
    return text if len(text) <= _MAX_ARGUMENT else text[:_MAX_ARGUMENT] + '…'
