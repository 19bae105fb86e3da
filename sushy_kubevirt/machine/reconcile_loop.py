# SPDX-License-Identifier: Apache-2.0
"""Loop of a reconciler: queue, retries and back-off.

Serves the reconcilers of one-time boots (`one_time_boot`) and of virtual
media (`media.manager`).
"""

from __future__ import annotations

from collections import abc
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import delaying_queue
    from sushy_kubevirt.machine import protocols
    from sushy_kubevirt.machine import vm_state

MachineT = typing.TypeVar('MachineT', bound='protocols.Machine')

LOG = logging.getLogger(__name__)

#: Seconds before a retry after `errors.Unavailable`: FIRST_PAUSE, doubled at
#: each retry up to LONGEST_PAUSE (`retry.pause`). REFUSED_PAUSE follows any
#: other error, which a retry may not resolve.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
REFUSED_PAUSE = 60.0


class ReconcileLoop(typing.Generic[MachineT]):
    """Calls a function for each queued machine and retries until it succeeds.

    A turn makes one attempt and puts a failed machine back into the queue, so
    that a VM which changes continuously does not delay the others.

    :param subject: what is reconciled, for log messages
    :param reconcile: called with a state that was just read from the API
    :param worker: which other loops use too; its owner starts and closes it
    """

    def __init__(self, subject: str,
                 reconcile: abc.Callable[[MachineT, vm_state.VmState], None],
                 worker: delaying_queue.Worker) -> None:
        self._subject = subject
        self._reconcile = reconcile
        self._worker = worker
        self._closed = False
        # Numbers of failed attempts, by the VM's uid.
        self._failures: dict[str, int] = {}

    def close(self) -> None:
        """Begin no further turn."""
        self._closed = True

    def add(self, machine: MachineT, seconds: float = 0,
            key: abc.Hashable = None) -> None:
        """Queue a machine.

        :param seconds: delay in seconds
        :param key: key of the queue entry, which replaces an entry with the
            same key; None for the machine's uid
        """
        self._worker.put((self, key or machine.uid),
                         lambda: self.turn(machine), seconds)

    def discard(self, uid: str) -> None:
        """Reset the back-off of a VM that was deleted.

        :param uid: ``metadata.uid`` of the VM
        """
        self._failures.pop(uid, None)

    def turn(self, machine: MachineT) -> None:
        """Make one attempt; called by the worker."""
        if self._closed:
            return
        failures = self._failures.pop(machine.uid, 0)
        try:
            self._reconcile(machine, machine.fetch())
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
