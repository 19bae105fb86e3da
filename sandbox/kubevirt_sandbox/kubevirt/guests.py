# SPDX-License-Identifier: Apache-2.0
"""Simulated guests: what goes on inside a running VMI.

The node (:mod:`node`) starts a guest when a VMI becomes Running, passes on
what is asked of it and hears when it goes down. Everything behind
:class:`Guests` could also be a real hypervisor, and
:mod:`kubevirt_sandbox.qemu` is one; it has the same methods.

Each boot is recorded under the machine's namespace and name, over all its
VMIs, so that tests can see what the firmware made of a boot order.
"""

import dataclasses
import datetime

from kubevirt_sandbox.kubevirt import firmware
from kubevirt_sandbox.kubevirt import paths

IGNORE_ACPI = 'sandbox.sushy-kubevirt/ignore-acpi'
"""Annotation of a VMI: 'true' makes a guest that hears no power button."""
AGENT = 'sandbox.sushy-kubevirt/guest-agent'
"""Annotation of a VMI: 'true' makes a guest with the QEMU guest agent."""

SHUTDOWN, CRASH = 'shutdown', 'crash'
"""How a guest goes down: in order, or not."""

_BOOTS_KEPT, _NAMES_KEPT = 200, 10000


@dataclasses.dataclass
class _Guest:
    """One guest. ``booted``: an operating system runs, not only firmware."""

    key: tuple[str, str]
    uid: str
    booted: bool = False
    paused: bool = False
    pending: object = None


