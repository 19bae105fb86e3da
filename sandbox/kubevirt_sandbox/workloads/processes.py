# SPDX-License-Identifier: Apache-2.0
"""Local processes that run containers.

Each is the leader of a session of its own. When it ends its children are
killed, as a container ends with its first process. All end with the sandbox,
even if it is killed: see :mod:`process_reaper`.
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
#: Niceness of containers, so that the control plane has priority.
_NICENESS = 2
_SWEEP = 0.1  # seconds


class NotStarted(Exception):
    """A process could not be started; the message is a runtime's."""


class Process:
    """A running process; made by :meth:`Processes.start`."""

    def __init__(self, popen, output, on_output, on_end, ended):
        self.pid = popen.pid
        #: Set when the process has ended.
        self.gone = asyncio.Event()
        #: Exit code as in a shell: 128 plus the signal's number if killed.
        self.code = None
        self._popen = popen
        self._on_output = on_output
        self._on_end = on_end
        self._ended = ended
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._reap)
        os.set_blocking(output, False)
        self._loop.add_reader(output, self._read)

    def send(self, number):
        """Send a signal to the container's first process, as the kubelet does.
        """
        if not self.gone.is_set():
            self._popen.send_signal(number)

    def kill(self):
        """Kill the process and its process group."""
        if not self.gone.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _read(self, most=16):
        """Pass on a limited amount of output, so that others have turns too.
        """
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
                self._close_output()
                return
            self._on_output(data)

    def _close_output(self):
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
        self._close_output()
        self.gone.set()
        self._ended(self.pid)
        self._on_end()

    def close(self):
        """Kill the process and wait for its end."""
        if not self.gone.is_set():
            self.kill()
            self._popen.wait()
            self._reap()


def _lower_priority(pid):
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
    # With autogroup scheduling the niceness alone has no effect.
    with contextlib.suppress(OSError), open(
            f'/proc/{pid}/autogroup', 'w') as file:
        file.write(str(_NICENESS))


def _is_root():
    return os.geteuid() == 0


def _change_ids(user, group, further):
    return ('--reuid', str(user), '--regid', str(group), *(
        ('--clear-groups',) if further is None
        else ('--groups', str(further))))


class Processes:
    """The processes of all containers.

    :param shared: whether processes of other users need the folder.
    """

    def __init__(self, shared=False):
        self._shared = shared
        self._alive = {}
        self._marks = {}
        self._ended = {}
        self._watch = None
        self._sweeping = None
        self._setpriv = shutil.which('setpriv')

    @functools.cached_property
    def folder(self):
        """Return the folder for the files of pods, removed by :meth:`close`.

        Made when it is needed: a sandbox that cannot start leaves none.
        """
        made = pathlib.Path(tempfile.mkdtemp(prefix='sushy-kubevirt-pods-'))
        if self._shared:
            made.chmod(0o711)
        return made

    def start(self, command, env, folder, on_output, on_end, identity=None):
        """Start a process.

        :param command: list of words.
        :param env: the whole environment.
        :param folder: working directory.
        :param identity: see :meth:`arguments`.
        :param on_output: function that is called with the bytes of its output.
        :param on_end: function that is called when it has ended.
        :returns: a :class:`Process`.
        :raises NotStarted: the process cannot be started.
        """
        words = self.arguments(command, env, folder, identity)
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
        _lower_priority(popen.pid)
        self._marks[popen.pid] = mark
        self._notify_reaper(popen.pid, mark)
        made = Process(popen, ours, on_output, on_end, self._forget)
        self._alive[popen.pid] = made
        return made

    def arguments(self, command, env, folder, identity=None):
        """Return the resolved arguments of a command; see :meth:`start`.

        :param identity: (uid, gid, further gid or None) of the process; None:
            those of the sandbox. Without root's rights the process only sees
            the first two, in a user namespace, and has the sandbox's rights.
        """
        path = shutil.which(command[0], path=env.get('PATH', os.defpath))
        if '/' in command[0]:
            path = os.path.join(folder, command[0])
            path = path if os.access(path, os.X_OK) else None
        if path is None:
            raise NotStarted(f'exec: "{command[0]}": executable file not '
                             'found in $PATH')
        words = [path, *command[1:]]
        if self._setpriv:
            # In addition to the reaper: killed with the loop's thread.
            words = [self._setpriv, '--pdeathsig', 'KILL', *(
                _change_ids(*identity) if identity and _is_root() else ()),
                '--', *words]
        if identity and not _is_root():
            words = ['unshare', '--user', '--map-user', str(identity[0]),
                     '--map-group', str(identity[1]), '--', *words]
        return words

    def mark(self, pid):
        """Return a variable that marks processes to end with a process.

        :returns: (name, value)
        """
        return process_reaper.MARK, self._marks[pid]

    def close(self):
        """End all processes and remove their files."""
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

    def _notify_reaper(self, number, mark):
        with contextlib.suppress(OSError):
            self._watch.stdin.write(f'{number} {mark}\n'.encode())
            self._watch.stdin.flush()

    def _forget(self, pid):
        """Kill a container's processes outside of its leader's group."""
        self._alive.pop(pid, None)
        self._ended[pid] = self._marks.pop(pid)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(
                _SWEEP, self._sweep)

    def _sweep(self):
        # Scan /proc once for all containers that have ended.
        self._sweeping = None
        if self._ended:
            process_reaper.kill_all(self._ended)
            for number, mark in self._ended.items():
                self._notify_reaper(-number, mark)
            self._ended.clear()
