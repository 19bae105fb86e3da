# SPDX-License-Identifier: Apache-2.0
"""Fixture that runs any program and ends it with all its descendants."""

import contextlib
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import threading
import time

import fixtures

BIN = pathlib.Path(sys.executable).parent
GUARD = pathlib.Path(__file__).with_name('guard.py')

# Environment variables of a developer's shell that would change how the
# programs behave.
_FOREIGN = re.compile(
    r'(KUBE|SUSHY_|VIRTUALBMC_|VBMC_|OS_|PYTHON|GUNICORN_|COVERAGE_'
    r'|IPMITOOL_|IPMI_|SANDBOX_|LIBVIRT_|.*_proxy$|.*_PROXY$)')


# How much output of a program is kept, in bytes.
_REMEMBERED = 8 * 2 ** 20

_running = set()


@contextlib.contextmanager
def _uninterrupted():
    """Block signals until a started process is registered.

    A signal handler that raises in between would leave the process running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    handlers = {
        signum: signal.signal(signum, lambda *args: came.append(args))
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(signum) not in (None, signal.SIG_IGN)}
    try:
        yield
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        for signum, _ in came:
            signal.raise_signal(signum)


def end_all():
    """End all running processes, for a test program that is interrupted."""
    for one in list(_running):
        one.end()


def cause(exc):
    """Find the original error in an exception of a fixture's ``setUp``.

    The exception wraps that of each fixture it uses, followed by the errors
    of the clean-up.
    """
    while isinstance(exc, fixtures.MultipleExceptions):
        exc = exc.args[0][1]
    return exc


def running(text):
    """List the processes whose command line contains a text.

    :returns: list of process ids.
    """
    found = []
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            line = pathlib.Path('/proc', name, 'cmdline').read_bytes()
        except OSError:
            continue
        if text.encode() in line:
            found.append(int(name))
    return found


#: ``HOME`` of programs that need none: not even root can create it.
NO_HOME = '/dev/null/home'


def environment(home, extra=None):
    """Make the environment of a program under test.

    :param home: folder for ``HOME``, or `NO_HOME`.
    :param extra: dictionary of additional variables; the value None removes
        a variable.
    :returns: dictionary of strings.
    """
    env = {name: value for name, value in os.environ.items()
           if not _FOREIGN.match(name)}
    env.update(HOME=str(home), PYTHONUNBUFFERED='1',
               PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    for name, value in (extra or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


class Process(fixtures.Fixture):
    """A program that runs from ``setUp`` to ``cleanUp``.

    :param command: list of arguments; the program is looked up beside the
        running Python, then in ``PATH``.
    :param ready: regular expression; ``setUp`` returns when a line of the
        output matches it and keeps the match in ``match``. With None it
        returns immediately.
    :param env: dictionary, the whole environment; see :func:`environment`.
    :param cwd: working directory.
    :param timeout: seconds to become ready.
    :param grace: seconds between SIGTERM and SIGKILL.
    :param log: path of a file to which the output is appended as well.

    After clean-up ``leftovers`` lists the descendants that outlived the
    program and were killed, and ``returncode`` is its exit code.
    """

    def __init__(self, command, *, ready=None, env=None, cwd=None,
                 timeout=120, grace=10, log=None):
        super().__init__()
        self.command = [str(word) for word in command]
        self.name = pathlib.Path(self.command[0]).name
        self.ready = ready
        self.env = env
        self.cwd = cwd
        self.timeout = timeout
        self.grace = grace
        self.log = log
        self._changed = threading.Condition()

    def _setUp(self):
        self.pid = self.returncode = self.match = None
        self.leftovers = []
        self._output = bytearray()
        self._forgotten = 0
        self._closed = False
        beside = BIN / self.command[0]
        command = list(self.command)
        if os.sep not in command[0] and beside.exists():
            command[0] = str(beside)
        status_read, status_write = os.pipe()
        with _uninterrupted():
            try:
                self._guard = subprocess.Popen(
                    [sys.executable, '-I', '-S', str(GUARD),
                     str(status_write), str(self.grace), *command],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, pass_fds=[status_write],
                    start_new_session=True, env=self.env, cwd=self.cwd)
            finally:
                os.close(status_write)
            self._thread = threading.Thread(
                target=self._read, args=(status_read,), daemon=True)
            _running.add(self)
            self.addCleanup(self.end)
            self._thread.start()
        self._wait(lambda: self.pid, self.timeout, 'start')
        if self.ready is not None:
            self.match = self.wait_output(self.ready, self.timeout)

    def _read(self, descriptor):
        """Read the output, and the lines of the guard.

        What a program has written is in `output` before its end is known.
        """
        output = self._guard.stdout.fileno()
        with open(self.log or os.devnull, 'ab', buffering=0) as log, \
                os.fdopen(descriptor, 'rb', buffering=0) as lines:
            sources = {output, descriptor}

            def read_output():
                chunk = os.read(output, 65536)
                log.write(chunk)
                if not chunk:
                    sources.remove(output)
                self._append(chunk)

            while sources:
                if descriptor not in select.select(sources, [], [])[0]:
                    read_output()
                    continue
                line = lines.readline()
                while select.select(sources & {output}, [], [], 0)[0]:
                    read_output()
                if line:
                    self._note(*line.decode().split())
                else:
                    sources.remove(descriptor)

    def _append(self, chunk):
        with self._changed:
            self._output += chunk
            surplus = len(self._output) - _REMEMBERED
            if surplus > 0:
                del self._output[:surplus]
                self._forgotten += surplus
            self._closed = not chunk
            self._changed.notify_all()

    def _note(self, word, *numbers):
        with self._changed:
            if word == 'pid':
                self.pid = int(numbers[0])
            elif word == 'exit':
                self.returncode = int(numbers[0])
            elif word == 'left':
                self.leftovers = [int(n) for n in numbers]
            self._changed.notify_all()

    def _wait(self, get, timeout, what):
        """Wait until ``get()`` is true; it is called after each change.

        :param get: function without arguments.
        :param timeout: seconds.
        :param what: description for the error message.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := get()):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f'{self.name} did not {what} in {timeout:g} s; its '
                        f'output ends:\n{self.tail()}')
                self._changed.wait(left)
            return found

    @property
    def output(self):
        """Return the output so far, including standard error, as text."""
        return self.since(0)

    def tail(self, lines=30):
        """Return the last lines of the output, for error messages."""
        return '\n'.join(self.output.splitlines()[-lines:])

    def mark(self):
        """Return the current position in the output."""
        return self._forgotten + len(self._output)

    def since(self, mark):
        """Return the output after a position; see :meth:`mark`."""
        start = max(0, mark - self._forgotten)
        return self._output[start:].decode(errors='replace')

    def wait_output(self, pattern, timeout=60, mark=0):
        """Wait for a line of the output.

        :param pattern: regular expression, searched in complete lines.
        :param timeout: seconds.
        :param mark: position to search from; see :meth:`mark`.
        :returns: the match.
        :raises TimeoutError: no line matched in time.
        :raises RuntimeError: the program ended without a matching line.
        """
        expression = re.compile(pattern, re.MULTILINE)

        def find():
            text = self.since(mark)
            complete = text[:text.rfind('\n') + 1]
            found = expression.search(complete)
            if not found and self._closed and self.returncode is not None:
                raise RuntimeError(
                    f'{self.name} ended with {self.returncode}; its output '
                    f'ends:\n{self.tail()}')
            return found

        return self._wait(find, timeout, f'print {pattern!r}')

    def send(self, signum):
        """Send a signal to the program, not to its child processes."""
        os.kill(self.pid, signum)

    def wait(self, timeout=60):
        """Wait until the program has ended.

        :param timeout: seconds.
        :returns: the exit code.
        """
        self._wait(lambda: self.returncode is not None, timeout, 'end')
        return self.returncode

    def kill(self):
        """Kill the program with SIGKILL and wait for its end.

        :returns: the exit code.
        """
        if self.returncode is None:
            # The program may have ended before the guard reported it.
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
        return self.wait()

    def restart(self):
        """End the program and start it again with empty output."""
        self.cleanUp()
        self.setUp()

    def end(self):
        """End the program and its descendants; the fixture's clean-up."""
        if self not in _running:
            return
        try:
            self._guard.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._guard.wait(self.grace + 10)
        except subprocess.TimeoutExpired:
            # PR_SET_PDEATHSIG kills the guard's child with it.
            self._guard.kill()
            self._guard.wait()
        self._thread.join(5)
        self._guard.stdout.close()
        _running.discard(self)
