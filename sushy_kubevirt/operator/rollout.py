# SPDX-License-Identifier: Apache-2.0
"""An upgrade stops only so many BMCs at a time.

Whoever is stopped by it carries a mark, in the cluster, until its pod is
ready again; so an operator that takes over counts the same. A new image that
does not work stops the rollout at those that it was tried with.
"""


class Rollout:
    """Whose turn it is.

    :param most: how many may be stopped at a time
    """

    def __init__(self, most):
        self._most = most
        self._stopped = set()
        self._waiting = {}

    def mark(self, key, stopped):
        """Take what a BMC's Deployment says.

        :param key: of the BMC
        :param stopped: whether it carries the mark and is not ready
        :returns: keys whose turn it is now
        """
        if stopped:
            self._stopped.add(key)
            return ()
        self._stopped.discard(key)
        return self._next()

    def may(self, key):
        """Whether a BMC may be stopped now; it is, as far as this goes.

        :param key: of the BMC
        """
        if key not in self._stopped and len(self._stopped) >= self._most:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._stopped.add(key)
        return True

    def calm(self, key):
        """A BMC has nothing to wait for."""
        self._waiting.pop(key, None)

    def forget(self, key):
        """A BMC is gone.

        :returns: keys whose turn it is now
        """
        self._waiting.pop(key, None)
        self._stopped.discard(key)
        return self._next()

    def _next(self):
        free = max(self._most - len(self._stopped), 0)
        return tuple(self._waiting)[:free]
