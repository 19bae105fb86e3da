# SPDX-License-Identifier: Apache-2.0
"""Events of accounts that were created, changed or deleted.

Every process records its changes beside the accounts (`bmc.accounts`), so the
events do not depend on the protocol of the change.
"""

import threading
import time

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.redfish.services.events import event_record

ACCOUNTS = '/redfish/v1/AccountService/Accounts'

#: Largest difference of the clocks of two processes, in seconds.
_CLOCK_SECONDS = 5

_KINDS = {
    'created': (event_registry.ACCOUNT_CREATED, event_record.ADDED),
    'changed': (event_registry.ACCOUNT_CHANGED, event_record.UPDATED),
    'deleted': (event_registry.ACCOUNT_DELETED, event_record.REMOVED),
}


class AccountEvents:
    """Makes an event of each change after the start.

    :param accounts: an `accounts.Accounts`
    :param state: the `state_secret.StateSecret` in which they are stored
    :param sink: function that receives each `event_record.Record`
    """

    def __init__(self, accounts, state, sink):
        self._accounts = accounts
        self._sink = sink
        self._lock = threading.Lock()
        self._started = time.time() - _CLOCK_SECONDS
        self._seen = set()
        state.subscribe(self._changed)

    def _changed(self):
        with self._lock:
            changes = self._accounts.changes()
            new = [change for change in changes if change.id not in self._seen
                   and change.time >= self._started]
            self._seen = {change.id for change in changes}
        for change in new:
            if change.action in _KINDS:
                self._sink(_record(change))


def _record(change):
    message, kind = _KINDS[change.action]
    args = (change.name or '(none)', change.account, change.by, change.fields)
    return event_record.make(
        message, kind, args[:len(message.arguments)],
        f'{ACCOUNTS}/{change.account}', 'ManagerAccount', seed=(change.id,))
