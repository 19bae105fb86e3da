# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/test``: run test suites in sequence and sum up.

The suites are defined in :mod:`tools.checks.suites`.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

from kubevirt_sandbox.testing import guard
from tools.checks import suites
from tools.checks import telling


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
    parser.add_argument(
        '-v', '--verbose', action='store_true',
        help='show all that the suites print; else it is in logs, which '
             'are kept when something failed')
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
    """Run one suite; count an exception in it as one failure.

    Processes that the suite left running are another failure.

    :param folder: folder for the suite's files.
    :returns: :class:`~tools.checks.suites.Result`
    """
    try:
        result = suite(folder)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        result = suites.Result(failed=1, said=(
            'the suite itself\n' + traceback.format_exc(),))
    if left := suites.left_running():
        result += suites.Result(
            failed=1, said=('left running: ' + '; '.join(left),))
    return result


def carry_out_all(options, top):
    """Run the selected suites and print the result of each.

    :param top: folder for their files and logs.
    :returns: list of rows: name, :class:`~tools.checks.suites.Result`,
        seconds.
    """
    rows = []
    for name, suite in chosen(options):
        print(f'===== {name}', flush=True)
        began = time.monotonic()
        folder = os.path.join(top, name)
        os.mkdir(folder)
        with telling.Log(name, folder + '.log', options.verbose) as log, \
                contextlib.redirect_stdout(log):
            result = carry_out(suite, folder)
        shutil.rmtree(folder, ignore_errors=True)
        rows.append((name, result, time.monotonic() - began))
        print(f'===== {name}: {result}', flush=True)
        for said in result.said:
            print(telling.briefly(said), flush=True)
    return rows


def end_with_all():
    """Exit on SIGTERM, on SIGHUP and when the parent process ends.

    The exit ends all child processes, too.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP)
               # Keep ignoring SIGHUP under nohup.
               if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number, _frame):
        # Handle one signal only. A signal to the process group also ends
        # the shell, whose end sends another one here, which would interrupt
        # the clean-up.
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, end)
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGTERM)


def main(argv=None):
    options = parse(sys.argv[1:] if argv is None else argv)
    # Adopt orphaned descendants, so that left_running() finds them.
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    end_with_all()
    top = tempfile.mkdtemp(prefix='sushy-kubevirt-test-')
    keep = False
    try:
        rows = carry_out_all(options, top)
        total = sum((result for _, result, _ in rows), suites.Result())
        keep = bool(total.failed)
    finally:
        # After a signal the suite's processes are still running.
        suites.left_running(patience=0)
        if not keep:
            shutil.rmtree(top, ignore_errors=True)
    for said in total.said:
        print(telling.fully(said), flush=True)
    if keep:
        print(f'\nAll that was printed is in {top}/*.log')
    print('\n%-14s %8s %8s %8s %9s' % ('suite', 'passed', 'failed',
                                       'skipped', 'seconds'))
    for name, result, seconds in rows:
        print('%-14s %8d %8d %8d %9.1f' % (
            name, result.passed, result.failed, result.skipped, seconds))
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


def always():
    """Run `main`; print and count its exceptions as a failure.

    :returns: exit code
    """
    try:
        return main()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(suites.Result(failed=1), flush=True)
        return 1


if __name__ == '__main__':
    sys.exit(always())
