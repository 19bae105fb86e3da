# SPDX-License-Identifier: Apache-2.0
"""The operator and its BMCs: how soon, how big, how busy when nobody asks.

Memory and processor time are those of processes; calls are counted by the
sandbox. A rest is waited out: that nothing happens takes time to see.
"""

import concurrent.futures
import contextlib
import statistics
import time

import fixtures
import psutil

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from tests.bench import memory
from tests.fixtures import operator
from tests.fixtures import sandbox

BMCS = '/apis/bmc.kubevirt.io/v1beta1/namespaces/%s/virtualmachinebmcs'

_CONTAINERS = 'redfish', 'ipmi'
_NAMESPACE = 'default'


class Cluster(fixtures.Fixture):
    """A sandbox with the operator, which has the rights of its account.

    :param pods: ``processes`` or ``pretended``
    """

    def __init__(self, pods):
        super().__init__()
        self.pods = pods

    def _setUp(self):
        self.sandbox = self.useFixture(sandbox.Sandbox(
            vms=0, arguments=('--pods', self.pods)))
        operator.install(kubectl.Kubectl(self.sandbox.kubeconfig))
        self.operator = self.useFixture(operator.Operator(
            self.sandbox.account(operator.NAME, operator.NAMESPACE)))

    def vm(self, name):
        self.sandbox.create('virtualmachines', machines.vm(name, 'Halted'))

    def bmc(self, name):
        """Ask for a BMC of the VM of that name."""
        self.sandbox.request('POST', BMCS % _NAMESPACE,
                             operator.bmc_manifest(name), expect=201)

    def ready(self):
        """The names of the BMCs that are."""
        listed = self.sandbox.request(
            'GET', BMCS % _NAMESPACE, expect=200).json()
        return {one['metadata']['name'] for one in listed['items']
                if any(each['type'] == 'Ready' and each['status'] == 'True'
                       for each in (one.get('status') or {}).get(
                           'conditions') or ())}

    def wait_ready(self, names, seconds, pause):
        """Wait until some BMCs are ready.

        :param pause: between two looks, which is what the time is exact to
        """
        deadline = time.monotonic() + seconds
        while not names <= self.ready():
            if time.monotonic() > deadline:
                raise AssertionError('not ready after %d s: %s' % (
                    seconds, sorted(names - self.ready())[:10]))
            time.sleep(pause)

    def delete(self, name):
        """Delete a BMC, and wait until its pod has gone."""
        self.sandbox.request('DELETE', f'{BMCS % _NAMESPACE}/{name}',
                             expect=200)
        while self.sandbox.list('pods'):
            time.sleep(0.02)

    def container(self, name):
        """The process of a container, of which there is one."""
        found = []
        for one in psutil.Process(
                self.sandbox.process.pid).children(recursive=True):
            # Some live for a moment only.
            with contextlib.suppress(psutil.NoSuchProcess):
                if 'sushy-kubevirt-' + name in ' '.join(one.cmdline()):
                    found.append(one)
        return found[-1]

    def rest(self, seconds, *processes):
        """Do nothing.

        :returns: dictionary of ``calls_a_minute``, and of ``millicores``, a
            list with one figure for each of some processes
        """
        before = [sum(one.cpu_times()[:2]) for one in processes]
        self.sandbox.reset_stats()
        time.sleep(seconds)
        calls = self.sandbox.stats()
        return {
            'seconds': seconds,
            'calls_a_minute': calls['total'] * 60 / seconds,
            'verbs': calls['verbs'],
            'millicores': [
                (sum(one.cpu_times()[:2]) - earlier) * 1000 / seconds
                for one, earlier in zip(processes, before)]}


def _times(cluster, count):
    """How long BMCs take from being asked for to Ready, in ms."""
    times = []
    for number in range(count + 1):
        name = 'timed-%d' % number
        cluster.vm(name)
        started = time.monotonic()
        cluster.bmc(name)
        cluster.wait_ready({name}, 120, 0.005)
        times.append(1000 * (time.monotonic() - started))
        cluster.delete(name)
    # The first has everything read from the disk.
    return statistics.median(times[1:])


def _one(sizes, say):
    with Cluster('processes') as cluster:
        say('operator: a BMC, from being asked for to Ready')
        result = {'ready_ms': _times(cluster, sizes.ready)}
        say('operator: a BMC at rest, for %d s' % sizes.rest)
        cluster.vm('idle')
        cluster.bmc('idle')
        cluster.wait_ready({'idle'}, 120, 0.1)
        processes = [cluster.container(name) for name in _CONTAINERS]
        # Without the operator the calls are the pod's.
        cluster.operator.process.end()
        time.sleep(min(5, sizes.rest))
        result['rest'] = cluster.rest(sizes.rest, *processes)
        result['pss'] = [round(memory.pss(one.pid) / 2 ** 20, 2)
                         for one in processes]
    return result


def _many(sizes, say):
    with Cluster('pretended') as cluster:
        result = {'ready_ms': _times(cluster, sizes.ready)}
        say('operator: %d BMCs' % sizes.crowd)
        names = ['many-%d' % number for number in range(sizes.crowd)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(cluster.vm, names))
            started = time.monotonic()
            list(pool.map(cluster.bmc, names))
        # A list of them all is work, too.
        cluster.wait_ready(set(names), 900, 2)
        result['bmcs'] = sizes.crowd
        result['all_ready_s'] = time.monotonic() - started
        process = psutil.Process(cluster.operator.process.pid)
        result['pss'] = round(memory.pss(process.pid) / 2 ** 20, 2)
        say('operator: at rest, for %d s' % sizes.rest)
        time.sleep(min(5, sizes.rest))
        result['rest'] = cluster.rest(sizes.rest, process)
        result['pss_rested'] = round(memory.pss(process.pid) / 2 ** 20, 2)
    return result


def measure(sizes, say):
    """Measure the operator.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: called with what begins
    :returns: dictionary of ``one``, a cluster with a BMC whose containers
        run, and ``many``, one in which pods are ready at once: the time to
        Ready there is the operator's share. None without kubectl, which
        installs it
    """
    if not kubectl.KUBECTL:
        say('LEFT OUT: the operator, for want of kubectl')
        return None
    return {'one': _one(sizes, say), 'many': _many(sizes, say)}
