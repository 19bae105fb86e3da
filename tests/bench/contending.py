# SPDX-License-Identifier: Apache-2.0
"""The BMC of one VM while other containers take all CPU.

Each has a cgroup with the weight that the kubelet gives a container for its
CPU request, as siblings below one parent. Clients and the cluster run outside
of it and are not slowed down. Other programs outside take from the parent what
their weight gives them: run it on an idle machine.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import signal
import sys
import time

import fixtures
import psutil

from kubevirt_sandbox.testing import process
from tests.bench import agent
from tests.bench import bmc
from tests.bench import commanding
from tests.bench import load
from tests.bench import report
from tests.bench import rounds

#: CPU requests of the BMC that are compared, in thousandths of a CPU. The
#: default, which has targets, is the first.
REQUESTS = 30, 7, 20, 50

#: CPU request of each of the other containers. There is one for each CPU, so
#: that all is requested, the worst that a scheduler allows, with this many
#: processes.
GUEST, BUSY = 1000, 2

#: CPU request of the parent, as that of all pods of a node (``kubepods``). A
#: process outside of it has as much as one CPU.
_PARENT = 1000 * os.cpu_count()

#: What an agent has to serve.
NEEDS = 'https', 'ipmi', 'power'

_V1, _V2 = pathlib.Path('/sys/fs/cgroup/cpu'), pathlib.Path('/sys/fs/cgroup')


def shares(request: int) -> int:
    """Return the CPU shares of a container (kubelet, MilliCPUToShares).

    :param request: in thousandths of a CPU
    """
    return max(2, request * 1024 // 1000)


def weight(cpu_shares: int) -> int:
    """Return the weight in cgroup v2 of CPU shares (runc 1.3.2, crun 1.23).

    Before, it was ``1 + (shares - 2) * 9999 // 262142``. A container of 30m
    beside those of whole CPUs has the smallest part of the time with the
    shares of cgroup v1, a larger one by that formula, and most by this one.
    """
    power = math.log2(cpu_shares)
    return math.ceil(10 ** ((power ** 2 + 125 * power) / 612 - 7 / 34))


def hierarchy() -> pathlib.Path:
    """Return the folder of the cgroup hierarchy with the CPU controller."""
    return _V1 if _V1.is_dir() else _V2


def unavailable() -> str | None:
    """Return why no cgroup can be made, or None."""
    root = hierarchy()
    if not os.access(root, os.W_OK):
        return f'no right to make a cgroup in {root}: run it as root'
    if root == _V2 and 'cpu' not in (
            root / 'cgroup.subtree_control').read_text().split():
        return f'the CPU controller is not enabled in {root}'
    return None


class Group(fixtures.Fixture):
    """A cgroup with a weight.

    :param path: its folder, which is made and removed
    :param cpu_shares: its weight
    """

    def __init__(self, path: pathlib.Path, cpu_shares: int) -> None:
        super().__init__()
        self.path = path
        self._shares = cpu_shares

    def _setUp(self) -> None:
        self.path.mkdir()
        self.addCleanup(self._remove)
        if self.path.parent == _V2:
            (self.path / 'cgroup.subtree_control').write_text('+cpu')
        self.weigh(self._shares)

    def _remove(self) -> None:
        # The processes of the group have just been ended.
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def weigh(self, cpu_shares: int) -> None:
        """Set the CPU shares, or the weight that a runtime makes of them."""
        if hierarchy() == _V1:
            (self.path / 'cpu.shares').write_text(str(cpu_shares))
        else:
            (self.path / 'cpu.weight').write_text(str(weight(cpu_shares)))

    def add(self, pid: int) -> None:
        """Move a process and its descendants into the group."""
        parent = psutil.Process(pid)
        for member in parent, *parent.children(recursive=True):
            (self.path / 'cgroup.procs').write_text(str(member.pid))


class Guests(fixtures.Fixture):
    """Containers that compute for ever, stopped until they `compute`."""

    def __init__(self, parent: pathlib.Path) -> None:
        super().__init__()
        self._parent = parent

    def _setUp(self) -> None:
        self._processes = []
        for number in range(os.cpu_count()):
            group = self.useFixture(
                Group(self._parent / f'guest-{number}', shares(GUEST)))
            for _ in range(BUSY):
                # A stopped one does not end on SIGTERM.
                guest = self.useFixture(process.Process(
                    [sys.executable, '-c', 'while True: pass'], grace=0))
                guest.send(signal.SIGSTOP)
                group.add(guest.pid)
                self._processes.append(guest)

    @contextlib.contextmanager
    def compute(self) -> Iterator[None]:
        """Take all CPU."""
        for guest in self._processes:
            guest.send(signal.SIGCONT)
        try:
            yield
        finally:
            for guest in self._processes:
                guest.send(signal.SIGSTOP)


def measure(sizes, say, others=()) -> Iterator[report.Row]:
    """Measure the answers of a BMC for each of the CPU requests of `sizes`.

    All versions are asked at the same time: beside the other containers they
    take a hundredth of the CPU from each other.

    :param others: pairs of the command of another agent and what it is called
    :returns: rows; the neighbours are the others, and the same BMC on an idle
        machine. The reason of one tells if a p99 is of less than a hundred
        answers
    """
    say('contention: start')
    what = 'answers while other containers take all CPU'
    if reason := unavailable():
        yield report.Row(what, 'ms, p99', None, reason=reason)
        return
    _remove_old()
    with fixtures.CompoundFixture([]) as holder:
        parent = holder.useFixture(Group(
            hierarchy() / f'bench-{os.getpid()}', shares(_PARENT))).path
        guests = holder.useFixture(Guests(parent))
        groups = [holder.useFixture(Group(
            parent / f'bmc-{number}', shares(GUEST)))
            for number in range(1 + len(others))]
        agents = bmc.start(holder, others, say)
        for measured, group in zip(agents, groups):
            if not measured.failures:
                group.add(measured.process.pid)
        idle = _answers('idle machine', sizes, 1, say, {}, agents[0])
        for request in sizes.contention_requests:
            few = {}
            # Most of the time is for the request with targets.
            seconds = sizes.contention_seconds[request != REQUESTS[0]]
            sides = [bmc.side(measured, NEEDS, functools.partial(
                _answers, _of(request), sizes, seconds, say, few))
                for measured in agents]
            for group in groups:
                group.weigh(shares(request))
            with guests.compute():
                rounds.together(sides, say)
            sides.append(rounds.Side('idle machine', None, turns=[{
                (kind.replace('idle machine', _of(request)), unit): value
                for (kind, unit), value in idle.items()}]))
            for row in rounds.rows(what, sides):
                yield row if row.failed else dataclasses.replace(
                    row, reason='; '.join(few.get(row.name, ())) or row.reason)


def _of(request: int) -> str:
    return f'{request}m of CPU'


def _remove_old() -> None:
    """Remove the cgroups of runs that were killed."""
    for parent in hierarchy().glob('bench-*'):
        if not psutil.pid_exists(int(parent.name.rpartition('-')[2])):
            for group in *parent.glob('*/'), parent:
                group.rmdir()


@contextlib.contextmanager
def _kept(measured, varies) -> Iterator[Callable[[], None]]:
    with measured.connection('https', varies) as connection:
        connection.get()
        yield connection.get


def _connect(measured) -> None:
    with measured.connection('https') as connection:
        connection.get()


#: Kinds of requests: what an agent and their number make the context of the
#: function that sends one.
_KINDS = {
    'GET system': lambda measured, _: _kept(measured, False),
    'GET system, not cached': lambda measured, _: _kept(measured, True),
    'GET system, new connection': lambda measured, _: contextlib.nullcontext(
        functools.partial(_connect, measured)),
    'IPMI chassis status': lambda measured, count: commanding.session(
        measured.bmc, count)}


def _answers(where, sizes, seconds, say, few, measured) -> rounds.Figures:
    """Ask a BMC with each of `_KINDS`.

    :param where: end of the names of the rows
    :param seconds: time limit of each
    :param few: dictionary that gets notes by the name of a row
    :returns: milliseconds
    """
    figures = {}
    for kind, context in _KINDS.items():
        name = f'{kind}, {where}'
        with context(measured, sizes.contention_answers) as send:
            times = _times(send, sizes.contention_answers, seconds)
        figures[name, 'ms, p99'] = p99 = (
            1000 * load.percentile(times, 99))
        note = f'{measured.name}: {len(times)} answers'
        say(f'contention: {name}: {note}, p99 {p99:.3g} ms')
        if len(times) < min(100, sizes.contention_answers):
            few.setdefault(name, []).append(f'{note} in {seconds:g} s')
    figures[f'power state, {where}', 'ms late'] = _late(measured)
    return figures


def _times(send, count: int, seconds: float) -> list[float]:
    """Return the seconds of calls, at least one.

    :param count: most calls
    :param seconds: after which no further one begins
    """
    times, end = [], time.perf_counter() + seconds
    while not times or (len(times) < count and time.perf_counter() < end):
        times += load.times(send, 1)
    return times


def _late(measured) -> float:
    """Start a VM; return milliseconds from its VMI's start to ``On``."""
    cluster, vm = measured.cluster, measured.vm
    cluster.do(vm, 'start')
    cluster.wait_running(vm)
    late = 1000 * _seconds_until('On', measured)
    cluster.do(vm, 'stop')
    cluster.wait_stopped(vm)
    # The next measurement would include what the BMC makes of the stop: 10 ms
    # of processor time, which under contention are half a second.
    _seconds_until('Off', measured)
    return late


def _seconds_until(state: str, measured) -> float:
    """Wait until a BMC shows a power state; return how long it took.

    :raises: `TimeoutError`
    """
    begin = time.perf_counter()
    while measured.power_state() != state:
        if time.perf_counter() > begin + agent.START:
            raise TimeoutError(
                f'{measured.vm} is not {state} after {agent.START} s')
    return time.perf_counter() - begin
