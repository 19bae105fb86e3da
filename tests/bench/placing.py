# SPDX-License-Identifier: Apache-2.0
"""The operator with BMCs in shared pods, from a few to thousands.

The pods are simulated: the sandbox reports them as ready, and `SharedPods`
reports their BMCs as served. The sandbox is the API server, whose processor
time is part of every duration.
"""

import functools
import statistics
import time

from kubevirt_sandbox.testing import kubectl
from tests.bench import memory
from tests.bench import operating
from tests.bench import rounds
from tests.bench import version
from tests.fixtures import operator
from tests.fixtures import shared_pods

_ARGUMENTS = '--default-placement', 'Shared'

#: Largest number of BMCs for which versions take more than one turn.
_REPEATED = 1000

#: BMCs that are deleted, and seconds that one of them may take.
_DELETED, _DELETION = 5, 60

_RECORD = ('/api/v1/namespaces/default/configmaps/'
           'sushy-kubevirt-shared-0-virtbmc')


def measure(sizes, say, others=()):
    """Measure ``sizes.placed`` numbers of BMCs, each in a sandbox of its own.

    :param others: other versions, see `version.sides`
    :returns: iterator of `report.Row`; none without kubectl, which installs
        the operator
    """
    if not kubectl.KUBECTL:
        say('shared pods: skipped, because kubectl is not installed')
        return
    for count in sizes.placed:
        what = f'operator with {count} BMCs in shared pods'
        yield from rounds.compare(what, version.sides(
            others, operator.NAME, functools.partial(
                _turn, what, count, sizes, say, set())),
            sizes.placed_rounds if others and count <= _REPEATED else 1, say)


def _turn(what, count, sizes, say, rested, program):
    """Measure an operator.

    :param rested: set of the programs whose rest was measured, which is once
    :returns: `rounds.Figures`
    """
    say(f'{what}: {program}')
    with operating.Cluster('pretended', _ARGUMENTS, program,
                           count) as cluster, (
            shared_pods.SharedPods(cluster.sandbox.kubeconfig)):
        figures = cluster.populate(say)
        pid = cluster.operator.process.pid
        figures['MiB of PSS'] = memory.pss(pid)
        if program not in rested:
            say(f'{what}, at rest for {sizes.rest} s')
            figures.update(cluster.rest(sizes.rest, pid))
            rested.add(program)
        figures['ms, entry of a deleted BMC removed'] = statistics.median(
            _removal(cluster, name) for name in _entries(cluster)[:_DELETED])
        # Of thousands, an early result.
        say('; '.join(f'{unit}: {value:.3g}'
                      for unit, value in figures.items()))
        return operating.named(what, figures)


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
