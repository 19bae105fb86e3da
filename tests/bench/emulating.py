# SPDX-License-Identifier: Apache-2.0
"""The emulators of this project beside the stock ones."""

import functools
import statistics

import fixtures

from tests.bench import commanding
from tests.bench import console
from tests.bench import eventing
from tests.bench import inserting
from tests.bench import listing
from tests.bench import load
from tests.bench import memory
from tests.bench import report
from tests.bench import rounds
from tests.bench import subjects
from tests.fixtures import vbmcd

NAMES = 'ours', 'stock'


def _serial(work, size):
    """Return the turn of one client, with the number of its requests."""
    def turn(subject, sizes):
        with load.Client(subject.emulator.url) as client:
            return work(client, subject.paths[0], getattr(sizes, size)), None

    return turn


def _parallel(work, size):
    """Return the turn of four clients, with the number of requests of each."""
    return lambda subject, sizes: load.parallel(
        subject.emulator.url, subject.paths, work, getattr(sizes, size))


def _secured(headers):
    """Return the turn of one client with the headers of a subject."""
    def turn(subject, sizes):
        with load.Client(subject.secured.url, headers(subject)) as client:
            # The first request verifies the password; it is not measured.
            return load.get(client, subject.paths[0], sizes.get + 1)[1:], None

    return turn


_get = _serial(load.get, 'get')


def _log_in(subject, sizes):
    if subject.name == 'stock':
        # It has no sessions, so its clients only send a GET.
        return _get(subject, sizes)
    with load.Client(subject.secured.url) as client:
        return load.log_in(client, subjects.SESSIONS, {
            'UserName': subjects.USER, 'Password': subjects.PASSWORD},
            sizes.get), None


#: Functions that execute one turn of a measurement, by its name. They get
#: (subject, sizes) and return (times, rate or None).
TURNS = {
    'GET system, 1 client': _get,
    'GET system, 4 clients': _parallel(load.get, 'get_parallel'),
    'GET system, session': _secured(lambda subject: subject.session()),
    'GET system, Basic': _secured(lambda subject: subject.basic()),
    'log in (stock: GET system)': _log_in,
    'POST reset, 1 client': _serial(load.reset, 'reset'),
    'POST reset, 4 clients': _parallel(load.reset, 'reset_parallel'),
    'ipmitool power status': lambda subject, sizes: (
        load.ipmi(subject.bmc, sizes.ipmi, vbmcd.ipmitool), None),
}


def measure(names, sizes, say):
    """Compare ours with the stock ones.

    :param names: which of `NAMES` to measure
    :returns: iterator of `report.Row`
    """
    with fixtures.CompoundFixture([]) as holder:
        say('start')
        pair = [holder.useFixture(kind())
                for kind in (subjects.Ours, subjects.Stock)
                if kind.name in names]
        for what, work in TURNS.items():
            yield from _requests(what, pair, work, sizes, say)
        what = 'IPMI commands in one session'
        yield from rounds.compare(what, _sides(
            pair, lambda subject: dict(zip(
                ((what, 'a second'), (what, 'ms of CPU')), commanding.turn(
                    subject.bmc, subject.vbmcd.process.pid, sizes.commands)))),
            sizes.sessions, say)
        if 'ours' in names:
            for what, function in OURS.items():
                say(what)
                yield from function(pair[0], sizes)
        yield from _soak(pair, sizes, say)
        yield from _daemons(pair, holder, sizes, say)


def _sides(pair, turn):
    """Return the `rounds.Side` of each subject, that of ours first."""
    return [*([] if pair[0].name == 'ours' else
              [rounds.Side('ours', None, 'not measured')]),
            *(rounds.Side(subject.name, functools.partial(turn, subject))
              for subject in pair)]


def _requests(what, pair, work, sizes, say):
    """Execute one of `TURNS`; the percentile is that of all rounds."""
    all_times = {subject.name: [] for subject in pair}

    def turn(subject):
        times, rate = work(subject, sizes)
        all_times[subject.name] += times
        return {(what, 'ms, median'): 1000 * statistics.median(times),
                **({} if rate is None else {(what, 'a second'): rate})}

    say(what)
    sides = _sides(pair, turn)
    rounds.alternate(sides, sizes.rounds, say)
    for side in sides:
        if side.turns:
            side.turns[0][what, 'ms, p95'] = 1000 * load.percentile(
                all_times[side.name], 95)
    return rounds.rows(what, sides)


def _api_calls(ours, sizes):
    """Count the emulator's API calls while it responds to GETs.

    Renewals of watches, one every half minute, are left out.
    """
    ours.sandbox.reset_stats()
    with load.Client(ours.emulator.url) as client:
        load.get(client, ours.paths[0], sizes.get)
    counts = ours.sandbox.stats()
    yield report.Row('GET system', 'API calls', (
        counts['total'] - counts['verbs'].get('watch', 0)) / sizes.get)


#: Functions of (ours, sizes) that return rows, by what they measure.
OURS = {'API calls of a GET': _api_calls, 'inserting media': inserting.measure,
        'events': eventing.measure, 'sensors and event log': listing.measure,
        'serial console': console.measure}


def _soak(pair, sizes, say):
    """Send ``sizes.soak`` requests of each kind, then measure the memory."""
    for subject in pair:
        say(f'{subject.name}: {sizes.soak} requests of each kind')
        with load.Client(subject.emulator.url) as client:
            load.get(client, subject.paths[0], sizes.soak)
            load.reset(client, subject.paths[0], sizes.soak)
        load.ipmi(subject.bmc, sizes.soak, vbmcd.ipmitool)
    # Of both at the same time, so that the pages they share with other
    # processes count the same.
    return rounds.compare('memory', _sides(pair, _memory), 1, say)


def _memory(subject):
    figures = {}
    for part in 'emulator', 'vbmcd':
        found = memory.tree(getattr(subject, part).process.pid)
        figures.update({
            (f'{part}, child {number}' if number else f'{part}, parent',
             'MiB of PSS'): size for number, size in enumerate(found)})
        figures[f'{part}, all', 'MiB of PSS'] = sum(found)
    return figures


def _daemons(pair, holder, sizes, say):
    """Measure daemons with a growing number of BMCs, each used once."""
    daemons = {subject.name: holder.useFixture(
        subjects.Many(subject, max(sizes.bmcs))) for subject in pair}
    for count in sizes.bmcs:
        what = f"vbmcd with {count} BMC{'' if count == 1 else 's'}"
        for daemon in daemons.values():
            daemon.grow(count)
        yield from rounds.compare(what, _sides(pair, lambda subject: {
            (what, 'MiB of PSS'): sum(memory.tree(
                daemons[subject.name].vbmcd.process.pid))}), 1, say)
