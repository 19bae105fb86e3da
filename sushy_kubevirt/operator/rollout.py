# SPDX-License-Identifier: Apache-2.0
"""An upgrade stops only so many BMCs at a time.

Whoever is stopped by it carries a mark, in the cluster, until its pod is
ready again; so an operator that takes over counts the same. A new image that
does not work stops the rollout at those that it was tried with.
"""

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming


def is_stopped(deployment):
    """Whether a BMC is stopped by an upgrade.

    :param deployment: dict, its Deployment, or None
    """
    return (deployment is not None and naming.UPGRADING in (
        deployment['metadata'].get('annotations') or {})
        and not deployments.is_ready(deployment))


class Rollout:
    """Whose turn it is.

    :param most: how many may be stopped at a time
    :param wake: function of keys, called when it is their turn
    """

    def __init__(self, most, wake):
        self._most = most
        self._wake = wake
        self._stopped = set()
        # Whose turn it is, but who may not carry the mark yet: what is told
        # of such a one meanwhile is older than its turn.
        self._turns = set()
        self._waiting = {}

    def update(self, key, stopped):
        """Take what a BMC's Deployment says.

        :param key: of the BMC
        :param stopped: see `is_stopped`
        """
        if stopped:
            self._stopped.add(key)
        elif key in self._stopped:
            self._stopped.discard(key)
            self._next()

    def acquire(self, key):
        """Whether a BMC may be stopped now; it is its turn until `release`.

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
        """What a BMC had to do in its turn is done, and what became of its
        Deployment was told."""
        if key in self._turns:
            self._turns.discard(key)
            self._next()

    def withdraw(self, key):
        """A BMC has nothing to wait for."""
        if key in self._waiting:
            del self._waiting[key]
            # It may have been told that there is room.
            self._next()
        self.release(key)

    def forget(self, key):
        """A BMC is gone."""
        self.withdraw(key)
        self.update(key, False)

    def _next(self):
        free = self._most - len(self._stopped | self._turns)
        if free > 0 and self._waiting:
            self._wake(tuple(self._waiting)[:free])
