# SPDX-License-Identifier: Apache-2.0
"""List and watch of one collection, resumed after interruptions.

Each collection has a thread. It passes lists and events to a sink, such as a
cache, and records whether the watch works.
"""

from __future__ import annotations

from collections import abc
import logging
import threading
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import watch_stream

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.kube import client as clients

LOG = logging.getLogger(__name__)

FIRST_PAUSE = 0.25

#: Seconds; a watch that ends sooner counts as failed.
SHORTEST_WATCH = 0.5

#: Factor of the page size after a list whose continue token expired, so that
#: the next one takes less time.
PAGE_GROWTH = 20


_SunkT = typing.TypeVar('_SunkT', bound=abc.Mapping[str, typing.Any],
                        contravariant=True)


class Sink(typing.Protocol[_SunkT]):
    """Receives the objects of a `Watcher`, in its thread."""

    def take_list(self, source: Watcher[typing.Any],
                  pages: abc.Iterator[clients.Page[_SunkT]], /) -> str:
        """Take the pages of a complete list.

        :returns: the version of the last page, from which to watch
        """

    def event(self, source: Watcher[typing.Any], kind: str, obj: _SunkT, /
              ) -> None:
        """Take an event: ``ADDED``, ``MODIFIED`` or ``DELETED``."""

    def changed(self) -> None:
        """Note that the watcher has listed, started to work or failed."""


class Watcher(typing.Generic[objects.ObjectT]):
    """Lists and watches one collection.

    :param namespace: '' for all namespaces
    :param label_selector: of the objects to watch
    :param field_selector: of the objects to watch
    :param metadata_only: True to read only the objects' metadata
    :param streams: True to read the first list as a stream where the API
        server supports it. The sink then gets pages of one object with the
        version '', an empty one with the version of the list, and before that
        an event for each object deleted meanwhile.
    """

    def __init__(self, client: clients.Client, options: clients.Options,
                 resource: api_resources.Resource[objects.ObjectT],
                 namespace: str, label_selector: str, field_selector: str,
                 sink: Sink[objects.ObjectT], metadata_only: bool = False,
                 streams: bool = False) -> None:
        self.resource = resource
        self.namespace = namespace
        self._client = client
        self._options = options
        self._selectors = (label_selector, field_selector, metadata_only)
        self._sink = sink
        self._streams = streams
        self._page_size = options.page_size
        self._closing = threading.Event()
        self._version: str | None = None
        self._watch: watch_stream.Watch[objects.ObjectT] | None = None
        #: Exception that keeps the watch from working; None while it works.
        self.error: errors.MachineError | None = None
        #: True once the sink has received a complete list.
        self.listed = False
        #: Time (`time.monotonic`) the watch broke; None while it works.
        self.broken_since: float | None = time.monotonic()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(
            target=self._run, daemon=True,
            name=f'watch-{self.resource.plural}').start()

    def stop(self) -> None:
        """End the watch and the thread, without waiting for it."""
        self._closing.set()
        watch = self._watch
        if watch is not None:
            watch.stop()

    def pages(self) -> abc.Iterator[clients.Page[objects.ObjectT]]:
        """List the collection, see `client.Client.pages`."""
        try:
            yield from self._client.pages(
                self.resource, self.namespace, *self._selectors,
                self._page_size)
        except errors.WatchExpired:
            self._page_size *= PAGE_GROWTH
            raise

    def _run(self) -> None:
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

    def _list_and_watch(self) -> errors.MachineError | None:
        """List if there is no version to resume from, then watch.

        :returns: the exception that ended the watch; None if the server
            ended it as planned
        """
        try:
            if self._version is None:
                self._version = self._list()
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
        return None

    def _list(self) -> str:
        """Pass all objects to the sink.

        :returns: the version to watch from
        """
        if self._streams:
            try:
                return self._sink.take_list(self, self._stream())
            except (errors.Rejected, errors.ServerError) as e:
                # The API server, or its etcd, does not support it.
                self._streams = False
                LOG.debug('No streaming list of %s: %s', self.resource, e)
        return self._sink.take_list(self, self.pages())

    def _stream(self) -> abc.Iterator[clients.Page[objects.ObjectT]]:
        """List the collection like `pages`, by a single request.

        That needs no continue token, which may expire, and the memory of one
        object at a time. If it is interrupted, the next list has pages.
        """
        self._streams = False
        try:
            watch = self._watch = self._client.watch(
                self.resource, self.namespace, None, *self._selectors)
        except errors.Unavailable as e:
            # Try it again if the API server was not reached.
            self._streams = not e.maybe_done
            raise
        if self._closing.is_set():
            watch.stop()
        try:
            for kind, obj in watch:
                if kind == 'DELETED':
                    self._sink.event(self, kind, obj)
                elif kind != 'BOOKMARK':
                    yield (obj,), ''
                elif watch_stream.INITIAL_EVENTS_END in (
                        obj['metadata'].get('annotations') or ()):
                    yield (), obj['metadata']['resourceVersion']
                    return
            raise errors.Unavailable(
                f'The API server ended the list of {self.resource} before it '
                'was complete')
        finally:
            self._watch = None
            watch.stop()

    def _watch_until_end(self) -> None:
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

    def _record_failure(self, error: errors.MachineError,
                        failures: int) -> None:
        # A single failure is not reported, as watches break regularly, and
        # an expired list is repeated with larger pages.
        if failures > 1 or not (
                self.listed or isinstance(error, errors.WatchExpired)):
            if str(error) != str(self.error):
                LOG.warning('Watch of %s failed, trying again: %s',
                            self.resource, error)
            self.error = error
        self._sink.changed()
