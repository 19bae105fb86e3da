# SPDX-License-Identifier: Apache-2.0
"""Worker thread of a reconciler: queue, retries and back-off.

Serves the reconcilers of one-time boots (`one_time_boot`) and of virtual
media (`media.reconciler`).
"""

import logging
import threading

from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

LOG = logging.getLogger(__name__)

#: Seconds before a retry after `errors.Unavailable`: FIRST_PAUSE, doubled at
#: each retry up to LONGEST_PAUSE (`retry.pause`). REFUSED_PAUSE follows any
#: other error, which a retry may not resolve.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
REFUSED_PAUSE = 60.0


class ReconcileLoop:
    """Calls a function for each queued machine and retries until it succeeds.

    A turn makes one attempt and puts a failed machine back into the queue, so
    that a VM which changes continuously does not delay the others.

    :param name: name of the thread
    :param subject: what is reconciled, for log messages
    :param reconcile: function of (machine, vm, vmi), called with objects that
        were just read from the API
    """

    def __init__(self, name, subject, reconcile):
        self._name = name
        self._subject = subject
        self._reconcile = reconcile
        self._queue = delaying_queue.DelayingQueue()
        self._failures = {}         # VM's uid: number of failed attempts

    def start(self):
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True,
                         name=self._name).start()

    def close(self):
        """End the thread after its current turn."""
        self._queue.close()

    def add(self, machine, seconds=0, key=None):
        """Queue a machine.

        :param machine: a `machine.Machine`
        :param seconds: delay in seconds
        :param key: key of the queue entry, which replaces an entry with the
            same key; None for the machine's uid
        """
        self._queue.put(key or machine.uid, machine, seconds)

    def discard(self, uid):
        """Reset the back-off of a VM that was deleted.

        :param uid: ``metadata.uid`` of the VM
        """
        self._failures.pop(uid, None)

    @property
    def pending(self):
        """Number of queued entries."""
        return self._queue.pending

    def _run(self):
        while True:
            machine = self._queue.next()
            if machine is None:
                return
            failures = self._failures.pop(machine.uid, 0)
            try:
                self._reconcile(machine, *machine.fetch())
            except errors.MachineNotFound:
                pass
            except errors.Unavailable as e:
                wait = retry.pause(failures, FIRST_PAUSE, LONGEST_PAUSE,
                                   e.retry_after)
                LOG.info('%s: reconciling %s failed, next attempt in %.1f s: '
                         '%s', machine.qualified_name, self._subject, wait, e)
                self._failures[machine.uid] = failures + 1
                self.add(machine, wait)
            except Exception as e:
                LOG.warning('%s: reconciling %s failed, next attempt in '
                            '%.0f s: %s', machine.qualified_name,
                            self._subject, REFUSED_PAUSE, e,
                            exc_info=not isinstance(e, errors.MachineError))
                self.add(machine, REFUSED_PAUSE)
