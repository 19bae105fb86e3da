# SPDX-License-Identifier: Apache-2.0
"""Rows of the benchmark, as JSON and as a table."""

import json
import pathlib

import fixtures
import jsonschema
from oslotest import base

from tests.bench import origin
from tests.bench import report

#: What `plan.run` yields.
ROWS = [
    report.Row('GET system, 1 client', 'ms, median', 1.0, 'stock', 2.0, 0.5,
               [0.4, 0.6], 31),
    report.Row('GET system, 1 client', 'ms, p95', 2.0, 'stock', 3.0),
    report.Row('vbmcd with 1 BMC', 'MiB of PSS', 36.0, 'stock', 44.0, 0.82),
    report.Row('vbmcd with 10 BMCs', 'MiB of PSS', 39.0, 'stock', 98.0, 0.4),
    report.Row('POST Reset On', 'API calls', 6, 'PUT start', 1, 6.0,
               [6.0, 6.0], 11, [6] * 11),
    report.Row('GET system, HTTPS, 1 client', 'a second', 1600.0, 'other',
               reason='other: not served: it has no TLS'),
    report.Row('IPMI commands to the BMC, one session', 'a second', 9000.0,
               'go-ipmi', reason='go-ipmi: failed: it ended',
               failed=['go-ipmi']),
    report.Row('start to first answer, Redfish', 'ms, median', 250.0,
               '22bf2c24', 500.0, 0.5),
    report.Row('web page, first view of the login', 'ms, median', 240.0,
               'GET /redfish', 60.0, 4.0, [3.5, 4.5], 21, [240.0] * 21),
    report.Row('web page, first view of the login', 'kB', 24.0),
    report.Row('first collection, 5000 VMs', 's', 3.0, 'list of the API',
               2.0, 1.5),
    report.Row('memory of a VM, 5000 VMs', 'KiB of PSS', 3.1),
    report.Row('GET, cached, flood of IPMI packets', 'times without',
               1.5),
    *(report.Row(f'operator with {count} BMCs in shared pods', unit, value)
      for count, calls in ((10, 0.0), (1000, 6.0))
      for unit, value in (
          ('s, all Ready', count / 25),
          ('s of CPU until Ready', count / 33),
          ('s of CPU until Ready, API server', count / 35),
          ('MiB of PSS', 32 + count / 50), ('API calls a minute', calls),
          ('ms, entry of a deleted BMC removed', 500.0)))]


def document(rows=ROWS, **more):
    """Return what ``--json`` writes."""
    return {'version': report.VERSION, **origin.describe(), 'quick': False,
            'rows': [row.asdict() for row in rows],
            'series': report.series(rows), **more}


