# SPDX-License-Identifier: Apache-2.0
"""The event service: from what happens to those who want to know.

Every worker watches, and so every one notices what happens. The leader alone
gives each event a number and tells it to all over the bus: then it is in
every worker's history and streams, and the leader pushes it to subscribers.
The other workers keep what they noticed until they hear it; if the leader
dies before it told, its successor does. A leader that was not there yet when
it happened is told by those who were. So an event is told once, with the same
id everywhere, whoever noticed it and whoever was alive.
"""

import collections
import logging
import os
import queue
import threading
import time
import weakref

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services.events import event_log
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import machine_events
from sushy_kubevirt.redfish.services.events import messages
from sushy_kubevirt.redfish.services.events import server_sent_events
from sushy_kubevirt.redfish.services.events import service_settings
from sushy_kubevirt.redfish.services.events import subscriptions

LOG = logging.getLogger(__name__)

#: Events that are kept for those who come back, and in case the leader dies.
HISTORY = 500

#: Seconds that a worker keeps what it noticed and was not told.
PATIENCE = 15.0

#: Seconds after which a worker tells the leader what it noticed and has not
#: heard of.
LATE = 1.5

#: Seconds in which what a dead leader still said is heard.
LAST_WORDS = 0.2

_NOTICED = 'event-noticed'
_MISSED = 'event-missed'
_TOLD = 'event'
_MARKS = 'event-marks'
_NEW_HERE = 'event-new-here'
_PAST = 'event-past'

#: Records in one message about the past.
_PAGE = 20

_hubs = weakref.WeakSet()


