# SPDX-License-Identifier: Apache-2.0
"""Real programs as fixtures: started, waited for, and gone afterwards.

Knows nothing of the programs it starts.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import fixtures

BIN = pathlib.Path(sys.executable).parent
GUARD = pathlib.Path(__file__).with_name('guard.py')

# What a developer's shell may say that would change what the programs do.
_FOREIGN = re.compile(
    r'(KUBE|SUSHY_|VIRTUALBMC_|VBMC_|OS_|PYTHON|GUNICORN_|COVERAGE_'
    r'|IPMITOOL_|IPMI_|SANDBOX_|LIBVIRT_|.*_proxy$|.*_PROXY$)')


# What a program may print and be remembered of it.
_REMEMBERED = 8 * 2 ** 20

_running = set()


@contextlib.contextmanager
def _uninterrupted():
    """Let a signal wait until a process that is started is noted.

    A handler that raises, in between, would leave it to nobody.
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
    """End all that runs, for a program that is stopped half-way."""
    for one in list(_running):
        one.end()


def cause(exc):
    """Find what happened in what a fixture's ``setUp`` raises.

    Its error wraps that of the fixture it uses, and so on, each with what
    came of the clean-up behind it.
    """
    while isinstance(exc, fixtures.MultipleExceptions):
        exc = exc.args[0][1]
    return exc


def running(text):
    """List the processes whose command line contains a text.

    :returns: list of process ids
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


def environment(home, extra=None):
    """Make the environment for a program under test.

    :param home: folder that is its ``HOME``.
    :param extra: dictionary of further variables; None as a value removes
        one.
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

    :param command: list of words; the first is looked for beside the
        running Python, then on ``PATH``.
    :param ready: regular expression; ``setUp`` returns when a line of the
        output matches it, and ``match`` is what it found. None: at once.
    :param env: dictionary, the whole environment; see :func:`environment`.
    :param cwd: folder to run in.
    :param timeout: seconds to become ready.
    :param grace: seconds to end after SIGTERM before SIGKILL.
    :param log: path of a file that gets the output too; added to.

    After clean-up ``leftovers`` lists the processes the program left behind
    (they were killed) and ``returncode`` is how it ended.
    """

    def __init__(self, command, *, ready=None, env=None, cwd=None,
                 timeout=30, grace=10, log=None):
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
            self._threads = [
                threading.Thread(target=self._read_output, daemon=True),
                threading.Thread(target=self._read_status,
                                 args=(status_read,), daemon=True)]
            _running.add(self)
            self.addCleanup(self.end)
            for thread in self._threads:
                thread.start()
        self._wait(lambda: self.pid, self.timeout, 'start')
        if self.ready is not None:
            self.match = self.wait_output(self.ready, self.timeout)

    def _read_output(self):
        with open(self.log or os.devnull, 'ab', buffering=0) as log:
            while chunk := os.read(self._guard.stdout.fileno(), 65536):
                log.write(chunk)
                with self._changed:
                    self._output += chunk
                    surplus = len(self._output) - _REMEMBERED
                    if surplus > 0:
                        del self._output[:surplus]
                        self._forgotten += surplus
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _read_status(self, descriptor):
        with os.fdopen(descriptor) as lines:
            for line in lines:
                word, *numbers = line.split()
                with self._changed:
                    if word == 'pid':
                        self.pid = int(numbers[0])
                    elif word == 'exit':
                        self.returncode = int(numbers[0])
                    elif word == 'left':
                        self.leftovers = [int(n) for n in numbers]
                    self._changed.notify_all()

    def _wait(self, get, timeout, what):
        """Wait until ``get()`` is true; called again at each change."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := get()):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        '%s did not %s in %g s; its output ends:\n%s'
                        % (self.name, what, timeout, self.tail()))
                self._changed.wait(left)
            return found

    @property
    def output(self):
        """What it has printed so far, standard error included, as text."""
        return self.since(0)

    def tail(self, lines=30):
        """The last lines of the output, for a message."""
        return '\n'.join(self.output.splitlines()[-lines:])

    def mark(self):
        """A position in the output, to look at only what comes after."""
        return self._forgotten + len(self._output)

    def since(self, mark):
        start = max(0, mark - self._forgotten)
        return self._output[start:].decode(errors='replace')

    def wait_output(self, pattern, timeout=30, mark=0):
        """Wait for a line of the output.

        :param pattern: regular expression, searched in whole lines.
        :param timeout: seconds.
        :param mark: from here on; see :meth:`mark`.
        :returns: the match.
        :raises TimeoutError: it did not come.
        :raises RuntimeError: the program ended without it.
        """
        expression = re.compile(pattern, re.MULTILINE)

        def find():
            text = self.since(mark)
            complete = text[:text.rfind('\n') + 1]
            found = expression.search(complete)
            if not found and self._closed and self.returncode is not None:
                raise RuntimeError('%s ended with %d; its output ends:\n%s'
                                   % (self.name, self.returncode,
                                      self.tail()))
            return found

        return self._wait(find, timeout, f'print {pattern!r}')

    def send(self, signum):
        """Send a signal to the program (not to what it forked)."""
        os.kill(self.pid, signum)

    def wait(self, timeout=30):
        """Wait for the program's end; returns its exit code."""
        self._wait(lambda: self.returncode is not None, timeout, 'end')
        return self.returncode

    def kill(self):
        """End the program as a power failure would, and wait for that."""
        if self.returncode is None:
            # It may have ended, and the news be on its way.
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
        return self.wait()

    def restart(self):
        """End all of it and start it again; its output starts anew."""
        self.cleanUp()
        self.setUp()

    def end(self):
        """End the program and all it started; the clean-up of this."""
        if self not in _running:
            return
        try:
            self._guard.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._guard.wait(self.grace + 10)
        except subprocess.TimeoutExpired:
            # Its child dies with it, by PR_SET_PDEATHSIG.
            self._guard.kill()
            self._guard.wait()
        for thread in self._threads:
            thread.join(5)
        self._guard.stdout.close()
        _running.discard(self)
