# SPDX-License-Identifier: Apache-2.0
"""Limits the number of BMCs that an upgrade stops at the same time.

The Deployment of a BMC that is stopped by an upgrade has an annotation until
its pod is ready again, so that the next leader counts the same BMCs. An image
that does not become ready stops the rollout after the first BMCs.
"""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming


def is_stopped(deployment) -> bool:
    """Tell whether a BMC is stopped by an upgrade.

    :param deployment: dict, its Deployment, or None
    """
    return (deployment is not None and naming.UPGRADING in (
        deployment['metadata'].get('annotations') or {})
        and not deployments.is_ready(deployment))


def annotated(step):
    """Annotate the Deployment that an upgrade stops.

    :param step: of `plan`, with a body
    """
    if step.body['kind'] != 'Deployment':
        return step
    metadata = step.body['metadata']
    return dataclasses.replace(step, body={**step.body, 'metadata': {
        **metadata, 'annotations': {**metadata.get('annotations', {}),
                                    naming.UPGRADING: 'true'}}})


class Rollout:
    """Slots for BMCs that are being upgraded.

    :param limit: number of BMCs that may be stopped at the same time
    :param wake: function of keys, called when there is a slot for them
    """

    def __init__(self, limit, wake) -> None:
        self._limit = limit
        self._wake = wake
        self._stopped = set()
        # BMCs that have a slot, but may not have the annotation yet: events of
        # their Deployments may be older than the slot.
        self._granted = set()
        self._waiting = {}

    def update(self, key, stopped) -> None:
        """Store the state of a BMC's Deployment.

        :param key: of the BMC
        :param stopped: see `is_stopped`
        """
        if stopped:
            self._stopped.add(key)
        elif key in self._stopped:
            self._stopped.discard(key)
            self._wake_waiting()

    def acquire(self, key) -> bool:
        """Get a slot for a BMC, until `release`.

        :param key: of the BMC
        :returns: whether it has a slot; if not, it is woken later
        """
        busy = self._stopped | self._granted
        if key not in busy and len(busy) >= self._limit:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._granted.add(key)
        return True

    def release(self, key) -> None:
        """Return the slot of a BMC, after `update` with its Deployment."""
        if key in self._granted:
            self._granted.discard(key)
            self._wake_waiting()

    def withdraw(self, key) -> None:
        """Give up waiting for a slot, or return the slot, of a BMC."""
        if key in self._waiting:
            del self._waiting[key]
            # It may have been woken for a slot; wake another BMC instead.
            self._wake_waiting()
        self.release(key)

    def forget(self, key) -> None:
        """Drop a BMC that was deleted."""
        self.withdraw(key)
        self.update(key, False)

    def _wake_waiting(self) -> None:
        free = self._limit - len(self._stopped | self._granted)
        if free > 0 and self._waiting:
            self._wake(tuple(self._waiting)[:free])
