# SPDX-License-Identifier: Apache-2.0
"""``tools/test`` prints correct sums even if suites fail in unusual ways."""

import contextlib
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
from unittest import mock

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import guard
from tests.fixtures import checkout
from tools.checks import __main__ as checks
from tools.checks import interpreters
from tools.checks import report
from tools.checks import suites


# A suite that leaves an orphan in a separate session.
LEAVES_ORPHAN = """
import functools, sys
from tools.checks import __main__ as checks, suites

def leave(folder):
    suites.run('bash', '-c', 'setsid sleep 1000 >&- 2>&- & disown')
    return suites.Result(1)

suites.SUITES = {'one': leave}
suites.kill_leftovers = functools.partial(suites.kill_leftovers, patience=1)
code = checks.main([])
assert suites.kill_leftovers() == []
sys.exit(code)
"""


# The first suite and its child process run until the third begins, which is
# when the second has ended.
SIDE_BY_SIDE = """
import pathlib, subprocess, sys, time
from tools.checks import __main__ as checks, suites

def wait(folder, name, exists=True):
    while pathlib.Path(folder).with_name(name).exists() != exists:
        time.sleep(0.01)

def one(folder):
    with subprocess.Popen(['sleep', '1000']) as child:
        wait(folder, 'three')
        result = suites.Result(child.poll() is None)
        child.kill()
    return result

def two(folder):
    wait(folder, 'one')
    return suites.Result(1)

def three(folder):
    # A suite's folder is deleted at its end.
    wait(folder, 'one', exists=False)
    return suites.Result(1)

suites.SUITES = {'one': one, 'two': two, 'three': three}
sys.exit(checks.main([]))
"""


# A suite that is running child processes when a signal arrives.
STARTS_CHILDREN = """
from tools.checks import __main__ as checks, suites

def long(folder):
    suites.run('bash', '-c', 'echo $$ >&2; sleep 1000 & echo $! >&2; wait')
    return suites.Result(1)

suites.SUITES = {'long': long}
checks.main(['--verbose'])
"""


class QuickTestCase(base.BaseTestCase):

    def test_its_tests_exist(self):
        for name in suites.QUICK_TESTS:
            folder, module, case, test = name.split('.')
            text = (checkout.ROOT / 'tests' / 'functional' / folder
                    / f'{module}.py').read_text()
            self.assertRegex(text, rf'(?ms)^class {case}\(.*def {test}\(')


