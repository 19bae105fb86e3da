# SPDX-License-Identifier: Apache-2.0
"""The operator and its BMCs: time to Ready, memory, and load when idle.

Memory and processor time are those of the processes; the sandbox counts the
calls. The load when idle is measured over some time, as it is low.
"""

import concurrent.futures
import contextlib
import statistics
import time

import fixtures
import psutil

from kubevirt_sandbox.testing import api_user
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from tests.bench import memory
from tests.fixtures import operator
from tests.fixtures import sandbox

BMCS = '/apis/bmc.kubevirt.io/v1beta1/namespaces/%s/virtualmachinebmcs'

_NAMESPACE = 'default'


class Cluster(fixtures.Fixture):
    """A sandbox with the operator, which has the permissions of its account.

    :param pods: ``processes`` or ``pretended``
    :param arguments: of the operator
    """

    def __init__(self, pods, arguments=()):
        super().__init__()
        self.pods = pods
        self.arguments = arguments

    def _setUp(self):
        self.sandbox = self.useFixture(sandbox.Sandbox(
            vms=0, arguments=('--pods', self.pods)))
        operator.install(api_user.ApiUser(self.sandbox.kubeconfig))
        self.operator = self.useFixture(operator.Operator(
            self.sandbox.account(operator.NAME, operator.NAMESPACE),
            self.arguments))

    def vm(self, name):
        self.sandbox.create('virtualmachines', machines.vm(name, 'Halted'))

    def bmc(self, name):
        """Create a BMC for the VM of that name."""
        self.sandbox.request('POST', BMCS % _NAMESPACE,
                             operator.bmc_manifest(name), expect=201)

    def ready(self):
        """Return the names of the BMCs that are ready, as a set."""
        listed = self.sandbox.request(
            'GET', BMCS % _NAMESPACE, expect=200).json()
        return {one['metadata']['name'] for one in listed['items']
                if any(each['type'] == 'Ready' and each['status'] == 'True'
                       for each in (one.get('status') or {}).get(
                           'conditions') or ())}

    def wait_ready(self, names, seconds, pause):
        """Wait until some BMCs are ready.

        :param names: set of their names
        :param seconds: time limit
        :param pause: seconds between two polls; the precision of the time
        """
        deadline = time.monotonic() + seconds
        while not names <= self.ready():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f'not ready after {seconds} s: '
                    f'{sorted(names - self.ready())[:10]}')
            time.sleep(pause)

    def delete(self, name):
        """Delete a BMC and wait until its pod is gone."""
        self.sandbox.request('DELETE', f'{BMCS % _NAMESPACE}/{name}',
                             expect=200)
        while self.sandbox.list('pods'):
            time.sleep(0.02)

    def bmc_process(self):
        """Return the process of the only BMC."""
        found = []
        for one in psutil.Process(
                self.sandbox.process.pid).children(recursive=True):
            # Short-lived processes may have ended since they were listed.
            with contextlib.suppress(psutil.NoSuchProcess):
                if 'sushy-kubevirt-bmc' in ' '.join(one.cmdline()):
                    found.append(one)
        return found[-1]

    def rest(self, seconds, process):
        """Measure the load of a process when idle.

        :param seconds: duration
        :param process: a `psutil.Process`
        :returns: dictionary of ``calls_a_minute``, of all processes, and of
            ``millicores``
        """
        before = sum(process.cpu_times()[:2])
        self.sandbox.reset_stats()
        time.sleep(seconds)
        calls = self.sandbox.stats()
        return {
            'calls_a_minute': calls['total'] * 60 / seconds,
            'millicores': (sum(process.cpu_times()[:2]) - before) * 1000
            / seconds}


def _times(cluster, count):
    """Return the median time from creation to Ready of BMCs, in ms."""
    times = []
    for number in range(count + 1):
        name = f'timed-{number}'
        cluster.vm(name)
        started = time.monotonic()
        cluster.bmc(name)
        cluster.wait_ready({name}, 120, 0.005)
        times.append(1000 * (time.monotonic() - started))
        cluster.delete(name)
    # Leave out the first one, which reads all files from disk.
    return statistics.median(times[1:])


def _one(sizes, say):
    with Cluster('processes') as cluster:
        say('operator: a BMC, time to Ready')
        result = {'ready_ms': _times(cluster, sizes.ready)}
        say(f'operator: an idle BMC, for {sizes.rest} s')
        cluster.vm('idle')
        cluster.bmc('idle')
        cluster.wait_ready({'idle'}, 120, 0.1)
        process = cluster.bmc_process()
        # With the operator stopped, all calls are the pod's.
        cluster.operator.process.end()
        time.sleep(min(5, sizes.rest))
        result['rest'] = cluster.rest(sizes.rest, process)
        result['pss'] = round(memory.pss(process.pid) / 2 ** 20, 2)
    return result


def _many(sizes, say):
    with Cluster('pretended') as cluster:
        result = {'ready_ms': _times(cluster, sizes.ready)}
        say(f'operator: {sizes.crowd} BMCs')
        names = [f'many-{number}' for number in range(sizes.crowd)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(cluster.vm, names))
            started = time.monotonic()
            list(pool.map(cluster.bmc, names))
        # Poll rarely, as listing all of them is load, too.
        cluster.wait_ready(set(names), 900, 2)
        result['bmcs'] = sizes.crowd
        result['all_ready_s'] = time.monotonic() - started
        process = psutil.Process(cluster.operator.process.pid)
        result['pss'] = round(memory.pss(process.pid) / 2 ** 20, 2)
        say(f'operator: idle, for {sizes.rest} s')
        time.sleep(min(5, sizes.rest))
        result['rest'] = cluster.rest(sizes.rest, process)
        result['pss_rested'] = round(memory.pss(process.pid) / 2 ** 20, 2)
    return result


def measure(sizes, say):
    """Measure the operator.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :returns: dictionary of ``one``, a cluster with a BMC whose containers
        run, and ``many``, one in which pods are ready immediately, so that the
        time to Ready is the operator's share. None without kubectl, which
        installs it
    """
    if not kubectl.KUBECTL:
        say('operator: skipped, because kubectl is not installed')
        return None
    return {'one': _one(sizes, say), 'many': _many(sizes, say)}
