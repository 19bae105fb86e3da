# SPDX-License-Identifier: Apache-2.0
"""The operator with BMCs in shared pods, from a few to thousands.

The pods are simulated: the sandbox reports them as ready, and `SharedPods`
reports their BMCs as served. The sandbox is the API server, whose processor
time is part of every duration.
"""

import concurrent.futures
import re
import statistics
import time
import urllib.request

import psutil

from kubevirt_sandbox.testing import kubectl
from tests.bench import memory
from tests.bench import operating
from tests.fixtures import shared_pods

_ARGUMENTS = '--default-placement', 'Shared'

#: BMCs that are deleted, and seconds that one of them may take.
_DELETED, _DELETION = 5, 60

_RECORD = ('/api/v1/namespaces/default/configmaps/'
           'sushy-kubevirt-shared-0-virtbmc')


def measure(sizes, say):
    """Measure ``sizes.placed`` numbers of BMCs, each in a sandbox of its own.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :returns: list of dictionaries: ``bmcs``; ``ready_s``, seconds from the
        first POST of a BMC until all are ready; ``operator_cpu_s`` and
        ``api_cpu_s``, processor time of operator and sandbox meanwhile;
        ``pss``, the operator's memory then, in MiB; ``calls_a_minute`` and
        ``millicores`` of the operator at rest; ``removed_ms``, median of the
        milliseconds from the DELETE of a BMC until its entry is removed.
        None without kubectl, which installs the operator
    """
    if not kubectl.KUBECTL:
        say('shared pods: skipped, because kubectl is not installed')
        return None
    return [_measure(count, sizes, say) for count in sizes.placed]


def _measure(count, sizes, say):
    names = [f'node-{number}' for number in range(count)]
    with operating.Cluster('pretended', _ARGUMENTS) as cluster, (
            shared_pods.SharedPods(cluster.sandbox.kubeconfig)):
        processes = [psutil.Process(one.process.pid)
                     for one in (cluster.operator, cluster.sandbox)]
        say(f'shared pods: {count} BMCs')
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(cluster.vm, names))
            before, began = _seconds(processes), time.monotonic()
            list(pool.map(cluster.bmc, names))
        # Not by a list of all of them, which is load, too.
        while (ready := _ready(cluster)) < count:
            if time.monotonic() - began > 60 + count / 5:
                raise AssertionError(f'{ready} of {count} BMCs are ready')
            time.sleep(0.1)
        found = {'bmcs': count, 'ready_s': time.monotonic() - began}
        found['operator_cpu_s'], found['api_cpu_s'] = (
            after - earlier
            for after, earlier in zip(_seconds(processes), before))
        found['pss'] = memory.pss(processes[0].pid) / 2 ** 20
        say(f'shared pods: {count} BMCs at rest, for {sizes.rest} s')
        time.sleep(min(5, sizes.rest))
        found.update(cluster.rest(sizes.rest, processes[0]))
        found['removed_ms'] = statistics.median(
            _removal(cluster, name) for name in _entries(cluster)[:_DELETED])
    return found


def _seconds(processes):
    return [sum(one.cpu_times()[:2]) for one in processes]


def _ready(cluster):
    """Return how many BMCs are ready, by the operator's metrics."""
    url = re.search(r'http://[^ "]+', cluster.operator.process.output)[0]
    with urllib.request.urlopen(url + '/metrics') as answer:
        text = answer.read().decode()
    found = re.search(r'(?m)^sushy_kubevirt_operator_bmcs\{'
                      r'reason="ServiceReady"\} (\d+)', text)
    return int(found[1]) if found else 0


def _entries(cluster):
    """Return the names of the BMCs of the first shard, a list."""
    answer = cluster.sandbox.request('GET', _RECORD)
    # The shard is deleted after its last BMC.
    return [] if answer.status_code == 404 else list(
        answer.json().get('data') or ())


def _removal(cluster, name):
    """Delete a BMC; return the milliseconds until its entry is removed."""
    began = time.monotonic()
    cluster.sandbox.request(
        'DELETE', f"{operating.BMCS % 'default'}/{name}", expect=200)
    while name in _entries(cluster):
        if time.monotonic() - began > _DELETION:
            raise AssertionError(
                f'{name}: its entry is not removed after {_DELETION} s')
        time.sleep(0.02)
    return 1000 * (time.monotonic() - began)
