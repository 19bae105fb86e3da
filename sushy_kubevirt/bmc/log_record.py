# SPDX-License-Identifier: Apache-2.0
"""Events as the log of a machine has them."""

from __future__ import annotations

from collections import abc
import dataclasses
import hashlib
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import event_registry

#: Largest number of characters of a message's argument. Messages from the
#: cluster are longer at times.
_MAX_ARGUMENT = 1000


@dataclasses.dataclass(frozen=True)
class Record:
    """An event.

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

    @property
    def key(self) -> str:
        """The message's key in its registry."""
        return self.message_id.rpartition('.')[2]


def make(message: event_registry.Message, args: abc.Iterable[object],
         **fields: str) -> Record:
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