class RowsTestCase(base.BaseTestCase):

    def row(self, name, unit):
        return next(row for row in ROWS
                    if (row.name, row.unit) == (name, unit))

    def test_shared_pods(self):
        what = 'operator with 1000 BMCs in shared pods'
        row = self.row(what, 's, all Ready')
        self.assertEqual((40.0, 20), (row.value, row.target))
        self.assertEqual(52.0, self.row(what, 'MiB of PSS').value)

    def test_web_page(self):
        what = 'web page, first view of the login'
        row = self.row(what, 'ms, median')
        self.assertEqual((300, 4.0), (row.target, row.ratio))
        self.assertEqual(100, self.row(what, 'kB').target)

    def test_better(self):
        self.assertEqual(
            ['higher', 'higher', 'lower', 'lower'],
            [report.better(unit) for unit in (
                'a second', 'KiB a second', 'API calls a minute',
                'ms, median')])

    def test_targets_belong_to_rows(self):
        row = self.row('POST Reset On', 'API calls')
        self.assertEqual((2, 'lower'), (row.target, row.better))
        self.assertEqual(1500, self.row(
            'GET system, HTTPS, 1 client', 'a second').target)

    def test_targets_beside_a_neighbour(self):
        lines = [' '.join(line.split())
                 for line in report.table(ROWS).splitlines()]
        self.assertIn('start to first answer, Redfish ms, median 250 500 '
                      '22bf2c24 0.50 ≤ 0.5 × 22bf2c24', lines)
        # That of the project and that of this neighbour.
        self.assertIn('IPMI commands to the BMC, one session a second 9000 - '
                      'go-ipmi failed ≥ 6000, ≥ 1 × go-ipmi', lines)
        self.assertIn('failed: IPMI commands to the BMC, one session, '
                      'a second: go-ipmi: failed: it ended', lines)

    def test_table_of_a_page(self):
        lines = report.rst(document(
            compare={'22bf2c24': 'a', 'go-ipmi': 'b'}, commit='c' * 40))
        self.assertTrue(lines.startswith('Commit cccccccc, 20'), lines)
        self.assertIn(
            '   "","","this","22bf2c24","go-ipmi","beside","target"\n', lines)
        for line in (
                '"start to first answer, Redfish","ms, median","250",'
                '"500 (0.50)","","","≤ 0.5 × 22bf2c24"',
                '"POST Reset On","API calls","6","","","PUT start: 1 (6.00)",'
                '"≤ 2"',
                '"IPMI commands to the BMC, one session","a second","9000",'
                '"","failed","","≥ 6000, ≥ 1 × go-ipmi"'):
            self.assertIn(f'   {line}\n', lines)
        self.assertIn('notes::\n\n   not compared: GET system, HTTPS, ', lines)

    def test_note(self):
        row = report.Row('GET', 'ms, p99', 2.0, 'twin', 1.0, 2.0,
                         reason='twin: 9 answers in 3 s')
        self.assertIn('note: GET, ms, p99: twin: 9 answers in 3 s',
                      report.table([row, row]).splitlines())

    def test_table(self):
        lines = report.table(ROWS).splitlines()
        self.assertIn(
            'POST Reset On API calls 6 1 PUT start 6.00 (6.00 to 6.00) ≤ 2',
            [' '.join(line.split()) for line in lines])
        self.assertEqual(
            ['not compared: GET system, HTTPS, 1 client, a second: '
             'other: not served: it has no TLS'],
            [line for line in lines if line.startswith('not compared')])


class JsonTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.schema = json.loads(report.SCHEMA.read_text())
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'figures.json')

    def test_is_described_by_its_schema(self):
        jsonschema.Draft202012Validator.check_schema(self.schema)
        jsonschema.validate(document(), self.schema)

    def test_schema_has_all_fields_of_a_row(self):
        row = self.schema['properties']['rows']['items']['properties']
        self.assertEqual(
            {*report.Row.__dataclass_fields__, 'better', 'target',
             'target_ratio'}, set(row))

    def test_rows_survive(self):
        self.path.write_text(json.dumps(document()))
        result = report.read(self.path)
        self.assertEqual(
            [row.asdict() for row in ROWS],
            [report.from_dict(row).asdict() for row in result['rows']])

    def test_series(self):
        found = {one['name']: one for one in document()['series']}
        self.assertEqual(
            {'ours': [[1, 36.0], [10, 39.0]],
             'stock': [[1, 44.0], [10, 98.0]]},
            found.pop('memory of vbmcd')['lines'])
        self.assertEqual(
            {'name': 'shared pods, memory of the operator', 'x': 'BMCs',
             'y': 'MiB of PSS',
             'lines': {'operator': [[10, 32.2], [1000, 52.0]]}},
            found['shared pods, memory of the operator'])
        # The axes are logarithmic.
        self.assertEqual({'operator': [[1000, 6.0]]},
                         found['shared pods, API calls at rest']['lines'])
        self.assertEqual(4, len(found))

    def test_command_of_the_only_neighbour(self):
        # Of files before November 2026.
        self.path.write_text(json.dumps(document(compare='project FOLDER')))
        self.assertNotIn('compare', report.read(self.path))

    def test_another_version_is_refused(self):
        for text in '{"version": 0}', '[]':
            self.path.write_text(text)
            exc = self.assertRaises(ValueError, report.read, self.path)
            self.assertIn('measure again', str(exc))
