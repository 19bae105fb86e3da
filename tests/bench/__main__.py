# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/bench``."""

import argparse
import json
import signal
import sys

from tests.bench import emulating
from tests.bench import history
from tests.bench import origin
from tests.bench import plan
from tests.bench import report


def parser():
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog='tools/bench',
        description='Measure the programs of this project beside others, '
        'in turn, on this machine. Takes half an hour; prints a table. Times '
        'depend on the machine and its other load: compare the ratios. '
        'doc/source/reference/benchmarks.rst says what is measured.')
    made.add_argument('--json', metavar='FILE',
                      help='write the figures there; - is standard output, '
                      'with the table on standard error. '
                      'tests/bench/schema.json is the schema')
    made.add_argument('--quick', action='store_true',
                      help='check that the benchmark works: few requests, '
                      'meaningless figures')
    made.add_argument('--only', action='append', default=[],
                      metavar='PART',
                      choices=(*emulating.NAMES, *plan.OTHERS,
                               *plan.BMC_PARTS),
                      help='measure one part; may be repeated. An emulator '
                      '(ours or stock); the BMC of a VM (bmc, or one of '
                      f'{", ".join(plan.BMC_PARTS)}); the same while other '
                      'containers take all CPU (contention; needs root); its '
                      'page in Chromium (web); an emulator of thousands of '
                      'VMs (scale); one process with many BMCs (shared); the '
                      'operator, or that with simulated shared pods '
                      '(placement); clusters of virtual bare metal (cluster); '
                      'the sandbox (beside kube-apiserver with etcd, if the '
                      'variables KUBE_APISERVER and ETCD name the programs)')
    made.add_argument('--vms', metavar='N', type=_number, action='append',
                      help='number of VMs of --only scale; may be repeated '
                      '(default: 5000 and 10000)')
    made.add_argument('--bmcs', metavar='N', type=_number, action='append',
                      help='number of BMCs of --only placement; may be '
                      'repeated (default: 10, 100 and 1000)')
    made.add_argument('--compare', metavar='COMMAND', action='append',
                      default=[],
                      help='measure the BMC of a VM, or the parts of --only, '
                      'in alternating rounds with the BMC agent that COMMAND '
                      'runs; may be repeated. Another version of this '
                      'project is "tests/bench/agents/project FOLDER", with '
                      'the folder of its programs, and the only one for '
                      'operator and placement. Of the sandbox COMMAND is '
                      'that of another one')
    made.add_argument('--as', metavar='NAME', action='append', default=[],
                      dest='names',
                      help='what the table calls the agent of the --compare '
                      'before it (default: other)')
    made.add_argument('--from', metavar='FILE', dest='source',
                      help='do not measure: use the figures that --json '
                      'wrote there')
    made.add_argument('--rst', metavar='FILE', nargs='?', const='-',
                      help='write the table as reStructuredText, with a '
                      'column for each --compare, for a page to include; '
                      'without FILE print it instead of the table')
    made.add_argument('--plot', metavar='DIR',
                      help='draw the rows that have a ratio, and the series, '
                      'as SVG files for light and dark pages')
    made.add_argument('--record', action='store_true',
                      help='add the figures to tests/bench/history.jsonl; '
                      'the checkout must have no changes')
    made.add_argument('--regressions', action='store_true',
                      help='do not measure: compare the last recorded run '
                      'with the median of earlier ones on the same kind of '
                      'machine, by ratios, memory and API calls, and print '
                      'what is worse. The exit code is 0 all the same')
    made.add_argument('--threshold', metavar='PERCENT', type=float,
                      default=history.THRESHOLD,
                      help='what --regressions tolerates (default: '
                      '%(default)s)')
    return made


def _number(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def parse(argv=None):
    """Parse the command line.

    :param argv: list of words, without the program's name
    """
    made = parser()
    options = made.parse_args(argv)
    if options.compare:
        options.only = options.only or ['bmc']
        if wrong := {*options.only} - {*plan.COMPARED, *plan.BMC_PARTS}:
            made.error(f"--compare does not measure {', '.join(wrong)}")
        if not all(command.split() for command in options.compare):
            made.error('--compare needs a command')
        if len(options.compare) == 1:
            options.names = options.names or ['other']
    if len(options.names) != len(options.compare):
        made.error('--as names the agent of each --compare')
    if len({*options.names, *emulating.NAMES, ''}) < 3 + len(options.names):
        made.error(f"--as {' '.join(options.names)}: choose other names")
    if options.record and not options.source:
        # Before minutes are spent on it.
        if reason := history.problem(options.quick, origin.commit()):
            made.error(f'--record: {reason}')
    return options


def measure(options):
    """Return what the JSON has, and the exception of a signal, or None.

    What was measured before a signal is kept.
    """
    def say(what):
        print(f'bench: {what}', file=sys.stderr, flush=True)

    sizes = plan.QUICK if options.quick else plan.FULL
    if options.vms:
        sizes = sizes._replace(vms=tuple(options.vms))
    if options.bmcs:
        sizes = sizes._replace(placed=tuple(options.bmcs))
    head = {'version': report.VERSION, **origin.describe(),
            'quick': options.quick}
    if options.compare:
        head['compare'] = dict(zip(options.names, options.compare))
    rows, ended = [], None
    try:
        for row in plan.run(sizes, options.only, say,
                            tuple(zip(options.compare, options.names))):
            rows.append(row)
    except (KeyboardInterrupt, SystemExit) as exc:
        ended = exc
    return {**head, 'rows': [row.asdict() for row in rows],
            'series': report.series(rows)}, ended


def regressions(threshold):
    """Print the rows of the last recorded run that are worse."""
    runs = history.read()
    worse, compared = history.compare(runs, threshold)
    for one in worse:
        print(one)
    print(f'{len(worse)} of {compared} rows are more than {threshold:g} % '
          'worse than before' + (
              f" ({runs[-1]['commit'][:12]}, {runs[-1]['machine']})"
              if runs else ': no run is recorded'))


def main(argv=None):
    options = parse(argv)
    if options.regressions:
        return regressions(options.threshold)
    try:
        result, ended = ((report.read(options.source), None)
                         if options.source else measure(options))
        # First what cannot fail: the figures took minutes.
        rows = list(map(report.from_dict, result['rows']))
        print(report.rst(result) if options.rst == '-'
              else report.table(rows),
              file=sys.stderr if options.json == '-' else sys.stdout)
        text = json.dumps(result, indent=2)
        if options.json == '-':
            print(text)
        elif options.json:
            with open(options.json, 'w') as stream:
                stream.write(text + '\n')
        if ended:
            raise ended
        if options.rst not in (None, '-'):
            with open(options.rst, 'w') as stream:
                stream.write(report.rst(result))
        if options.record:
            history.record(result)
        if options.plot:
            # Imported here because it takes long.
            from tests.bench import plots
            plots.draw(result, options.plot)
    except (OSError, ValueError) as exc:
        sys.exit(f'tools/bench: {exc}')
    if failed := sum('ours' in (row.failed or ()) for row in rows):
        sys.exit(f'tools/bench: {failed} of {len(rows)} rows failed')


if __name__ == '__main__':
    # What was started has to be ended, and cgroups removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    main()
