# SPDX-License-Identifier: Apache-2.0
"""Shared pods: the operator with 10 to 10,000 BMCs, 250 in a pod.

The pods are simulated: the sandbox reports them as ready, and `SharedPods`
reports their BMCs as served. Measured are the operator and, as the API server
is part of every figure, the sandbox. ::

    python -m tests.bench.placing --sizes 10 100 1000 >placing.json

The output is a list of series, each with name, x, y and unit.
"""

import argparse
import concurrent.futures
import json
import re
import statistics
import sys
import time
import urllib.request

import psutil

from tests.bench import memory
from tests.bench import operating
from tests.fixtures import shared_pods

SIZES = 10, 100, 1000

#: Of the operator, in seconds, and BMCs that are deleted.
_REST, _DELETED = 30, 5
_RECORD = ('/api/v1/namespaces/default/configmaps/'
           'sushy-kubevirt-shared-0-virtbmc')


def _seconds(*processes):
    return [sum(one.cpu_times()[:2]) for one in processes]


def _ready(cluster):
    """Return how many BMCs are ready, by the operator's metrics."""
    url = re.search(r'http://[^ "]+', cluster.operator.process.output)[0]
    with urllib.request.urlopen(url + '/metrics') as answer:
        text = answer.read().decode()
    found = re.search(r'(?m)^sushy_kubevirt_operator_bmcs\{'
                      r'reason="ServiceReady"\} (\d+)', text)
    return int(found[1]) if found else 0


def _removal(cluster, name):
    """Delete a BMC; return the ms until its entry is removed."""
    began = time.monotonic()
    cluster.sandbox.request(
        'DELETE', f"{operating.BMCS % 'default'}/{name}", expect=200)
    while name in (cluster.sandbox.request(
            'GET', _RECORD, expect=200).json().get('data') or ()):
        time.sleep(0.02)
    return 1000 * (time.monotonic() - began)


def measure(count, say, arguments=('--default-placement', 'Shared')):
    """Measure the operator with a number of BMCs.

    :param count: number of BMCs
    :param say: function that gets the name of each part when it begins
    :param arguments: of the operator; () for a pod for each BMC, whose
        deletions are not measured
    :returns: dictionary
    """
    names = [f'node-{number}' for number in range(count)]
    with operating.Cluster('pretended', arguments) as cluster, (
            shared_pods.SharedPods(cluster.sandbox.kubeconfig)) as pods:
        processes = [psutil.Process(one.process.pid)
                     for one in (cluster.operator, cluster.sandbox)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(cluster.vm, names))
            say(f'{count} BMCs: time to Ready')
            cluster.sandbox.reset_stats()
            before, began = _seconds(*processes), time.monotonic()
            list(pool.map(cluster.bmc, names))
        created = time.monotonic() - began
        while _ready(cluster) < count:
            if time.monotonic() - began > 60 + count / 5:
                raise AssertionError(f'{_ready(cluster)} of {count} are ready')
            time.sleep(0.1)
        found = {'bmcs': count, 'created_s': created,
                 'all_ready_s': time.monotonic() - began,
                 'cpu_s': [after - earlier for after, earlier in zip(
                     _seconds(*processes), before)],
                 'calls': cluster.sandbox.stats()['verbs'],
                 'pods_writes': pods.writes,
                 'pss_mib': memory.pss(processes[0].pid) / 2 ** 20}
        say(f'{count} BMCs: at rest, for {_REST} s')
        time.sleep(5)
        found['rest'] = cluster.rest(_REST, processes[0])
        found['pss_rested_mib'] = memory.pss(processes[0].pid) / 2 ** 20
        if arguments:
            say(f'{count} BMCs: deletions')
            found['removed_ms'] = statistics.median(
                _removal(cluster, name) for name in names[:_DELETED])
    return found


def series(results):
    """Make the series of a plot.

    :param results: list of what `measure` returns
    :returns: list of dictionaries
    """
    def one(name, unit, read):
        return {'name': name, 'unit': unit,
                'x': [each['bmcs'] for each in results],
                'y': [round(read(each), 3) for each in results]}
    return [
        one('all BMCs ready', 's', lambda each: each['all_ready_s']),
        one("operator's CPU until then", 's', lambda each: each['cpu_s'][0]),
        one("sandbox's CPU until then", 's', lambda each: each['cpu_s'][1]),
        one("operator's memory (PSS)", 'MiB', lambda each: each['pss_mib']),
        one('API calls at rest', '1/min',
            lambda each: each['rest']['calls_a_minute']),
        one("operator's CPU at rest", 'm',
            lambda each: each['rest']['millicores'][0]),
        one('reaction to a deletion', 'ms',
            lambda each: each.get('removed_ms', 0))]


def main():
    parser = argparse.ArgumentParser(
        prog='python -m tests.bench.placing', description=__doc__.partition(
            '\n')[0])
    parser.add_argument('--sizes', type=int, nargs='+', default=SIZES,
                        metavar='N', help='numbers of BMCs')
    parser.add_argument('--per-vm', action='store_true',
                        help='a pod for each BMC, to compare')
    parser.add_argument('--raw', action='store_true',
                        help='write all figures instead of the series')
    options = parser.parse_args()
    results = [measure(
        size, lambda text: print(text, file=sys.stderr, flush=True),
        () if options.per_vm else ('--default-placement', 'Shared'))
        for size in options.sizes]
    json.dump(results if options.raw else series(results), sys.stdout,
              indent=1)
    print()


if __name__ == '__main__':
    main()