class MainTestCase(base.BaseTestCase):

    def run_suites(self, *arguments, **table):
        self.useFixture(fixtures.MonkeyPatch(
            'tools.checks.suites.SUITES', table))
        for what in ('kubevirt_sandbox.testing.guard.prctl',
                     'tools.checks.suites.kill_leftovers',
                     'tools.checks.lanes.exit_on_signals'):
            self.useFixture(fixtures.MonkeyPatch(what, lambda *_, **__: []))
        with mock.patch('sys.stdout', new_callable=io.StringIO) as stream:
            code = checks.main(list(arguments))
        return code, stream.getvalue().splitlines()

    def test_last_line_is_sum_of_suites(self):
        code, lines = self.run_suites(
            one=lambda folder: suites.Result(3, 0, 1),
            two=lambda folder: suites.Result(4))
        self.assertEqual((0, '7 passed, 0 failed'), (code, lines[-1]))
        self.assertEqual(['one', '3', '0', '1'], lines[-4].split()[:4])
        self.assertEqual(['all', '7', '0', '1'], lines[-2].split()[:4])

    def test_some_suites_run_only_if_they_are_named(self):
        self.useFixture(fixtures.MonkeyPatch(
            'tools.checks.suites.NAMED_SUITES',
            {'some': lambda folder: suites.Result(2)}))
        one = {'one': lambda folder: suites.Result(3)}
        self.assertEqual('3 passed, 0 failed', self.run_suites(**one)[1][-1])
        self.assertEqual('2 passed, 0 failed',
                         self.run_suites('some', **one)[1][-1])

    def test_failed_test_gives_exit_code_1(self):
        code, lines = self.run_suites(
            one=lambda folder: suites.Result(3, 2),
            two=lambda folder: suites.Result(4))
        self.log_folder(lines)
        self.assertEqual((1, '7 passed, 2 failed'), (code, lines[-1]))

    def log_folder(self, lines):
        """Return the folder of the logs, which is deleted after the test."""
        line, = (line for line in lines if line.startswith('Complete output:'))
        path = pathlib.Path(line.split()[-1]).parent
        self.addCleanup(shutil.rmtree, path)
        return path

    def test_output_of_failed_suite_is_in_its_log(self):
        def wordy(folder):
            print('something')
            print('SKIPPED: something else')
            return suites.Result(3, 2)

        _code, lines = self.run_suites(one=wordy)
        self.assertEqual(
            ['===== one', 'SKIPPED: something else',
             '===== one: 3 passed, 2 failed'], lines[:3])
        self.assertEqual('something\nSKIPPED: something else\n',
                         (self.log_folder(lines) / 'one.log').read_text())

    def test_verbose_shows_output(self):
        def wordy(folder):
            print('something')
            return suites.Result(3)

        _code, lines = self.run_suites('--verbose', one=wordy)
        self.assertEqual('something', lines[1])

    def test_deletes_logs_after_success(self):
        top = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.MonkeyPatch('tempfile.tempdir', top))
        self.run_suites(one=lambda folder: suites.Result(3))
        self.assertEqual([], os.listdir(top))

    def test_repeats_failures_at_the_end(self):
        long = '\n'.join(map(str, range(1000)))
        _code, lines = self.run_suites(
            one=lambda folder: suites.Result(3, 2, failures=('a\nb', long)),
            two=lambda folder: suites.Result(4))
        self.log_folder(lines)
        first = lines.index('FAIL: a')
        self.assertEqual(['===== one: 3 passed, 2 failed', 'FAIL: a', 'b',
                          'FAIL: 0', '988'], lines[first - 1:first + 4])
        begin = lines.index('===== failed: a')
        self.assertGreater(begin, lines.index('===== two: '
                                              '4 passed, 0 failed'))
        self.assertEqual(['b', '', '===== failed: 0', '1'],
                         lines[begin + 1:begin + 5])
        self.assertIn('999', lines)
        self.assertNotIn('500', lines)

    def test_exception_in_suite_counts_as_failure(self):
        code, lines = self.run_suites(
            one=lambda folder: 1 / 0,
            two=lambda folder: suites.Result(4))
        self.log_folder(lines)
        self.assertIn('ZeroDivisionError: division by zero', lines)
        self.assertEqual((1, '4 passed, 1 failed'), (code, lines[-1]))

    def test_no_tests_is_no_success(self):
        code, lines = self.run_suites()
        self.assertEqual((1, '0 passed, 0 failed'), (code, lines[-1]))

    def test_runs_selected_suites_only(self):
        code, lines = self.run_suites(
            'two',
            one=lambda folder: 1 / 0,
            two=lambda folder: suites.Result(4))
        self.assertEqual((0, '4 passed, 0 failed'), (code, lines[-1]))

    def test_suites_of_given_cluster(self):
        self.useFixture(fixtures.MonkeyPatch(
            'tools.checks.suites.CLUSTER_SUITES', {
                'two': lambda folder, options: print(
                    f'SKIPPED {options.cluster} {options.namespace} '
                    + options.tests) or suites.Result(3, skipped=2)}))
        code, lines = self.run_suites(
            '--cluster', 'config', '--namespace', 'lab', '--tests', 'a|b',
            one=lambda folder: 1 / 0)
        self.assertEqual((0, '3 passed, 0 failed'), (code, lines[-1]))
        self.assertIn('SKIPPED config lab a|b', lines)

    def test_cluster_needs_namespace(self):
        for words in (('--cluster', 'a'), ('--namespace', 'b'),
                      ('--cluster', 'a', '--namespace', 'b', 'unit'),
                      ('--tests', 'a'),
                      ('--cluster', 'a', '--namespace', 'b', '--tests', '(')):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertRaises(SystemExit, checks.parse, words)
            self.assertRegex(err.getvalue(), 'need one another|no suite|'
                             'needs --cluster|unterminated')

    def test_suite_gets_a_folder(self):
        code, lines = self.run_suites(
            one=lambda folder: suites.Result(os.path.isdir(folder)))
        self.assertEqual((0, '1 passed, 0 failed'), (code, lines[-1]))

    def test_left_running_process_is_killed_and_is_a_failure(self):
        # A separate process, because it looks for child processes.
        done = subprocess.run(
            [sys.executable, '-c', LEAVES_ORPHAN], text=True,
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, timeout=60)
        lines = done.stdout.splitlines()
        self.assertEqual((1, '1 passed, 1 failed'),
                         (done.returncode, lines[-1]))
        self.log_folder(lines)
        self.assertIn('FAIL: left running: sleep 1000', lines)

    def test_suites_run_side_by_side(self):
        done = subprocess.run(
            [sys.executable, '-c', SIDE_BY_SIDE], text=True,
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, timeout=60)
        lines = done.stdout.splitlines()
        self.assertEqual((0, '3 passed, 0 failed'),
                         (done.returncode, lines[-1]))
        self.assertEqual(['one', 'two', 'three', 'all'], [
            line.split()[0] for line in lines[-5:-1]])

    def test_killed_suite_is_a_failure(self):
        code, lines = self.run_suites(
            one=lambda folder: os.kill(os.getpid(), signal.SIGKILL),
            two=lambda folder: suites.Result(4))
        self.log_folder(lines)
        self.assertEqual((1, '4 passed, 1 failed'), (code, lines[-1]))
        self.assertIn('FAIL: the process of suite one was killed', lines)

    def start_run(self, *command):
        """Start a run; return its process and the pids of its children."""
        one = subprocess.Popen(
            [*command, sys.executable, '-c', STARTS_CHILDREN], text=True,
            cwd=checkout.ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE)
        self.addCleanup(one.stdout.close)
        self.addCleanup(one.wait)
        self.addCleanup(one.kill)
        self.assertEqual('===== long\n', one.stdout.readline())
        return one, [int(one.stdout.readline()) for _ in range(2)]

    def assert_ended(self, pids):
        for pid in pids:
            try:
                self.assertTrue(guard.ended(os.pidfd_open(pid), 30))
            except ProcessLookupError:
                pass

    def test_terminated_run_ends_its_children(self):
        one, pids = self.start_run()
        one.terminate()
        self.assertEqual(128 + signal.SIGTERM, one.wait(60))
        self.assert_ended(pids)

    def test_run_ends_when_its_shell_is_killed(self):
        one, pids = self.start_run('bash', '-c', '"$@"; true', 'bash')
        one.kill()
        self.assert_ended(pids)

    def test_unexpected_exception_counts_as_failure(self):
        self.useFixture(fixtures.MonkeyPatch(
            'tools.checks.__main__.main', lambda: 1 / 0))
        with mock.patch('sys.stdout', new_callable=io.StringIO) as stream:
            self.assertEqual(1, checks.main_with_sum())
        lines = stream.getvalue().splitlines()
        self.assertEqual(['ZeroDivisionError: division by zero',
                          '0 passed, 1 failed'], lines[-2:])

    def test_lists_suites(self):
        def one(folder):
            """Do what one does.

            More.
            """

        code, lines = self.run_suites('--list', one=one)
        self.assertEqual(0, code)
        self.assertEqual(['one', 'Do what one does.'],
                         lines[0].split(maxsplit=1))
        self.assertIn('conformance', lines[-1])

    def test_unknown_suite_is_usage_error(self):
        with mock.patch('sys.stderr', new_callable=io.StringIO) as stream:
            exc = self.assertRaises(SystemExit, checks.main, ['three'])
        self.assertEqual(2, exc.code)
        self.assertIn("no suite 'three'", stream.getvalue())


