# SPDX-License-Identifier: Apache-2.0
"""Wait for provision states of many nodes.

Ironic's API has no watch. One list serves all that wait, so that a thousand
nodes cost one request at a time.
"""

from __future__ import annotations

from collections import abc
import threading
import time
import typing

from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

_FIELDS = ('uuid', 'provision_state', 'last_error')

#: States that end by themselves.
BUSY = {'verifying', 'inspecting', 'inspect wait', 'cleaning', 'clean wait',
        'adopting', 'deleting'}

#: What Ironic answers, or has as ``last_error``, if its database is SQLite and
#: others write.
DATABASE_LOCKED = 'database is locked'

#: Seconds between two lists, at least; also twice the time that a list takes.
_INTERVAL = 1

#: Lists that may fail one after the other.
_FAILURES = 5


class Lister(typing.Protocol):
    """Lists objects of Ironic; see `client.Client.list`."""

    def list(self, kind: str, fields: abc.Iterable[str], /
             ) -> abc.Sequence[objects.Json]:
        """List all objects of a kind."""


class Watcher:
    """Context in which provision states are observed.

    :param timeout: seconds that a node may stay in states of `BUSY`
    """

    def __init__(self, client: Lister, timeout: float = 1800) -> None:
        self._client = client
        self._timeout = timeout
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._waiting = 0
        self._begun = float('-inf')
        self._states: dict[str, objects.Json] = {}
        self._error: problems.ServiceError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    def settled(self, uuid: str) -> objects.Json:
        """Wait until a node is not in a state of `BUSY`.

        :param uuid: of the node
        :returns: its ``provision_state`` and ``last_error``, not older than
            this call
        :raises: `problems.NodeFailed` at the end of the time or the context,
            or if the node is deleted; `problems.ServiceError`
        """
        asked = time.monotonic()
        state = None
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                while not self._over.is_set():
                    if self._begun >= asked:
                        if self._error:
                            raise self._error
                        state = self._states.get(uuid)
                        if state is None:
                            raise problems.NodeFailed(
                                f'the Ironic node {uuid} has been deleted')
                        if state['provision_state'] not in BUSY:
                            return state
                    left = asked + self._timeout - time.monotonic()
                    if left <= 0:
                        raise problems.NodeFailed(
                            f'still {state and state["provision_state"]} '
                            f'after {self._timeout:g} s')
                    self._changed.wait(left)
            finally:
                self._waiting -= 1
        raise problems.NodeFailed('interrupted')

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._over.is_set())
            if self._over.is_set():
                return
            begun = time.monotonic()
            error: problems.ServiceError | None = None
            nodes: abc.Sequence[objects.Json] = ()
            try:
                nodes = self._client.list('nodes', _FIELDS)
                failures = 0
            except problems.ServiceError as refusal:
                failures += 1
                error = refusal
            if not error or failures >= _FAILURES:
                with self._changed:
                    self._begun, self._error = begun, error
                    if not error:
                        self._states = {node['uuid']: node for node in nodes}
                    self._changed.notify_all()
            self._over.wait(
                max(_INTERVAL, 2 * (time.monotonic() - begun)))
