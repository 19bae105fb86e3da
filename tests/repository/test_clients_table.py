# SPDX-License-Identifier: Apache-2.0
"""The table of tested clients is kept up to date.

``tools/test clients`` compares it with results; see `tests.clients.table`.
"""

import importlib
import inspect
import io
import json
import pathlib
import re
from unittest import mock

import fixtures
from oslotest import base

from tests.clients import case
from tests.clients import environment
from tests.clients import table
from tests.fixtures import checkout


def client_classes():
    """List the test classes of clients."""
    for path in environment.SOURCES.glob('test_*.py'):
        module = importlib.import_module('tests.clients.' + path.stem)
        for _name, one in inspect.getmembers(module, inspect.isclass):
            if issubclass(one, case.ClientTestCase) and one.CLIENT:
                yield one


class TableTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.clients = table.read(table.TABLE.read_text())

    def test_has_every_tested_client(self):
        self.assertEqual(sorted({one.CLIENT for one in client_classes()}),
                         sorted(self.clients))

    def test_tests_in_other_suites_exist(self):
        text = table.TABLE.with_suffix('.rst').read_text()
        paths = re.findall(r'``(tests/[\w/]+)``', text)
        self.assertLess(5, len(paths))
        self.assertEqual([], [path for path in paths if not list(
            (checkout.ROOT / path).glob('test_*.py'))])

    def test_clients_that_need_go(self):
        self.assertEqual(
            {one.CLIENT for one in client_classes() if hasattr(one, 'MODULE')},
            {*table.GO})

    def test_has_the_fixed_versions(self):
        fixed = dict(re.findall(r'^(\w+)==(\S+)',
                                environment.PYTHON.requirements.read_text(),
                                re.MULTILINE))
        modules = (environment.GO_SOURCES / 'go.mod').read_text()
        for one in client_classes():
            if hasattr(one, 'MODULE'):
                fixed[one.CLIENT] = one.version()
                self.assertIn(f'{one.MODULE} v{one.version()}', modules)
        self.assertLess(5, len(fixed))
        for name in set(fixed) & set(self.clients):
            self.assertEqual({fixed[name]},
                             {row[1] for row in self.clients[name]}, name)


class CommandTestCase(base.BaseTestCase):

    REPORT = {'client': 'curl', 'version': '8.0',
              'rows': {'two': 'works', 'one': 'works', 'three': 'refused'}}
    OTHER = 'Other,1,``x``,works\n'

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.table = folder / 'clients.csv'
        self.report = folder / 'Curl.json'
        self.useFixture(fixtures.MonkeyPatch(
            'tests.clients.environment.RESULTS', folder))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.clients.table.TABLE', self.table))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.fixtures.checkout.ROOT', folder))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.clients.environment.without_go', lambda: None))
        self.report.write_text(json.dumps(self.REPORT))
        self.table.write_text(
            'Client,Version,Commands or functions,Result\n'
            'curl,7.0,``zero``,works\n' + self.OTHER)

    def run_command(self, *arguments):
        with mock.patch('sys.stdout', new_callable=io.StringIO) as stream:
            code = table.main(list(arguments))
        return code, stream.getvalue()

    def test_difference_is_a_failure(self):
        before = self.table.read_text()
        code, output = self.run_command()
        self.assertEqual(1, code)
        self.assertIn('\n-curl,7.0,``zero``,works\n', output)
        self.assertIn('--write', output)
        self.assertEqual(before, self.table.read_text())

    def test_writes_the_rows_of_tested_clients(self):
        self.assertEqual(0, self.run_command('--write')[0])
        self.assertEqual(
            'Client,Version,Commands or functions,Result\n'
            'curl,8.0,"``one``, ``two``",works\n'
            'curl,8.0,``three``,refused\n' + self.OTHER,
            self.table.read_text())
        self.assertEqual((0, 'tested: curl\n'), self.run_command())

    def test_clients_that_were_not_tested_keep_their_rows(self):
        self.report.unlink()
        self.assertEqual((0, 'tested: nothing\n'), self.run_command())

    def test_a_complete_run_tests_all_clients(self):
        self.run_command('--write')
        code, output = self.run_command('--complete')
        self.assertEqual(1, code)
        self.assertTrue(output.endswith(': Other\n'), output)
        self.report.unlink()
        code, output = self.run_command('--complete')
        self.assertEqual(1, code)
        self.assertTrue(output.endswith(': curl, Other\n'), output)

    def test_clients_that_this_host_cannot_run(self):
        self.report.write_text(json.dumps(
            {'client': 'curl', 'skipped': 'no network'}))
        self.table.write_text(self.table.read_text().replace(
            'Other', 'gofish'))
        self.useFixture(fixtures.MonkeyPatch(
            'tests.clients.environment.without_go', lambda: 'no Go'))
        before = self.table.read_text()
        for option in '--complete', '--write':
            code, output = self.run_command(option)
            self.assertEqual(0, code)
            for line in ('tested: nothing', 'curl was skipped: no network',
                         'gofish was skipped: no Go'):
                self.assertIn(line + '\n', output)
            self.assertEqual(before, self.table.read_text())


class EnvironmentTestCase(base.BaseTestCase):

    def without_go(self, path, version):
        self.useFixture(fixtures.MonkeyPatch(
            'shutil.which', lambda name: path))
        self.useFixture(fixtures.MonkeyPatch(
            'subprocess.run', lambda *_, **__: mock.Mock(stdout=version)))
        return environment.without_go()

    def test_without_go(self):
        self.assertIn('is not installed', self.without_go(None, ''))

    def test_old_go(self):
        self.assertIn('Go 1.23 or later', self.without_go(
            '/usr/bin/go', 'go1.22.9\n'))

    def test_recent_go(self):
        self.assertIsNone(self.without_go('/usr/bin/go', 'go1.23.0\n'))