FAILED = """{0} tests.a.B.test_c [3.0s] ... FAILED

Captured traceback:
~~~~~~~~~~~~~~~~~~~
    Traceback (most recent call last):

      File "x", line 65, in test_c
    self.assertEqual(1, 2)

    MismatchError: 1 != 2


Captured operator:
~~~~~~~~~~~~~~~~~~
    a line
"""


class ReportTestCase(base.BaseTestCase):

    def test_summary_of_failure_is_end_of_traceback(self):
        self.assertEqual(
            ['FAIL: {0} tests.a.B.test_c [3.0s] ... FAILED',
             '    Traceback (most recent call last):',
             '      File "x", line 65, in test_c',
             '    self.assertEqual(1, 2)',
             '    MismatchError: 1 != 2'],
            report.failure_summary(FAILED).splitlines())

    def test_truncates_long_lines(self):
        for shorten in report.failure_summary, report.failure_details:
            self.assertLess(len(shorten('a\n' + 'b' * 10000)), 300)

    def test_prints_progress(self):
        seconds = iter([0, 1, 61, 62])
        path = self.useFixture(fixtures.TempDir()).join('log')
        with mock.patch('sys.stdout', new_callable=io.StringIO) as stream, \
                report.Log('one', path,
                           clock=lambda: next(seconds)) as log:
            for what in 'ok', 'FAILED', 'SKIPPED: no such thing':
                log.write('{0} tests.a.B.test_c [3.0s] ... ' + what + '\n')
        self.assertEqual(
            ['one: 2 tests, 1 failed, 61 s',
             '{0} tests.a.B.test_c [3.0s] ... SKIPPED: no such thing'],
            stream.getvalue().splitlines())


