# SPDX-License-Identifier: Apache-2.0
"""The history of the benchmark's figures."""

import contextlib
import io
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from tests.bench import __main__ as bench
from tests.bench import history
from tests.bench import origin
from tests.bench import report
from tests.repository.bench import test_report


def run(commit, *rows, machine='m'):
    """Return what the JSON has of a run."""
    return test_report.document(
        rows, commit=commit * 40, machine=machine)


def time(ratio, neighbour='stock', value=1.0):
    return report.Row('GET', 'ms, median', value, neighbour, 1.0, ratio)


def rate(ratio):
    return report.Row('IPMI', 'a second', 1.0, 'stock', 1.0, ratio)


def size(value):
    return report.Row('BMC', 'MiB of PSS', value)


class HistoryTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'history.jsonl')

    def record(self, *runs):
        for each in runs:
            history.record(each, self.path)
        return history.compare(history.read(self.path))

    def worse(self, *runs):
        return [one.row.name for one in self.record(*runs)[0]]

    def test_ratios_are_compared_with_the_median_of_earlier_runs(self):
        worse, compared = self.record(
            run('a', time(0.5)), run('b', time(0.9)), run('c', time(0.5)),
            run('d', time(0.6), rate(2.0)))
        self.assertEqual(1, compared)
        self.assertEqual((0.5, 0.6, 3), (worse[0].before, worse[0].now,
                                         worse[0].runs))
        self.assertIn('as a ratio to stock: 0.6, 20 % worse than 0.5',
                      str(worse[0]))

    def test_times_are_not_compared(self):
        self.assertEqual(([], 1), self.record(
            run('a', time(0.5, value=1.0)), run('b', time(0.5, value=9.0))))

    def test_lower_rates_are_worse(self):
        self.assertEqual(['IPMI'], self.worse(
            run('a', rate(4.0), time(0.5)), run('b', rate(3.0), time(0.3))))
        self.assertEqual([], self.worse(run('c', rate(9.0))))

    def test_memory_is_compared_as_it_is(self):
        self.assertEqual(['BMC'], self.worse(
            run('a', size(30.0)), run('b', size(40.0))))

    def test_calls_where_there_were_none(self):
        def calls(value):
            return report.Row('GET', 'API calls', value)
        self.assertEqual([], self.worse(
            run('a', calls(0)), run('b', calls(0))))
        self.assertEqual(['GET'], self.worse(run('c', calls(1))))

    def test_all_counted_units(self):
        rows = {row.unit for row in test_report.ROWS}
        for unit in ('API calls a minute', 'times without', 'KiB of PSS'):
            self.assertIn(unit, rows)
            self.assertEqual(['BMC'], self.worse(
                *(run(commit, report.Row('BMC', unit, value))
                  for commit, value in (('a', 6.0), ('b', 9.0)))))
            self.path.unlink()

    def test_threshold(self):
        self.record(run('a', time(0.5)), run('b', time(0.54)))
        runs = history.read(self.path)
        self.assertEqual([], history.compare(runs, 10)[0])
        self.assertEqual(1, len(history.compare(runs, 5)[0]))

    def test_other_machines_and_neighbours_are_not_compared(self):
        self.assertEqual(([], 0), self.record(
            run('a', time(0.5), machine='other'),
            run('b', time(0.5, 'lean')), run('c', time(0.9))))

    def test_run_of_the_same_commit_is_completed(self):
        self.record(run('a', time(0.5), size(30.0)), run('a', time(0.4)))
        found, = history.read(self.path)
        self.assertEqual(
            {'GET': 0.4, 'BMC': None},
            {row['name']: row.get('ratio') for row in found['rows']})

    def test_refusals(self):
        for changes, text in (
                ({'quick': True}, '--quick'), ({'commit': None}, 'git'),
                ({'commit': 40 * 'a' + origin.CHANGED}, 'commit them')):
            exc = self.assertRaises(
                ValueError, history.record, {**run('a'), **changes},
                self.path)
            self.assertIn(text, str(exc))
        self.assertFalse(self.path.exists())

    def test_refusal_comes_before_the_measurement(self):
        text = io.StringIO()
        with mock.patch.object(origin, 'commit', return_value=None), \
                contextlib.redirect_stderr(text):
            self.assertRaises(SystemExit, bench.parse, ['--record'])
        self.assertIn('--record: the commit is not known', text.getvalue())

    def test_exit_code_and_output(self):
        self.record(run('a', time(0.5)), run('b', time(0.6)))
        text = io.StringIO()
        with mock.patch.object(history.read, '__defaults__', (self.path,)), \
                contextlib.redirect_stdout(text):
            self.assertIsNone(bench.main(['--regressions']))
        self.assertIn('1 of 1 rows are more than 10 % worse than before (bbb',
                      text.getvalue())

    def test_recorded_runs(self):
        # The file of the repository can be compared.
        history.compare(history.read())


class CommitTestCase(base.BaseTestCase):

    def test_changes(self):
        folder = self.useFixture(fixtures.TempDir()).path
        self.assertIsNone(origin.commit(folder))
        origin._git(folder, 'init', '--quiet')
        origin._git(folder, '-c', 'user.name=n', '-c', 'user.email=e',
                    'commit', '--quiet', '--allow-empty', '-m', 'x')
        commit = origin.commit(folder)
        self.assertRegex(commit, '^[0-9a-f]{40}$')
        pathlib.Path(folder, 'file').write_text('x')
        self.assertEqual(commit + origin.CHANGED, origin.commit(folder))
