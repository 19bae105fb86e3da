# SPDX-License-Identifier: Apache-2.0
"""One QEMU process, from its start to its end.

QEMU ends with the sandbox in all cases: the death of its parent kills it
(``setpriv --pdeathsig``). Commands are sent by QMP, which also reports events
of the guest. QEMU pauses a guest that shuts down, because it may have to
restart (the "fake reboot" of libvirt: the power button, then a reset);
otherwise this module ends the process.
"""

import asyncio
import logging
import os
import socket
import subprocess

from kubevirt_sandbox.kubevirt import serial
from kubevirt_sandbox.qemu import qmp

LOG = logging.getLogger(__name__)


class Machine:
    """A running QEMU.

    :param name: name for log messages.
    :param make_command: function (descriptor for QMP, descriptor for the
        serial port) that returns the command line.
    :param folder: folder of its files, including QEMU's temporary files.
    :param on_reset: function (whether the guest caused the reset) called
        when the machine restarts.
    :param on_end: function (whether the end was orderly) called once, when
        the process has ended.
    :param descriptors: further file descriptors that the process gets.
    """

    def __init__(self, name, make_command, folder, on_reset, on_end,
                 descriptors=()):
        self.name = name
        self.serial = serial.Serial()
        self.gone = asyncio.Event()
        self._make_command = make_command
        self._folder = folder
        self._on_reset = on_reset
        self._on_end = on_end
        self._descriptors = tuple(descriptors)
        self._loop = asyncio.get_running_loop()
        self._tasks = set()
        self._begun = asyncio.Event()
        self._shut_down = self._killed = self._reboots = False
        self._process = self._pidfd = self._qmp = None

    @property
    def pid(self):
        """Return the process id, or None."""
        return self._process and self._process.pid

    def start(self):
        """Start the process."""
        ours, theirs = socket.socketpair()
        line, port = socket.socketpair()
        self._log = open(os.path.join(self._folder, 'qemu.log'), 'w+b')
        try:
            command = self._make_command(theirs.fileno(), port.fileno())
            LOG.debug('%s: %s', self.name, command)
            # The kernel kills the process when the thread that started it
            # ends, which is the event loop's thread.
            self._process = subprocess.Popen(
                ['setpriv', '--pdeathsig', 'KILL', '--', *command],
                stdin=subprocess.DEVNULL, stdout=self._log,
                stderr=self._log, cwd=self._folder,
                env={'PATH': os.environ.get('PATH', os.defpath),
                     'TMPDIR': str(self._folder)},
                pass_fds=(theirs.fileno(), port.fileno(),
                          *self._descriptors))
        except BaseException:
            for one in (ours, line, self._log):
                one.close()
            self._begun.set()
            raise
        finally:
            theirs.close()
            port.close()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        ours.setblocking(False)
        line.setblocking(False)
        self._qmp = qmp.Client(ours, self._on_event)
        self._begun.set()
        self._spawn(self._qmp.run())
        self._spawn(self.serial.attach(line))

    def _spawn(self, coroutine):
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task):
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.warning('%s: a QMP task failed: %s', self.name,
                        task.exception())

    # -- commands --------------------------------------------------------

    async def execute(self, command, /, **arguments):
        """Execute a QMP command and return its result.

        :raises qmp.QmpError: QEMU refused the command or has ended.
        """
        await self._begun.wait()
        if self._qmp is None:
            raise qmp.QmpError('QEMU was not started')
        return await self._qmp.execute(command, **arguments)

    def ask(self, command, **arguments):
        """Execute a QMP command in the background, ignoring its result."""
        self._spawn(self._execute(command, arguments))

    async def _execute(self, command, arguments):
        try:
            await self.execute(command, **arguments)
        except qmp.QmpError as exc:
            if not self._shut_down and not self.gone.is_set():
                LOG.warning('%s: QMP command %s failed: %s', self.name,
                            command, exc)

    def soft_reboot(self, terminate):
        """Press the power button, and restart the guest after shutdown.

        :param terminate: whether to end the machine instead of restarting.
        """
        self._reboots = not terminate
        self.ask('system_powerdown')

    def shut_down(self):
        """Press the power button."""
        self._reboots = False
        self.ask('system_powerdown')

    def kill(self):
        """Kill the process."""
        self._begun.set()
        if self._process is not None and not self.gone.is_set():
            self._killed = True
            self._process.kill()

    def close(self):
        """Kill the process and wait until it has ended."""
        self.kill()
        if self._process is not None and not self.gone.is_set():
            self._process.wait()
            self._ended()
        for task in self._tasks:
            task.cancel()

    # -- events ----------------------------------------------------------

    def _on_event(self, event, data):
        LOG.debug('%s: %s %s', self.name, event, data)
        if event == 'RESET':
            self._on_reset(data.get('guest', False))
        elif event == 'SHUTDOWN':
            if self._reboots and data.get('reason') == 'guest-shutdown':
                self._reboots = False
                self.ask('system_reset')
                self.ask('cont')
                return
            self._shut_down = True
            self.ask('quit')

    def _ended(self):
        if self.gone.is_set():
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        self.gone.set()
        self._log.seek(0)
        said = self._log.read(4096).decode(errors='replace').strip()
        self._log.close()
        if code != 0 and not self._shut_down and not self._killed:
            LOG.warning('%s: QEMU ended with %d%s%s', self.name, code,
                        ': ' if said else '', said)
        self._on_end(self._shut_down)
