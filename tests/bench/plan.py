# SPDX-License-Identifier: Apache-2.0
"""The measurements, their order and their number."""

import dataclasses
import functools
import statistics

import fixtures

from kubevirt_sandbox.testing import process
from tests.bench import bmc
from tests.bench import commanding
from tests.bench import console
from tests.bench import contending
from tests.bench import declaring
from tests.bench import eventing
from tests.bench import inserting
from tests.bench import listing
from tests.bench import load
from tests.bench import memory
from tests.bench import operating
from tests.bench import placing
from tests.bench import report
from tests.bench import rounds
from tests.bench import sandboxing
from tests.bench import scale
from tests.bench import sharing
from tests.bench import spread
from tests.bench import subjects
from tests.bench import viewing
from tests.fixtures import vbmcd


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Numbers of requests, rounds and objects."""

    #: Pairs of turns; odd, so that the median is one of them.
    rounds: int
    #: Requests of each turn: GETs of one client, GETs of each of four
    #: clients, resets of one client, resets of each of four, and IPMI's.
    get: int
    get_parallel: int
    reset: int
    reset_parallel: int
    ipmi: int
    #: Requests of each kind before the memory is measured.
    soak: int
    #: Numbers of BMCs to measure the memory of.
    bmcs: tuple
    #: Number of media to insert.
    insert: int
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


FULL = Sizes(rounds=31, get=60, get_parallel=60, reset=6,
             reset_parallel=3, ipmi=5, soak=1000, bmcs=(1, 2, 10), insert=21)
QUICK = Sizes(rounds=1, get=20, get_parallel=20, reset=2, reset_parallel=2,
              ipmi=2, soak=25, bmcs=(1, 2), insert=2, events=10,
              entries=20, listings=1, commands=20, sessions=1,
              keys=20, console_bytes=10 ** 5,
              ready=1, crowd=20, rest=3,
              nodes=3, declarations=1, clusters=(5,),
              enrolled=2, vms=(50,), shared=3, placed=(10,), placed_rounds=1,
              bmc_rounds=2, bmc_gets=24, bmc_clients=8, bmc_starts=1,
              contention_answers=3, contention_seconds=(1, 1),
              views=1, page_starts=1, sandbox_rounds=1,
              sandbox_requests=20, sandbox_listed=2, sandbox_watches=2,
              sandbox_starts=2, sandbox_vms=10)


def _get(subject, sizes):
    with load.Client(subject.emulator.url) as client:
        return load.get(client, subject.paths[0], sizes.get), None


def _get_parallel(subject, sizes):
    return load.parallel(subject.emulator.url, subject.paths, load.get,
                         sizes.get_parallel)


def _get_secured(subject, sizes, headers):
    with load.Client(subject.secured.url, headers) as client:
        # The first request verifies the password; it is not measured.
        load.get(client, subject.paths[0], 1)
        return load.get(client, subject.paths[0], sizes.get), None


def _get_session(subject, sizes):
    return _get_secured(subject, sizes, subject.session())


def _get_basic(subject, sizes):
    return _get_secured(subject, sizes, subject.basic())


def _log_in(subject, sizes):
    if subject.name == 'stock':
        # It has no sessions, so its clients only send a GET.
        return _get(subject, sizes)
    with load.Client(subject.secured.url) as client:
        return load.log_in(client, subjects.SESSIONS, {
            'UserName': subjects.USER, 'Password': subjects.PASSWORD},
            sizes.get), None


def _reset(subject, sizes):
    with load.Client(subject.emulator.url) as client:
        return load.reset(client, subject.paths[0], sizes.reset), None


def _reset_parallel(subject, sizes):
    return load.parallel(subject.emulator.url, subject.paths, load.reset,
                         sizes.reset_parallel)


def _ipmi(subject, sizes):
    return load.ipmi(subject.bmc, sizes.ipmi, vbmcd.ipmitool), None


#: Functions that execute one turn of a measurement, by its name. They get
#: (subject, sizes) and return (times, rate or None).
TURNS = {
    'GET system, 1 client': _get,
    'GET system, 4 clients': _get_parallel,
    'GET system, session': _get_session,
    'GET system, Basic': _get_basic,
    'log in (stock: GET system)': _log_in,
    'POST reset, 1 client': _reset,
    'POST reset, 4 clients': _reset_parallel,
    'ipmitool power status': _ipmi,
}


def _figures(turns):
    """Compute median, percentile and rate of one subject's turns.

    :param turns: list of (times, rate or None).
    """
    times = sorted(one for part, _ in turns for one in part)
    figures = {
        'count': len(times),
        'median_ms': 1000 * statistics.median(times),
        'p95_ms': 1000 * times[min(len(times) - 1, int(0.95 * len(times)))],
    }
    rates = [rate for _, rate in turns if rate is not None]
    if rates:
        figures['per_second'] = statistics.median(rates)
    return figures


def _ratios(ours, stock):
    """Compare the two turns of each pair.

    :returns: dictionary of `spread.of` the pairs' ratios, ours to stock.
    """
    pairs = list(zip(ours, stock))
    ratios = {'median_ms': spread.of([
        statistics.median(mine) / statistics.median(other)
        for (mine, _), (other, _) in pairs])}
    if ours[0][1] is not None:
        ratios['per_second'] = spread.of([
            mine / other for (_, mine), (_, other) in pairs])
    return ratios


def take_turns(pair, name, sizes):
    """Run one measurement in pairs; ours and stock are first alternately."""
    turns = {subject.name: [] for subject in pair}
    for number in range(sizes.rounds):
        for subject in pair if number % 2 else reversed(pair):
            turns[subject.name].append(TURNS[name](subject, sizes))
    result = {name: _figures(done) for name, done in turns.items()}
    if len(turns) == 2:
        result['ratio'] = _ratios(turns['ours'], turns['stock'])
    return result


def api_calls(ours, sizes):
    """Count the emulator's API calls while it responds to GETs.

    Renewals of watches, one every half minute, are left out.
    """
    ours.sandbox.reset_stats()
    with load.Client(ours.emulator.url) as client:
        load.get(client, ours.paths[0], sizes.get)
    counts = ours.sandbox.stats()
    calls = counts['total'] - counts['verbs'].get('watch', 0)
    return {'gets': sizes.get, 'calls': calls, 'per_get': calls / sizes.get}


def soak(pair, sizes):
    """Send ``sizes.soak`` requests of each kind, then measure the memory."""
    result = {'requests_of_each_kind': sizes.soak}
    for subject in pair:
        before = _memory(subject)
        with load.Client(subject.emulator.url) as client:
            load.get(client, subject.paths[0], sizes.soak)
            load.reset(client, subject.paths[0], sizes.soak)
        load.ipmi(subject.bmc, sizes.soak, vbmcd.ipmitool)
        result[subject.name] = {'before': before}
    # Measure both at the same time, so that the pages they share with other
    # processes count the same.
    for subject in pair:
        result[subject.name]['after'] = _memory(subject)
    if len(pair) == 2:
        result['ratio'] = {
            part: result['ours']['after'][part]['total']
            / result['stock']['after'][part]['total']
            for part in ('emulator', 'vbmcd')}
    return result


def _memory(subject):
    return {'emulator': memory.tree(subject.emulator.process.pid),
            'vbmcd': memory.tree(subject.vbmcd.process.pid)}


def bmcs(pair, sizes):
    """Measure daemons with a growing number of BMCs, each used once."""
    result = {}
    with fixtures.CompoundFixture([]) as holder:
        daemons = {subject.name: holder.useFixture(
            subjects.Many(subject, max(sizes.bmcs))) for subject in pair}
        for count in sizes.bmcs:
            for daemon in daemons.values():
                daemon.grow(count)
            result[str(count)] = figures = {
                name: memory.tree(daemon.vbmcd.process.pid)
                for name, daemon in daemons.items()}
            if len(pair) == 2:
                figures['ratio'] = (figures['ours']['total']
                                    / figures['stock']['total'])
    return result


def emulators(sizes, names, say, result):
    """Compare ours with the stock ones.

    :param names: which of `report.NAMES` to measure
    :param result: dictionary that gets the figures
    """
    with fixtures.CompoundFixture([]) as holder:
        say('start')
        pair = [holder.useFixture(kind())
                for kind in (subjects.Ours, subjects.Stock)
                if kind.name in names]
        result['turns'] = {}
        for name in TURNS:
            say(name)
            result['turns'][name] = take_turns(pair, name, sizes)
        say('IPMI commands in one session')
        result['commands'] = commanding.measure(pair, sizes)
        for subject in pair:
            if subject.name == 'ours':
                say('API calls of a GET')
                result['api_calls'] = api_calls(subject, sizes)
                say('inserting media')
                result['insert'] = inserting.overhead(subject, sizes)
                say('events')
                result['events'] = eventing.measure(subject, sizes)
                say('sensors and event log')
                result['listing'] = listing.measure(subject, sizes)
                say('serial console')
                result['console'] = console.measure(subject, sizes)
        say(f'memory after {sizes.soak} requests of each kind')
        result['memory'] = soak(pair, sizes)
        say('memory of more BMCs')
        result['bmcs'] = bmcs(pair, sizes)


#: What can be measured beside another version or agent.
COMPARED = {'bmc': bmc.measure, 'contention': contending.measure,
            'web': viewing.measure, 'sandbox': sandboxing.measure,
            'operator': operating.measure, 'placement': placing.measure}

#: What is measured besides the emulators. The functions return rows.
OTHERS = {**COMPARED, 'shared': sharing.measure, 'scale': scale.measure,
          'cluster': declaring.measure}

#: Parts of the BMC of a VM.
BMC_PARTS = {f'bmc-{part}': functools.partial(bmc.measure, parts=(part,))
             for part in bmc.PARTS}


def run(sizes, only=(), say=lambda what: None, others=()):
    """Run measurements. A part that fails does not end the others.

    :param sizes: :class:`Sizes`
    :param only: names of subjects to measure, and keys of `OTHERS` and
        `BMC_PARTS`; empty for all
    :param say: function that gets the name of each part when it begins
    :param others: pairs of the command of another agent or version and what
        it is called; empty to compare the BMC of one VM with the stock
        emulator, and the sandbox with kube-apiserver
    :returns: dictionary, for `report.rows`
    """
    parts = {**OTHERS, **BMC_PARTS}
    only = only or (*report.NAMES, *OTHERS)
    result = {'rows': []}
    names = [name for name in only if name in report.NAMES]
    if names:
        _try('emulators', say, result,
             lambda: emulators(sizes, names, say, result) or ())
    for part in only:
        if part in parts:
            # The other subjects have ended and do not disturb it.
            _try(part, say, result, lambda: parts[part](
                sizes, say, *((others,) if others else ())))
    return result


def _try(part, say, result, measure):
    """Add rows one by one, so that those before a failure are kept."""
    try:
        for row in measure():
            result['rows'].append(row)
    except Exception as exc:
        say(f'{part} failed: {process.cause(exc)}')
        result['rows'].append(report.Row(
            part, '', None, reason=f'ours: {rounds.failure(exc)}',
            failed=['ours']))
