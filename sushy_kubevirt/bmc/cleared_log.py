# SPDX-License-Identifier: Apache-2.0
"""Up to which Event the log of each machine was cleared, and what was deleted.

Kept in the state Secret, so that all processes and protocols hide the same
Events. What decides is the resourceVersion of the Events when the log was
cleared: an Event that was stored or repeated later has a greater one, however
close the two are in time and whatever clock its reporter has. (Kubernetes
guarantees this order within a resource.)
"""

from __future__ import annotations

from collections import abc
import datetime
import json
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.machine import machine

#: Name of the section of the Secret: by the uid of the VM, see `_encode`.
SECTION = 'log'

#: Largest number of machines in the section. Beyond it the oldest are
#: dropped; by then Kubernetes has deleted the Events that they hide.
MAX_MACHINES = 2000

#: Largest number of Events of a machine that are deleted one by one.
MAX_DELETED = 1000

#: Characters of the section, as JSON, up to which Events may be deleted one by
#: one. What is left is for logs that are cleared.
MAX_LENGTH = 300 * 1024


def seconds(text: str | None) -> float:
    """Convert a timestamp of Kubernetes.

    :param text: RFC 3339
    :returns: seconds since the epoch; 0 if there is none
    """
    try:
        return datetime.datetime.fromisoformat(text or '').timestamp()
    except ValueError:
        return 0.0


def when(event: objects.Json) -> float:
    """Return when an Event occurred last, in seconds since the epoch."""
    latest = max(seconds(text) for text in (
        event.get('lastTimestamp'), event.get('eventTime'),
        (event.get('series') or {}).get('lastObservedTime')))
    return latest or seconds(event.get('firstTimestamp')) or seconds(
        event['metadata'].get('creationTimestamp'))


def version(event: objects.Json) -> int:
    """Return an Event's resourceVersion as a number; 0 if it is none."""
    return _number(event['metadata'].get('resourceVersion'))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


class Cleared(typing.NamedTuple):
    """When a log was cleared.

    :param cleared_at: seconds since the epoch; 0 for never
    :param host: host that cleared it, to whose clock ``cleared_at`` belongs
    :param version: resourceVersion of Events at that time; 0 if unknown
    :param latest: time of the latest Event that was cleared, at least
        ``cleared_at``. Later Events are visible even if the cluster's data
        was restored from a backup, which sets resourceVersions back.
    :param deleted: of entries that were deleted one by one: the Event's
        resourceVersion at that time, by its name
    :param deleted_at: when the last one was deleted, in seconds since the
        epoch; 0 for never since ``cleared_at``
    """

    cleared_at: float = 0.0
    host: str = ''
    version: int = 0
    latest: float = 0.0
    deleted: abc.Mapping[str, int] = {}
    deleted_at: float = 0.0

    def hides(self, event: objects.Json) -> bool:
        """Return whether an Event was cleared or deleted from the log."""
        occurred, stored = when(event), version(event)
        # An Event that is repeated later has a new entry.
        if stored <= self.deleted.get(event['metadata']['name'], -1):
            return True
        if not self.cleared_at:
            return False
        if event.get('reportingInstance') == self.host and (
                # Some of our Events are dated in milliseconds.
                occurred < int(self.cleared_at * 1000) / 1000):
            # Our own Event, which may have waited to be written.
            return True
        if not stored or not self.version:
            return occurred <= self.cleared_at
        return stored <= self.version and occurred <= self.latest


class ClearedLogs:
    """The section of a state Secret."""

    def __init__(self, state: state_secret.StateSecret) -> None:
        self._state = state

    def of(self, machine: machine.Machine) -> Cleared:
        """Read from the API when a machine's log was cleared."""
        self._state.read(SECTION, fresh=True)
        return self.cached(machine)

    def cached(self, machine: machine.Machine) -> Cleared:
        """Return what `of` does, from the cache."""
        return _decode(self._state.cached(SECTION).get(machine.uid))

    def clear(self, machine: machine.Machine, cleared_at: float, host: str,
              pages: abc.Iterable[client.Page[objects.Json]]) -> None:
        """Store that a log was cleared.

        :param cleared_at: in seconds since the epoch
        :param host: see `Cleared`
        :param pages: of all Events of the log
        :raises: `errors.MachineError`
        """
        number, latest = None, cleared_at
        for events, listed in pages:
            if number is None:
                number = _number(listed)
            latest = max((latest, *(when(event) for event in events
                                    if version(event) <= number)))
        cleared = Cleared(cleared_at, host, number or 0, latest)

        def change(old: Cleared) -> Cleared:
            if old.version > cleared.version:
                return old
            return cleared._replace(deleted={
                name: stored for name, stored in old.deleted.items()
                if stored > cleared.version})

        self._update(machine, change)

    def delete(self, machine: machine.Machine, name: str, deleted_at: float,
               pages: abc.Iterable[client.Page[objects.Json]]) -> None:
        """Store that an entry was deleted.

        :param name: name of its Event
        :param deleted_at: in seconds since the epoch
        :param pages: as for `clear`
        :raises: `errors.MachineError`
        """
        stored = {event['metadata']['name']: version(event)
                  for events, _ in pages for event in events}

        def change(old: Cleared) -> Cleared:
            deleted = {event: number for event, number in old.deleted.items()
                       if event in stored}
            if name in stored:
                deleted[name] = stored[name]
            if len(deleted) > MAX_DELETED:
                raise errors.Rejected(
                    f'{MAX_DELETED} entries of the log of '
                    f'{machine.qualified_name} were deleted one by one; '
                    'clear the log')
            return old._replace(deleted=deleted, deleted_at=deleted_at)

        self._update(machine, change, MAX_LENGTH)

    def _update(self, machine: machine.Machine,
                change: abc.Callable[[Cleared], Cleared],
                most: int | None = None) -> None:
        """Change what is stored of a machine.

        :param most: characters of the section, as JSON
        """
        def edit(section: objects.Json) -> None:
            section[machine.uid] = _encode(
                change(_decode(section.get(machine.uid))))
            if most is not None and len(json.dumps(section)) > most:
                raise errors.Rejected(
                    'Too many entries of logs were deleted one by one; clear '
                    'the logs')
            for uid in sorted(section, key=lambda uid: _latest(
                    section[uid]))[:-MAX_MACHINES]:
                del section[uid]

        self._state.update(SECTION, edit)


def _latest(stored: typing.Any) -> float:
    cleared = _decode(stored)
    return max(cleared.cleared_at, cleared.deleted_at)


def _encode(cleared: Cleared) -> objects.Json:
    fields = cleared._asdict()
    fields['at'] = fields.pop('cleared_at')
    return fields


def _decode(stored: typing.Any) -> Cleared:
    try:
        return Cleared(
            float(stored['at']), str(stored['host']), int(stored['version']),
            float(stored['latest']),
            {name: int(number) for name, number in stored.get(
                'deleted', {}).items()}, float(stored.get('deleted_at', 0)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return Cleared()
