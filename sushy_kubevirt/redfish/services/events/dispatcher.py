# SPDX-License-Identifier: Apache-2.0
"""Event service: numbers, stores and distributes events to all consumers.

An event gets its number in the thread that reports it, and is passed to the
history, the log, the streams and the delivery to subscribers, each of which
has a queue. So all of them have the events in the same order.
"""

from __future__ import annotations

import collections
from collections import abc
import logging
import threading
import typing

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import machine_events
from sushy_kubevirt.redfish.services.events import server_sent_events
from sushy_kubevirt.redfish.services.events import service_settings
from sushy_kubevirt.redfish.services.events import subscriptions

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret
    from sushy_kubevirt.machine import cluster as cluster_
    from sushy_kubevirt.machine import machine as machine_
    from sushy_kubevirt.redfish.services.events import delivery as delivery_
    from sushy_kubevirt.redfish.services.events import event_options
    from sushy_kubevirt.redfish.services import service_threads

LOG = logging.getLogger(__name__)

#: Events kept for reconnecting clients and for new subscriptions.
HISTORY = 500

#: Seconds to wait for the caches, and then until the next try.
READY_SECONDS = 15.0


class EventDispatcher:
    """Event service of one emulator. Thread-safe.

    :param allows: tells whether clients may see a machine
    :ivar log: the logs of the machines
    """

    def __init__(self, cluster: cluster_.Cluster,
                 state: state_secret.StateSecret,
                 threads: service_threads.ServiceThreads,
                 options: event_options.EventOptions,
                 allows: abc.Callable[[machine_.Machine], bool]
                 = lambda machine: True) -> None:
        self._cluster = cluster
        self._state = state
        self._threads = threads
        self._options = options
        self.subscriptions = subscriptions.Subscriptions(state, options)
        self.log = event_log.Log(cluster, state, threads.log_writer)
        self.streams = server_sent_events.Streams(self.history, options)
        self._machine_events = machine_events.MachineEvents(
            cluster, allows, self.emit, threads.run)
        # Held while an event is distributed.
        self._lock = threading.Lock()
        self._history: collections.deque[event_record.Record] = (
            collections.deque(maxlen=HISTORY))
        self._number = 0
        self._delivery: delivery_.Delivery | None = None
        self._started = self._announced = self._closed = False
        self._observes = threading.Event()
        state.subscribe(self._refresh)

    def start(self) -> None:
        """Start watching and publishing; idempotent."""
        with self._lock:
            if self._started:
                return
            self._started = True
        # Load the subscriptions.
        self._state.cached('')
        self._threads.run(self._watch)

    def close(self) -> None:
        """Stop the threads and streams."""
        with self._lock:
            self._closed = True
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

    def emit(self, record: event_record.Record) -> None:
        """Publish an event; does not block."""
        with self._lock:
            if not self._started or self._closed:
                return
            self._number += 1
            record = record._replace(number=self._number)
            self._history.append(record)
            if record.message_id == event_registry.MEDIA_FAILED.id:
                LOG.warning('%s: %s', record.system, record.text)
            if self._options.log:
                self.log.record(record)
            if self.settings().enabled:
                self.streams.take(record)
                if self._delivery is not None:
                    self._delivery.take(record)

    def login_failed(self, user: str | None, source: str) -> None:
        """Emit an event for a refused login.

        :param user: user name; None for an unknown user, whose name may be
            a password typed into the wrong field
        :param source: address of the client
        """
        self.emit(event_record.make(
            event_registry.LOGIN_FAILED, event_record.ALERT,
            ('(unknown)' if user is None else user[:64], source),
            '/redfish/v1/SessionService', 'SessionService'))

    def settings(self) -> service_settings.Settings:
        """Return the settings that clients may change."""
        return service_settings.cached(self._state)

    def set(self, **values: bool | int) -> None:
        """Change settings, see `service_settings.Settings`."""
        service_settings.change(self._state, **values)

    def history(self) -> list[event_record.Record]:
        """Return the last `HISTORY` events."""
        return list(self._history)

    def failures(self, id_: str) -> int:
        """Return the number of failures since the last delivery.

        :param id_: subscription id
        """
        return self._delivery.failures(id_) if self._delivery else 0

    # Observing and delivering

    def _watch(self) -> None:
        """Wait for the caches, then observe machines."""
        if self._closed or self._cluster.closing.is_set():
            return
        try:
            self._cluster.wait_ready(READY_SECONDS)
            self._announce()
            self._machine_events.start()
            self._observes.set()
        except errors.MachineError as exc:
            LOG.info('Events are not observed yet: %s; retrying', exc)
            # It fails at once while the API server is unavailable. Others may
            # need the thread meanwhile.
            self._threads.run(
                self._watch, self._cluster.options.watch_backoff
                if isinstance(exc, errors.Unavailable) else READY_SECONDS)
            self._announce()

    def _announce(self) -> None:
        """Publish that the service has started, once.

        Not before the first attempt to read the machines, as the log needs
        the machine.
        """
        if not self._announced:
            self._announced = True
            self._refresh()
            self.emit(event_record.make(
                event_registry.STARTED, event_record.STATUS, (),
                '/redfish/v1/EventService', 'EventService'))

    def _refresh(self) -> None:
        """Apply changed subscriptions to the delivery."""
        with self._lock:
            if not self._started or self._closed:
                return
            if self._delivery is None and self.subscriptions.cached():
                # Imported on demand: most emulators have no subscribers,
                # and asyncio takes more than 1 MiB.
                from sushy_kubevirt.redfish.services.events import delivery
                self._delivery = delivery.Delivery(
                    self.subscriptions, self.settings)
            if self._delivery is not None:
                self._delivery.refresh(
                    self.history() if self.settings().enabled else ())
