# SPDX-License-Identifier: Apache-2.0
"""Up to which Event the log of each machine was cleared.

Kept in the state Secret, so that all workers and protocols hide the same
Events. What decides is the resourceVersion of the Events when the log was
cleared: an Event that was stored or repeated later has a greater one, however
close the two are in time and whatever clock its reporter has. (Kubernetes
guarantees this order within a resource.)
"""

import dataclasses
import datetime

#: Name of the section of the Secret: {uid of the VM: `Cleared` as a dict}.
SECTION = 'log'

#: Largest number of machines in the section. Beyond it the oldest are
#: dropped; by then Kubernetes has deleted the Events that they hide.
MAX_MACHINES = 2000


def seconds(text):
    """Convert a timestamp of Kubernetes.

    :param text: RFC 3339, or None
    :returns: seconds since the epoch; 0 if there is none
    """
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return 0.0


def when(event):
    """Return when an Event occurred last, in seconds since the epoch."""
    found = max(seconds(text) for text in (
        event.get('lastTimestamp'), event.get('eventTime'),
        (event.get('series') or {}).get('lastObservedTime')))
    return found or seconds(event.get('firstTimestamp')) or seconds(
        event['metadata'].get('creationTimestamp'))


def version(event):
    """Return an Event's resourceVersion as a number; 0 if it is none."""
    return _number(event['metadata'].get('resourceVersion'))


def _number(text):
    return int(text) if text and text.isdecimal() else 0


@dataclasses.dataclass(frozen=True)
class Cleared:
    """When a log was cleared.

    :param at: seconds since the epoch; 0 for never
    :param host: host that cleared it, to whose clock ``at`` belongs
    :param version: resourceVersion of Events at that time; 0 if unknown
    :param latest: time of the latest Event that was cleared, at least ``at``.
        Later Events are visible even if the cluster's data was restored from
        a backup, which sets resourceVersions back.
    """

    at: float = 0.0
    host: str = ''
    version: int = 0
    latest: float = 0.0

    def hides(self, event):
        """Return whether an Event was in the log when it was cleared.

        :param event: dict
        """
        occurred, stored = when(event), version(event)
        if not self.at:
            return False
        if event.get('reportingInstance') == self.host and (
                # Some of our Events are dated in milliseconds.
                occurred < int(self.at * 1000) / 1000):
            # Our own Event, which may have waited to be written.
            return True
        if not stored or not self.version:
            return occurred <= self.at
        return stored <= self.version and occurred <= self.latest


class ClearedLogs:
    """The section of a state Secret.

    :param state: a `state_secret.StateSecret`
    """

    def __init__(self, state):
        self._state = state

    def of(self, machine):
        """Return the `Cleared` of a machine, read from the API."""
        self._state.read(SECTION, fresh=True)
        return self.cached(machine)

    def cached(self, machine):
        """Return the `Cleared` of a machine from the cache."""
        return _decode(self._state.cached(SECTION).get(machine.uid))

    def clear(self, machine, at, host, pages):
        """Store that a log was cleared.

        :param at: when, in seconds since the epoch
        :param host: see `Cleared`
        :param pages: iterable of (list of Events, resourceVersion of their
            list) with all Events of the log
        :raises: `errors.MachineError`
        """
        number, latest = None, at
        for events, listed in pages:
            if number is None:
                number = _number(listed)
            latest = max((latest, *(when(event) for event in events
                                    if version(event) <= number)))
        cleared = Cleared(at, host, number or 0, latest)

        def edit(section):
            if _decode(section.get(machine.uid)).version <= cleared.version:
                section[machine.uid] = dataclasses.asdict(cleared)
            for uid in sorted(section, key=lambda uid: _decode(
                    section[uid]).at)[:-MAX_MACHINES]:
                del section[uid]

        self._state.update(SECTION, edit)


def _decode(stored):
    try:
        return Cleared(float(stored['at']), str(stored['host']),
                       int(stored['version']), float(stored['latest']))
    except (KeyError, TypeError, ValueError):
        return Cleared()
