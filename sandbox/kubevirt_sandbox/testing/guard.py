# SPDX-License-Identifier: Apache-2.0
"""Run a command and end all its descendants with the calling test.

The programs under test fork: gunicorn has workers, ``vbmcd`` has a process
for each BMC, and a process survives when its parent is killed. This program
runs between them and the tests. It is the *subreaper* of the command, so all
descendants stay below it, including those with a session of their own, and
it reads a pipe from the test process. When the pipe closes, because the test
closed it or died, the program ends all descendants.

It runs as a script without site packages to start quickly and stay small.
:mod:`kubevirt_sandbox.testing.process` is the caller.

Usage: ``guard.py STATUS_FD GRACE COMMAND...``. Lines written to STATUS_FD:
``pid N`` when the command runs, ``exit N`` when it has ended (the negative
signal number when a signal ended it), ``left N...`` with the processes that
were still running after the command had ended and had to be killed.
"""

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option, value):
    """Call ``prctl(2)``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), 'prctl')


def below(pid):
    """Find all descendants of a process.

    :returns: list of process ids, without zombies.
    """
    children = {}
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        try:
            with open(f'/proc/{entry}/stat') as stat:
                # The name, in parentheses, may contain any character.
                state, parent = stat.read().rpartition(')')[2].split()[:2]
        except OSError:
            continue
        if state not in 'ZX':
            children.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        these = children.get(queue.pop(), [])
        found += these
        queue += these
    return found


def ended(descriptor, seconds):
    """Wait until the process of a pidfd has ended.

    :param descriptor: the pidfd.
    :param seconds: how long to wait.
    :returns: whether the process has ended.
    """
    return bool(select.select([descriptor], [], [], seconds)[0])


class Guard:
    """One command, from its start to the end of its last descendant.

    :param status: file descriptor for the status lines.
    :param grace: seconds between SIGTERM and SIGKILL.
    :param command: list of arguments.
    """

    def __init__(self, status, grace, command):
        self.status = status
        self.grace = grace
        self.command = command
        self.child = None
        self.ended = False

    def report(self, line):
        """Write a status line."""
        try:
            os.write(self.status, line.encode() + b'\n')
        except OSError:
            pass  # the caller is gone; its pipe closes as well

    def start(self):
        """Start the command in a session of its own."""
        self.child = os.fork()
        if self.child == 0:
            try:
                os.setsid()
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.set_wakeup_fd(-1)
                for signum in signal.SIGCHLD, signal.SIGINT, signal.SIGTERM:
                    signal.signal(signum, signal.SIG_DFL)
                os.set_inheritable(self.status, False)
                null = os.open(os.devnull, os.O_RDONLY)
                os.dup2(null, 0)
                os.execvp(self.command[0], self.command)
            except BaseException as exc:
                os.write(2, (f'{self.command[0]}: {exc}\n').encode())
            finally:
                os._exit(127)
        self.report(f'pid {self.child}')
        # Keep no copy of the output: it must close when the command ends.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)

    def reap(self):
        """Reap ended child processes.

        :returns: False when no child process is left.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.ended = True
                self.report(f'exit {os.waitstatus_to_exitcode(status)}')

    def run(self):
        """Run the command until all its descendants have ended."""
        wake_read, wake_write = os.pipe()
        for end in wake_read, wake_write:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.start()

        def wait(fds, seconds=None):
            ready = select.select(fds, [], [], seconds)[0]
            if wake_read in ready:
                os.read(wake_read, 4096)
            return ready

        self.reap()
        while True:
            if 0 in wait([0, wake_read]) and not os.read(0, 64):
                break
            self.reap()
        deadline = time.monotonic() + self.grace
        if not self.ended:
            os.kill(self.child, signal.SIGTERM)
        while self.reap() and not self.ended:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            wait([wake_read], left)
        told = False
        while self.reap():
            left = below(os.getpid())
            if left and not told:
                told = True
                self.report('left ' + ' '.join(map(str, left)))
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            wait([wake_read], 0.05)


if __name__ == '__main__':
    Guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]).run()
