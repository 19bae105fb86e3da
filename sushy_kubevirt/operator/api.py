# SPDX-License-Identifier: Apache-2.0
"""Asyncio interface of the Kubernetes client of the BMC processes.

`client.Client` blocks, and the operator's controllers are coroutines of one
event loop: each request, and each list-and-watch (`watcher.Watcher`), runs in
a thread. Only `Api.watch` retries; requests are sent once, and callers retry.
"""

from __future__ import annotations

import asyncio
from collections import abc
import contextlib
import contextvars
import functools
import queue
import threading
import time
import typing

from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.kube import connection

T = typing.TypeVar('T')
P = typing.ParamSpec('P')

#: What `Api.watch` yields.
Event: typing.TypeAlias = tuple[str, typing.Any]

#: Maximum number of list pages that are read and parsed at a time. CPython
#: rarely returns memory of such a peak to the system.
PAGES = 2

#: Maximum number of idle connections: the number of concurrent writers.
CONNECTIONS = 16

#: Long watches, so that at rest only the Lease causes requests.
CLIENT_OPTIONS = options.Options(
    connect_timeout=10, request_timeout=30, write_deadline=60,
    watch_seconds=1800, watch_backoff=30, page_size=100)

#: Seconds after which a watch without events is reopened: the API server sends
#: a bookmark about every minute.
WATCH_SILENCE = 70

#: Type of the event that follows a complete list; see `Api.watch`.
LISTED = 'LISTED'

#: Seconds until `Api.version` is read again: a cluster may be upgraded.
_VERSION_SECONDS = 600

#: HTTP methods of Kubernetes' verbs.
_METHODS = {'get': 'GET', 'list': 'GET', 'watch': 'GET', 'create': 'POST',
            'patch': 'PATCH', 'update': 'PUT', 'delete': 'DELETE'}


