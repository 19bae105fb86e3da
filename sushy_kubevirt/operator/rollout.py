# SPDX-License-Identifier: Apache-2.0
"""Limits the number of BMCs that an upgrade stops at the same time.

The Deployment of a BMC that is stopped by an upgrade has an annotation until
its pod is ready again, so that the next leader counts the same BMCs. An image
that does not become ready stops the rollout after the first BMCs.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import plan

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.shared import placement


def is_stopped(deployment: objects.Json | None) -> bool:
    """Tell whether a BMC with this Deployment is stopped by an upgrade."""
    return (deployment is not None and stored_names.UPGRADING in (
        deployment['metadata'].get('annotations') or {})
        and not deployments.is_ready(deployment))


def annotated(step: plan.Change) -> plan.Change:
    """Annotate the Deployment that an upgrade stops."""
    if (not isinstance(step, (plan.Apply, plan.Replace))
            or step.body['kind'] != 'Deployment'):
        return step
    metadata = step.body['metadata']
    return dataclasses.replace(step, body={**step.body, 'metadata': {
        **metadata, 'annotations': {**metadata.get('annotations', {}),
                                    stored_names.UPGRADING: 'true'}}})


#: Of a BMC, or of the BMCs of a shared pod.
Key: typing.TypeAlias = 'objects.ObjectKey | placement.ShardKey'


class Rollout:
    """Slots for BMCs that are being upgraded.

    :param limit: number of BMCs that may be stopped at the same time
    :param wake: called when there is a slot for BMCs
    """

    def __init__(self, limit: int,
                 wake: abc.Callable[[abc.Iterable[Key]], None]) -> None:
        self._limit = limit
        self._wake = wake
        self._stopped: set[Key] = set()
        # BMCs that have a slot, but may not have the annotation yet: events of
        # their Deployments may be older than the slot.
        self._granted: set[Key] = set()
        self._waiting: dict[Key, None] = {}

    def update(self, key: Key, stopped: bool) -> None:
        """Store the state of a BMC's Deployment.

        :param stopped: see `is_stopped`
        """
        if stopped:
            self._stopped.add(key)
        elif key in self._stopped:
            self._stopped.discard(key)
            self._wake_waiting()

    def acquire(self, key: Key) -> bool:
        """Get a slot for a BMC, until `release`.

        :returns: whether it has a slot; if not, it is woken later
        """
        busy = self._stopped | self._granted
        if key not in busy and len(busy) >= self._limit:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._granted.add(key)
        return True

    def release(self, key: Key) -> None:
        """Return the slot of a BMC, after `update` with its Deployment."""
        if key in self._granted:
            self._granted.discard(key)
            self._wake_waiting()

    def withdraw(self, key: Key) -> None:
        """Give up waiting for a slot, or return the slot, of a BMC."""
        if key in self._waiting:
            del self._waiting[key]
            # It may have been woken for a slot; wake another BMC instead.
            self._wake_waiting()
        self.release(key)

    def forget(self, key: Key) -> None:
        """Drop a BMC that was deleted."""
        self.withdraw(key)
        self.update(key, False)

    def _wake_waiting(self) -> None:
        free = self._limit - len(self._stopped | self._granted)
        if free > 0 and self._waiting:
            self._wake(tuple(self._waiting)[:free])
