# SPDX-License-Identifier: Apache-2.0
"""Local processes that run containers.

Each is the leader of a session of its own. When it ends its children are
killed, as a container ends with its first process; and all end with the
sandbox, however that ends: see :mod:`process_reaper`.
"""

import asyncio
import contextlib
import functools
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile

from kubevirt_sandbox.workloads import process_reaper

_CHUNK = 65536
#: How much containers give way to the sandbox, which is the control plane for
#: all of them: as ``nice`` has it.
_NICENESS = 2
_SWEEP = 0.1  # seconds


class NotStarted(Exception):
    """A process could not be started; says why, as a runtime does."""


class Process:
    """A running process; made by :meth:`Processes.start`."""

    def __init__(self, popen, output, say, on_end, ended):
        self.pid = popen.pid
        #: Set when it is gone.
        self.gone = asyncio.Event()
        #: As a shell has it: 128 and the signal's number when killed.
        self.code = None
        self._popen = popen
        self._say = say
        self._on_end = on_end
        self._ended = ended
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._reap)
        os.set_blocking(output, False)
        self._loop.add_reader(output, self._read)

    def send(self, number):
        """Send it a signal: the first process alone, as a node does."""
        if not self.gone.is_set():
            self._popen.send_signal(number)

    def kill(self):
        """End it now, and what is in its group."""
        if not self.gone.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _read(self, most=16):
        """Hand on output; not without end, others have turns too."""
        for _ in range(most):
            if self._output is None:
                return
            try:
                data = os.read(self._output, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b''
            if not data:
                self._shut()
                return
            self._say(data)

    def _shut(self):
        if self._output is not None:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = None

    def _reap(self):
        if self.gone.is_set():
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._popen.wait()
        self.code = code if code >= 0 else 128 - code
        self._read(most=1024)
        self._shut()
        self.gone.set()
        self._ended(self.pid)
        self._on_end()

    def close(self):
        """End it and wait until it is gone."""
        if not self.gone.is_set():
            self.kill()
            self._popen.wait()
            self._reap()


def _give_way(pid):
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
    # Where sessions share the processors, that alone would do nothing.
    with contextlib.suppress(OSError), open(
            f'/proc/{pid}/autogroup', 'w') as file:
        file.write(str(_NICENESS))


class Processes:
    """All of them."""

    def __init__(self):
        self._alive = {}
        self._marks = {}
        self._ended = {}
        self._watch = None
        self._sweeping = None
        self._setpriv = shutil.which('setpriv')

    @functools.cached_property
    def folder(self):
        """For the files of pods; it goes with the sandbox.

        Made when it is needed: a sandbox that cannot start leaves none.
        """
        return pathlib.Path(tempfile.mkdtemp(prefix='sushy-kubevirt-pods-'))

    def start(self, command, env, folder, say, on_end):
        """Start a process.

        :param command: list of words.
        :param env: the whole environment.
        :param folder: where it runs.
        :param say: function of the bytes that it prints.
        :param on_end: function that is called when it is gone.
        :returns: a :class:`Process`.
        :raises NotStarted: it cannot.
        """
        words = self.words(command, env, folder)
        self._begin_watch()
        ours, theirs = os.pipe()
        try:
            mark = secrets.token_hex(8)
            popen = subprocess.Popen(
                words, env={**env, process_reaper.MARK: mark}, cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=theirs, stderr=theirs, start_new_session=True,
                umask=0o022)
        except OSError as exc:
            os.close(ours)
            raise NotStarted(f'exec: "{command[0]}": {exc.strerror}'
                             ) from None
        finally:
            os.close(theirs)
        _give_way(popen.pid)
        self._marks[popen.pid] = mark
        self._tell(popen.pid, mark)
        made = Process(popen, ours, say, on_end, self._forget)
        self._alive[popen.pid] = made
        return made

    def words(self, command, env, folder):
        """What is really started for a command; see :meth:`start`."""
        path = shutil.which(command[0], path=env.get('PATH', os.defpath))
        if '/' in command[0]:
            path = os.path.join(folder, command[0])
            path = path if os.access(path, os.X_OK) else None
        if path is None:
            raise NotStarted(f'exec: "{command[0]}": executable file not '
                             'found in $PATH')
        words = [path, *command[1:]]
        if self._setpriv:
            # A second net: killed with the thread of the loop.
            words = [self._setpriv, '--pdeathsig', 'KILL', '--', *words]
        return words

    def mark(self, pid):
        """A variable; who has it ends with a process.

        :returns: (name, value)
        """
        return process_reaper.MARK, self._marks[pid]

    def close(self):
        """End all of them and remove their files."""
        for one in list(self._alive.values()):
            one.close()
        if self._sweeping:
            self._sweeping.cancel()
        self._sweep()
        if self._watch is not None:
            self._watch.stdin.close()
            self._watch.wait()
        if 'folder' in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin_watch(self):
        if self._watch is None:
            self._watch = subprocess.Popen(
                [sys.executable, '-I', '-S', process_reaper.__file__,
                 str(self.folder)], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, start_new_session=True,
                env={})

    def _tell(self, number, mark):
        with contextlib.suppress(OSError):
            self._watch.stdin.write(f'{number} {mark}\n'.encode())
            self._watch.stdin.flush()

    def _forget(self, pid):
        """Kill what a container has besides the group of its leader."""
        self._alive.pop(pid, None)
        self._ended[pid] = self._marks.pop(pid)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(
                _SWEEP, self._sweep)

    def _sweep(self):
        # One look at all processes for all that ended meanwhile.
        self._sweeping = None
        if self._ended:
            process_reaper.bury(self._ended)
            for number, mark in self._ended.items():
                self._tell(-number, mark)
            self._ended.clear()
