# SPDX-License-Identifier: Apache-2.0
"""The rows of a result, as JSON and as a table.

``schema.json`` describes the JSON.
"""

import dataclasses
import json
import statistics

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

    def asdict(self):
        """Return what JSON has of it; fields without a value are left out."""
        found = {**dataclasses.asdict(self), 'better': self.better,
                 'target': self.target}
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
    return result


def rows(result):
    """Yield the rows.

    :param result: result of :func:`tests.bench.plan.run`.
    """
    if 'turns' in result:
        yield from _emulators(result)
    for part in 'bmc', 'contention', 'web', 'sandbox':
        yield from result.get(part, ())
    for figures in result.get('scale', ()):
        yield from _scale(**figures)
    for figures in result.get('placement') or ():
        yield from (Row(*row) for row in _placement(**figures))
    for name, make in (('shared', _shared), ('operator', _operator),
                       ('cluster', _cluster)):
        if result.get(name):
            yield from (Row(*row) for row in make(**result[name]))


def series(result):
    """Return the values that depend on a number, for plots.

    :param result: result of :func:`tests.bench.plan.run`.
    :returns: list of dictionaries, as in the JSON
    """
    found = [('memory of vbmcd', 'MiB of PSS', {
        name: [[int(count), figures[name]['total']]
               for count, figures in result.get('bmcs', {}).items()
               if name in figures] for name in NAMES})]
    found += [(f'shared pods, {what}', unit, {
        line: [[figures['bmcs'], figures[key]]
               for figures in result.get('placement') or ()]
        for line, key in lines.items()})
        for what, unit, lines in _PLACEMENT]
    # The axes of plots are logarithmic.
    found = [(name, unit, {
        line: drawn for line, points in lines.items()
        if (drawn := [point for point in points if point[1] > 0])})
        for name, unit, lines in found]
    return [{'name': name, 'x': 'BMCs', 'y': unit, 'lines': lines}
            for name, unit, lines in found if lines]


#: Series of shared pods: what, unit, and lines with their figures.
_PLACEMENT = (
    ('time until all are Ready', 's', {
        'elapsed': 'ready_s', 'CPU of the operator': 'operator_cpu_s',
        'CPU of the API server': 'api_cpu_s'}),
    ('memory of the operator', 'MiB of PSS', {'operator': 'pss'}),
    ('API calls at rest', 'calls a minute', {'operator': 'calls_a_minute'}),
    ('reaction to a deletion', 'ms until the entry is removed',
     {'operator': 'removed_ms'}),
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
    soak = result['memory']
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
    for count, figures in result['bmcs'].items():
        yield _pair(f"vbmcd with {count} BMC{'' if count == '1' else 's'}",
                    'MiB of PSS',
                    {subject: figures[subject]['total']
                     for subject in NAMES if subject in figures},
                    figures.get('ratio'))


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


def _scale(vms, first_s, list_s, whole_ms, page_ms, kib_per_vm):
    yield Row(f'first collection, {vms} VMs', 's', first_s,
              'list of the API', list_s, first_s / list_s)
    yield Row(f'GET Systems, {vms} VMs', 'ms, median', whole_ms)
    yield Row(f'a page of it, {vms} VMs', 'ms, median', page_ms)
    yield Row(f'memory of a VM, {vms} VMs', 'KiB of PSS', kib_per_vm)


def _shared(bmcs, empty, full, kib_per_bmc, start_s, floods):
    yield 'one process, no BMC', 'MiB of PSS', empty
    yield f'one process, {bmcs} BMCs', 'MiB of PSS', full
    yield 'memory of a BMC in one process', 'KiB of PSS', kib_per_bmc
    yield f'start of {bmcs} BMCs in one process', 's', start_s
    for index, what in enumerate(('cached', 'uncached')):
        yield f'GET, {what}, no flood', 'ms, median', statistics.median(
            medians['idle'][index] for medians in floods.values())
        for kind, medians in floods.items():
            yield (f'GET, {what}, flood of {kind}', 'times without',
                   medians['flooded'][index] / medians['idle'][index])


def _operator(one, many):
    yield 'BMC, from applied to Ready', 'ms, median', one['ready_ms']
    yield "of these the operator's", 'ms, median', many['ready_ms']
    yield 'idle BMC', 'MiB of PSS', one['pss']
    yield 'idle BMC', 'CPU, m', one['rest']['millicores']
    yield 'idle BMC', 'API calls a minute', one['rest']['calls_a_minute']
    what = f"operator with {many['bmcs']} BMCs"
    yield what, 'MiB of PSS', many['pss']
    yield what + ', rested', 'MiB of PSS', many['pss_rested']
    yield what, 'CPU, m', many['rest']['millicores']
    yield what, 'API calls a minute', many['rest']['calls_a_minute']
    yield what, 's, all Ready', many['all_ready_s']


def _placement(bmcs, ready_s, operator_cpu_s, api_cpu_s, pss, calls_a_minute,
               millicores, removed_ms):
    what = f'operator with {bmcs} BMCs in shared pods'
    yield what, 's, all Ready', ready_s
    yield what, 's of CPU until Ready', operator_cpu_s
    yield what, 's of CPU until Ready, API server', api_cpu_s
    yield what, 'MiB of PSS', pss
    yield what, 'CPU, m', millicores
    yield what, 'API calls a minute', calls_a_minute
    yield what, 'ms, entry of a deleted BMC removed', removed_ms


def _cluster(nodes, pair, single, enrol):
    what = f'apply {nodes} nodes'
    yield (what, 's, median', pair['command'], 'kubectl', pair['kubectl'],
           pair['command'] / pair['kubectl'])
    for one in single:
        for key, step in (('apply_s', 'apply'), ('unchanged_s', 'unchanged'),
                          ('teardown_s', 'teardown')):
            yield f"{step}, {one['nodes']} nodes", 's', one[key]
    what = f"enrol {enrol['nodes']} nodes"
    yield what, 's', enrol['enrol_s']
    yield what + ', the client', 's of CPU', enrol['client_cpu_s']
    yield what + ', Ironic', 's of CPU', enrol['ironic_cpu_s']
    yield f"unchanged, {enrol['nodes']} nodes in Ironic", 's', enrol['again_s']


NAMES = ('ours', 'stock')

_HEAD = '', '', 'ours', 'neighbour', '', 'ratio (quartiles)', 'target'


def _number(value):
    return '-' if value is None else f'{value:.3g}' if value < 100 \
        else f'{value:.0f}'


def _cells(row):
    ratio = '-'
    if row.ratio is not None:
        ratio = f'{row.ratio:.2f}'
        if row.spread:
            ratio += ' ({:.2f} to {:.2f})'.format(*row.spread)
    elif row.reason:
        ratio = 'not compared'
    target = '' if row.target is None else (
        f"{'≥' if row.better == 'higher' else '≤'} {_number(row.target)}")
    return (row.name, row.unit, _number(row.value), _number(row.other),
            row.neighbour or '', ratio, target)


def table(found):
    """Format rows as text; reasons why they are not compared follow.

    :param found: iterable of `Row`
    """
    found = list(found)
    lines = [_HEAD, *map(_cells, found)]
    widths = [max(len(line[column]) for line in lines)
              for column in range(len(lines[0]))]
    aligned = ('%-*s', '%-*s', '%*s', '%*s', '%-*s', '%-*s', '%-*s')
    return '\n'.join([
        *('  '.join(form % (width, cell) for form, width, cell
                    in zip(aligned, widths, line)).rstrip()
          for line in lines),
        *(f'not compared: {row.name}, {row.unit}: {row.reason}'
          for row in found if row.ratio is None and row.reason)])
