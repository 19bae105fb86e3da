# SPDX-License-Identifier: Apache-2.0
"""Events of accounts that were created, changed or deleted.

The process that changes an account writes the event into the VM's log; the
Redfish service sends it to subscribers, and writes it too. The event's id is
that of the change, so the log has it once.
"""

from __future__ import annotations

import datetime
import hashlib
import types

from sushy_kubevirt.bmc import event_registry

_MESSAGES = {
    'created': event_registry.ACCOUNT_CREATED,
    'changed': event_registry.ACCOUNT_CHANGED,
    'deleted': event_registry.ACCOUNT_DELETED,
}

_ORIGIN = '/redfish/v1/AccountService/Accounts/%d'


def entry(change):
    """Make the event of a change.

    :param change: an `accounts.Change`
    :returns: object with the attributes of `event_record.Record` that
        `event_log.Log.record` reads; None for an unknown action
    """
    message = _MESSAGES.get(change.action)
    if message is None:
        return None
    args = (change.name or '(none)', str(change.account), change.by,
            change.fields)[:len(message.arguments)]
    return types.SimpleNamespace(
        id=hashlib.sha256(change.id.encode()).hexdigest()[:24],
        time=datetime.datetime.fromtimestamp(
            change.time, datetime.timezone.utc).isoformat(
                timespec='milliseconds'),
        message=message, message_id=message.id, key=message.key, args=args,
        text=message.format(args), severity=message.severity,
        origin=_ORIGIN % change.account, system='', uid='')
