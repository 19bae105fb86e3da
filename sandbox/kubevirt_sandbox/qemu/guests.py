# SPDX-License-Identifier: Apache-2.0
"""All guests of the sandbox, each a QEMU process.

See :mod:`kubevirt_sandbox.kubevirt.guests` for what the methods mean:
the controllers do not know which of the two they talk to.
"""

import asyncio
import datetime
import itertools
import logging
import pathlib
import shutil
import tempfile

from kubevirt_sandbox.kubevirt import firmware
from kubevirt_sandbox.kubevirt import guests
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.qemu import command
from kubevirt_sandbox.qemu import drives
from kubevirt_sandbox.qemu import machine
from kubevirt_sandbox.qemu import media
from kubevirt_sandbox.qemu import qmp

LOG = logging.getLogger(__name__)

_BOOTS_KEPT, _NAMES_KEPT = 200, 10000
_ONE_RESET = 0.5  # seconds


class _Guest:
    """One guest, for as long as its VMI runs."""

    def __init__(self, vmi, folder):
        self.key = paths.key(vmi)
        self.uid = vmi['metadata']['uid']
        self.folder = folder
        self.firmware = firmware.kind(vmi['spec'])
        self.terminates = (vmi['spec']['domain'].get('rebootPolicy')
                           == 'Terminate')
        self.machine = self.media = None
        self.paused = False
        self.booted = False
        self.cause = 'reset'
        self.reset = float('-inf')
        self.killed = False


