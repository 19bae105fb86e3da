# SPDX-License-Identifier: Apache-2.0
"""Watches: streams changes after a resource version as lines of JSON."""
import asyncio
import random

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import views
from kubevirt_sandbox.api import web

#: A client that lags behind by this many events is disconnected.
BACKLOG = 20000

#: Seconds between the last bookmark and the end of a watch by timeout.
LAST = 2

INITIAL_EVENTS_END = 'k8s.io/initial-events-end'


class Watch:
    """One open watch.

    :param store: the store.
    :param view: the :class:`views.View` for the client.
    :param selector: the :class:`selectors.Selector`.
    :param namespace: None for all namespaces.
    :param timeout: seconds until the watch ends.
    :param bookmarks: seconds between bookmarks; None for no bookmarks.
    """

    def __init__(self, store, view, selector, namespace, timeout,
                 bookmarks=None):
        self.kind = view.kind
        self._store = store
        self._view = view
        self._selector = selector
        self._namespace = namespace
        self._timeout = timeout
        self._bookmarks = bookmarks
        self._pending = []
        self._wake = asyncio.Event()
        self._ended = False
        self._seen = 0

    def end(self):
        """End the watch as a server does that shuts down."""
        self._ended = True
        self._wake.set()

    def _take(self, event):
        if self._ended or event.version <= self._seen:
            return
        raw = self._line(event)
        self._seen = event.version
        if raw:
            self._pending.append(raw)
            self._wake.set()
            if len(self._pending) > BACKLOG:
                self._ended = True

    def _line(self, event):
        """Return the line for an event, or None when it is not selected.

        An object that starts or stops to match the selector is sent as ADDED
        or DELETED.
        """
        if self._namespace is not None and (
                event.record.key[0] != self._namespace):
            return None
        type_, record = event.type, event.record
        if self._selector:
            now = type_ != history.DELETED and self._selector.matches(
                record.obj)
            before = event.previous is not None and self._selector.matches(
                event.previous.obj)
            if not now and not before:
                return None
            if now and not before:
                type_ = history.ADDED
            elif before and not now:
                type_ = history.DELETED
                if event.type != history.DELETED:
                    gone = dict(event.previous.obj)
                    gone['metadata'] = {
                        **gone['metadata'],
                        'resourceVersion': str(event.version)}
                    record = history.Record(record.key, gone, event.version)
        return self._view.event(type_, record, event)

    def begin(self, version, initial):
        """Collect the initial events and subscribe to later ones.

        :param version: send events after this version; None sends all
            current objects as ADDED first.
        :param initial: whether a bookmark follows the initial objects.
        :raises errors.ApiError: 410 when the version has expired.
        """
        collection = self._store.collection(self._view.kind)
        if version is None:
            for record in collection.current(self._namespace):
                if not self._selector or self._selector.matches(record.obj):
                    self._pending.append(
                        self._view.event(history.ADDED, record))
            if initial:
                self._pending.append(self._view.bookmark(
                    self._store.version, {INITIAL_EVENTS_END: 'true'}))
            self._seen = self._store.version
        else:
            self._seen = version
            for event in collection.events_since(version):
                self._take(event)
        return self._store.listen(self._view.kind, self._take)

    def _mark(self, now, end):
        """Return when the next bookmark is due; the last is before the end.
        """
        if not self._bookmarks:
            return end
        due = now + self._bookmarks
        return min(due, end - LAST) if now < end - LAST else due

    async def send(self, response):
        """Send lines to a response until the watch ends."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        mark = self._mark(loop.time(), end)
        alarm = loop.call_at(min(end, mark), self._wake.set)
        try:
            while True:
                if self._pending:
                    lines, self._pending = self._pending, []
                    await response.write(b''.join(lines))
                    continue
                now = loop.time()
                if self._ended or now >= end:
                    return
                if self._bookmarks and now >= mark:
                    await response.write(self._view.bookmark(
                        self._store.version))
                    mark = self._mark(now, end)
                    alarm.cancel()
                    alarm = loop.call_at(min(end, mark), self._wake.set)
                    continue
                self._wake.clear()
                await self._wake.wait()
        finally:
            alarm.cancel()


async def serve(server, request, kind, view, selector, namespace, options):
    """Serve a watch request.

    :param server: the server, whose ``watches`` are the open watches.
    :param options: a :class:`query_parameters.ListOptions`.
    """
    timeout = options.timeout or random.uniform(1800, 3600)  # noqa: S311
    watch = Watch(server.store, view, selector, namespace, timeout,
                  server.bookmark_seconds if options.bookmarks else None)
    response = web.StreamResponse(headers={
        'Content-Type': 'application/json',
        'Cache-Control': 'no-cache, private'})
    version = options.version
    # As Kubernetes' SetListOptionsDefaults.
    if options.initial_events or not version:
        version = None
    marked = options.bookmarks and (
        options.initial_events or version is None and server.streaming_lists)
    try:
        stop = watch.begin(version, marked)
    except errors.ApiError as exc:
        # Like kube-apiserver: start the watch, then end it with an error.
        await response.prepare(request)
        await response.write(views.line('ERROR',
                                        history.encode(exc.status())))
        await response.write_eof()
        return response
    server.watches[watch] = request
    try:
        await response.prepare(request)
        await watch.send(response)
        await response.write_eof()
    except ConnectionError:
        pass
    finally:
        stop()
        del server.watches[watch]
    return response
