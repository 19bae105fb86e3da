# SPDX-License-Identifier: Apache-2.0
"""List and watch of one collection, resumed after interruptions.

Each collection has a thread. It passes lists and events to a sink, such as a
cache, and records whether the watch works.
"""

import logging
import threading
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

LOG = logging.getLogger(__name__)

FIRST_PAUSE = 0.25

#: Seconds; a watch that ends sooner counts as failed.
SHORTEST_WATCH = 0.5


class Watcher:
    """Lists and watches one collection.

    :param client: a `client.Client`
    :param options: an `options.Options`
    :param resource: an `api_resources.Resource`
    :param namespace: '' for all namespaces
    :param label_selector: of the objects to watch
    :param field_selector: of the objects to watch
    :param sink: receiver of the objects: ``take_list(watcher, pages)`` takes
        the pages of a list and returns its version, ``event(watcher, type,
        object)`` takes an event, ``changed()`` is called when this starts or
        stops working
    :param metadata_only: True to read only the objects' metadata
    """

    def __init__(self, client, options, resource, namespace, label_selector,
                 field_selector, sink, metadata_only=False):
        self.resource = resource
        self.namespace = namespace
        self._client = client
        self._options = options
        self._selectors = (label_selector, field_selector, metadata_only)
        self._sink = sink
        self._closing = threading.Event()
        self._version = None
        self._watch = None
        #: Exception that keeps the watch from working; None while it works.
        self.error = None
        #: True once the sink has received a complete list.
        self.listed = False
        #: Time (`time.monotonic`) the watch broke; None while it works.
        self.broken_since = time.monotonic()

    def start(self):
        """Start the thread."""
        threading.Thread(
            target=self._run, daemon=True,
            name=f'watch-{self.resource.plural}').start()

    def stop(self):
        """End the watch and the thread, without waiting for it."""
        self._closing.set()
        watch = self._watch
        if watch is not None:
            watch.stop()

    def pages(self):
        """List the collection, see `client.Client.pages`."""
        return self._client.pages(self.resource, self.namespace,
                                  *self._selectors)

    def _run(self):
        failures = 0
        while not self._closing.is_set():
            self._worked = False
            error = self._list_and_watch()
            if self._closing.is_set():
                return
            if self._worked:
                failures = 0
                if error is None:
                    continue
            elif error is None:
                error = errors.Unavailable(
                    f'Watches of {self.resource} end in less than '
                    f'{SHORTEST_WATCH} s')
            failures += 1
            self._record_failure(error, failures)
            # The first attempt after a break is made at once.
            if failures > 1:
                self._closing.wait(retry.pause(
                    failures - 2, FIRST_PAUSE, self._options.watch_backoff,
                    getattr(error, 'retry_after', None)))

    def _list_and_watch(self):
        """List if there is no version to resume from, then watch.

        :returns: the exception that ended the watch; None if the server
            ended it as planned
        """
        try:
            if self._version is None:
                self._version = self._sink.take_list(self, self.pages())
                if not self.listed:
                    # The list is up to date, however long it took.
                    self.broken_since = time.monotonic()
                self.listed = True
                self._sink.changed()
            self._watch_until_end()
        except (errors.WatchExpired, errors.ServerError) as e:
            # The server cannot watch from this version, but may list.
            self._version = None
            return e
        except errors.MachineError as e:
            return e
        except Exception as e:
            LOG.exception('Watch of %s failed', self.resource)
            self._version = None
            return errors.Unavailable(
                f'Watching {self.resource} failed: {e}')

    def _watch_until_end(self):
        """Watch from the last version until the server ends the watch."""
        try:
            watch = self._client.watch(
                self.resource, self.namespace, self._version,
                *self._selectors)
        except errors.TooManyRequests:
            raise
        except errors.Unavailable:
            # The server was down and may return with another history, as
            # after a restored backup.
            self._version = None
            raise
        self._watch = watch
        if self._closing.is_set():
            watch.stop()
        began = time.monotonic()
        if self.error is not None:
            LOG.info('Watch of %s works again', self.resource)
        self.error = self.broken_since = None
        self._sink.changed()
        try:
            for kind, obj in watch:
                version = obj['metadata']['resourceVersion']
                if kind != 'BOOKMARK':
                    self._sink.event(self, kind, obj)
                self._version = version
        finally:
            self._watch = None
            self.broken_since = time.monotonic()
            self._worked = self.broken_since - began > SHORTEST_WATCH

    def _record_failure(self, error, failures):
        # A single failure is not reported, as watches break regularly.
        if failures > 1 or not self.listed:
            if str(error) != str(self.error):
                LOG.warning('Watch of %s failed, trying again: %s',
                            self.resource, error)
            self.error = error
        self._sink.changed()
