# SPDX-License-Identifier: Apache-2.0
"""The history of figures, and what became worse.

Times depend on the machine and its other load, so ratios to what was measured
in the same run are compared. Memory and numbers of calls are compared as
they are.
"""

import json
import statistics
from typing import NamedTuple

from tests.bench import origin
from tests.bench import report
from tests.fixtures import checkout

#: One run a line, the latest last.
PATH = checkout.ROOT / 'tests' / 'bench' / 'history.jsonl'

#: Units whose values do not depend on the speed of the machine.
COUNTED = ('MiB of PSS', 'KiB of PSS', 'API calls', 'API calls a minute',
           'modules', 'times PUT start', 'times without', 'kB')

#: Percent by which a row may be worse.
THRESHOLD = 10


class Regression(NamedTuple):
    """A row that became worse.

    :param row: `report.Row` of the last run
    :param before: median of the earlier runs: of the ratio, or of the value
        of a counted unit
    :param now: the same of the last run
    :param percent: by how much it is worse
    :param runs: number of earlier runs
    """

    row: report.Row
    before: float
    now: float
    percent: float
    runs: int

    def __str__(self):
        what = ('' if self.row.unit in COUNTED
                else f', as a ratio to {self.row.neighbour}')
        return (f'{self.row.name}, {self.row.unit}{what}: {self.now:.3g}, '
                f'{self.percent:.0f} % worse than {self.before:.3g}, the '
                f'median of {self.runs} earlier runs')


def read(path=PATH):
    """Return the recorded runs, a list of dictionaries."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def problem(quick, commit):
    """Return why figures cannot be recorded; '' if they can.

    :param quick: whether they were measured with ``--quick``
    :param commit: as `origin.commit` returns it
    """
    if quick:
        return 'figures of --quick mean nothing'
    if commit is None:
        return 'the commit is not known: measure in a git checkout'
    if commit.endswith(origin.CHANGED):
        return ('the checkout has changes that are not committed: commit them '
                'and measure again')
    return ''


def record(result, path=PATH):
    """Append the figures of a run.

    A run of the same commit on the same kind of machine is replaced row by
    row, so that parts can be measured one after the other.

    :param result: what the JSON has
    :raises: `ValueError` if it cannot be recorded, with the reason
    """
    if reason := problem(result['quick'], result['commit']):
        raise ValueError(reason)
    entry = {name: result[name]
             for name in ('date', 'commit', 'machine', 'python')}
    runs, found = [], {}
    for run in read(path):
        if _key(run) == _key(entry):
            found = {report.from_dict(row).key: row for row in run['rows']}
        else:
            runs.append(run)
    for row in map(report.from_dict, result['rows']):
        if _figure(row) is not None:
            found[row.key] = {
                name: value for name, value in row.asdict().items()
                if name in ('name', 'unit', 'neighbour', 'value', 'ratio')}
    runs.append({**entry, 'rows': list(found.values())})
    path.write_text(''.join(json.dumps(run) + '\n' for run in runs))


def compare(runs, threshold=THRESHOLD):
    """Compare the last run with earlier ones on the same kind of machine.

    :param runs: from `read`
    :param threshold: percent
    :returns: list of `Regression`, and the number of rows that have an
        earlier figure
    """
    if not runs:
        return [], 0
    earlier = {}
    for run in runs[:-1]:
        if run['machine'] == runs[-1]['machine']:
            for row in map(report.from_dict, run['rows']):
                earlier.setdefault(row.key, []).append(_figure(row))
    worse, compared = [], 0
    for row in map(report.from_dict, runs[-1]['rows']):
        if row.key not in earlier:
            continue
        compared += 1
        before, now = statistics.median(earlier[row.key]), _figure(row)
        pair = (now, before) if row.better == 'lower' else (before, now)
        factor = (pair[0] / pair[1] if pair[1]
                  else float('inf') if pair[0] else 1)
        if factor > 1 + threshold / 100:
            worse.append(Regression(row, before, now, 100 * (factor - 1),
                                    len(earlier[row.key])))
    return worse, compared


def _key(run):
    return run['commit'], run['machine']


def _figure(row):
    """Return what is compared between runs, or None."""
    if row.failed:
        return None
    return row.value if row.unit in COUNTED else row.ratio
