# SPDX-License-Identifier: Apache-2.0
"""Simulated guests of running VMIs.

The VMI controller (:mod:`vmi_controller`) starts a guest when a VMI becomes
Running, forwards requests to it and is called back when it ends.
:mod:`kubevirt_sandbox.qemu` has a class with the same methods that runs the
guests with QEMU.

Each boot is recorded under the VM's namespace and name, across all its VMIs,
so that tests can check how the firmware applied a boot order.
"""

import dataclasses
import datetime

from kubevirt_sandbox.kubevirt import firmware
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import terminal

IGNORE_ACPI = 'sandbox.sushy-kubevirt/ignore-acpi'
"""Annotation of a VMI: 'true' makes a guest that hears no power button."""
AGENT = 'sandbox.sushy-kubevirt/guest-agent'
"""Annotation of a VMI: 'true' makes a guest with the QEMU guest agent."""

REFUSE_START = 'sandbox.sushy-kubevirt/refuse-start'
"""Annotation of a VMI: why its launcher cannot start the guest."""

SHUTDOWN, CRASH = 'shutdown', 'crash'
"""How a guest goes down: in order, or not."""

_BOOTS_KEPT, _NAMES_KEPT = 200, 10000


@dataclasses.dataclass
class _Guest:
    """One guest.

    ``booted`` tells whether an operating system runs, not only firmware.
    ``io_error`` tells whether an I/O error has paused it. ``media`` has the
    names of the volumes in the drives whose trays the guest has locked; None
    while they are not locked.
    """

    key: tuple[str, str]
    uid: str
    booted: bool = False
    paused: bool = False
    io_error: bool = False
    pending: object = None
    terminal: object = None
    media: frozenset[str] | None = None


