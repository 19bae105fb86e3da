# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/bench``."""

import argparse
import dataclasses
import json
import sys

from tests.bench import history
from tests.bench import origin
from tests.bench import plan
from tests.bench import report


def parser():
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog='tools/bench',
        description='Measure the emulators of this project beside the stock '
        'ones, interleaved, on this machine, the BMC of a VM and its web '
        'page, an emulator of thousands of VMs, one process with many BMCs, '
        'the operator with its BMCs, without and with shared pods, '
        'clusters of virtual bare metal, and the sandbox. Takes half an '
        'hour; prints a table, and JSON on request. Times depend on the '
        'machine and its other load: compare the ratios to what was '
        'measured in the same run. See '
        'doc/source/reference/benchmarks.rst.')
    made.add_argument('--json', metavar='FILE',
                      help='write the figures there; - is standard output, '
                      'with the table on standard error. '
                      'tests/bench/schema.json is the schema')
    made.add_argument('--quick', action='store_true',
                      help='check that the benchmark works: few requests, '
                      'meaningless figures')
    made.add_argument('--only', choices=(*report.NAMES, *plan.OTHERS),
                      help='measure one side alone, or the BMC of a VM '
                      '(bmc), or the same while other containers take all CPU '
                      '(contention; needs root), or its web page in Chromium '
                      '(web), or an emulator of thousands of VMs (scale), or '
                      'one process with many BMCs (shared), or the operator, '
                      'or the operator with shared pods that are simulated '
                      '(placement), or clusters of virtual bare metal, or '
                      'the sandbox (beside kube-apiserver with etcd, if the '
                      'variables KUBE_APISERVER and ETCD name the programs)')
    made.add_argument('--vms', metavar='N', type=_number, action='append',
                      help='number of VMs of --only scale; may be repeated '
                      '(default: 5000 and 10000)')
    made.add_argument('--bmcs', metavar='N', type=_number, action='append',
                      help='number of BMCs of --only placement; may be '
                      'repeated (default: 10, 100 and 1000; 10000 take ten '
                      'minutes more)')
    made.add_argument('--compare', metavar='COMMAND',
                      help='measure the BMC of a VM only, in alternating '
                      'rounds with the BMC agent that COMMAND runs on the '
                      'same API server. It gets what it needs in variables '
                      'BENCH_*. With --only sandbox: measure the sandbox in '
                      'alternating rounds with the one that COMMAND runs, '
                      'e.g. kubevirt-sandbox of another version')
    made.add_argument('--as', metavar='NAME', default='other', dest='name',
                      help='what the table calls that agent (default: '
                      '%(default)s)')
    made.add_argument('--from', metavar='FILE', dest='source',
                      help='do not measure: use the figures that --json '
                      'wrote there')
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
    if options.compare is not None:
        if options.only not in (None, 'bmc', 'sandbox'):
            made.error('--compare measures the BMC of a VM or the sandbox, '
                       'not ' + options.only)
        if not options.compare.split():
            made.error('--compare needs a command')
    elif options.name != 'other':
        made.error('--as needs --compare')
    if options.name in (*report.NAMES, ''):
        made.error(f'--as {options.name!r}: choose another name')
    if options.record and not options.source:
        # Before minutes are spent on it.
        if reason := history.problem(options.quick, origin.commit()):
            made.error(f'--record: {reason}')
    return options


def measure(options):
    """Return what the JSON has."""
    def say(what):
        print(f'bench: {what}', file=sys.stderr, flush=True)

    sizes = plan.QUICK if options.quick else plan.FULL
    if options.vms:
        sizes = dataclasses.replace(sizes, vms=tuple(options.vms))
    if options.bmcs:
        sizes = dataclasses.replace(sizes, placed=tuple(options.bmcs))
    compare = options.compare and (options.compare, options.name)
    head = {'version': report.VERSION, **origin.describe(),
            'quick': options.quick}
    if compare:
        head['compare'] = options.compare
    result = plan.run(sizes, options.only, say, compare)
    return {**head, 'rows': [row.asdict() for row in report.rows(result)],
            'series': report.series(result)}


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
        result = (report.read(options.source) if options.source
                  else measure(options))
        # First what cannot fail: the figures took minutes.
        print(report.table(map(report.from_dict, result['rows'])),
              file=sys.stderr if options.json == '-' else sys.stdout)
        text = json.dumps(result, indent=2)
        if options.json == '-':
            print(text)
        elif options.json:
            with open(options.json, 'w') as stream:
                stream.write(text + '\n')
        if options.record:
            history.record(result)
        if options.plot:
            # Imported here because it takes long.
            from tests.bench import plots
            plots.draw(result, options.plot)
    except (OSError, ValueError) as exc:
        sys.exit(f'tools/bench: {exc}')


if __name__ == '__main__':
    main()
