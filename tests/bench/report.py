# SPDX-License-Identifier: Apache-2.0
"""The rows of a result, as JSON and as a table.

``schema.json`` describes the JSON.
"""

import csv
import dataclasses
import io
import json
import re
import textwrap

from tests.bench import targets
from tests.fixtures import checkout

SCHEMA = checkout.ROOT / 'tests' / 'bench' / 'schema.json'

#: Version of the JSON; another one cannot be read.
VERSION = 1

#: End of the units of which more is better. Of all others less is.
_RATE = 'a second'


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure.

    :param name: what was measured
    :param unit: unit of the values, and the kind of average
    :param value: of this project; None if it was not measured
    :param neighbour: what was measured beside it in the same run, or None
    :param other: value of the neighbour
    :param ratio: of the value to the neighbour's; the median of all rounds
    :param spread: lower and upper quartile of the rounds' ratios, a list
    :param rounds: number of rounds
    :param values: values of this project in all rounds, a list
    :param reason: why there is no value of the neighbour, or of this project
    :param failed: names of those that failed, a list, or None
    """

    name: str
    unit: str
    value: float | None
    neighbour: str | None = None
    other: float | None = None
    ratio: float | None = None
    spread: list | None = None
    rounds: int | None = None
    values: list | None = None
    reason: str | None = None
    failed: list | None = None

    @property
    def key(self):
        """What identifies the row in other runs."""
        return self.name, self.unit, self.neighbour

    @property
    def better(self):
        """Whether ``higher`` or ``lower`` values are better."""
        return better(self.unit)

    @property
    def target(self):
        """The value to reach, or None."""
        return targets.TARGETS.get((self.name, self.unit))

    @property
    def target_ratio(self):
        """The ratio to the neighbour to reach, or None."""
        return targets.RATIOS.get(self.neighbour, {}).get(
            (self.name, self.unit))

    def asdict(self):
        """Return what JSON has of it; fields without a value are left out."""
        found = {**dataclasses.asdict(self), 'better': self.better,
                 'target': self.target, 'target_ratio': self.target_ratio}
        return {name: value for name, value in found.items()
                if value is not None or name == 'value'}


def better(unit):
    """Return whether ``higher`` or ``lower`` values of a unit are better."""
    return 'higher' if _RATE in unit else 'lower'


def from_dict(found):
    """Return the `Row` of a dictionary that `Row.asdict` returned."""
    return Row(**{field.name: found[field.name]
                  for field in dataclasses.fields(Row)
                  if field.name in found})


def read(path):
    """Read the JSON of an earlier run.

    :param path: of the file
    :returns: dictionary
    :raises: `ValueError` with what is wrong with the file
    """
    with open(path) as stream:
        result = json.load(stream)
    version = result.get('version') if isinstance(result, dict) else None
    if version != VERSION:
        raise ValueError(
            f'{path} has version {version} of the JSON, not {VERSION}: '
            'measure again with --json')
    if isinstance(result.get('compare'), str):
        # The command of the only neighbour, without its name.
        del result['compare']
    return result


def rows(result):
    """Yield the rows.

    :param result: result of :func:`tests.bench.plan.run`.
    """
    if 'turns' in result:
        yield from _emulators(result)
    yield from result['rows']


def series(result):
    """Return the values that depend on a number, for plots.

    :param result: result of :func:`tests.bench.plan.run`.
    :returns: list of dictionaries, as in the JSON
    """
    found = [('memory of vbmcd', 'MiB of PSS', {
        name: [[int(count), figures[name]['total']]
               for count, figures in result.get('bmcs', {}).items()
               if name in figures] for name in NAMES})]
    # Beside several neighbours a figure has several rows.
    placed = {(int(match[1]), row.unit): row.value for row in result['rows']
              if (match := _PLACED.match(row.name)) and row.value is not None}
    for what, unit, lines in _PLACEMENT:
        found.append((f'shared pods, {what}', unit, {
            line: [[bmcs, value] for (bmcs, key), value in placed.items()
                   if key == row_unit] for line, row_unit in lines.items()}))
    # The axes of plots are logarithmic.
    found = [(name, unit, {
        line: drawn for line, points in lines.items()
        if (drawn := [point for point in points if point[1] > 0])})
        for name, unit, lines in found]
    return [{'name': name, 'x': 'BMCs', 'y': unit, 'lines': lines}
            for name, unit, lines in found if lines]


#: Rows about shared pods.
_PLACED = re.compile('operator with ([0-9]+) BMCs in shared pods')

#: Series of shared pods: what, unit, and lines with the units of their rows.
_PLACEMENT = (
    ('time until all are Ready', 's', {
        'elapsed': 's, all Ready',
        'CPU of the operator': 's of CPU until Ready',
        'CPU of the API server': 's of CPU until Ready, API server'}),
    ('memory of the operator', 'MiB of PSS', {'operator': 'MiB of PSS'}),
    ('API calls at rest', 'calls a minute',
     {'operator': 'API calls a minute'}),
    ('reaction to a deletion', 'ms until the entry is removed',
     {'operator': 'ms, entry of a deleted BMC removed'}),
)


def _pair(name, unit, figures, ratio=None, **more):
    """Make the row of a figure of ours and of the stock program."""
    ours, stock = (figures.get(each) for each in NAMES)
    return Row(name, unit, ours, None if stock is None else NAMES[1], stock,
               ratio, **more)


def _between(ratio):
    """Return the fields of a row with a ratio of `spread.of`, or None."""
    return {} if ratio is None else {
        'ratio': ratio['middle'], 'spread': ratio['quartiles'],
        'rounds': ratio['rounds']}


def _emulators(result):
    for name, turn in result['turns'].items():
        for key, unit in (('median_ms', 'ms, median'), ('p95_ms', 'ms, p95'),
                          ('per_second', _RATE)):
            figures = {subject: turn[subject][key] for subject in NAMES
                       if key in turn.get(subject, ())}
            if not figures:
                continue
            yield _pair(name, unit, figures,
                        **_between(turn.get('ratio', {}).get(key)))
    for key, unit in (('per_second', _RATE), ('cpu_ms', 'ms of CPU')):
        if 'commands' in result:
            yield _pair('IPMI commands in one session', unit, {
                subject: figures[key]
                for subject, figures in result['commands'].items()
                if subject in NAMES}, **_between(
                    result['commands'].get('ratio', {}).get(key)))
    if 'api_calls' in result:
        yield Row('GET system', 'API calls', result['api_calls']['per_get'])
    for key, what in (('cdi', 'import of 1 MiB, CDI alone'),
                      ('insert', 'import of 1 MiB, inserted'),
                      ('post', 'POST InsertMedia')):
        if 'insert' in result:
            yield Row(what, 'ms, median', result['insert'][key])
    if 'events' in result:
        figures = result['events']
        what = f"event to {figures['subscribers']} subscribers"
        yield Row(what, 'ms, median', figures['median_ms'])
        yield Row(what, _RATE, figures['per_second'])
    if 'listing' in result:
        figures = result['listing']
        yield Row('ipmitool sdr list', 'ms, median', figures['sdr'])
        yield Row(f"ipmitool sel list, {figures['entries']} records",
                  'ms, median', figures['sel'])
    if 'console' in result:
        yield from (Row(*row) for row in _console(**result['console']))
    if 'memory' in result:
        yield from _soak(result['memory'])
    for count, figures in result.get('bmcs', {}).items():
        yield _pair(f"vbmcd with {count} BMC{'' if count == '1' else 's'}",
                    'MiB of PSS',
                    {subject: figures[subject]['total']
                     for subject in NAMES if subject in figures},
                    figures.get('ratio'))


def _soak(soak):
    for part in 'emulator', 'vbmcd':
        figures = {subject: soak[subject]['after'][part] for subject in NAMES
                   if subject in soak}
        most = max(len(tree['processes']) for tree in figures.values())
        for number in range(most):
            role = f'child {number}' if number else 'parent'
            yield _pair(f'{part}, {role}', 'MiB of PSS', {
                subject: tree['processes'][number]
                for subject, tree in figures.items()
                if number < len(tree['processes'])})
        yield _pair(f'{part}, all', 'MiB of PSS',
                    {subject: tree['total']
                     for subject, tree in figures.items()},
                    soak.get('ratio', {}).get(part))


def _console(**figures):
    yield ('serial console, output', 'KiB a second',
           figures['bytes_per_second'] / 1024)
    what = 'serial console, key and echo'
    yield what, 'ms, median', figures['key_median_ms']
    yield what, 'ms, p95', figures['key_p95_ms']
    yield 'the same without the BMC', 'ms, median', figures[
        'kubevirt_median_ms']
    for name, what in (('idle', 'BMC, no console'),
                       ('open', 'BMC, open console'),
                       ('after', 'the same after the output')):
        yield what, 'MiB of PSS', figures[name]


NAMES = ('ours', 'stock')

_HEAD = '', '', 'ours', 'neighbour', '', 'ratio (quartiles)', 'target'


def _number(value):
    return '-' if value is None else f'{value:.3g}' if value < 100 \
        else f'{value:.0f}'


def _aims(row):
    """Return the targets of a row, a list of texts."""
    sign = '≥' if row.better == 'higher' else '≤'
    aims = [f'{sign} {_number(row.target)}'] if row.target else []
    if row.target_ratio:
        aims.append(f'{sign} {row.target_ratio:g} × {row.neighbour}')
    return aims


def _cells(row):
    ratio = '-'
    if row.ratio is not None:
        ratio = f'{row.ratio:.2f}'
        if row.spread:
            ratio += ' ({:.2f} to {:.2f})'.format(*row.spread)
    elif row.reason:
        ratio = 'failed' if row.failed else 'not compared'
    return (row.name, row.unit, _number(row.value), _number(row.other),
            row.neighbour or '', ratio, ', '.join(_aims(row)))


def rst(found, names):
    """Format rows as a table of a page, one line for each figure.

    :param found: iterable of `Row`
    :param names: those of ``--compare``, which have a column each
    """
    lines = {}
    for row in found:
        line = lines.setdefault((row.name, row.unit), {
            'this': _number(row.value), 'targets': []})
        if row.neighbour and (row.other is not None or row.failed):
            text = 'failed' if row.failed else _number(row.other) + (
                '' if row.ratio is None else f' ({row.ratio:.2f})')
            if row.neighbour in names:
                line[row.neighbour] = text
            else:
                line['beside'] = f'{row.neighbour}: {text}'
        line['targets'] += [aim for aim in _aims(row)
                            if aim not in line['targets']]
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator='\n')
    columns = ('this', *names, 'beside', 'target')
    writer.writerow(('', '', *columns))
    for key, line in lines.items():
        writer.writerow((*key, *(line.get(name, '') for name in columns[:-1]),
                         ', '.join(line['targets'])))
    return '.. csv-table::\n   :header-rows: 1\n\n' + textwrap.indent(
        text.getvalue(), '   ')


def table(found):
    """Format rows as text; reasons why they are not compared follow.

    :param found: iterable of `Row`
    """
    found = list(found)
    lines = [_HEAD, *map(_cells, found)]
    widths = [max(len(line[column]) for line in lines)
              for column in range(len(lines[0]))]
    aligned = ('%-*s', '%-*s', '%*s', '%*s', '%-*s', '%-*s', '%-*s')
    reasons = {}
    for row in found:
        if row.reason:
            reasons.setdefault((
                'failed' if row.failed else 'not compared'
                if row.ratio is None else 'note', row.name, row.reason),
                {})[row.unit] = None
    return '\n'.join([
        *('  '.join(form % (width, cell) for form, width, cell
                    in zip(aligned, widths, line)).rstrip()
          for line in lines),
        *(f"{what}: {name}, {' and '.join(units)}: {reason}"
          for (what, name, reason), units in reasons.items())])
