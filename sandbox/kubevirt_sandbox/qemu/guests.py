# SPDX-License-Identifier: Apache-2.0
"""All guests of the sandbox as QEMU processes.

:class:`Guests` has the interface of :mod:`kubevirt_sandbox.kubevirt.guests`,
where the methods are described; the controllers use either of the two.
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
from kubevirt_sandbox.qemu import networks
from kubevirt_sandbox.qemu import qmp

LOG = logging.getLogger(__name__)

_BOOTS_KEPT, _NAMES_KEPT = 200, 10000
_ONE_RESET = 0.5  # seconds


class _Guest:
    """One guest, during the life of its VMI."""

    def __init__(self, vmi, folder):
        self.key = paths.key(vmi)
        self.uid = vmi['metadata']['uid']
        self.folder = folder
        self.firmware = firmware.kind(vmi['spec'])
        self.terminates = (vmi['spec']['domain'].get('rebootPolicy')
                           == 'Terminate')
        self.machine = self.media = self.links = None
        self.paused = False
        self.booted = False
        self.cause = 'reset'
        self.reset = float('-inf')
        self.killed = False


class Guests:
    """All guests.

    :param settings: the :class:`host.Settings`.
    :param store: the store.
    :param storage: the :class:`kubevirt_sandbox.cdi.storage.Storage`.
    :param look: function (namespace, name) that returns the VMI, or None.
    :param ended: function (namespace, name, uid, how) called when a guest
        ended.
    :param changed: function (namespace, name) called when the media in a
        guest's drives have changed.
    """

    #: Whether guests have displays.
    HAS_DISPLAY = True

    def __init__(self, settings, store, storage, look, ended, changed):
        self._settings = settings
        self._networks = networks.Networks(store)
        self._look = look
        self._ended = ended
        self._changed = changed
        self._drive_store = drives.DriveStore(store, storage, settings.images)
        self._folder = pathlib.Path(
            tempfile.mkdtemp(prefix='sushy-kubevirt-qemu-'))
        self._numbers = itertools.count()
        self._guests = {}
        self._dying = set()
        self._tasks = set()
        self._boots = {}
        LOG.info('Running guests by %s with %s', settings.program,
                 settings.accelerator)

    # -- supported VMIs --------------------------------------------------

    def missing_image(self, vmi):
        """Return the first unavailable container image, or None."""
        return self._drive_store.missing_image(vmi)

    def refusal(self, vmi):
        """Return why a VMI cannot run here, or ''."""
        spec = vmi['spec']
        kind = firmware.kind(spec)
        if kind == 'efi' and self._settings.efi is None or (
                kind == 'efi-secure' and self._settings.secure is None):
            return ('there is no UEFI firmware for it here (on Debian: '
                    'apt-get install ovmf)')
        if paths.at(spec, 'domain', 'firmware', 'kernelBoot', 'container'):
            return 'guests of the sandbox boot no kernel of a container'
        try:
            self._drive_store.drives(vmi, None)
        except drives.UnknownVolume as exc:
            return str(exc)
        return ''

    def locked(self, _vmi):
        """Return ''. QEMU's guests lock their own trays, see `media`."""
        return ''

    # -- requests of the controller --------------------------------------

    def start(self, vmi, paused=False):
        """Start a guest, unless the VMI has one.

        :param vmi: the VMI, about to become Running.
        :param paused: whether to start with stopped CPUs; the guest then
            boots when it is resumed.
        """
        uid = vmi['metadata']['uid']
        if uid in self._guests:
            return
        # A short name: the path of a Unix socket in the folder is limited to
        # about a hundred bytes.
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        guest = self._guests[uid] = _Guest(vmi, folder)
        guest.paused = paused
        guest.links = self._networks.connect(vmi)
        guest.machine = machine.Machine(
            '/'.join(guest.key), lambda qmp, serial: self._command(
                guest, vmi, qmp, serial), folder,
            lambda by_guest: self._was_reset(guest, by_guest),
            lambda in_order: self._is_down(guest, in_order),
            guest.links.descriptors.values())
        task = asyncio.get_running_loop().create_task(
            self._launch(guest, list(self._dying)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch(self, guest, dying):
        # A process killed a moment ago may still lock the same disks.
        for one in dying:
            await one.machine.gone.wait()
        if guest.killed:
            self._clear(guest)
            return
        try:
            guest.machine.start()
        except Exception:
            # After any error the guest cannot run.
            LOG.exception('Guest %s/%s cannot be started', *guest.key)
            self._forget(guest)
            self._clear(guest)
            self._ended(*guest.key, guest.uid, guests.CRASH)
            return
        guest.links.hand_over()
        if not guest.paused:
            self._note(guest, 'start')
        self._changed(*guest.key)

    def _command(self, guest, vmi, qmp, serial):
        found = self._drive_store.drives(vmi, guest.folder)
        guest.media = media.Media(guest.machine, found, lambda:
                                  self._changed(*guest.key))
        return command.build(
            self._settings, vmi, found, self._variables(guest, vmi), qmp,
            serial, guest.folder / 'vnc', guest.links.descriptors)

    def _variables(self, guest, vmi):
        """Return the path of the UEFI variables of a guest.

        Persistent variables are stored in another folder.
        """
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
        """Tell whether a VMI has a guest."""
        return uid in self._guests

    def paused(self, uid):
        """Tell whether the CPUs of a guest are stopped."""
        guest = self._guests.get(uid)
        return guest is not None and guest.paused

    def io_error(self, _uid):
        """Tell whether an I/O error paused a guest; not supported here."""
        return False

    def pause(self, uid):
        """Stop the CPUs."""
        guest = self._guests.get(uid)
        if guest is not None and not guest.paused:
            guest.paused = True
            guest.machine.ask('stop')

    def resume(self, uid):
        """Resume the CPUs; a guest that was started paused boots now."""
        guest = self._guests.get(uid)
        if guest is None or not guest.paused:
            return
        guest.paused = False
        guest.machine.ask('cont')
        if not guest.booted:
            self._note(guest, 'start')

    def reset(self, uid):
        """Reset the machine; it restarts immediately."""
        guest = self._guests.get(uid)
        if guest is not None:
            guest.cause = 'reset'
            guest.machine.ask('system_reset')

    def soft_reboot(self, uid):
        """Press the power button, and restart the guest after shutdown."""
        guest = self._guests.get(uid)
        if guest is not None:
            guest.cause = 'softreboot'
            guest.machine.soft_reboot(guest.terminates)

    def press_power_button(self, uid):
        """Request an ACPI shutdown; the guest may ignore it."""
        if uid in self._guests:
            self._guests[uid].machine.shut_down()

    def kill(self, uid):
        """Power the guest off immediately, without calling ``ended``."""
        guest = self._guests.get(uid)
        if guest is None:
            return
        guest.killed = True
        self._forget(guest)
        if guest.machine.pid is not None and not guest.machine.gone.is_set():
            self._dying.add(guest)
        guest.machine.kill()

    def has_agent(self, _vmi):
        """Tell whether a guest agent is connected; not supported here."""
        return False

    def plug(self, vmi):
        """Change the media in the drives to those of a running VMI."""
        guest = self._guests.get(vmi['metadata']['uid'])
        if guest is None or guest.media is None:
            return
        try:
            guest.media.want(self._drive_store.drives(vmi, guest.folder))
        except drives.UnknownVolume as exc:
            LOG.warning('Media of guest %s/%s cannot be changed: %s',
                        *guest.key, exc)

    def plugged(self, uid, volume):
        """Tell whether a guest currently has a volume."""
        guest = self._guests.get(uid)
        return (guest is not None and guest.media is not None
                and guest.media.has(volume))

    def serial(self, uid):
        """Return the :class:`serial.Serial` of a guest, or None."""
        guest = self._guests.get(uid)
        return guest and guest.machine.serial

    async def display(self, uid):
        """Return the path of the VNC socket, or None."""
        guest = self._guests.get(uid)
        if guest is None:
            return None
        try:
            # QEMU has created its sockets when it answers a command.
            await guest.machine.execute('query-status')
        except qmp.QmpError:
            return None
        return guest.folder / 'vnc'

    def close(self):
        """Kill all guests and wait until their processes have ended."""
        for task in self._tasks:
            task.cancel()
        for uid in list(self._guests):
            self.kill(uid)
        for guest in list(self._dying):
            guest.machine.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- actions of a guest ----------------------------------------------

    def act(self, namespace, name, action):
        """Make the guest of a VM crash; QEMU supports no other action.

        :param action: 'reboot', 'shutdown' or 'crash'.
        :returns: why the action is not possible, or ''.
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
        """Return the record of a VM's guests as JSON-compatible data."""
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

    def has_record(self, namespace, name):
        """Tell whether a VM of this name ever had a guest."""
        return (namespace, name) in self._boots

    def console_log(self, namespace, name):
        """Return the last output of a guest's serial port, or None."""
        guest = self._of((namespace, name))
        return guest and guest.machine.serial.output

    # --------------------------------------------------------------------

    def _of(self, key):
        vmi = self._look(*key)
        return vmi and self._guests.get(vmi['metadata']['uid'])

    def _was_reset(self, guest, by_guest):
        now = asyncio.get_running_loop().time()
        # SeaBIOS resets the machine a second time after a software reset.
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
        guest.links.close()
        shutil.rmtree(guest.folder, ignore_errors=True)

    def _note(self, guest, cause):
        """Record a boot; only the firmware knows the boot device."""
        guest.booted = True
        record = self._boots.setdefault(guest.key, [])
        if len(self._boots) > _NAMES_KEPT:
            self._boots.pop(next(iter(self._boots)))
        record.append({
            'device': None, 'class': None, 'firmware': guest.firmware,
            'vmi': guest.uid, 'cause': cause, 'tried': None,
            'at': datetime.datetime.now(datetime.timezone.utc).isoformat()})
        del record[:-_BOOTS_KEPT]