class Guests:
    """All guests.

    :param settings: the :class:`host.Settings`.
    :param store: the store.
    :param storage: the :class:`sandbox.cdi.storage.Storage`.
    :param look: function (namespace, name) that returns the VMI, or None.
    :param ended: function (namespace, name, uid, how) that is told when a
        guest went down.
    :param changed: function (namespace, name) that is told when drives of
        a guest have what they shall have, or have it no more.
    """

    def __init__(self, settings, store, storage, look, ended, changed):
        self._settings = settings
        self._look = look
        self._ended = ended
        self._changed = changed
        self._shelf = drives.Shelf(store, storage, settings.images)
        self._folder = pathlib.Path(
            tempfile.mkdtemp(prefix='sushy-kubevirt-qemu-'))
        self._numbers = itertools.count()
        self._guests = {}
        self._dying = set()
        self._tasks = set()
        self._boots = {}
        LOG.info('guests are run by %s with %s', settings.program,
                 settings.accelerator)

    # -- what can be run -------------------------------------------------

    def missing_image(self, vmi):
        """The first container image that cannot be had, or None."""
        return self._shelf.missing_image(vmi)

    def refusal(self, vmi):
        """Why a VMI cannot be run here, or ''."""
        spec = vmi['spec']
        kind = firmware.kind(spec)
        if kind == 'efi' and self._settings.efi is None or (
                kind == 'efi-secure' and self._settings.secure is None):
            return ('there is no UEFI firmware for it here (on Debian: '
                    'apt-get install ovmf)')
        if paths.at(spec, 'domain', 'firmware', 'kernelBoot', 'container'):
            return 'guests of the sandbox boot no kernel of a container'
        try:
            self._shelf.drives(vmi, None)
        except drives.UnknownVolume as exc:
            return str(exc)
        return ''

    # -- what the node asks for ------------------------------------------

    def start(self, vmi, paused=False):
        """Start a guest, unless the VMI has one.

        :param vmi: the VMI, about to be Running.
        :param paused: with the CPUs stopped; it boots when resumed.
        """
        uid = vmi['metadata']['uid']
        if uid in self._guests:
            return
        # Short: the path of a socket in it may have a hundred bytes.
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        guest = self._guests[uid] = _Guest(vmi, folder)
        guest.paused = paused
        guest.machine = machine.Machine(
            '/'.join(guest.key), lambda qmp, serial: self._words(
                guest, vmi, qmp, serial), folder,
            lambda by_guest: self._was_reset(guest, by_guest),
            lambda in_order: self._is_down(guest, in_order))
        task = asyncio.get_running_loop().create_task(
            self._launch(guest, list(self._dying)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch(self, guest, dying):
        # What was killed a moment ago may still hold the same disks.
        for one in dying:
            await one.machine.gone.wait()
        if guest.killed:
            self._clear(guest)
            return
        try:
            guest.machine.start()
        except Exception:
            # Whatever it was, this guest will not run.
            LOG.exception('%s/%s cannot be started', *guest.key)
            self._forget(guest)
            self._clear(guest)
            self._ended(*guest.key, guest.uid, guests.CRASH)
            return
        if not guest.paused:
            self._note(guest, 'start')
        self._changed(*guest.key)

    def _words(self, guest, vmi, qmp, serial):
        found = self._shelf.drives(vmi, guest.folder)
        guest.media = media.Media(guest.machine, found, lambda:
                                  self._changed(*guest.key))
        return command.words(
            self._settings, vmi, found, self._variables(guest, vmi), qmp,
            serial, guest.folder / 'vnc')

    def _variables(self, guest, vmi):
        """The firmware's variables; those that persist have another place."""
        if guest.firmware == 'bios':
            return None
        template = (self._settings.secure if guest.firmware == 'efi-secure'
                    else self._settings.efi).variables
        path = guest.folder / 'variables.fd'
        if paths.at(vmi, 'spec', 'domain', 'firmware', 'bootloader', 'efi',
                    'persistent'):
            owner = next((r['uid'] for r in vmi['metadata'].get(
                'ownerReferences') or () if r.get('controller')), guest.uid)
            path = self._folder / f'variables-{owner}.fd'
        if not path.exists():
            shutil.copyfile(template, path)
        return path

    def alive(self, uid):
        """Whether there is a guest for a VMI."""
        return uid in self._guests

    def paused(self, uid):
        """Whether the CPUs of a guest are stopped."""
        guest = self._guests.get(uid)
        return guest is not None and guest.paused

    def pause(self, uid):
        """Stop the CPUs."""
        guest = self._guests.get(uid)
        if guest is not None and not guest.paused:
            guest.paused = True
            guest.machine.ask('stop')

    def resume(self, uid):
        """Let the CPUs go on; a guest that never ran boots now."""
        guest = self._guests.get(uid)
        if guest is None or not guest.paused:
            return
        guest.paused = False
        guest.machine.ask('cont')
        if not guest.booted:
            self._note(guest, 'start')

    def reset(self, uid):
        """The reset button: the machine starts again at once."""
        guest = self._guests.get(uid)
        if guest is not None:
            guest.cause = 'reset'
            guest.machine.ask('system_reset')

    def soft_reboot(self, uid):
        """Press the power button, and start again when it is down."""
        guest = self._guests.get(uid)
        if guest is not None:
            guest.cause = 'softreboot'
            guest.machine.soft_reboot(guest.terminates)

    def press_power_button(self, uid):
        """Ask the guest by ACPI to shut down; it may not hear it."""
        if uid in self._guests:
            self._guests[uid].machine.shut_down()

    def kill(self, uid):
        """Pull the plug. Nobody is told."""
        guest = self._guests.get(uid)
        if guest is None:
            return
        guest.killed = True
        self._forget(guest)
        if guest.machine.pid is not None and not guest.machine.gone.is_set():
            self._dying.add(guest)
        guest.machine.kill()

    def has_agent(self, _vmi):
        """Whether a guest agent answers: nobody talks to one here."""
        return False

    def plug(self, vmi):
        """Bring the media in the drives in line with a VMI that runs."""
        guest = self._guests.get(vmi['metadata']['uid'])
        if guest is None or guest.media is None:
            return
        try:
            guest.media.want(self._shelf.drives(vmi, guest.folder))
        except drives.UnknownVolume as exc:
            LOG.warning('%s/%s: %s', *guest.key, exc)

    def plugged(self, uid, volume):
        """Whether a guest has a volume now."""
        guest = self._guests.get(uid)
        return (guest is not None and guest.media is not None
                and guest.media.has(volume))

    def serial(self, uid):
        """The :class:`serial.Serial` of a guest, or None."""
        guest = self._guests.get(uid)
        return guest and guest.machine.serial

    async def display(self, uid):
        """The path of the socket that speaks VNC, or None."""
        guest = self._guests.get(uid)
        if guest is None:
            return None
        try:
            # Only when it answers has QEMU made all that it serves.
            await guest.machine.execute('query-status')
        except qmp.QmpError:
            return None
        return guest.folder / 'vnc'

    def close(self):
        """Pull every plug, and wait until all are out."""
        for task in self._tasks:
            task.cancel()
        for uid in list(self._guests):
            self.kill(uid)
        for guest in list(self._dying):
            guest.machine.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- what a guest does by itself -------------------------------------

    def act(self, namespace, name, action):
        """Let the guest of a machine do something.

        :param action: 'reboot', 'shutdown' or 'crash'.
        :returns: why that is not possible, or ''.
        """
        guest = self._of((namespace, name))
        if guest is None:
            return f'no guest of {namespace}/{name} runs'
        if action != 'crash':
            return (f'the guest of {namespace}/{name} is QEMU\'s: what it '
                    'does by itself is its software\'s business, which its '
                    'console may reach')
        guest.machine.kill()
        return ''

    def record(self, namespace, name):
        """What is known of the guests of a machine, as JSON."""
        key = (namespace, name)
        guest = self._of(key)
        found = {'vmi': guest.uid if guest else None,
                 'running': guest is not None,
                 'boots': list(self._boots.get(key, ()))}
        if guest is not None:
            domain = self._look(*key)['spec']['domain']
            sockets, cores, threads = command.cpus(self._settings, domain)
            found['qemu'] = {
                'pid': guest.machine.pid,
                'accelerator': self._settings.accelerator,
                'memory': command.memory(self._settings, domain),
                'cpus': sockets * cores * threads}
        return found

    def known(self, namespace, name):
        """Whether a machine of this name ever had a guest."""
        return (namespace, name) in self._boots

    def console_log(self, namespace, name):
        """The last of what a guest wrote to its serial port, or None."""
        guest = self._of((namespace, name))
        return guest and guest.machine.serial.said

    # --------------------------------------------------------------------

    def _of(self, key):
        vmi = self._look(*key)
        return vmi and self._guests.get(vmi['metadata']['uid'])

    def _was_reset(self, guest, by_guest):
        now = asyncio.get_running_loop().time()
        # SeaBIOS resets once more what software has reset.
        again = by_guest and now - guest.reset < _ONE_RESET
        guest.reset = now
        if not again:
            self._note(guest, 'reboot' if by_guest else guest.cause)
        guest.cause = 'reset'

    def _is_down(self, guest, in_order):
        self._dying.discard(guest)
        if guest.killed:
            self._clear(guest)
            return
        self._forget(guest)
        self._clear(guest)
        self._ended(*guest.key, guest.uid,
                    guests.SHUTDOWN if in_order else guests.CRASH)

    def _forget(self, guest):
        self._guests.pop(guest.uid, None)
        if guest.media is not None:
            guest.media.close()

    @staticmethod
    def _clear(guest):
        shutil.rmtree(guest.folder, ignore_errors=True)

    def _note(self, guest, cause):
        """Note a boot. From what it boots only the firmware knows."""
        guest.booted = True
        record = self._boots.setdefault(guest.key, [])
        if len(self._boots) > _NAMES_KEPT:
            self._boots.pop(next(iter(self._boots)))
        record.append({
            'device': None, 'class': None, 'firmware': guest.firmware,
            'vmi': guest.uid, 'cause': cause, 'tried': None,
            'at': datetime.datetime.now(datetime.timezone.utc).isoformat()})
        del record[:-_BOOTS_KEPT]