class Api:
    """Requests to one API server, as coroutines.

    Every method raises `errors.Unavailable` or one of its subclasses when
    the server does not answer or fails, `errors.AccessDenied`,
    `errors.ObjectNotFound` and `errors.Rejected`; a write also what
    ``before_write`` raises.

    :param before_write: called in the request's thread immediately before
        each write is sent; raises to prevent it
    """

    def __init__(self, connection: connection.Connection,
                 before_write: abc.Callable[[], None] = lambda: None,
                 client_options: options.Options = CLIENT_OPTIONS) -> None:
        self._options = client_options
        self._client = client.Client(
            connection, client_options, naming.OPERATOR, CONNECTIONS,
            before_write, WATCH_SILENCE)
        self._reading = threading.Semaphore(PAGES)
        self._writes: set[asyncio.Future[typing.Any]] = set()
        #: What `version` returns, and until when.
        self._version = '', 0.0

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    @property
    def calls(self) -> dict[tuple[str, int], int]:
        """Number of requests so far, by HTTP method and HTTP status.

        The status is 0 where there was no answer.
        """
        totals: dict[tuple[str, int], int] = {}
        for (verb, _, code), count in self._client.calls.items():
            key = _METHODS[verb], code
            totals[key] = totals.get(key, 0) + count
        return totals

    async def get(self, resource: api_resources.Resource[objects.ObjectT],
                  namespace: str | None, name: str,
                  metadata_only: bool = False) -> objects.ObjectT:
        """Read one object; see `client.Client.get`."""
        return await self._complete(in_thread(
            self._client.get, resource, namespace, name, metadata_only))

    async def create(self, resource: api_resources.Resource[objects.ObjectT],
                     namespace: str, body: abc.Mapping[str, typing.Any]
                     ) -> objects.ObjectT:
        """Create an object; see `client.Client.create`."""
        return await self._write(self._client.create, resource, namespace,
                                 body)

    async def apply(self, resource: api_resources.Resource[objects.ObjectT],
                    namespace: str, name: str,
                    body: abc.Mapping[str, typing.Any]) -> objects.ObjectT:
        """Apply an object's fields; see `client.Client.apply`."""
        return await self._write(self._client.apply, resource, namespace,
                                 name, body)

    async def patch(self, resource: api_resources.Resource[objects.ObjectT],
                    namespace: str, name: str,
                    body: objects.Json | list[objects.Json],
                    subresource: str | None = None) -> objects.ObjectT:
        """Change an object; see `client.Client.patch`."""
        return await self._write(self._client.patch, resource, namespace,
                                 name, body, subresource)

    async def replace(self, resource: api_resources.Resource[objects.ObjectT],
                      namespace: str, name: str,
                      body: abc.Mapping[str, typing.Any]) -> objects.ObjectT:
        """Replace an object; see `client.Client.replace`."""
        return await self._write(self._client.replace, resource, namespace,
                                 name, body)

    async def delete(self, resource: api_resources.AnyResource,
                     namespace: str, name: str, uid: str | None = None,
                     version: str | None = None) -> objects.Json:
        """Delete an object, and then what it owns.

        :param uid: the only uid that may be deleted; None for any
        :param version: the only resourceVersion of that uid that may be
            deleted; None for any
        :raises: `errors.Conflict` if the object has another uid or version
        """
        body: objects.Json = {'propagationPolicy': 'Background'}
        if uid:
            body['preconditions'] = {'uid': uid}
        if version:
            body['preconditions']['resourceVersion'] = version
        return await self._write(self._client.delete, resource, namespace,
                                 name, body)

    async def check_readable(self, resource: api_resources.AnyResource,
                             namespace: str | None = None) -> None:
        """List a first page, and drop it.

        :raises: `errors.Unavailable` if the server does not know the kind;
            `errors.AccessDenied` if it may not be listed
        """
        await self._complete(in_thread(next, self._client.pages(
            resource, namespace, metadata_only=True)))

    async def list(self, resource: api_resources.Resource[objects.ObjectT]
                   ) -> list[objects.ObjectT]:
        """List the objects of a kind that the cluster has few of."""
        return await self._complete(in_thread(lambda: [
            obj for page, _version in self._client.pages(resource)
            for obj in page]))

    async def serves_group(self, group: str) -> bool:
        """See `client.Client.serves_group`."""
        return await self._complete(in_thread(
            self._client.serves_group, group))

    async def version(self) -> str:
        """Return the version of the API server, read at most every 10 min.

        :returns: such as ``v1.34.4``
        """
        version, expiry = self._version
        if time.monotonic() >= expiry:
            answer = await self._complete(in_thread(self._client.version))
            version = answer.get('gitVersion', '')
            self._version = version, time.monotonic() + _VERSION_SECONDS
        return version

    async def serves(self, resource: api_resources.AnyResource
                     ) -> bool:
        """See `client.Client.serves`."""
        return await self._complete(in_thread(self._client.serves, resource))

    async def expand_spec(self, namespace: str, name: str
                          ) -> objects.VirtualMachine:
        """See `client.Client.expand_spec`."""
        return await self._complete(in_thread(
            self._client.expand_spec, namespace, name))

    async def wait_for_writes(self, seconds: float) -> bool:
        """Wait for the writes that are being sent, cancelled ones included.

        :param seconds: longest wait
        :returns: whether all have ended
        """
        if self._writes:
            await asyncio.wait(self._writes, timeout=seconds)
        return not self._writes

    async def _write(self, function: abc.Callable[P, T], *args: P.args,
                     **kwargs: P.kwargs) -> T:
        request = in_thread(function, *args, **kwargs)
        self._writes.add(request)
        request.add_done_callback(self._writes.discard)
        return await self._complete(request)

    async def _complete(self, request: asyncio.Future[T]) -> T:
        """Wait for the complete response, however slowly it arrives."""
        seconds = self._options.request_timeout
        # asyncio logs an exception that is not read; the caller may be gone.
        request.add_done_callback(asyncio.Future.exception)
        # The thread goes on if the caller is cancelled.
        await asyncio.wait((request,), timeout=seconds)
        if not request.done():
            raise errors.ConnectionLost(
                f'The API server has not answered completely in {seconds} s',
                maybe_done=True)
        return request.result()

    def watch(self, resource: api_resources.AnyResource,
              namespace: str | None = None, label_selector: str = '',
              field_selector: str = '', metadata_only: bool = False,
              failed: abc.Callable[[], None] = lambda: None
              ) -> abc.AsyncIterator[Event]:
        """List and watch a collection, without end, through all failures.

        :param namespace: None or '' for all namespaces
        :param failed: called when it does not work, and after each attempt
            that has failed since
        :param metadata_only: whether to read nothing but the metadata
        :returns: types and objects: 'ADDED', 'MODIFIED' and 'DELETED' with
            the object; and after each complete list `LISTED` with the set of
            all `objects.ObjectKey`, from which deleted objects are found
        """
        channel = _Channel(asyncio.get_running_loop(), self._reading, failed)
        return self._receive(watcher.Watcher(
            self._client, self._options, resource, namespace or '',
            label_selector, field_selector, channel, metadata_only), channel)

    async def read_all(
        self, resource: api_resources.Resource[objects.ObjectT],
        namespace: str | None, label_selector: str, page_size: int,
    ) -> abc.AsyncIterator[objects.ObjectT]:
        """List a collection page by page, with no deadline for a page.

        :param namespace: None or '' for all namespaces
        :raises: `errors.WatchExpired` if the list has taken too long
        """
        pages = self._client.pages(resource, namespace, label_selector,
                                   page_size=page_size)

        def read() -> client.Page[objects.ObjectT] | None:
            with self._reading:
                return next(pages, None)

        while page := await in_thread(read):
            for obj in page[0]:
                yield obj

    @staticmethod
    async def _receive(source: watcher.Watcher[typing.Any],
                       channel: _Channel) -> abc.AsyncGenerator[Event]:
        channel.source = source
        source.start()
        try:
            while True:
                events = await channel.receive()
                while events:
                    yield events.pop()
        finally:
            source.stop()
            channel.close()


