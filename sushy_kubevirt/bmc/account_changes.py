# SPDX-License-Identifier: Apache-2.0
"""Events of accounts that were created, changed or deleted.

The process that changes an account writes the event into the VM's log; the
Redfish service sends it to subscribers, and writes it too. The event's id is
that of the change, so the log has it once.
"""

from __future__ import annotations

import datetime
import hashlib
import typing

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.bmc import log_record

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import accounts

_MESSAGES = {
    'created': event_registry.ACCOUNT_CREATED,
    'changed': event_registry.ACCOUNT_CHANGED,
    'deleted': event_registry.ACCOUNT_DELETED,
}

_ORIGIN = '/redfish/v1/AccountService/Accounts/%d'


def entry(change: accounts.Change) -> log_record.MessageRecord | None:
    """Make the event of a change; None for an unknown action."""
    message = _MESSAGES.get(change.action)
    if message is None:
        return None
    args = (change.name or '(none)', str(change.account), change.by,
            change.fields)[:len(message.arguments)]
    return log_record.MessageRecord(
        id=hashlib.sha256(change.id.encode()).hexdigest()[:24],
        time=datetime.datetime.fromtimestamp(
            change.time, datetime.timezone.utc).isoformat(
                timespec='milliseconds'),
        message=message, args=args, origin=_ORIGIN % change.account)
