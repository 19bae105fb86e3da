# SPDX-License-Identifier: Apache-2.0
"""Event service: numbers, stores and distributes events to all consumers.

Every worker watches the machines and observes every event. Only the leader
gives an event its number and publishes it to all workers, which add it to
their history and streams; the leader also pushes it to subscribers. Other
workers keep what they observed until it is published, so that a new leader
can publish what the previous one did not, and remind a leader of events that
it missed. Each event is therefore published once, with the same id in every
worker.
"""

from __future__ import annotations

import collections
import logging
import os
import queue
import threading
import time

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import machine_events
from sushy_kubevirt.redfish.services.events import server_sent_events
from sushy_kubevirt.redfish.services.events import service_settings
from sushy_kubevirt.redfish.services.events import subscriptions
from sushy_kubevirt.redfish.services.events import turns

LOG = logging.getLogger(__name__)

#: Events kept for reconnecting clients and for a change of leader.
HISTORY = 500

#: Seconds that a worker keeps an observed event that is not published yet.
MATCH_SECONDS = 15.0

#: Seconds after which a worker reminds the leader of such an event.
REMIND_SECONDS = 1.5

#: Seconds to wait for messages of the previous leader.
HANDOVER_SECONDS = 0.2

_OBSERVED = 'event-observed'
_MISSED = 'event-missed'
_PUBLISHED = 'event-published'
_POSITIONS = 'event-positions'
_WORKER_JOINED = 'event-worker-joined'
_HISTORY = 'event-history'

#: Records in one message of the history.
_PAGE = 20