class InterpretersTestCase(base.BaseTestCase):

    def test_one_of_each_supported_version(self):
        listed = [{'version': version, 'path': path, 'variant': variant,
                   'implementation': implementation}
                  for version, path, implementation, variant in (
                      ('3.99.0', 'new', 'cpython', 'default'),
                      ('3.13.1', 'free', 'cpython', 'freethreaded'),
                      ('3.13.0', 'a', 'cpython', 'default'),
                      ('3.13.0', 'b', 'cpython', 'default'),
                      ('3.11.2', 'c', 'cpython', 'default'),
                      ('3.11.1', 'pypy', 'pypy', 'default'),
                      ('3.10.9', 'old', 'cpython', 'default'))]
        self.assertEqual({'3.13.0': 'a', '3.11.2': 'c'},
                         interpreters.supported(listed))


class RunTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', io.StringIO()))
        self.folder = self.useFixture(fixtures.TempDir()).path

    def test_returns_exit_code_and_output(self):
        lines = []
        code = suites.run('bash', '-c', 'echo one; echo two >&2; exit 3',
                          sink=lines)
        self.assertEqual((3, ['one\n', 'two\n']), (code, lines))

    def test_command_has_no_input(self):
        self.assertEqual(0, suites.run('bash', '-c', '! read'))

    def test_kills_command_after_time_limit(self):
        self.assertEqual(-signal.SIGKILL, suites.run(
            'bash', '-c', 'sleep 1000 & wait', timeout=1))

    def test_counts_junit_results(self):
        report = os.path.join(self.folder, 'report.xml')
        with open(report, 'w') as stream:
            stream.write('<testsuites><testsuite tests="9" failures="2" '
                         'errors="1" skipped="3"/></testsuites>')
        self.assertEqual(suites.Result(3, 3, 3), suites.junit(report, 1))

    def test_exit_code_without_junit_failure_counts_as_failure(self):
        report = os.path.join(self.folder, 'report.xml')
        with open(report, 'w') as stream:
            stream.write('<testsuites><testsuite tests="9" failures="0" '
                         'errors="0" skipped="0"/></testsuites>')
        self.assertEqual(suites.Result(9, 1), suites.junit(report, 3))

    def stestr(self, *bodies, options=()):
        """Write test modules with these texts and run them with stestr."""
        tests = os.path.join(self.folder, 'tests')
        os.mkdir(tests)
        for number, body in enumerate(bodies):
            name = os.path.join(tests, f'test_sample_{number}.py')
            with open(name, 'w') as stream:
                stream.write(textwrap.dedent(body))
        top = os.path.join(self.folder, 'stestr')
        os.mkdir(top)
        self.useFixture(fixtures.MonkeyPatch(
            'tools.checks.suites.STESTR_OPTIONS',
            ('--top-dir', tests, '--test-path', tests)))
        return suites.stestr(top, tests, *options)

    def test_counts_stestr_results(self):
        result = self.stestr('''
            import unittest

            class Sample(unittest.TestCase):
                def test_one(self):
                    pass

                def test_two(self):
                    pass

                def test_three(self):
                    self.fail('why')

                @unittest.skip('why not')
                def test_four(self):
                    pass
            ''')
        self.assertEqual(suites.Result(2, 1, 1), result)
        [output] = result.failures
        self.assertRegex(output, r'^\{\d+\} .*\.test_three .*FAILED\n')
        self.assertTrue(output.endswith('AssertionError: why'), output)

    def test_no_test_of_that_name(self):
        self.assertEqual(suites.Result(), self.stestr('''
            import unittest

            class Sample(unittest.TestCase):
                def test_one(self):
                    pass
            ''', options=['^(?=.*test_two)']))

    def test_skipped_tests_are_no_failure(self):
        self.assertEqual(suites.Result(skipped=1), self.stestr('''
            import unittest

            class Sample(unittest.TestCase):
                @unittest.skip('why')
                def test_one(self):
                    pass
            '''))

    def test_import_error_is_a_failure(self):
        self.assertEqual(suites.Result(0, 1), self.stestr('''
            import unittest

            class Sample(unittest.TestCase):
                def test_one(self):
                    pass
            ''', '1 / 0'))

    def test_killed_stestr_worker_is_a_failure(self):
        result = self.stestr('''
            import os
            import unittest

            class Sample(unittest.TestCase):
                def test_one(self):
                    os.kill(os.getpid(), 9)
            ''')
        self.assertGreaterEqual(result.failed, 1)
