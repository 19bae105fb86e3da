# SPDX-License-Identifier: Apache-2.0
"""Plots of figures, as SVG for light and for dark pages.

The same figures give the same files with one version of matplotlib.
"""

import collections
import pathlib
import re

import matplotlib
from matplotlib import figure
from matplotlib import ticker

from tests.bench import report

#: Colours by theme: background, text and lines, grid, and those of the data.
THEMES = {
    'light': ('#ffffff', '#1f2328', '#d1d9e0', ('#0969da', '#bc4c00',
                                                '#1a7f37', '#8250df')),
    'dark': ('#0d1117', '#e6edf3', '#3d444d', ('#4493f8', '#f0883e',
                                               '#3fb950', '#ab7df8')),
}

#: Markers, so that lines differ without colours, too.
_MARKERS = 'osD^'

_INCH = 7.5


def draw(result, folder):
    """Draw the rows that have a ratio, by neighbour, and each series.

    With ``compare`` only its neighbours are drawn.

    :param result: what the JSON has
    :param folder: path of the folder for the files, which is made
    :returns: list of their paths
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    by_neighbour = collections.defaultdict(list)
    for row in map(report.from_dict, result['rows']):
        if row.ratio and row.neighbour in result.get('compare',
                                                     (row.neighbour,)):
            by_neighbour[row.neighbour].append(row)
    plots = [('ratios ' + name, _ratios, (name, rows))
             for name, rows in by_neighbour.items()]
    plots += [(one['name'], _series, (one,)) for one in result['series']]
    return [path for name, function, values in plots
            for path in _draw(folder / file_name(name), function, values)]


def file_name(text):
    """Return the file name of a plot, without theme and extension."""
    return re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-')


def _draw(stem, function, values):
    for theme, (back, text, grid, colours) in THEMES.items():
        style = {
            'svg.hashsalt': 'sushy-kubevirt', 'svg.fonttype': 'none',
            'font.family': 'sans-serif', 'font.size': 9,
            'figure.facecolor': back, 'axes.facecolor': back,
            'savefig.facecolor': back, 'text.color': text,
            'axes.edgecolor': text, 'axes.labelcolor': text,
            'xtick.color': text, 'ytick.color': text, 'grid.color': grid,
            'axes.spines.top': False, 'axes.spines.right': False,
            'legend.frameon': False}
        with matplotlib.rc_context(style):
            drawn = figure.Figure(layout='constrained')
            function(drawn, colours, *values)
            path = stem.with_name(f'{stem.name}-{theme}.svg')
            drawn.savefig(path, metadata={'Date': None, 'Creator': None})
        yield path


def _plain(axis):
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f'{x:g}'))


def _ratios(drawn, colours, neighbour, rows):
    """Draw by which factor each row is better than the neighbour's."""
    drawn.set_size_inches(_INCH, 0.9 + 0.27 * len(rows))
    axes = drawn.subplots()
    for index, row in enumerate(rows):
        # A quartile may be 0, of a time too short to measure.
        low, middle, high = sorted(
            one if row.better == 'higher' else 1 / one
            for one in (row.ratio, *(each or row.ratio for each in (
                row.spread or (row.ratio,) * 2))))
        axes.barh(index, middle - 1, left=1, height=0.6,
                  color=colours[0 if middle >= 1 else 1])
        axes.plot((low, high), (index, index), linewidth=1,
                  color=matplotlib.rcParams['text.color'])
    axes.set_yticks(range(len(rows)),
                    [f'{row.name}, {row.unit}' for row in rows])
    axes.invert_yaxis()
    axes.set_xscale('log')
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    _plain(axes.xaxis)
    axes.axvline(1, color=matplotlib.rcParams['text.color'], linewidth=1)
    axes.grid(axis='x')
    axes.set_axisbelow(True)
    axes.set_xlabel(f'times better than {neighbour} (thin lines: quartiles)')


def _series(drawn, colours, one):
    """Draw values by a number, both on logarithmic axes."""
    drawn.set_size_inches(_INCH, 3.5)
    axes = drawn.subplots()
    for index, (label, points) in enumerate(one['lines'].items()):
        axes.plot(*zip(*sorted(points)), label=label, linewidth=1.5,
                  marker=_MARKERS[index % len(_MARKERS)], markersize=4,
                  color=colours[index % len(colours)])
    axes.set(xscale='log', yscale='log', xlabel=one['x'], ylabel=one['y'],
             title=one['name'])
    for axis in axes.xaxis, axes.yaxis:
        _plain(axis)
        axis.set_minor_formatter(ticker.NullFormatter())
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.grid()
    if len(one['lines']) > 1:
        axes.legend()
