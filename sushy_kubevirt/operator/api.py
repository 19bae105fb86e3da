# SPDX-License-Identifier: Apache-2.0
"""Asyncio interface of the Kubernetes client of the BMC processes.

`client.Client` blocks, and the operator's controllers are coroutines of one
event loop: each request, and each list-and-watch (`watcher.Watcher`), runs in
a thread. Only `Api.watch` retries; requests are sent once, and callers retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time

from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import naming

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

    :param connection: a `connection.Connection`
    :param before_write: function called in the request's thread immediately
        before each write is sent; raises to prevent it
    :param client_options: `options.Options` of the client
    """

    def __init__(self, connection, before_write=lambda: None,
                 client_options=CLIENT_OPTIONS) -> None:
        self._options = client_options
        self._client = client.Client(
            connection, client_options, naming.OPERATOR, CONNECTIONS,
            before_write, WATCH_SILENCE)
        self._reading = threading.Semaphore(PAGES)
        self._writes = set()
        #: What `version` returns, and until when.
        self._version = '', 0.0

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    @property
    def calls(self):
        """The requests so far.

        :returns: dict of (HTTP method, HTTP status) and their number; the
            status is 0 where there was no answer
        """
        found = {}
        for (verb, _, code), count in self._client.calls.items():
            key = _METHODS[verb], code
            found[key] = found.get(key, 0) + count
        return found

    async def get(self, resource, namespace, name,
                  metadata_only: bool = False):
        """Read one object; see `client.Client.get`."""
        return await self._complete(in_thread(
            self._client.get, resource, namespace, name, metadata_only))

    async def create(self, resource, namespace, body):
        """Create an object; see `client.Client.create`."""
        return await self._write(self._client.create, resource, namespace,
                                 body)

    async def apply(self, resource, namespace, name, body):
        """Apply an object's fields; see `client.Client.apply`."""
        return await self._write(self._client.apply, resource, namespace,
                                 name, body)

    async def patch(self, resource, namespace, name, body, subresource=None):
        """Change an object; see `client.Client.patch`."""
        return await self._write(self._client.patch, resource, namespace,
                                 name, body, subresource)

    async def replace(self, resource, namespace, name, body):
        """Replace an object; see `client.Client.replace`."""
        return await self._write(self._client.replace, resource, namespace,
                                 name, body)

    async def delete(self, resource, namespace, name, uid=None):
        """Delete an object, and then what it owns.

        :param uid: the only uid that may be deleted; None for any
        :raises: `errors.Conflict` if the object has another uid
        """
        body = {'propagationPolicy': 'Background'}
        if uid:
            body['preconditions'] = {'uid': uid}
        return await self._write(self._client.delete, resource, namespace,
                                 name, body)

    async def check_readable(self, resource, namespace=None) -> None:
        """List a first page, and drop it.

        :raises: `errors.Unavailable` if the server does not know the kind;
            `errors.AccessDenied` if it may not be listed
        """
        await self._complete(in_thread(next, self._client.pages(
            resource, namespace, metadata_only=True)))

    async def list(self, resource):
        """List the objects of a kind that the cluster has few of.

        :returns: list of dicts
        """
        return await self._complete(in_thread(lambda: [
            obj for page, _version in self._client.pages(resource)
            for obj in page]))

    async def serves_group(self, group):
        """See `client.Client.serves_group`."""
        return await self._complete(in_thread(
            self._client.serves_group, group))

    async def version(self):
        """Return the version of the API server, read at most every 10 min.

        :returns: such as ``v1.34.4``
        """
        version, expiry = self._version
        if time.monotonic() >= expiry:
            answer = await self._complete(in_thread(self._client.version))
            version = answer.get('gitVersion', '')
            self._version = version, time.monotonic() + _VERSION_SECONDS
        return version

    async def serves(self, resource):
        """See `client.Client.serves`."""
        return await self._complete(in_thread(self._client.serves, resource))

    async def expand_spec(self, namespace, name):
        """See `client.Client.expand_spec`."""
        return await self._complete(in_thread(
            self._client.expand_spec, namespace, name))

    async def wait_for_writes(self, seconds) -> bool:
        """Wait for the writes that are being sent, cancelled ones included.

        :param seconds: longest wait
        :returns: whether all have ended
        """
        if self._writes:
            await asyncio.wait(self._writes, timeout=seconds)
        return not self._writes

    async def _write(self, function, *args):
        request = in_thread(function, *args)
        self._writes.add(request)
        request.add_done_callback(self._writes.discard)
        return await self._complete(request)

    async def _complete(self, request):
        """Wait for the complete response, however slowly it arrives."""
        seconds = self._options.request_timeout
        try:
            async with asyncio.timeout(seconds):
                # The thread goes on if the caller is cancelled.
                return await asyncio.shield(request)
        except TimeoutError:
            raise errors.ConnectionLost(
                f'The API server has not answered completely in {seconds} s',
                maybe_done=True) from None

    async def watch(self, resource, namespace=None, label_selector: str = '',
                    field_selector: str = '', metadata_only: bool = False,
                    failed=lambda: None):
        """List and watch a collection, without end, through all failures.

        :param namespace: None or '' for all namespaces
        :param failed: function, called when it does not work, and after each
            attempt that has failed since
        :param metadata_only: whether to read nothing but the metadata
        :returns: asynchronous iterator of (type, object): 'ADDED',
            'MODIFIED' and 'DELETED' with a dict; and after each complete
            list `LISTED` with the set of all (namespace, name), from which
            deleted objects are found
        """
        found = _Channel(asyncio.get_running_loop(), self._reading, failed)
        source = watcher.Watcher(
            self._client, self._options, resource, namespace or '',
            label_selector, field_selector, found, metadata_only)
        found.source = source
        source.start()
        try:
            while True:
                items = await found.receive()
                while items:
                    yield items.pop()
        finally:
            found.close()
            source.stop()


