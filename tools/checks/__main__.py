# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/test``: run suites, one after another, and add up.

What the suites are is in :mod:`tools.checks.suites`.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback

from tests.functional import guard
from tools.checks import suites

# Lines that are told again of a test that failed: its first and its last.
FIRST, LAST = 4, 60


def parse(argv):
    parser = argparse.ArgumentParser(
        prog='tools/test',
        description='Run everything that CI runs. The last line is the sum '
                    'of all: "N passed, N failed", with ", N skipped" if '
                    'any were. A step that is no suite of tests (pep8, '
                    'docs, the tour) counts as one test.')
    parser.add_argument(
        'suite', nargs='*', metavar='SUITE',
        help='run only these, of: ' + ', '.join(suites.SUITES))
    parser.add_argument(
        '--conformance', metavar='DIR',
        help='also run DIR/test_kubevirt_api.py and DIR/test_cdi_api.py, '
             "cases of what KubeVirt's and CDI's APIs do, against a "
             'sandbox')
    options = parser.parse_args(argv)
    for name in options.suite:
        if name not in suites.SUITES:
            parser.error('no suite %r; there are: %s'
                         % (name, ', '.join(suites.SUITES)))
    return options


def chosen(options):
    """Yield name and function of each suite to run."""
    for name, suite in suites.SUITES.items():
        if not options.suite or name in options.suite:
            yield name, suite
    if options.conformance:
        yield ('conformance',
               lambda folder: suites.conformance(folder,
                                                 options.conformance))


def carry_out(suite, folder):
    """Run one suite; a fault of the suite is a failure, not an end."""
    try:
        result = suite(folder)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        result = suites.Result(failed=1)
    if left := suites.left_running():
        print('left running: ' + '; '.join(left))
        result += suites.Result(failed=1)
    return result


def tell_again(said):
    """Tell of what failed where it is looked for: at the end.

    :param said: texts, one of each test.
    """
    for text in said:
        lines = text.splitlines()
        if len(lines) > FIRST + LAST:
            lines[FIRST:-LAST] = ['[...]']
        print('\n===== failed: ' + '\n'.join(lines), flush=True)


def main(argv=None):
    options = parse(sys.argv[1:] if argv is None else argv)
    # What loses its parent becomes ours, so that it is found.
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    rows = []
    total = suites.Result()
    with tempfile.TemporaryDirectory(prefix='sushy-kubevirt-test-') as top:
        for name, suite in chosen(options):
            print('\n===== %s' % name, flush=True)
            began = time.monotonic()
            folder = os.path.join(top, name)
            os.mkdir(folder)
            result = carry_out(suite, folder)
            rows.append((name, result, time.monotonic() - began))
            total += result
            print('===== %s: %s' % (name, result), flush=True)
    tell_again(total.said)
    print('\n%-14s %8s %8s %8s %9s' % ('suite', 'passed', 'failed',
                                       'skipped', 'seconds'))
    for name, result, seconds in rows:
        print('%-14s %8d %8d %8d %9.1f' % (
            name, result.passed, result.failed, result.skipped, seconds))
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == '__main__':
    sys.exit(main())
