# SPDX-License-Identifier: Apache-2.0
"""Why the system was last started (section 28.11).

Only this process knows what it has asked for. The cause belongs to the VMI
that the request created; of other VMIs, and after a restart of this process,
it is unknown.
"""

from __future__ import annotations

from collections import abc
import contextlib
import datetime
import enum
import threading
import time
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine import power_state

# ResetTypes that start a system which is on, and states in which "on" starts
# it. (A paused one resumes; one that is starting needs no request.)
_RESTARTS = (power_state.ResetType.FORCE_RESTART,
             power_state.ResetType.POWER_CYCLE)
_STARTED_FROM = (power_state.PowerState.OFF,
                 power_state.PowerState.POWERING_OFF)

#: Seconds in which a request creates its VMI: KubeVirt's grace period for the
#: old one, and some for its controllers.
_WITHIN_SECONDS = 600

#: Seconds by which the clock of the cluster may be behind, and Kubernetes'
#: rounding.
_BEFORE_SECONDS = 5


class Cause(enum.IntEnum):
    """Restart causes, table 28-11."""

    UNKNOWN = 0
    CHASSIS_CONTROL = 1
    WATCHDOG = 4


class _Request(typing.NamedTuple):
    # A request that starts the VM: uid of the VMI before, seconds since the
    # epoch.

    cause: Cause
    uid: str | None
    time: float


class RestartCause:
    """The cause of the last start of one machine. Thread-safe.

    :param now: returns the time in seconds since the epoch
    """

    def __init__(self, now: abc.Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._requested: _Request | None = None
        # The uid of a VMI, and why it was created.
        self._known: tuple[str | None, Cause] = None, Cause.UNKNOWN

    @contextlib.contextmanager
    def request(self, cause: Cause, machine: machine.Machine,
                reset_type: power_state.ResetType) -> abc.Iterator[None]:
        """Record a request if it starts the VM, unless it fails.

        :raises: `errors.MachineError`
        """
        vmi = machine.state().vmi
        starts = reset_type in _RESTARTS or (
            reset_type is power_state.ResetType.ON
            and machine.power_state() in _STARTED_FROM)
        with self._lock:
            self._notice(vmi)
            before = self._requested
            if starts:
                self._requested = _Request(cause, _uid(vmi), self._now())
            elif reset_type is not power_state.ResetType.ON:
                # A start that follows has another cause.
                self._requested = None
        try:
            yield
        except BaseException:
            with self._lock:
                self._requested = before
            raise

    def of(self, vmi: objects.VirtualMachineInstance | None) -> Cause:
        """Return why a VMI was created.

        :param vmi: the present VMI; None while the VM is off
        """
        with self._lock:
            self._notice(vmi)
            known, cause = self._known
        return cause if _uid(vmi) in (None, known) else Cause.UNKNOWN

    def _notice(self, vmi: objects.VirtualMachineInstance | None) -> None:
        """Store the cause of a VMI that the last request created."""
        uid = _uid(vmi)
        if vmi is None or uid is None or self._requested is None:
            return
        cause, before, when = self._requested
        if uid != before and (when - _BEFORE_SECONDS <= _created(vmi)
                              <= when + _WITHIN_SECONDS):
            self._known = uid, cause
            self._requested = None


def _uid(vmi: objects.VirtualMachineInstance | None) -> str | None:
    return None if vmi is None else vmi['metadata'].get('uid')


def _created(vmi: objects.VirtualMachineInstance) -> float:
    text = vmi['metadata'].get('creationTimestamp')
    return datetime.datetime.fromisoformat(text).timestamp() if text else 0