class EventDispatcher:
    """Event service of one emulator, as seen by one worker.

    :param cluster: a `cluster.Cluster`
    :param state: a `state_secret.StateSecret`
    :param workers: a `workers.Workers`
    :param options: an `event_options.EventOptions`
    :param allows: function of a machine: whether clients may see it
    """

    def __init__(self, cluster, state, workers, options,
                 allows=lambda machine: True) -> None:
        worker_messages, folder = workers.messages, workers.folder
        self._cluster = cluster
        self._state = state
        self._worker_messages = worker_messages
        self._folder = folder
        self._options = options
        self._allows = allows
        self.subscriptions = subscriptions.Subscriptions(state, options)
        self._run_in_thread = workers.run
        self._own_turns = None if workers.turns else turns.Turns('events')
        self._turns = workers.turns or self._own_turns
        self._closed = False
        self.log = event_log.Log(cluster, state, workers.log_writer)
        self.streams = server_sent_events.Streams(
            worker_messages, folder.make, self.history, options
        )
        self._lock = threading.Lock()
        self._started = False
        self._queue = queue.SimpleQueue()
        self._history = collections.deque(maxlen=HISTORY)
        self._number = 0
        self._positions = {}
        self._observed = collections.deque()     # of (time, record)
        self._reminders = collections.deque()   # of (time, record)
        self._unmatched = collections.deque()
        self._is_leader = False
        self._machine_events = machine_events.MachineEvents(
            self._cluster, self._allows, self._put,
            lambda: self._turns.put(self._turn))
        self._observes = threading.Event()
        self._delivery = None
        worker_messages.subscribe(_OBSERVED, lambda data: self._put(
            event_record.from_dict(data)))
        worker_messages.subscribe(_MISSED, lambda data: self._put(
            lambda: self._on_missed(event_record.from_dict(data))))
        worker_messages.subscribe(_PUBLISHED, self._on_published)
        worker_messages.subscribe(
            _POSITIONS, lambda data: self._positions.update(data))
        worker_messages.subscribe(_WORKER_JOINED, lambda data: self._put(
            self._publish_history))
        worker_messages.subscribe(_HISTORY, self._merge_history)
        worker_messages.on_elected(lambda: self._put(self._on_elected))
        state.subscribe(self._state_changed)

    def start(self) -> None:
        """Start watching and publishing; idempotent."""
        with self._lock:
            if self._started:
                return
            self._started = True
        # Load the subscriptions and ask for the history: this worker may
        # become the leader, which needs both.
        self._state.cached('')
        self._worker_messages.publish(_WORKER_JOINED, {})
        if self._own_turns is not None:
            self._own_turns.start()
        self._turns.put(self._turn)
        self._start_watch()

    def close(self) -> None:
        """Stop the threads and streams of this worker."""
        self._closed = True
        if self._own_turns is not None:
            self._own_turns.close()
        self.streams.close()
        self.log.close()
        if self._delivery is not None:
            self._delivery.close()

    # Interface

    def wait_observing(self, seconds: float) -> bool:
        """Wait until a change of a machine makes an event.

        :param seconds: time limit
        :returns: whether it does
        """
        if not self._observes.is_set():
            blocking.check()
        return self._observes.wait(seconds)

    def emit(self, record) -> None:
        """Publish an event that no watch shows.

        :param record: an `event_record.Record`
        """
        self._worker_messages.publish(_OBSERVED, record.to_dict())

    def observe(self, record) -> None:
        """Publish an event that every worker observes.

        :param record: an `event_record.Record`
        """
        self._put(record)

    def login_failed(self, user, source) -> None:
        """Emit an event for a refused login.

        :param user: user name; None for an unknown user, whose name may be
            a password typed into the wrong field
        :param source: address of the client
        """
        self.emit(event_record.make(
            event_registry.LOGIN_FAILED, event_record.ALERT,
            ('(unknown)' if user is None else user[:64], source),
            '/redfish/v1/SessionService', 'SessionService'))

    def settings(self):
        """Return the `service_settings.Settings`."""
        return service_settings.cached(self._state)

    def set(self, **values) -> None:
        """Change settings, see `service_settings.Settings`."""
        service_settings.change(self._state, **values)

    def history(self):
        """Return a list of the last `HISTORY` `event_record.Record`."""
        return list(self._history)

    def failures(self, id_):
        """Return the number of failures since the last delivery.

        :param id_: subscription id
        """
        position = self._positions.get(id_)
        return position[1] if position else 0

    # Observing and publishing

    def _watch(self) -> None:
        """Wait for the caches, then observe machines and run for leader.

        A worker that leads without an initial state would miss events
        that others observed.
        """
        if self._cluster.closing.is_set():
            return
        try:
            self._cluster.wait_ready(MATCH_SECONDS)
            self._machine_events.start()
            self._observes.set()
        except errors.MachineError as e:
            LOG.info('Events are not observed yet: %s; retrying', e)
            # It fails at once while the API server is unavailable. Others may
            # need the thread meanwhile.
            self._turns.put(
                self._start_watch, self._cluster.options.watch_backoff
                if isinstance(e, errors.Unavailable) else MATCH_SECONDS)
        # Events from other sources can be published all the same.
        self._worker_messages.acquire_leadership()

    def _start_watch(self) -> None:
        if not self._closed:
            self._run_in_thread(self._watch, 'events-first')

    def _put(self, item) -> None:
        """Queue a record or a function without parameters."""
        self._queue.put(item)
        self._turns.put(self._turn)

    def _turn(self):
        """Process what is queued and due.

        :returns: seconds until the next call, or None
        """
        while self._started and not self._closed:
            waits = [seconds for seconds in (
                self._machine_events.report_removed_overrides(),
                self._resend_unpublished()) if seconds is not None]
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return min(waits, default=None)
            try:
                if callable(item):
                    item()
                else:
                    self._observe(item)
            except Exception:
                # While the emulator ends, its folder disappears.
                if not self._cluster.closing.is_set():
                    LOG.exception('An event could not be published')
        return None

    def _observe(self, record) -> None:
        if self._is_leader:
            self._publish(record)
            return
        with self._lock:
            if not _cancel(self._unmatched, record):
                now = time.monotonic()
                self._observed.append((now, record))
                self._reminders.append((now + REMIND_SECONDS, record))
            _expire(self._observed)

    def _resend_unpublished(self):
        """Tell the leader about events it should have published by now.

        :returns: seconds until the next call, or None
        """
        while self._reminders:
            due, record = self._reminders[0]
            left = due - time.monotonic()
            if left > 0:
                return left
            self._reminders.popleft()
            with self._lock:
                missed = any(one is record for _, one in self._observed)
            if missed and not self._is_leader:
                self._worker_messages.publish(_MISSED, record.to_dict())
        return None

    def _on_missed(self, record) -> None:
        """Publish, as leader, an event that another worker observed."""
        if self._is_leader and not any(one.is_same(record)
                                       for one in self.history()):
            self._publish(record)

    def _publish(self, record) -> None:
        # Based on the clock, so that numbers increase across leaders.
        number = max(self._number + 1, int(time.time() * 1000))
        self._worker_messages.publish(
            _PUBLISHED, {**record.to_dict(), 'number': number})

    def _on_published(self, data) -> None:
        """Process an event published by the leader."""
        record = event_record.from_dict(data)
        with self._lock:
            self._number = max(self._number, record.number)
            self._history.append(record)
            if not self._is_leader:
                if not _cancel(self._observed, record):
                    self._unmatched.append((time.monotonic(), record))
                _expire(self._unmatched)
        if self._is_leader:
            self._log(record)
        if self.settings().enabled:
            self.streams.take(record)
            if self._is_leader and self._delivery is not None:
                self._delivery.take(record)

    def _log(self, record) -> None:
        if record.message_id == event_registry.MEDIA_FAILED.id:
            LOG.warning('%s: %s', record.system, record.text)
        if self._options.log:
            self.log.record(record)

    def _publish_history(self) -> None:
        """Send the history to a worker that has just started."""
        if not self._is_leader:
            return
        self._worker_messages.publish(_POSITIONS, self._positions)
        past = [record.to_dict() for record in self.history()]
        for start in range(0, len(past), _PAGE):
            self._worker_messages.publish(
                _HISTORY, {'records': past[start:start + _PAGE]})

    def _merge_history(self, data) -> None:
        with self._lock:
            known = {record.number: record for record in self._history}
            for one in map(event_record.from_dict, data['records']):
                known.setdefault(one.number, one)
            self._history.clear()
            self._history.extend(known[number] for number in sorted(known))
            self._number = max(self._number, *known)

    # Leading

    def _on_elected(self) -> None:
        if self._history or self._observed:
            self._cluster.closing.wait(HANDOVER_SECONDS)
        with self._lock:
            self._is_leader = True
            _expire(self._observed)
            waiting = [record for _, record in self._observed]
            self._observed.clear()
            self._unmatched.clear()
        self._refresh()
        if _is_first_leader(self._folder.make()):
            self._publish(event_record.make(
                event_registry.STARTED, event_record.STATUS, (),
                '/redfish/v1/EventService', 'EventService'))
        for record in waiting:
            self._publish(record)

    def _refresh(self) -> None:
        """Apply changed subscriptions to the delivery."""
        with self._lock:
            if self._delivery is None and self.subscriptions.cached():
                # Imported on demand: most emulators have no subscribers,
                # and asyncio takes more than 1 MiB.
                from sushy_kubevirt.redfish.services.events import delivery
                self._delivery = delivery.Delivery(
                    self.subscriptions.cached, self.settings,
                    self.subscriptions,
                    lambda positions: self._worker_messages.publish(
                        _POSITIONS, positions))
        if self._delivery is not None:
            self._delivery.refresh(self.history(), self._positions)

    def _state_changed(self) -> None:
        if self._is_leader:
            self._refresh()


def _cancel(kept, record) -> bool:
    """Remove a matching record. :returns: whether there was one"""
    for entry in kept:
        if entry[1].is_same(record):
            kept.remove(entry)
            return True
    return False


def _expire(kept) -> None:
    before = time.monotonic() - MATCH_SECONDS
    while kept and kept[0][0] < before:
        kept.popleft()


def _is_first_leader(folder) -> bool:
    """Check whether this is the first leader of this emulator's run.

    Workers of one emulator share a process group; its number and the start
    time of its first process identify the run.
    """
    group = os.getpgrp()
    try:
        with open(f'/proc/{group}/stat') as stream:
            began = stream.read().rpartition(')')[2].split()[19]
    except (OSError, IndexError):
        began = ''
    mine = f'{group} {began}'
    path = os.path.join(folder, 'leader.run')
    try:
        with open(path) as stream:
            last = stream.read()
    except OSError:
        last = ''
    if last == mine:
        return False
    with open(path, 'w', opener=lambda name, flags: os.open(
            name, flags, 0o600)) as stream:
        stream.write(mine)
    return True
