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


def series(found):
    """Return the values that depend on a number of BMCs, for plots.

    :param found: list of `Row`
    :returns: list of dictionaries, as in the JSON
    """
    result = []
    for name, unit, pattern, lines in _SERIES:
        # Beside several neighbours a figure has several rows. The axes of
        # plots are logarithmic.
        points = {line: {
            int(match[1]): value for row in found
            if row.unit == row_unit and (match := re.match(pattern, row.name))
            and (value := getattr(row, side))}
            for line, (row_unit, side) in lines.items()}
        if drawn := {line: [list(pair) for pair in values.items()]
                     for line, values in points.items() if values}:
            result.append({'name': name, 'x': 'BMCs', 'y': unit,
                           'lines': drawn})
    return result


_PLACED = 'operator with ([0-9]+) BMCs in shared pods'

#: Series: name, unit, a pattern of the rows' names with the number, and lines
#: with the units of their rows and which of their values it is.
_SERIES = (
    ('memory of vbmcd', 'MiB of PSS', 'vbmcd with ([0-9]+) BMC', {
        'ours': ('MiB of PSS', 'value'), 'stock': ('MiB of PSS', 'other')}),
    *((f'shared pods, {what}', unit, _PLACED, {
        line: (row_unit, 'value') for line, row_unit in lines.items()})
      for what, unit, lines in (
          ('time until all are Ready', 's', {
              'elapsed': 's, all Ready',
              'CPU of the operator': 's of CPU until Ready',
              'CPU of the API server': 's of CPU until Ready, API server'}),
          ('memory of the operator', 'MiB of PSS', {'operator': 'MiB of PSS'}),
          ('API calls at rest', 'calls a minute',
           {'operator': 'API calls a minute'}),
          ('reaction to a deletion', 'ms until the entry is removed',
           {'operator': 'ms, entry of a deleted BMC removed'}))))


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


def rst(result):
    """Format the figures of a run as a table of a page, with its origin.

    :param result: what the JSON has
    """
    names = list(result.get('compare', ()))
    found = list(map(from_dict, result['rows']))
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
    return '\n'.join((
        f"Commit {str(result['commit'])[:8]}, {result['date'][:10]}, "
        f"Python {result['python']}, {result['machine']}:\n",
        '.. csv-table::\n   :header-rows: 1\n',
        textwrap.indent(text.getvalue(), '   '),
        *(('Rows that were not compared, and notes::\n',
           textwrap.indent('\n'.join(reasons), '   ') + '\n')
          if (reasons := _reasons(found)) else ())))


def _reasons(found):
    """Return what is to be said about rows, a list of texts."""
    reasons = {}
    for row in found:
        if row.reason:
            reasons.setdefault((
                'failed' if row.failed else 'not compared'
                if row.ratio is None else 'note', row.name, row.reason),
                {})[row.unit] = None
    return [f"{what}: {name}, {' and '.join(units)}: {reason}"
            for (what, name, reason), units in reasons.items()]


def table(found):
    """Format rows as text; reasons why they are not compared follow.

    :param found: list of `Row`
    """
    lines = [_HEAD, *map(_cells, found)]
    widths = [max(len(line[column]) for line in lines)
              for column in range(len(lines[0]))]
    aligned = ('%-*s', '%-*s', '%*s', '%*s', '%-*s', '%-*s', '%-*s')
    return '\n'.join([
        *('  '.join(form % (width, cell) for form, width, cell
                    in zip(aligned, widths, line)).rstrip()
          for line in lines),
        *_reasons(found)])
