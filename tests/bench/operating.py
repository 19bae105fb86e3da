# SPDX-License-Identifier: Apache-2.0
"""The operator and its BMCs: time to Ready, memory, and load when idle.

Memory and processor time are those of the processes; the sandbox counts the
calls. The load when idle is measured over some time, as it is low.
"""

import concurrent.futures
import contextlib
import functools
import re
import statistics
import time
import urllib.request

import fixtures
import psutil

from kubevirt_sandbox.testing import api_user
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.bench import load
from tests.bench import memory
from tests.bench import processor
from tests.bench import rounds
from tests.bench import version
from tests.fixtures import operator
from tests.fixtures import sandbox

BMCS = '/apis/bmc.kubevirt.io/v1beta1/namespaces/%s/virtualmachinebmcs'

_NAMESPACE = 'default'

#: Seconds between messages about the progress, and until a BMC is ready.
_PROGRESS, _PATIENCE = 10, 120


class Cluster(fixtures.Fixture):
    """A sandbox with the operator, which has the permissions of its account.

    :param pods: ``processes`` or ``pretended``
    :param arguments: of the operator
    :param program: path of an operator, in the environment ``.venv/bin`` of a
        checkout whose manifests are installed
    :param vms: number of VMs, vm-0, vm-1, …
    """

    def __init__(self, pods, arguments=(), program=None, vms=0):
        super().__init__()
        self.pods = pods
        self.arguments = arguments
        self.program = program or process.BIN / operator.NAME
        self.vms = vms

    def _setUp(self):
        self.sandbox = self.useFixture(sandbox.Sandbox(
            vms=self.vms, arguments=('--pods', self.pods, '--programs',
                                     self.program.parent)))
        manifests = self.program.parents[2] / 'etc' / 'kubernetes'
        operator.install(api_user.ApiUser(self.sandbox.kubeconfig), manifests
                         if manifests.exists() else operator.MANIFESTS)
        self.operator = self.useFixture(operator.Operator(
            self.sandbox.account(operator.NAME, operator.NAMESPACE),
            self.arguments, program=self.program,
            variables=self._image_variables()))

    def _image_variables(self):
        """Return what the version's image sets for memory and byte code."""
        path = self.program.parents[2] / 'images/operator/Containerfile'
        return dict(re.findall(
            r'(MALLOC_ARENA_MAX|PYTHONOPTIMIZE)=(\d)',
            path.read_text() if path.exists() else ''))

    def vm(self, name):
        self.sandbox.create('virtualmachines', machines.vm(name, 'Halted'))

    def bmc(self, name):
        """Create a BMC for the VM of that name."""
        self.sandbox.request('POST', BMCS % _NAMESPACE,
                             operator.bmc_manifest(name), expect=201)

    def _is_ready(self, name):
        found = self.sandbox.request(
            'GET', f'{BMCS % _NAMESPACE}/{name}', expect=200).json()
        return any(each['type'] == 'Ready' and each['status'] == 'True'
                   for each in (found.get('status') or {}).get(
                       'conditions') or ())

    def make_ready(self, name, pause):
        """Create a BMC, and wait until it is ready.

        :param pause: seconds between two polls; the precision of the time
        """
        self.bmc(name)
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready(name):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f'{name} is not ready after {_PATIENCE} s')
            time.sleep(pause)

    def populate(self, say):
        """Create BMCs for ``vms`` VMs, by four clients at once.

        :param say: function that gets the progress from time to time
        :returns: dictionary by unit: seconds until all BMCs are ready, and
            processor time meanwhile. The API server has one thread
        :raises AssertionError: they are not ready in time
        """
        pids = [one.process.pid for one in (self.operator, self.sandbox)]
        before = list(map(processor.seconds, pids))
        began = said = time.monotonic()

        def tell(count, what):
            nonlocal said
            elapsed = (now := time.monotonic()) - began
            if now > said + _PROGRESS:
                said = now
                say(f'{count} of {self.vms} BMCs {what} after {elapsed:.0f} s')
            if elapsed > 120 + self.vms:
                raise AssertionError(f'{count} of {self.vms} BMCs {what}')

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for number, _ in enumerate(pool.map(self.bmc, (
                    f'vm-{number}' for number in range(self.vms)))):
                tell(number, 'created')
        while (ready := self._count_ready()) < self.vms:
            tell(ready, 'Ready')
            time.sleep(0.1)
        elapsed = time.monotonic() - began
        cpu, api = (processor.seconds(pid) - earlier
                    for pid, earlier in zip(pids, before))
        return {'s, all Ready': elapsed, 's of CPU until Ready': cpu,
                's of CPU until Ready, API server': api,
                's, all Ready, less API server': elapsed - api}

    def _count_ready(self):
        """Return how many BMCs are ready, by the operator's metrics.

        A list of all of them is load, too.
        """
        url = re.search(r'http://[^ "]+', self.operator.process.output)[0]
        with urllib.request.urlopen(url + '/metrics') as answer:
            text = answer.read().decode()
        found = re.search(r'(?m)^sushy_kubevirt_operator_bmcs\{'
                          r'reason="ServiceReady"\} (\d+)', text)
        return int(found[1]) if found else 0

    def delete(self, name):
        """Delete a BMC and wait until its pod is gone."""
        self.sandbox.request('DELETE', f'{BMCS % _NAMESPACE}/{name}',
                             expect=200)
        while self.sandbox.list('pods'):
            time.sleep(0.02)

    def bmc_process(self):
        """Return the process id of the only BMC."""
        found = []
        for one in psutil.Process(
                self.sandbox.process.pid).children(recursive=True):
            # Short-lived processes may have ended since they were listed.
            with contextlib.suppress(psutil.NoSuchProcess):
                if 'sushy-kubevirt-bmc' in ' '.join(one.cmdline()):
                    found.append(one)
        return found[-1].pid

    def rest(self, seconds, pid):
        """Measure the load of a process when idle.

        :param seconds: duration
        :param pid: of the process
        :returns: dictionary by unit; the calls are those of all processes
        """
        time.sleep(min(5, seconds))
        before = processor.seconds(pid)
        self.sandbox.reset_stats()
        time.sleep(seconds)
        calls = self.sandbox.stats()
        used = processor.seconds(pid) - before
        return {'CPU, m': used * 1000 / seconds,
                'API calls a minute': calls['total'] * 60 / seconds}


