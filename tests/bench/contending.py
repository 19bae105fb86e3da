# SPDX-License-Identifier: Apache-2.0
"""The BMC of one VM while other containers take all CPU.

Each has a cgroup with the weight that the kubelet gives a container for its
CPU request, as siblings below one parent. Clients and the cluster run outside
of it and are not slowed down. Other programs outside take from the parent what
their weight gives them: run it on an idle machine.
"""

from collections.abc import Iterator
import contextlib
import functools
import math
import os
import pathlib
import signal
import sys
import time
import timeit

import fixtures
import psutil

from kubevirt_sandbox.testing import process
from tests.bench import bmc
from tests.bench import commanding
from tests.bench import report
from tests.bench import rounds

#: CPU requests of the BMC that are compared, in thousandths of a CPU.
REQUESTS = 7, 20, 30, 50

#: CPU request of each of the other containers. There is one for each CPU, so
#: that all is requested, the worst that a scheduler allows, with this many
#: processes.
GUEST, BUSY = 1000, 2

#: CPU request of the parent, as that of all pods of a node (``kubepods``). A
#: process outside of it has as much as one CPU.
_PARENT = 1000 * os.cpu_count()

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
    """Measure the answers of a BMC for each of `REQUESTS`.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :param others: pairs of the command of another agent and what it is called
    :returns: rows; the neighbours are the others, and the same BMC on an idle
        machine
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
        agents, sides = bmc.start(holder, others, say), []
        for one, group in zip(agents, groups):
            if not one.failures:
                group.add(one.process.pid)
            sides.append(bmc.side(
                one, ('https', 'ipmi', 'power'), functools.partial(
                    _turn, group=group, guests=guests, sizes=sizes, say=say)))
        sides.append(rounds.Side('idle machine', lambda: {
            (_name(what, request), unit): value for request in REQUESTS
            for (what, unit), value in _answers(agents[0], sizes).items()}))
        rounds.alternate(sides, sizes.contention_rounds, say)
        yield from rounds.rows(what, sides)


def _remove_old() -> None:
    """Remove the cgroups of runs that were killed."""
    for parent in hierarchy().glob('bench-*'):
        if not psutil.pid_exists(int(parent.name.rpartition('-')[2])):
            for group in *parent.glob('*/'), parent:
                group.rmdir()


def _name(what: str, request: int) -> str:
    return f'{what}, {request}m of CPU'


def _turn(measured, group, guests, sizes, say) -> rounds.Figures:
    """Ask a BMC under contention, with each of `REQUESTS`."""
    figures = {}
    for request in REQUESTS:
        say(f'contention: {measured.name}, {request}m')
        group.weigh(shares(request))
        with guests.compute():
            figures.update({
                (_name(what, request), unit): value for (what, unit), value
                in _answers(measured, sizes).items()})
    return figures


def _answers(measured, sizes) -> rounds.Figures:
    """Ask a BMC; return milliseconds."""
    gets = []
    for varies in False, True:
        with measured.connection('https', varies) as kept:
            kept.get()
            gets.append(_times(kept.get, sizes.contention_answers))

    def connect() -> None:
        with measured.connection('https') as connection:
            connection.get()

    connects = _times(connect, max(2, sizes.contention_answers // 10))
    commands = [1000 * seconds for seconds in commanding.times(
        measured.bmc, sizes.contention_answers)]
    return {
        ('GET system', 'ms, p99'): _p99(gets[0]),
        ('GET system, not cached', 'ms, p99'): _p99(gets[1]),
        ('GET system, new connection', 'ms, p99'): _p99(connects),
        ('IPMI chassis status', 'ms, p99'): _p99(commands),
        ('power state', 'ms late'): _late(measured)}


def _times(action, count: int) -> list[float]:
    """Return the milliseconds that each of ``count`` calls takes."""
    return [1000 * timeit.timeit(action, number=1) for _ in range(count)]


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


def _late(measured) -> float:
    """Start a VM; return milliseconds from its VMI's start to ``On``."""
    cluster, vm = measured.cluster, measured.vm
    cluster.do(vm, 'start')
    cluster.wait_running(vm)
    begin = time.perf_counter()
    while measured.power_state() != 'On':
        pass
    late = 1000 * (time.perf_counter() - begin)
    cluster.do(vm, 'stop')
    cluster.wait_stopped(vm)
    return late
