# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/test``: run test suites and add up their results.

The suites are defined in :mod:`tools.checks.suites`.
"""

import argparse
import functools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback

from kubevirt_sandbox.testing import guard
from tools.checks import cluster
from tools.checks import lanes
from tools.checks import report
from tools.checks import suites

#: How many suites run at the same time. Some wait more than they compute.
LANES = 2


def parse(argv):
    parser = argparse.ArgumentParser(
        prog='tools/test',
        description='Run everything that CI runs. The last line is the sum '
                    'of all suites: "N passed, N failed"; the table before '
                    'it also counts skipped tests. A step without tests '
                    '(docs, demo) counts as one test.')
    parser.add_argument(
        'suite', nargs='*', metavar='SUITE',
        help='run only these suites, of: '
             + ', '.join((*suites.SUITES, *suites.NAMED_SUITES)))
    parser.add_argument(
        '--list', action='store_true',
        help='print the suites, in the order in which they run, and exit')
    parser.add_argument(
        '--conformance', metavar='DIR', action='append', default=[],
        help='also run the modules DIR/test_*.py against a sandbox: recorded '
             "cases of Kubernetes', KubeVirt's and CDI's APIs; may be "
             'repeated')
    parser.add_argument(
        '--cluster', metavar='KUBECONFIG',
        help='run the functional tests against the cluster with KubeVirt and '
             'CDI that this kubeconfig names, with the rights of an '
             'administrator; tests that need a sandbox are skipped, with the '
             'reason. They change feature gates while they run, so use a '
             'cluster made for tests. Suites: '
             + ', '.join(suites.CLUSTER_SUITES))
    parser.add_argument(
        '--namespace', metavar='NS',
        help="namespace of the tests' objects in that cluster, where nothing "
             'else should be')
    parser.add_argument(
        '--image', metavar='IMAGE',
        help='with --cluster: an image of this checkout that the nodes can '
             'pull; without it, the tests of the operator are skipped')
    parser.add_argument(
        '--medium', metavar='IMAGE', default=cluster.MEDIUM,
        help="with --cluster: container disk of the tests' VMs, which the "
             'nodes can pull (default: %(default)s)')
    parser.add_argument(
        '--tests', metavar='REGEX',
        help='with --cluster: run only the tests whose name, such as '
             'tests.functional.power.test_power.SwitchTestCase.'
             'test_power_button_toggles, '
             'matches anywhere')
    parser.add_argument(
        '--resume', metavar='FILE',
        help='with --cluster: leave out the tests that FILE names, and add '
             'to it those that pass; to continue a run that was ended')
    parser.add_argument(
        '-v', '--verbose', action='store_true',
        help='show the complete output of the suites; without it, the '
             'output is in logs, which are kept if a test failed; suites '
             'then run one after the other, else two at a time')
    options = parser.parse_args(argv)
    if bool(options.cluster) != bool(options.namespace):
        parser.error('--cluster and --namespace need one another')
    if options.image and not options.cluster:
        parser.error('--image needs --cluster')
    if options.resume:
        if not options.cluster:
            parser.error('--resume needs --cluster')
        options.resume = os.path.abspath(options.resume)
    if options.tests is not None:
        if not options.cluster:
            parser.error('--tests needs --cluster; see doc/source/testing.rst '
                         'for how to choose tests without it')
        try:
            re.compile(f'(?:{options.tests})')
        except re.error as exc:
            parser.error(f'--tests: {exc}')
    supported = (suites.CLUSTER_SUITES if options.cluster
                 else {**suites.SUITES, **suites.NAMED_SUITES})
    for name in options.suite:
        if name not in supported:
            parser.error(f'no suite {name!r}; supported: '
                         + ', '.join(supported))
    return options


def selected_suites(options):
    """Yield name and function of each selected suite."""
    given = (options,) if options.cluster else ()
    known = suites.CLUSTER_SUITES if given else suites.SUITES
    for name, suite in {**known, **suites.NAMED_SUITES}.items():
        if name in (options.suite or known):
            yield name, functools.partial(
                lambda suite, folder: suite(folder, *given), suite)
    if options.conformance:
        yield ('conformance',
               lambda folder: suites.conformance(folder,
                                                 options.conformance))


def list_suites():
    """Print name and purpose of each suite."""
    named = {f'{name} (if named)': suite
             for name, suite in suites.NAMED_SUITES.items()}
    rows = {**suites.SUITES, **named,
            'conformance (with --conformance DIR)': suites.conformance}
    for name, suite in rows.items():
        print(f'{name:<20} {suite.__doc__.splitlines()[0]}')


def main(argv=None):
    options = parse(sys.argv[1:] if argv is None else argv)
    if options.list:
        list_suites()
        return 0
    # Adopt orphaned descendants, so that kill_leftovers() finds them.
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    lanes.exit_on_signals(signal.SIGINT)
    top = tempfile.mkdtemp(prefix='sushy-kubevirt-test-')
    keep = False
    began = time.monotonic()
    try:
        selected = list(selected_suites(options))
        # Suites share a given cluster, and output that is shown.
        count = (1 if options.cluster or options.verbose
                 or len(selected) < LANES else LANES)
        suites.WORKERS = suites.workers(count)
        rows = lanes.run(selected, top, count, options.verbose)
        total = sum((row.result for row in rows), suites.Result())
        keep = bool(total.failed)
    finally:
        # After a signal the suite's processes are still running.
        lanes.end_suites(cluster.CLEAN_UP_SECONDS if options.cluster else 0)
        suites.kill_leftovers(patience=0)
        if not keep:
            shutil.rmtree(top, ignore_errors=True)
    for output in total.failures:
        print(report.failure_details(output), flush=True)
    if keep:
        print(f'\nComplete output: {top}/*.log')
    print(f"\n{'suite':<14} {'passed':>8} {'failed':>8} {'skipped':>8} "
          f"{'seconds':>9} {'CPU':>9}")
    rows.append(lanes.Row('all', total, time.monotonic() - began,
                          sum(row.cpu for row in rows)))
    for name, result, seconds, cpu in rows:
        print(f'{name:<14} {result.passed:8} {result.failed:8} '
              f'{result.skipped:8} {seconds:9.1f} {cpu:9.1f}')
    print(f'{total.passed} passed, {total.failed} failed', flush=True)
    return 1 if total.failed or not total.passed else 0


def main_with_sum():
    """Run `main`; print an exception and count it as a failure.

    :returns: exit code
    """
    try:
        return main()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(suites.Result(failed=1), flush=True)
        return 1


if __name__ == '__main__':
    sys.exit(main_with_sum())