def named(what, figures):
    """Return `rounds.Figures` of a dictionary by unit."""
    return {(what, unit): value for unit, value in figures.items()}


def _times(cluster, count):
    """Return the median time from creation to Ready of BMCs, in ms."""
    times = []
    for number in range(count + 1):
        name = f'timed-{number}'
        cluster.vm(name)
        times += load.times(lambda: cluster.make_ready(name, 0.005), 1)
        cluster.delete(name)
    # Leave out the first one, which reads all files from disk.
    return 1000 * statistics.median(times[1:])


def _one(sizes, say, program):
    with Cluster('processes', program=program) as cluster:
        say('operator: a BMC, time to Ready')
        ready = _times(cluster, sizes.ready)
        say(f'operator: an idle BMC, for {sizes.rest} s')
        cluster.vm('idle')
        cluster.make_ready('idle', 0.1)
        container = cluster.bmc_process()
        # With the operator stopped, all calls are the pod's.
        cluster.operator.process.end()
        rest = cluster.rest(sizes.rest, container)
        return {('BMC, from applied to Ready', 'ms, median'): ready,
                ('idle BMC', 'MiB of PSS'): memory.pss(container),
                **named('idle BMC', rest)}


def _many(sizes, say, program):
    with Cluster('pretended', program=program, vms=sizes.crowd) as cluster:
        what = f'operator with {sizes.crowd} BMCs'
        figures = {("of these the operator's", 'ms, median'):
                   _times(cluster, sizes.ready)}
        say(what)
        figures.update(named(what, cluster.populate(say)))
        running = cluster.operator.process.pid
        figures[what, 'MiB of PSS'] = memory.pss(running)
        say(f'operator: idle, for {sizes.rest} s')
        figures.update(named(what, cluster.rest(sizes.rest, running)))
        figures[what + ', rested', 'MiB of PSS'] = memory.pss(running)
        return figures


def measure(sizes, say, others=()):
    """Measure the operator, with a BMC whose containers run, and in a cluster
    whose pods are ready immediately, so that the time to Ready is its share.

    :param others: other versions, see `version.sides`
    :returns: iterator of `report.Row`; none without kubectl, which installs
        the operator
    """
    if not kubectl.KUBECTL:
        say('operator: skipped, because kubectl is not installed')
        return
    for what, turn in ('a BMC', _one), ('many BMCs', _many):
        yield from rounds.compare(
            f'operator with {what}', version.sides(
                others, operator.NAME, functools.partial(turn, sizes, say)),
            1, say)
