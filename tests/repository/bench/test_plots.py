# SPDX-License-Identifier: Apache-2.0
"""Plots of the benchmark, and those of the documentation."""

import json
import pathlib
import re
from xml.etree import ElementTree

import fixtures
import jsonschema
from oslotest import base

from tests.bench import plots
from tests.bench import report
from tests.fixtures import checkout
from tests.repository.bench import test_report

SERIES = {'name': 'Operator: memory', 'x': 'BMCs', 'y': 'MiB of PSS',
          'lines': {'PerVM': [[1000, 60.0], [10, 50.0]],
                    'Shared': [[10, 49.0]]}}

PAGE = checkout.ROOT / 'doc' / 'source' / 'reference' / 'benchmarks.rst'

_SVG = '{http://www.w3.org/2000/svg}'


def texts(path):
    """Return the texts of an SVG file, a set."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == _SVG + 'svg', root.tag
    return {one.text for one in root.iter(_SVG + 'text')}


class PlotsTestCase(base.BaseTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = fixtures.TempDir()
        folder.setUp()
        cls.addClassCleanup(folder.cleanUp)
        cls.folder = pathlib.Path(folder.path, 'made')
        cls.result = test_report.document(series=[SERIES])
        jsonschema.validate(cls.result,
                            json.loads(report.SCHEMA.read_text()))
        cls.paths = plots.draw(cls.result, cls.folder)

    def test_files(self):
        self.assertEqual(
            sorted(f'{name}-{theme}.svg' for theme in plots.THEMES
                   for name in ('operator-memory', 'ratios-stock',
                                'ratios-put-start', 'ratios-get-redfish',
                                'ratios-list-of-the-api', 'ratios-22bf2c24')),
            sorted(path.name for path in self.paths))
        self.assertEqual(set(self.paths), set(self.folder.iterdir()))

    def test_rows_with_a_ratio(self):
        for theme in plots.THEMES:
            found = texts(self.folder / f'ratios-stock-{theme}.svg')
            self.assertIn('GET system, 1 client, ms, median', found)
            # It has no ratio.
            self.assertNotIn('GET system, 1 client, ms, p95', found)

    def test_series(self):
        self.assertLessEqual(
            {'Operator: memory', 'BMCs', 'MiB of PSS', 'PerVM', 'Shared'},
            texts(self.folder / 'operator-memory-light.svg'))

    def test_quartile_of_a_time_too_short_to_measure(self):
        rows = [report.Row('GET', unit, 1.0, 'twin', 2.0, 0.5, [0, 0.6])
                for unit in ('ms of CPU', 'a second')]
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        plots.draw(test_report.document(rows), folder)
        self.assertIn('GET, ms of CPU',
                      texts(folder / 'ratios-twin-light.svg'))

    def test_neighbours_of_compare(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        plots.draw(test_report.document(
            series=[], compare={'22bf2c24': 'command'}), folder)
        self.assertEqual(
            ['ratios-22bf2c24-dark.svg', 'ratios-22bf2c24-light.svg'],
            sorted(path.name for path in folder.iterdir()))

    def test_themes_differ(self):
        light, dark = ((self.folder / f'operator-memory-{theme}.svg')
                       .read_text() for theme in ('light', 'dark'))
        self.assertIn(plots.THEMES['light'][0], light)
        self.assertNotIn(plots.THEMES['light'][0], dark)
        self.assertIn(plots.THEMES['dark'][0], dark)

    def test_same_figures_give_the_same_files(self):
        before = [path.read_bytes() for path in self.paths]
        plots.draw(self.result, self.folder)
        self.assertEqual(before, [path.read_bytes() for path in self.paths])


class DocumentTestCase(base.BaseTestCase):

    def test_plots_of_the_page(self):
        found = re.findall(r'"\.\./(_static/[-a-z0-9/]+)-(light|dark)\.svg"',
                           PAGE.read_text())
        self.assertNotEqual([], found)
        for stem, theme in found:
            self.assertIn((stem, {'light': 'dark', 'dark': 'light'}[theme]),
                          found)
            self.assertTrue(texts(
                checkout.ROOT / 'doc' / 'source' / f'{stem}-{theme}.svg'))

    def test_figures(self):
        schema = json.loads(report.SCHEMA.read_text())
        for path in PAGE.parent.glob('*.json'):
            result = report.read(path)
            jsonschema.validate(result, schema)
            for one in result['series']:
                plot = (PAGE.parent.with_name('_static') / 'benchmarks'
                        / f"{plots.file_name(one['name'])}-light.svg")
                self.assertIn(one['name'], texts(plot))
                self.assertIn(plot.name, PAGE.read_text())

    def test_table(self):
        self.assertEqual(
            report.rst(report.read(PAGE.with_suffix('.json'))),
            PAGE.with_suffix('.inc').read_text())
        self.assertIn('.. include:: benchmarks.inc\n', PAGE.read_text())