class Guests:
    """All guests of the sandbox.

    :param loop: the asyncio loop.
    :param look: function (namespace, name) that returns the VMI, or None.
    :param ended: function (namespace, name, uid, how) that is told when a
        guest went down by itself or on being asked to; ``how`` is
        :data:`SHUTDOWN` or :data:`CRASH`.
    :param seconds: how long a guest takes to shut down or to start again.
    """

    def __init__(self, loop, look, ended, seconds):
        self._loop = loop
        self._look = look
        self._ended = ended
        self._seconds = seconds
        self._guests = {}
        self._boots = {}

    # -- what can be run -------------------------------------------------

    def missing_image(self, _vmi):
        """The first container image that cannot be had, or None."""

    def refusal(self, _vmi):
        """Why a VMI cannot be run here, or ''."""
        return ''

    # -- what the node asks for ------------------------------------------

    def start(self, vmi, paused=False):
        """Start a guest, unless the VMI has one.

        :param vmi: the VMI, about to be Running.
        :param paused: with the CPUs stopped; it boots when resumed.
        """
        meta = vmi['metadata']
        key = (meta['namespace'], meta['name'])
        if meta['uid'] in self._guests:
            return
        guest = self._guests[meta['uid']] = _Guest(key, meta['uid'])
        guest.paused = paused
        if not paused:
            self._boot(guest, 'start', vmi)

    def alive(self, uid):
        """Whether there is a guest for a VMI."""
        return uid in self._guests

    def paused(self, uid):
        """Whether the CPUs of a guest are stopped."""
        guest = self._guests.get(uid)
        return guest is not None and guest.paused

    def pause(self, uid):
        """Stop the CPUs."""
        if uid in self._guests:
            self._guests[uid].paused = True

    def resume(self, uid):
        """Let the CPUs go on; a guest that never ran boots now."""
        guest = self._guests.get(uid)
        if guest is None or not guest.paused:
            return
        guest.paused = False
        record = self._boots.get(guest.key)
        if not record or record[-1]['vmi'] != uid:
            self._boot(guest, 'start')

    def reset(self, uid):
        """The reset button: the machine starts again at once."""
        self._restart(uid, 'reset')

    def soft_reboot(self, uid):
        """Ask the guest to reboot; it takes its time."""
        self._ask(uid, lambda: self._restart(uid, 'softreboot'))

    def press_power_button(self, uid):
        """Ask the guest by ACPI to shut down; it may not hear it."""
        self._ask(uid, lambda: self._end(uid, SHUTDOWN))

    def kill(self, uid):
        """Pull the plug. Nobody is told."""
        guest = self._guests.pop(uid, None)
        if guest is not None and guest.pending is not None:
            guest.pending.cancel()

    def has_agent(self, vmi):
        """Whether the guest of a VMI has a guest agent that answers."""
        guest = self._guests.get(vmi['metadata']['uid'])
        return (guest is not None and guest.booted
                and _says(vmi, AGENT))

    def plug(self, vmi):
        """Bring the media in the drives in line with a VMI that runs."""

    def plugged(self, uid, volume):
        """Whether a guest has a volume now: at once when it shall."""
        guest = self._guests.get(uid)
        vmi = guest and self._look(*guest.key)
        return vmi is not None and any(
            v['name'] == volume for v in paths.volumes(vmi['spec']))

    def serial(self, _uid):
        """The serial port of a guest, or None."""

    async def display(self, _uid):
        """The path of the socket that speaks VNC, or None."""

    def close(self):
        """Pull every plug."""
        for uid in list(self._guests):
            self.kill(uid)

    # -- what a guest does by itself -------------------------------------

    def act(self, namespace, name, action):
        """Let the guest of a machine do something.

        :param action: 'reboot', 'shutdown' or 'crash'.
        :returns: why that is not possible, or ''.
        """
        guest = self._of((namespace, name))
        if guest is None or guest.paused:
            return f'no guest of {namespace}/{name} runs'
        if action == 'reboot':
            self._restart(guest.uid, 'reboot')
        else:
            self._end(guest.uid, CRASH if action == 'crash' else SHUTDOWN)
        return ''

    def record(self, namespace, name):
        """What is known of the guests of a machine, as JSON."""
        key = (namespace, name)
        guest = self._of(key)
        return {'vmi': guest.uid if guest else None,
                'running': guest is not None,
                'boots': list(self._boots.get(key, ()))}

    def known(self, namespace, name):
        """Whether a machine of this name ever had a guest."""
        return (namespace, name) in self._boots

    def console_log(self, _namespace, _name):
        """The last of what a guest wrote to its serial port, or None."""

    # --------------------------------------------------------------------

    def _of(self, key):
        vmi = self._look(*key)
        return vmi and self._guests.get(vmi['metadata']['uid'])

    def _ask(self, uid, act):
        """Have a guest do something after a while, if it listens."""
        guest = self._guests.get(uid)
        if guest is None or guest.paused or guest.pending is not None:
            return
        vmi = self._look(*guest.key)
        # firmware that found nothing to boot hears no power button
        if not guest.booted or (vmi is not None
                                and _says(vmi, IGNORE_ACPI)):
            return

        def now():
            guest.pending = None
            if not guest.paused:
                act()
        guest.pending = self._loop.call_later(self._seconds, now)

    def _restart(self, uid, cause):
        guest = self._guests.get(uid)
        vmi = guest and self._look(*guest.key)
        if vmi is None or vmi['metadata']['uid'] != uid:
            return
        # With Terminate QEMU ends where it would start again, whoever asked.
        if vmi['spec']['domain'].get('rebootPolicy') == 'Terminate':
            self._end(uid, SHUTDOWN)
            return
        self._boot(guest, cause, vmi)

    def _end(self, uid, how):
        guest = self._guests.get(uid)
        if guest is not None:
            self.kill(uid)
            self._ended(*guest.key, uid, how)

    def _boot(self, guest, cause, vmi=None):
        vmi = vmi or self._look(*guest.key)
        if vmi is None:
            return
        if guest.pending is not None:
            guest.pending.cancel()
            guest.pending = None
        found = firmware.boot(vmi)
        guest.booted = found.device is not None
        record = self._boots.setdefault(guest.key, [])
        if len(self._boots) > _NAMES_KEPT:
            self._boots.pop(next(iter(self._boots)))
        record.append({
            'device': found.device, 'class': found.class_,
            'firmware': found.firmware, 'vmi': guest.uid,
            'at': datetime.datetime.now(datetime.timezone.utc).isoformat(),
            'cause': cause, 'tried': list(found.tried)})
        del record[:-_BOOTS_KEPT]


def _says(vmi, annotation):
    return (vmi['metadata'].get('annotations') or {}).get(
        annotation) == 'true'
