# SPDX-License-Identifier: Apache-2.0
"""Output of containers, and ``kubectl logs``.

The newest output is kept in memory, with the times for ``--timestamps`` and
``--since``.
"""

import asyncio
import collections
import datetime

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import query_parameters
from kubevirt_sandbox.api import web

#: Bytes of a run of a container that are kept.
KEPT = 2 ** 20

_LONGEST_LINE = 16384


class Log:
    """The output of one run of a container."""

    def __init__(self):
        #: Pairs of (time, line with its end), the oldest first.
        self.lines = collections.deque()
        #: How many lines were there and were dropped.
        self.dropped = 0
        self.closed = False
        self._size = 0
        self._rest = b''
        self._news = asyncio.Event()

    def write(self, data):
        """Add output."""
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            self._add(line + b'\n')
        while len(self._rest) > _LONGEST_LINE:
            self._add(self._rest[:_LONGEST_LINE])
            self._rest = self._rest[_LONGEST_LINE:]
        self._wake()

    def close(self):
        """Mark the end of the output."""
        if self._rest:
            self._add(self._rest)
            self._rest = b''
        self.closed = True
        self._wake()

    def _add(self, line):
        self.lines.append((datetime.datetime.now(datetime.UTC), line))
        self._size += len(line)
        while self._size > KEPT and len(self.lines) > 1:
            self._size -= len(self.lines.popleft()[1])
            self.dropped += 1

    def _wake(self):
        self._news.set()
        self._news = asyncio.Event()

    @property
    def end(self):
        """Return the number of the next line."""
        return self.dropped + len(self.lines)

    def since(self, number):
        """Return the lines from a number on that are still kept."""
        skip = max(0, number - self.dropped)
        return [line for index, line in enumerate(self.lines)
                if index >= skip]

    async def more(self):
        """Wait for more output, or its end."""
        await self._news.wait()


def _time(text):
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise errors.bad_request(
            f'sinceTime: {text!r} is not a time') from None


def only_container(pod, name):
    """Return the name of the container of a pod that has one.

    :raises errors.ApiError: 400, it has several.
    """
    names = [c['name'] for c in pod['spec'].get('containers') or ()]
    if len(names) != 1:
        raise errors.bad_request(
            f'a container name must be specified for pod {name}, choose one '
            f'of: [{" ".join(names)}]')
    return names[0]


class Route:
    """The subresource ``log`` of pods.

    :param find: function (uid of a pod, container's name, whether the run
        before) that returns a :class:`Log` or None.
    """

    def __init__(self, find):
        self._find = find

    async def answer(self, request):
        """Answer ``GET …/pods/NAME/log``."""
        pod = request.store.get(core.POD, request.namespace, request.name)
        query = request.query
        name = query.get('container') or only_container(pod, request.name)
        previous = query_parameters.flag(query, 'previous')
        follow = query_parameters.flag(query, 'follow') and not previous
        log = self._find(pod['metadata']['uid'], name, previous)
        if log is None:
            known = [c['name'] for key in ('containers', 'initContainers')
                     for c in pod['spec'].get(key) or ()]
            if name not in known:
                raise errors.bad_request(
                    f'container {name} is not valid for pod {request.name}')
            if previous:
                raise errors.bad_request(
                    f'previous terminated container "{name}" in pod '
                    f'"{request.name}" not found')
            raise errors.bad_request(
                f'container "{name}" in pod "{request.name}" is waiting to '
                'start: ContainerCreating')
        tail = query_parameters.number(query, 'tailLines') if query.get(
            'tailLines') else None
        seconds = query_parameters.number(query, 'sinceSeconds') if query.get(
            'sinceSeconds') else None
        limit = query_parameters.number(query, 'limitBytes') if query.get(
            'limitBytes') else None
        since = _time(query['sinceTime']) if query.get('sinceTime') else None
        if seconds is not None:
            since = datetime.datetime.now(
                datetime.UTC) - datetime.timedelta(seconds=seconds)
        stamps = query_parameters.flag(query, 'timestamps')
        response = web.StreamResponse(
            headers={'Content-Type': 'text/plain'})
        await response.prepare(request.http)
        at = log.dropped if tail is None else max(
            log.dropped, log.end - tail)
        while True:
            lines, at = log.since(at), log.end
            text = b''.join(
                (when.isoformat().replace('+00:00', 'Z ').encode()
                 if stamps else b'') + line
                for when, line in lines if since is None or when >= since)
            if limit is not None:
                text, limit = text[:limit], limit - len(text)
            if text:
                await response.write(text)
            if (limit is not None and limit <= 0) or not follow or (
                    log.closed and at == log.end):
                break
            if at == log.end:
                await log.more()
        await response.write_eof()
        return response
