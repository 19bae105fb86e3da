# SPDX-License-Identifier: Apache-2.0
"""What the log of a machine is told about an event."""

from __future__ import annotations

import dataclasses
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import event_registry


class Record(typing.Protocol):
    """An event, such as an `event_record.Record` of the Redfish service."""

    @property
    def id(self) -> str:
        """The same in all processes that see the event."""

    @property
    def time(self) -> str:
        """ISO 8601, with a time zone."""

    @property
    def message_id(self) -> str:
        """Such as ``ResourceEvent.1.3.ResourcePoweredOn``."""

    @property
    def key(self) -> str:
        """The message's key in its registry."""

    @property
    def args(self) -> tuple[str, ...]:
        """Arguments of the message."""

    @property
    def text(self) -> str:
        """The message with its arguments."""

    @property
    def severity(self) -> str:
        """``OK``, ``Warning`` or ``Critical``."""

    @property
    def origin(self) -> str:
        """Path of the Redfish resource it is about, '' for none."""

    @property
    def system(self) -> str:
        """namespace/name of the VM, '' for none."""

    @property
    def uid(self) -> str:
        """Of the VM, '' for none."""


@dataclasses.dataclass(frozen=True)
class MessageRecord:
    """A `Record` of a message of a registry."""

    id: str
    time: str
    message: event_registry.Message
    args: tuple[str, ...]
    origin: str = ''
    system: str = ''
    uid: str = ''

    @property
    def message_id(self) -> str:
        """See `Record`."""
        return self.message.id

    @property
    def key(self) -> str:
        """See `Record`."""
        return self.message.key

    @property
    def text(self) -> str:
        """See `Record`."""
        return self.message.format(self.args)

    @property
    def severity(self) -> str:
        """See `Record`."""
        return self.message.severity