class Events:
    """The event service of one emulator, as one worker has it.

    :param cluster: a `cluster.Cluster`
    :param state: a `state.State`
    :param bus: a `bus.Bus`
    :param folder: a `local.Folder`
    :param options: an `options.EventOptions`
    :param allows: function of a machine: whether clients may know of it
    """

    def __init__(self, cluster, state, bus, folder, options,
                 allows=lambda machine: True):
        self._cluster = cluster
        self._state = state
        self._bus = bus
        self._folder = folder
        self._options = options
        self._allows = allows
        self.subscriptions = subscriptions.Subscriptions(state, options)
        self.log = event_log.Log(cluster)
        self.streams = server_sent_events.Streams(
            bus, folder.make, self.history, options
        )
        self._begin()
        bus.subscribe(_NOTICED, lambda data: self._queue.put(
            event_record.unpacked(data)))
        bus.subscribe(_MISSED, lambda data: self._queue.put(
            lambda: self._missed(event_record.unpacked(data))))
        bus.subscribe(_TOLD, self._told)
        bus.subscribe(_MARKS, lambda data: self._marks.update(data))
        bus.subscribe(_NEW_HERE, lambda data: self._queue.put(
            self._tell_past))
        bus.subscribe(_PAST, self._take_past)
        bus.when_leading(lambda: self._queue.put(self._lead))
        state.subscribe(self._state_changed)
        _hubs.add(self)

    def _begin(self):
        self._lock = threading.Lock()
        self._started = False
        self._queue = queue.SimpleQueue()
        self._history = collections.deque(maxlen=HISTORY)
        self._number = 0
        self._marks = {}
        self._noticed = collections.deque()     # of (time, record)
        self._reminders = collections.deque()   # of (time, record)
        self._heard = collections.deque()
        self._leads = False
        self._watching = machine_events.Watching(
            self._cluster, self._allows, self._queue.put,
            lambda: self._queue.put(_look))
        self._delivery = None

    def after_fork(self):
        """Start anew: the threads are the parent's."""
        self.streams.after_fork()
        self.log.after_fork()
        self._begin()

    def start(self):
        """Begin to watch and to tell; again, it changes nothing."""
        with self._lock:
            if self._started:
                return
            self._started = True
        # Whoever leads has to know who wants to be told, and what was.
        self._state.known('')
        self._bus.publish(_NEW_HERE, {})
        threading.Thread(target=self._run, daemon=True,
                         name='events').start()
        threading.Thread(target=self._watch, daemon=True,
                         name='events-first').start()

    def close(self):
        self._queue.put(None)
        self.streams.close()
        self.log.close()
        if self._delivery is not None:
            self._delivery.close()

    # What happens

    def emit(self, record):
        """Tell what no watch shows.

        :param record: a `event_record.Record`
        """
        self._bus.publish(_NOTICED, record.packed())

    def login_failed(self, user, source):
        """Somebody gave a wrong user name or password.

        :param user: the name that was given; None for one that there is not,
            which may be a password in the wrong field
        :param source: address it came from
        """
        self.emit(event_record.make(
            messages.LOGIN_FAILED, event_record.ALERT,
            ('(unknown)' if user is None else user[:64], source),
            '/redfish/v1/SessionService', 'SessionService'))

    def settings(self):
        """:returns: the `service_settings.Settings`"""
        return service_settings.known(self._state)

    def set(self, **values):
        """Change settings, see `service_settings.Settings`."""
        service_settings.change(self._state, **values)

    def history(self):
        """:returns: list of the `event_record.Record` of late"""
        return list(self._history)

    def failures(self, id_):
        """How often a subscriber did not take an event, since it last did.

        :param id_: of the subscription
        """
        mark = self._marks.get(id_)
        return mark[1] if mark else 0

    # Noticing

    def _watch(self):
        """Begin when everything is listed, and lead then at the earliest: a
        worker that knows no state before would miss what another noticed.
        """
        while not self._cluster.closing.is_set():
            try:
                self._cluster.wait_ready(PATIENCE)
                self._watching.begin()
            except errors.MachineError as e:
                LOG.info('Events have to wait: %s', e)
                if not isinstance(e, errors.Unavailable):
                    self._cluster.closing.wait(PATIENCE)
                # There is something to tell all the same.
                self._bus.stand()
                continue
            self._bus.stand()
            return

    def _run(self):
        while True:
            waits = [seconds for seconds in (self._watching.doubt(),
                                             self._remind())
                     if seconds is not None]
            try:
                item = self._queue.get(timeout=min(waits, default=None))
            except queue.Empty:
                continue
            if item is None:
                return
            try:
                if callable(item):
                    item()
                else:
                    self._notice(item)
            except Exception:
                LOG.exception('An event could not be told')

    def _notice(self, record):
        if self._leads:
            self._tell(record)
            return
        with self._lock:
            if not _cancel(self._heard, record):
                now = time.monotonic()
                self._noticed.append((now, record))
                self._reminders.append((now + LATE, record))
            _expire(self._noticed)

    def _remind(self):
        """Tell the leader what it should have told by now.

        :returns: seconds until this is to be called again, or None
        """
        while self._reminders:
            due, record = self._reminders[0]
            left = due - time.monotonic()
            if left > 0:
                return left
            self._reminders.popleft()
            with self._lock:
                missed = any(one is record for _, one in self._noticed)
            if missed and not self._leads:
                self._bus.publish(_MISSED, record.packed())
        return None

    def _missed(self, record):
        """Somebody noticed what this, if it leads, seems not to have told."""
        if self._leads and not any(one.is_same(record)
                                   for one in self.history()):
            self._tell(record)

    def _tell(self, record):
        # By the clock, so that they go on growing whoever leads.
        number = max(self._number + 1, int(time.time() * 1000))
        self._bus.publish(_TOLD, {**record.packed(), 'number': number})

    def _told(self, data):
        """Told by the leader, or this is it."""
        record = event_record.unpacked(data)
        with self._lock:
            self._number = max(self._number, record.number)
            self._history.append(record)
            if not self._leads:
                if not _cancel(self._noticed, record):
                    self._heard.append((time.monotonic(), record))
                _expire(self._heard)
        if self._leads:
            self._log(record)
        if self.settings().enabled:
            self.streams.take(record)
            if self._leads and self._delivery is not None:
                self._delivery.take(record)

    def _log(self, record):
        if record.message_id == messages.MEDIA_FAILED.id:
            LOG.warning('%s: %s', record.system, record.text)
        if self._options.log:
            self.log.record(record)

    def _tell_past(self):
        """Let a worker that has just come know what there was."""
        if not self._leads:
            return
        self._bus.publish(_MARKS, self._marks)
        past = [record.packed() for record in self.history()]
        for start in range(0, len(past), _PAGE):
            self._bus.publish(_PAST, {'records': past[start:start + _PAGE]})

    def _take_past(self, data):
        with self._lock:
            known = {record.number: record for record in self._history}
            for one in map(event_record.unpacked, data['records']):
                known.setdefault(one.number, one)
            self._history.clear()
            self._history.extend(known[number] for number in sorted(known))
            self._number = max(self._number, *known)

    # Leading

    def _lead(self):
        if self._history or self._noticed:
            self._cluster.closing.wait(LAST_WORDS)
        with self._lock:
            self._leads = True
            _expire(self._noticed)
            waiting = [record for _, record in self._noticed]
            self._noticed.clear()
            self._heard.clear()
        self._refresh()
        if _first_here(self._folder.make()):
            self._tell(event_record.make(
                messages.STARTED, event_record.STATUS, (),
                '/redfish/v1/EventService', 'EventService'))
        for record in waiting:
            self._tell(record)

    def _refresh(self):
        """Those who want events pushed may be others now."""
        with self._lock:
            if self._delivery is None and self.subscriptions.known():
                # Not at the top: most have no subscribers, and asyncio takes
                # more than a MiB.
                from sushy_kubevirt.redfish.services.events import delivery
                self._delivery = delivery.Delivery(
                    self.subscriptions.known, self.settings,
                    self.subscriptions,
                    lambda marks: self._bus.publish(_MARKS, marks))
        if self._delivery is not None:
            self._delivery.refresh(self.history(), self._marks)

    def _state_changed(self):
        if self._leads:
            self._refresh()


def _look():
    """Nothing; but what is due is looked at again."""


def _cancel(kept, record):
    """Take what happened out of what is kept, if it is there."""
    for entry in kept:
        if entry[1].is_same(record):
            kept.remove(entry)
            return True
    return False


def _expire(kept):
    before = time.monotonic() - PATIENCE
    while kept and kept[0][0] < before:
        kept.popleft()


def _first_here(folder):
    """Whether no worker of this emulator has led before.

    Workers of one emulator are one process group; its number and the time
    its first process began tell this run of it from the one before.
    """
    group = os.getpgrp()
    try:
        with open('/proc/%d/stat' % group) as stream:
            began = stream.read().rpartition(')')[2].split()[19]
    except (OSError, IndexError):
        began = ''
    mine = '%d %s' % (group, began)
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


def _after_fork():
    for hub in list(_hubs):
        hub.after_fork()


os.register_at_fork(after_in_child=_after_fork)
