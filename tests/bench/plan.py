# SPDX-License-Identifier: Apache-2.0
"""The measurements, their order and their number."""

import functools
from typing import NamedTuple

from kubevirt_sandbox.testing import process
from tests.bench import bmc
from tests.bench import contending
from tests.bench import declaring
from tests.bench import emulating
from tests.bench import operating
from tests.bench import placing
from tests.bench import report
from tests.bench import rounds
from tests.bench import sandboxing
from tests.bench import scale
from tests.bench import sharing
from tests.bench import viewing


class Sizes(NamedTuple):
    """Numbers of requests, rounds and objects."""

    #: Pairs of turns; odd, so that the median is one of them.
    rounds: int = 31
    #: Requests of each turn: GETs of one client, GETs of each of four
    #: clients, resets of one client, resets of each of four, and IPMI's.
    get: int = 60
    get_parallel: int = 60
    reset: int = 6
    reset_parallel: int = 3
    ipmi: int = 5
    #: Requests of each kind before the memory is measured.
    soak: int = 1000
    #: Numbers of BMCs to measure the memory of.
    bmcs: tuple = (1, 2, 10)
    #: Number of media to insert.
    insert: int = 21
    #: Number of event subscribers, and of events of each measurement.
    subscribers: int = 100
    events: int = 100
    #: Records of the SEL that is listed, and how often.
    entries: int = 1000
    listings: int = 5
    #: IPMI commands of one session, and number of sessions.
    commands: int = 500
    sessions: int = 5
    #: Keys typed on a serial console, and bytes that its guest prints.
    keys: int = 1000
    console_bytes: int = 10 ** 7
    #: The operator: BMCs whose time to Ready is measured, BMCs that exist at
    #: the same time, and seconds for which idle calls are counted.
    ready: int = 11
    crowd: int = 1000
    rest: int = 30
    #: Clusters of virtual bare metal: nodes of those that are compared, pairs
    #: of them, and nodes of single ones.
    nodes: int = 100
    declarations: int = 3
    clusters: tuple = (50, 1000)
    #: Nodes that are enrolled in Ironic.
    enrolled: int = 100
    #: VMs of one emulator.
    vms: tuple = (5000, 10000)
    #: BMCs of one process.
    shared: int = 250
    #: BMCs in shared pods of one operator.
    placed: tuple = (10, 100, 1000)
    #: Rounds of these beside another version.
    placed_rounds: int = 3
    #: The BMC of one VM: rounds, requests of one client in each, clients at
    #: the same time, and rounds of power actions and starts.
    bmc_rounds: int = 7
    bmc_gets: int = 400
    bmc_clients: int = 32
    bmc_starts: int = 11
    #: The BMC of one VM while other containers take all CPU: most requests of
    #: each kind, and the seconds that they take at most, with the default CPU
    #: request and with others.
    contention_answers: int = 1000
    contention_seconds: tuple = (8, 3)
    contention_requests: tuple = contending.REQUESTS
    #: The web page: first views of each kind, and pairs of pods whose memory
    #: is compared.
    views: int = 21
    page_starts: int = 7
    #: The sandbox: rounds, requests of each, VMs that are listed, watches,
    #: VMs started in a round, and VMs of which the memory is measured.
    sandbox_rounds: int = 7
    sandbox_requests: int = 400
    sandbox_listed: int = 20
    sandbox_watches: int = 10
    sandbox_starts: int = 10
    sandbox_vms: int = 1000


FULL = Sizes()
QUICK = Sizes(
    rounds=1, get=20, get_parallel=20, reset=2, reset_parallel=2, ipmi=2,
    soak=25, bmcs=(1, 2), insert=2, events=10, entries=20, listings=1,
    commands=20, sessions=1, keys=20, console_bytes=10 ** 5, ready=1, crowd=20,
    rest=3, nodes=3, declarations=1, clusters=(5,), enrolled=2, vms=(50,),
    shared=3, placed=(10,), placed_rounds=1, bmc_rounds=2, bmc_gets=24,
    bmc_clients=8, bmc_starts=1, contention_answers=3,
    contention_seconds=(1, 1),
    # So much that nothing times out, also beside other suites.
    contention_requests=(500,),
    views=1, page_starts=1, sandbox_rounds=1,
    sandbox_requests=20, sandbox_listed=2, sandbox_watches=2, sandbox_starts=2,
    sandbox_vms=10)


#: What can be measured beside another version or agent.
COMPARED = {'bmc': bmc.measure, 'contention': contending.measure,
            'web': viewing.measure, 'sandbox': sandboxing.measure,
            'operator': operating.measure, 'placement': placing.measure}

#: What is measured besides the emulators, by functions of the arguments of
#: `run` that return rows.
OTHERS = {**COMPARED, 'shared': sharing.measure, 'scale': scale.measure,
          'cluster': declaring.measure}

#: Parts of the BMC of a VM.
BMC_PARTS = {f'bmc-{part}': functools.partial(bmc.measure, parts=(part,))
             for part in bmc.PARTS}


def run(sizes, only=(), say=lambda what: None, others=()):
    """Run measurements. A part that fails does not end the others.

    :param sizes: :class:`Sizes`
    :param only: names of `emulating.NAMES`, and keys of `OTHERS` and
        `BMC_PARTS`; empty for all
    :param say: function that gets the name of each part when it begins
    :param others: pairs of the command of another agent or version and what
        it is called; empty to compare the BMC of one VM with the stock
        emulator, and the sandbox with kube-apiserver
    :returns: iterator of `report.Row`
    """
    parts = {**OTHERS, **BMC_PARTS}
    only = only or (*emulating.NAMES, *OTHERS)
    names = [name for name in only if name in emulating.NAMES]
    if names:
        yield from _try('emulators', say,
                        lambda: emulating.measure(names, sizes, say))
    for part in only:
        if part in parts:
            # The other subjects have ended and do not disturb it.
            yield from _try(part, say, lambda: parts[part](
                sizes, say, *((others,) if others else ())))


def _try(part, say, measure):
    """Yield rows; the last one is of the failure, if there is one."""
    try:
        yield from measure()
    except Exception as exc:
        say(f'{part} failed: {process.cause(exc)}')
        yield report.Row(part, '', None, failed=['ours'],
                         reason=f'ours: {rounds.failure(exc)}')