def in_thread(function: abc.Callable[P, T], *args: P.args,
              **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Run a blocking function in a thread: an idle one, or a new one.

    Not `asyncio.to_thread`: its pool's threads are joined when the process
    ends, which would wait for a hanging request, and a pool full of hanging
    requests would prevent the renewal of the Lease. A new thread for each
    request would cost more than the request.

    :returns: what the function returns
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            report = functools.partial(future.set_result, context.run(
                function, *args, **kwargs))
        except Exception as e:
            report = functools.partial(future.set_exception, e)
        # The loop may be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_report, future, report)

    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = queue.SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name='api',
                         daemon=True).start()
    jobs.put(run)
    return future


def _report(future: asyncio.Future[T], report: abc.Callable[[], None]
            ) -> None:
    # The waiting task may be cancelled.
    if not future.done():
        report()


_Jobs: typing.TypeAlias = queue.SimpleQueue[abc.Callable[[], None]]

#: Queues of the threads of `in_thread` that wait for a function.
_idle: list[_Jobs] = []


def _work(jobs: _Jobs) -> None:
    """Run functions, until enough other threads are idle."""
    while True:
        jobs.get()()
        if len(_idle) >= CONNECTIONS:
            return
        _idle.append(jobs)


class _Channel:
    """Passes events of a `watcher.Watcher` from its thread to a coroutine.

    The thread waits until the coroutine has received a page of a list, so that
    no more than one is in memory, and after as many events. Events that arrive
    while the coroutine is busy are passed together: a thread that waits for
    each costs more than the event.

    :param reading: held while a page is read
    :param failed: called in the loop when the watcher fails
    """

    def __init__(self, loop: asyncio.AbstractEventLoop,
                 reading: threading.Semaphore,
                 failed: abc.Callable[[], None]) -> None:
        self._loop = loop
        self._reading = reading
        self._failed = failed
        self.source: watcher.Watcher[typing.Any] | None = None
        self._events: list[Event] = []
        self._arrived = asyncio.Event()
        self._changed = threading.Condition()
        self._closed = False

    async def receive(self) -> list[Event]:
        """Wait for events; return them in reverse order."""
        await self._arrived.wait()
        self._arrived.clear()
        with self._changed:
            events, self._events = self._events, []
            self._changed.notify()
        events.reverse()
        return events

    def close(self) -> None:
        """Release the thread, which may wait in `_send`."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    # Called by the watcher, in its thread

    def take_list(self, source: watcher.Watcher[typing.Any],
                  pages: abc.Iterator[client.Page[objects.Json]]) -> str:
        keys: set[objects.ObjectKey] = set()
        version = ''
        while True:
            with self._reading:
                page, version = next(pages, (None, version))
                if page is None:
                    break
                keys.update(map(_key, page))
                self._send([('ADDED', obj) for obj in page], 0)
                page = None
        self._send([(LISTED, keys)], 0)
        return version

    def event(self, source: watcher.Watcher[typing.Any], kind: str,
              obj: objects.Json) -> None:
        self._send([(kind, obj)], CLIENT_OPTIONS.page_size)

    def changed(self) -> None:
        """Tell that the watch does not work."""
        if self.source is not None and self.source.error is not None:
            # The event loop may have ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._failed)

    def _send(self, events: list[Event], most: int) -> None:
        """Pass events, and wait until at most some are not received yet."""
        with self._changed:
            if events and not self._events and not self._closed:
                try:
                    self._loop.call_soon_threadsafe(self._arrived.set)
                except RuntimeError:
                    # The event loop has ended.
                    self._closed = True
            self._events += events
            self._changed.wait_for(
                lambda: self._closed or len(self._events) <= most)
            if self._closed:
                raise errors.Unavailable('The watch was ended')


def _key(obj: abc.Mapping[str, typing.Any]) -> objects.ObjectKey:
    metadata = obj['metadata']
    return objects.ObjectKey(metadata.get('namespace', ''), metadata['name'])
