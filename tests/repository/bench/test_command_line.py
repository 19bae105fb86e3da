# SPDX-License-Identifier: Apache-2.0
"""Options of ``tools/bench``."""

import contextlib
import io
import json
import pathlib
from unittest import mock

import fixtures
import jsonschema
from oslotest import base

from tests.bench import __main__ as bench
from tests.bench import plan
from tests.bench import report
from tests.repository.bench import test_report


class ParseTestCase(base.BaseTestCase):

    def refuse(self, *words):
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            self.assertRaises(SystemExit, bench.parse, words)
        return text.getvalue()

    def test_compare_measures_the_bmc_of_a_vm(self):
        options = bench.parse(['--compare', 'agent a', '--as', 'KubeVirtBMC'])
        with mock.patch.object(plan, 'run', return_value=()) as run:
            result, _ = bench.measure(options)
        self.assertEqual(['bmc'], run.call_args.args[1])
        self.assertEqual((('agent a', 'KubeVirtBMC'),), run.call_args.args[-1])
        self.assertEqual({'KubeVirtBMC': 'agent a'}, result['compare'])

    def test_compare_with_several(self):
        options = bench.parse([
            '--only', 'bmc-start', '--only', 'web', '--compare', 'a',
            '--as', 'x', '--compare', 'b', '--as', 'y'])
        with mock.patch.object(plan, 'run', return_value=()) as run:
            bench.measure(options)
        self.assertEqual((['bmc-start', 'web'], (('a', 'x'), ('b', 'y'))),
                         (run.call_args.args[1], run.call_args.args[-1]))
        self.assertIn('--as names the agent of each --compare',
                      self.refuse('--compare', 'a', '--compare', 'b'))
        self.assertIn('choose other names', self.refuse(
            '--compare', 'a', '--as', 'x', '--compare', 'b', '--as', 'x'))

    def test_compare_with_another_part(self):
        self.assertIn('--compare does not measure scale',
                      self.refuse('--compare', 'agent', '--only', 'scale'))

    def test_compare_without_a_command(self):
        self.assertIn('needs a command', self.refuse('--compare', ' '))

    def test_name_without_another_agent(self):
        self.assertIn('of each --compare', self.refuse('--as', 'lean'))

    def test_name_of_ours(self):
        self.assertIn('choose other names',
                      self.refuse('--compare', 'agent', '--as', 'ours'))

    def test_numbers_of_vms(self):
        options = bench.parse(['--vms', '50', '--vms', '100', '--quick'])
        with mock.patch.object(plan, 'run', return_value=()) as run:
            bench.measure(options)
        self.assertEqual((50, 100), run.call_args.args[0].vms)
        self.assertIn('invalid', self.refuse('--vms', '0'))

    def test_numbers_of_bmcs(self):
        options = bench.parse(['--only', 'placement', '--bmcs', '10000'])
        with mock.patch.object(plan, 'run', return_value=()) as run:
            bench.measure(options)
        self.assertEqual((10000,), run.call_args.args[0].placed)
        self.assertEqual(['placement'], run.call_args.args[1])


class MainTestCase(base.BaseTestCase):

    def test_json_and_table(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'file')
        text = io.StringIO()
        with mock.patch.object(plan, 'run', return_value=test_report.ROWS), \
                contextlib.redirect_stdout(text):
            bench.main(['--json', str(path)])
        self.assertIn('first collection, 5000 VMs', text.getvalue())
        jsonschema.validate(json.loads(path.read_text()),
                            json.loads(report.SCHEMA.read_text()))

    def test_figures_are_printed_before_what_may_fail(self):
        folder = self.useFixture(fixtures.TempDir()).path
        for words in (('--json', folder), ('--plot', __file__)):
            text = io.StringIO()
            with mock.patch.object(plan, 'run',
                                   return_value=test_report.ROWS), \
                    contextlib.redirect_stdout(text):
                exc = self.assertRaises(SystemExit, bench.main, words)
            self.assertIn('tools/bench: ', str(exc))
            self.assertIn('first collection, 5000 VMs', text.getvalue())

    def test_part_of_ours_that_fails(self):
        failed = mock.Mock(side_effect=RuntimeError('no VM'))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'file')

        def some(sizes, say):
            yield report.Row('first', 's', 1.0)
            raise OSError('a disk is full')

        text = io.StringIO()
        with mock.patch.object(plan, 'OTHERS', {'bmc': failed, 'web': some}), \
                contextlib.redirect_stdout(text), \
                contextlib.redirect_stderr(io.StringIO()):
            exc = self.assertRaises(SystemExit, bench.main, [
                '--only', 'bmc', '--only', 'web', '--json', str(path)])
        self.assertEqual('tools/bench: 2 of 3 rows failed', str(exc))
        self.assertEqual(
            [('bmc', 'ours: failed: no VM'), ('first', None),
             ('web', 'ours: failed: a disk is full')],
            [(row['name'], row.get('reason'))
             for row in json.loads(path.read_text())['rows']])
        self.assertIn('ours: failed: no VM', text.getvalue())

    def test_rows_before_a_signal_are_kept(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

        def rows():
            yield test_report.ROWS[0]
            raise SystemExit(143)

        text = io.StringIO()
        with mock.patch.object(plan, 'run', return_value=rows()), \
                contextlib.redirect_stdout(text):
            exc = self.assertRaises(SystemExit, bench.main, [
                '--json', str(folder / 'json'), '--rst', str(folder / 'rst')])
        self.assertEqual(143, exc.code)
        self.assertIn('GET system, 1 client', text.getvalue())
        self.assertEqual(1, len(json.loads(
            (folder / 'json').read_text())['rows']))
        # A page has only complete runs.
        self.assertFalse((folder / 'rst').exists())

    def test_earlier_figures(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        path = folder / 'file'
        path.write_text(json.dumps(test_report.document()))
        text = io.StringIO()
        with mock.patch.object(plan, 'run', side_effect=AssertionError), \
                contextlib.redirect_stdout(text):
            bench.main(['--from', str(path), '--plot', str(folder / 'plots'),
                        '--rst', str(folder / 'table')])
        self.assertEqual(report.rst(report.read(path)),
                         (folder / 'table').read_text())
        self.assertIn('first collection, 5000 VMs', text.getvalue())
        self.assertTrue((folder / 'plots' / 'ratios-stock-dark.svg').exists())

    def test_file_that_is_none(self):
        exc = self.assertRaises(SystemExit, bench.main, ['--from', '/no'])
        self.assertIn('tools/bench: ', str(exc))
