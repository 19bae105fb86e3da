# SPDX-License-Identifier: Apache-2.0
"""Limits how many BMCs an upgrade stops at a time.

The Deployment of a BMC that is stopped by an upgrade has an annotation until
its pod is ready again, so that the next leader counts the same. A new image
that does not work stops the rollout at the BMCs that it was tried with.
"""

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming


def is_stopped(deployment):
    """Tell whether a BMC is stopped by an upgrade.

    :param deployment: dict, its Deployment, or None
    """
    return (deployment is not None and naming.UPGRADING in (
        deployment['metadata'].get('annotations') or {})
        and not deployments.is_ready(deployment))


class Rollout:
    """Slots for BMCs that are being upgraded.

    :param most: number of BMCs that may be stopped at a time
    :param wake: function of keys, called when there is a slot for them
    """

    def __init__(self, most, wake):
        self._most = most
        self._wake = wake
        self._stopped = set()
        # BMCs that have a slot, but perhaps not the annotation yet: events of
        # their Deployments may be older than the slot.
        self._turns = set()
        self._waiting = {}

    def update(self, key, stopped):
        """Take in the state of a BMC's Deployment.

        :param key: of the BMC
        :param stopped: see `is_stopped`
        """
        if stopped:
            self._stopped.add(key)
        elif key in self._stopped:
            self._stopped.discard(key)
            self._next()

    def acquire(self, key):
        """Get a slot for a BMC, which has it until `release`.

        :param key: of the BMC
        """
        busy = self._stopped | self._turns
        if key not in busy and len(busy) >= self._most:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._turns.add(key)
        return True

    def release(self, key):
        """Return the slot of a BMC, after `update` with its Deployment."""
        if key in self._turns:
            self._turns.discard(key)
            self._next()

    def withdraw(self, key):
        """Note that a BMC needs no slot."""
        if key in self._waiting:
            del self._waiting[key]
            # It may have been woken for a slot, which another can have.
            self._next()
        self.release(key)

    def forget(self, key):
        """Drop a BMC that was deleted."""
        self.withdraw(key)
        self.update(key, False)

    def _next(self):
        free = self._most - len(self._stopped | self._turns)
        if free > 0 and self._waiting:
            self._wake(tuple(self._waiting)[:free])