def in_thread(function, *args):
    """Run a blocking function in a thread: an idle one, or a new one.

    Not `asyncio.to_thread`: its pool's threads are joined when the process
    ends, which would wait for a hanging request, and a pool full of hanging
    requests would prevent the renewal of the Lease. A new thread for each
    request would cost more than the request.

    :returns: `asyncio.Future` of what the function returns
    """
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            report, value = future.set_result, context.run(function, *args)
        except Exception as e:
            report, value = future.set_exception, e
        # The waiting task may be cancelled, and the loop may be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(
                lambda: future.done() or report(value))

    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = queue.SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name='api',
                         daemon=True).start()
    jobs.put(run)
    return future


#: Queues of the threads of `in_thread` that wait for a function.
_idle = []


def _work(jobs) -> None:
    """Run functions, until enough other threads are idle.

    :param jobs: queue of them
    """
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

    :param loop: the event loop
    :param reading: `threading.Semaphore` held while a page is read
    :param failed: function, called in the loop when the watcher fails
    """

    def __init__(self, loop, reading, failed) -> None:
        self._loop = loop
        self._reading = reading
        self._failed = failed
        self.source = None
        self._items = []
        self._arrived = asyncio.Event()
        self._changed = threading.Condition()
        self._closed = False

    async def receive(self):
        """Wait for events.

        :returns: list of (type, object), in reverse order
        """
        await self._arrived.wait()
        self._arrived.clear()
        with self._changed:
            items, self._items = self._items, []
            self._changed.notify()
        items.reverse()
        return items

    def close(self) -> None:
        """Release the thread, which may wait in `_send`."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    # Called by the watcher, in its thread

    def take_list(self, source, pages):
        there, version = set(), None
        while True:
            with self._reading:
                items, version = next(pages, (None, version))
                if items is None:
                    break
                there.update(map(_key, items))
                self._send([('ADDED', item) for item in items], 0)
                items = None
        self._send([(LISTED, there)], 0)
        return version

    def event(self, source, kind, obj) -> None:
        self._send([(kind, obj)], CLIENT_OPTIONS.page_size)

    def changed(self) -> None:
        """Tell that the watch does not work."""
        if self.source.error is not None:
            # The event loop may have ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._failed)

    def _send(self, items, most):
        """Pass items, and wait until at most some are not received yet."""
        with self._changed:
            if items and not self._items and not self._closed:
                try:
                    self._loop.call_soon_threadsafe(self._arrived.set)
                except RuntimeError:
                    # The event loop has ended.
                    self._closed = True
            self._items += items
            self._changed.wait_for(
                lambda: self._closed or len(self._items) <= most)
            if self._closed:
                raise errors.Unavailable('The watch was ended')


def _key(obj):
    metadata = obj['metadata']
    return metadata.get('namespace', ''), metadata['name']
