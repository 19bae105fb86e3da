# SPDX-License-Identifier: Apache-2.0
"""Wait for provision states of many nodes.

Ironic's API has no watch. Of the threads that wait, one lists for all, so that
a thousand nodes cost one request at a time: openstacksdk's
``wait_for_nodes_provision_state`` would read each of them.
"""

from __future__ import annotations

import threading
import time
import typing

from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import client
    from sushy_kubevirt.kube import objects

_FIELDS = ('uuid', 'provision_state', 'last_error')

#: States that end by themselves.
BUSY = {'verifying', 'inspecting', 'inspect wait', 'cleaning', 'clean wait',
        'adopting', 'deleting'}

#: Seconds between two lists, at least; also twice the time that a list takes.
_INTERVAL = 1

#: Lists that may fail one after the other.
_FAILURES = 5


class Watcher:
    """Context in which provision states are observed.

    :param timeout: seconds that a node may stay in states of `BUSY`
    """

    def __init__(self, client: client.Client, timeout: float = 1800) -> None:
        self._client = client
        self._timeout = timeout
        self._over = threading.Event()
        #: Held by the thread that lists, or waits to do so.
        self._lock = threading.Lock()
        self._states: dict[str, objects.Json] = {}
        self._error: problems.ServiceError | None = None
        self._failures = 0
        #: When the last list began, and the next one may begin.
        self._begun = self._due = float('-inf')

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def settled(self, uuid: str) -> objects.Json:
        """Wait until a node is not in a state of `BUSY`.

        :returns: its ``provision_state`` and ``last_error``, not older than
            this call
        :raises: `problems.NodeFailed` at the end of the time or the context,
            or if the node is deleted; `problems.ServiceError`
        """
        now = time.monotonic()
        end = now + self._timeout
        known = 'unknown'
        while now < end:
            listed = self._listed(now, end)
            if listed is not None:
                state = listed.get(uuid)
                if state is None:
                    raise problems.NodeFailed(
                        f'the Ironic node {uuid} has been deleted')
                known = state['provision_state']
                if known not in BUSY:
                    return state
            now = time.monotonic()
        raise problems.NodeFailed(f'still {known} after {self._timeout:g} s')

    def _listed(self, since: float,
                end: float) -> dict[str, objects.Json] | None:
        # Return a list that began at `since` or later; None if it has not
        # begun at `end`, or another thread's has not ended.
        if not self._lock.acquire(timeout=max(0, end - time.monotonic())):
            return None
        try:
            while self._begun < since:
                if self._over.wait(max(0, min(self._due, end)
                                       - time.monotonic())):
                    raise problems.NodeFailed('interrupted')
                begun = time.monotonic()
                if begun >= end:
                    return None
                try:
                    self._states = {node['uuid']: node for node in
                                    self._client.list('nodes', _FIELDS)}
                    self._begun, self._error, self._failures = begun, None, 0
                except problems.ServiceError as error:
                    self._failures += 1
                    if self._failures >= _FAILURES:
                        self._begun, self._error = begun, error
                now = time.monotonic()
                self._due = now + max(_INTERVAL, 2 * (now - begun))
            if self._error:
                raise self._error
            return self._states
        finally:
            self._lock.release()
