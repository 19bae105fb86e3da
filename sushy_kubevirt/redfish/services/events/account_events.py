# SPDX-License-Identifier: Apache-2.0
"""Sends events of accounts that were created, changed or deleted.

Every process records its changes beside the accounts (`bmc.accounts`), so the
events do not depend on the protocol of the change.
"""

from __future__ import annotations

from collections import abc
import threading
import time
import typing

from sushy_kubevirt.bmc import accounts as accounts_
from sushy_kubevirt.redfish.services.events import event_record

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret

ACCOUNTS = '/redfish/v1/AccountService/Accounts'

#: Largest difference of the clocks of two processes, in seconds.
_CLOCK_SECONDS = 5

_TYPES = {'created': event_record.ADDED, 'changed': event_record.UPDATED,
          'deleted': event_record.REMOVED}


class AccountEvents:
    """Makes an event of each change after the start.

    :param state: in which they are stored
    :param emit: receives each event
    """

    def __init__(self, accounts: accounts_.Accounts,
                 state: state_secret.StateSecret,
                 emit: abc.Callable[[event_record.Record], None]) -> None:
        self._accounts = accounts
        self._emit = emit
        self._lock = threading.Lock()
        self._started = time.time() - _CLOCK_SECONDS
        self._seen: set[str] = set()
        state.subscribe(self._changed)

    def _changed(self) -> None:
        with self._lock:
            changes = self._accounts.changes()
            new = [change for change in changes if change.id not in self._seen
                   and change.time >= self._started]
            self._seen = {change.id for change in changes}
        for change in new:
            record = _record(change)
            if record is not None:
                self._emit(record)


def _record(change: accounts_.Change) -> event_record.Record | None:
    """Make the event of a change, or None."""
    record = accounts_.record_of(change)
    return None if record is None else record._replace(
        type=_TYPES[change.action], resource_type='ManagerAccount')