class Guests:
    """All guests of the sandbox.

    :param loop: the asyncio loop.
    :param look: function (namespace, name) that returns the VMI, or None.
    :param ended: function (namespace, name, uid, how) called when a guest
        ended by itself or on request; ``how`` is :data:`SHUTDOWN` or
        :data:`CRASH`.
    :param changed: function (namespace, name) called when a guest paused by
        itself.
    :param seconds: how long a guest takes to shut down or to reboot, in
        seconds.
    """

    #: Whether guests have displays.
    HAS_DISPLAY = False

    def __init__(self, loop, look, ended, changed, seconds):
        self._loop = loop
        self._look = look
        self._ended = ended
        self._changed = changed
        self._seconds = seconds
        self._guests = {}
        self._boots = {}

    # -- supported VMIs --------------------------------------------------

    def missing_image(self, _vmi):
        """Return the first unavailable container image, or None."""

    def refusal(self, vmi):
        """Return why virt-launcher cannot start a VMI, or ''."""
        return (vmi['metadata'].get('annotations') or {}).get(
            REFUSE_START, '') or firmware.missing(vmi)

    # -- requests of the controller --------------------------------------

    def start(self, vmi, paused=False):
        """Start a guest, unless the VMI has one.

        :param vmi: the VMI, about to become Running.
        :param paused: whether to start with stopped CPUs; the guest then
            boots when it is resumed.
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
        """Tell whether a VMI has a guest."""
        return uid in self._guests

    def paused(self, uid):
        """Tell whether the CPUs of a guest are stopped."""
        guest = self._guests.get(uid)
        return guest is not None and guest.paused

    def io_error(self, uid):
        """Tell whether an I/O error has stopped the CPUs of a guest."""
        guest = self._guests.get(uid)
        return guest is not None and guest.io_error

    def pause(self, uid):
        """Stop the CPUs."""
        if uid in self._guests:
            self._guests[uid].paused = True

    def resume(self, uid):
        """Resume the CPUs; a guest that was started paused boots now."""
        guest = self._guests.get(uid)
        if guest is None or not guest.paused:
            return
        guest.paused = guest.io_error = False
        record = self._boots.get(guest.key)
        if not record or record[-1]['vmi'] != uid:
            self._boot(guest, 'start')

    def reset(self, uid):
        """Reset the machine; it restarts immediately."""
        self._restart(uid, 'reset')

    def soft_reboot(self, uid):
        """Request a reboot from the guest, which takes some time."""
        self._ask(uid, lambda: self._restart(uid, 'softreboot'))

    def press_power_button(self, uid):
        """Request an ACPI shutdown; the guest may ignore it."""
        self._ask(uid, lambda: self._end(uid, SHUTDOWN))

    def kill(self, uid):
        """Power the guest off immediately, without calling ``ended``."""
        guest = self._guests.pop(uid, None)
        if guest is None:
            return
        if guest.pending is not None:
            guest.pending.cancel()
        if guest.terminal is not None:
            guest.terminal.close()

    def has_agent(self, vmi):
        """Tell whether the guest of a VMI has a connected guest agent."""
        guest = self._guests.get(vmi['metadata']['uid'])
        return (guest is not None and guest.booted
                and _annotated(vmi, AGENT))

    def plug(self, vmi):
        """Change the media in the drives to those of a running VMI."""

    def plugged(self, uid, volume):
        """Tell whether a guest has a volume; changes are immediate."""
        guest = self._guests.get(uid)
        vmi = guest and self._look(*guest.key)
        if vmi is None:
            return False
        if guest.media is not None and volume in _cdroms(vmi):
            return volume in guest.media
        return any(v['name'] == volume for v in paths.volumes(vmi['spec']))

    def locked(self, vmi):
        """Return why the media of a guest cannot be changed, or ''."""
        guest = self._guests.get(vmi['metadata']['uid'])
        if guest is None or guest.media is None:
            return ''
        wanted = {v['name'] for v in paths.volumes(vmi['spec'])}
        for name in sorted(_cdroms(vmi)):
            if (name in wanted) != (name in guest.media):
                return ('internal error: timed out waiting to open tray of '
                        f"'ua-{name}'")
        return ''

    def serial(self, uid):
        """Return the :class:`serial.Serial` of a guest, or None.

        The first call connects it; what the guest printed before is lost.
        """
        guest = self._guests.get(uid)
        if guest is None:
            return None
        if guest.terminal is None:
            guest.terminal = terminal.Terminal(
                lambda action: self.act(*guest.key, action))
        return guest.terminal.serial

    async def display(self, _uid):
        """Return the path of the VNC socket, or None."""

    def close(self):
        """Power off all guests."""
        for uid in list(self._guests):
            self.kill(uid)

    # -- actions of a guest ----------------------------------------------

    def act(self, namespace, name, action):
        """Make the guest of a VM act by itself.

        :param action: 'reboot', 'shutdown', 'crash', 'lock' the trays of its
            CD-ROM drives, or 'unlock' them; 'io-error' for an I/O error that
            pauses it.
        :returns: why the action is not possible, or ''.
        """
        guest = self._of((namespace, name))
        if guest is None or guest.paused:
            return f'no guest of {namespace}/{name} runs'
        if action == 'lock':
            guest.media = frozenset(v['name'] for v in paths.volumes(
                self._look(namespace, name)['spec']))
        elif action == 'unlock':
            guest.media = None
        elif action == 'io-error':
            guest.paused = guest.io_error = True
            self._changed(namespace, name)
        elif action == 'reboot':
            self._restart(guest.uid, 'reboot')
        else:
            self._end(guest.uid, CRASH if action == 'crash' else SHUTDOWN)
        return ''

    def record(self, namespace, name):
        """Return the record of a VM's guests as JSON-compatible data."""
        key = (namespace, name)
        guest = self._of(key)
        return {'vmi': guest.uid if guest else None,
                'running': guest is not None,
                'boots': list(self._boots.get(key, ()))}

    def has_record(self, namespace, name):
        """Tell whether a VM of this name ever had a guest."""
        return (namespace, name) in self._boots

    def console_log(self, namespace, name):
        """Return the last output of a guest's serial port, or None."""
        guest = self._of((namespace, name))
        return (guest.terminal.serial.output
                if guest and guest.terminal else None)

    # --------------------------------------------------------------------

    def _of(self, key):
        vmi = self._look(*key)
        return vmi and self._guests.get(vmi['metadata']['uid'])

    def _ask(self, uid, act):
        """Run an action of a guest after a delay, if the guest responds."""
        guest = self._guests.get(uid)
        if guest is None or guest.paused or guest.pending is not None:
            return
        vmi = self._look(*guest.key)
        # firmware that found no boot device ignores the power button
        if not guest.booted or (vmi is not None
                                and _annotated(vmi, IGNORE_ACPI)):
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
        # With Terminate QEMU exits on every reboot, from any cause.
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
        if guest.terminal is not None:
            guest.terminal.boot(
                f'{guest.key[1]}: {found.firmware} firmware, booted from '
                f'{found.device or "nothing"}')
        record = self._boots.setdefault(guest.key, [])
        if len(self._boots) > _NAMES_KEPT:
            self._boots.pop(next(iter(self._boots)))
        record.append({
            'device': found.device, 'class': found.class_,
            'firmware': found.firmware, 'vmi': guest.uid,
            'at': datetime.datetime.now(datetime.timezone.utc).isoformat(),
            'cause': cause, 'tried': list(found.tried)})
        del record[:-_BOOTS_KEPT]


def _annotated(vmi, annotation):
    return (vmi['metadata'].get('annotations') or {}).get(
        annotation) == 'true'


def _cdroms(vmi):
    return {disk['name'] for disk in paths.disks(vmi['spec'])
            if disk.get('cdrom') is not None}
