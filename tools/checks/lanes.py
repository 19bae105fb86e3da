# SPDX-License-Identifier: Apache-2.0
"""Run suites side by side, each in a process of its own.

The process of a suite adopts what the suite's processes leave behind, so it is
known which suite left something running.
"""

import contextlib
import io
import multiprocessing
import multiprocessing.connection
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import types
import typing

from kubevirt_sandbox.testing import guard
from tools.checks import report
from tools.checks import suites

Connection = multiprocessing.connection.Connection

#: A function of a folder for its files.
Suite = typing.Callable[[str], suites.Result]


class Row(typing.NamedTuple):
    """What a suite has found, in how many seconds, and of how much CPU."""

    name: str
    result: suites.Result
    seconds: float
    cpu: float


class _Sender(io.TextIOBase):
    """A stream whose text another process prints."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._pipe.send(text)
        return len(text)


def exit_on_signals(*more: int) -> None:
    """Exit on SIGTERM, on SIGHUP and when the parent process ends.

    The caller then kills all child processes.

    :param more: numbers of further signals.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP, *more)
               # Keep ignoring SIGHUP under nohup.
               if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int, _frame: types.FrameType | None) -> None:
        # Handle one signal only. A signal to the process group also ends
        # the shell, whose end sends another one here, which would interrupt
        # the clean-up.
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, end)
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGTERM)


def _run_suite(suite: Suite, folder: str) -> suites.Result:
    """Run one suite; count an exception in it as one failure.

    Processes that the suite left running are another failure.

    :param folder: folder for the suite's files.
    """
    try:
        result = suite(folder)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        result = suites.Result(failed=1, failures=(
            'the suite itself\n' + traceback.format_exc(),))
    if commands := suites.kill_leftovers():
        result += suites.Result(
            failed=1, failures=('left running: ' + '; '.join(commands),))
    return result


def _child(pipe: Connection, name: str, suite: Suite, folder: str,
           verbose: bool) -> None:
    """Run a suite in this process, which is its own, and send what it found.

    :param pipe: takes text to print, and finally a `Row`
    """
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    exit_on_signals(signal.SIGINT)
    began = time.monotonic()
    os.mkdir(folder)
    try:
        with report.Log(name, folder + '.log', verbose,
                        shown=_Sender(pipe)) as log, \
                contextlib.redirect_stdout(log):
            result = _run_suite(suite, folder)
    finally:
        # After a signal the suite's processes are still running.
        suites.kill_leftovers(patience=0)
    shutil.rmtree(folder, ignore_errors=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    pipe.send(Row(name, result, time.monotonic() - began,
                  used.ru_utime + used.ru_stime))


def end_suites(seconds: float) -> None:
    """Let suites that still run clean up, after a signal.

    :param seconds: longest wait for all of them; 0 to leave them alone.
    """
    deadline = time.monotonic() + seconds
    children = multiprocessing.active_children() if seconds else []
    for child in children:
        child.terminate()
    for child in children:
        child.join(max(deadline - time.monotonic(), 0))


def _start(name: str, suite: Suite, top: str, verbose: bool) -> Connection:
    """Start the process of a suite.

    :returns: the pipe from it
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # The child must not have output that this process has not yet written.
    sys.stdout.flush()
    multiprocessing.get_context('fork').Process(
        target=_child, args=(sender, name, suite, os.path.join(top, name),
                             verbose), daemon=True).start()
    sender.close()
    return receiver


def run(selected: typing.Iterable[tuple[str, Suite]], top: str, count: int,
        verbose: bool = False) -> list[Row]:
    """Run suites, and print what each has found when it ends.

    :param selected: names and functions of suites, in the order in which
        they start
    :param top: folder for their files and logs
    :param count: how many run at the same time
    :param verbose: whether to show all output
    :returns: a `Row` for each, in that order
    """
    rows: dict[str, Row] = {}
    running: dict[Connection, str] = {}
    waiting = list(selected)
    while waiting or running:
        while waiting and len(running) < count:
            name, suite = waiting.pop(0)
            print(f'===== {name}', flush=True)
            running[_start(name, suite, top, verbose)] = name
        for pipe in multiprocessing.connection.wait(running):
            name = running[pipe]
            try:
                said = pipe.recv()
            except (EOFError, OSError):
                said = Row(name, suites.Result(failed=1, failures=(
                    f'the process of suite {name} was killed',)), 0, 0)
            if not isinstance(said, Row):
                print(said, end='', flush=True)
                continue
            del running[pipe]
            pipe.close()
            rows[name] = said
            print(f'===== {name}: {said.result}', flush=True)
            for output in said.result.failures:
                print(report.failure_summary(output), flush=True)
    return [rows[name] for name, _suite in selected]
