# SPDX-License-Identifier: Apache-2.0
"""Alternating rounds of programs, and the rows of their figures.

A program that fails loses its own figures only: the others go on.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import statistics
import threading

from kubevirt_sandbox.testing import process
from tests.bench import report

#: What a turn measured: numbers by (name of a row, unit).
Figures = dict[tuple[str, str], float]

#: Longest reason of a failure in a row, in characters.
_REASON = 300


@dataclasses.dataclass
class Side:
    """A program in the rounds of a measurement.

    :param name: what it is called in the result
    :param turn: function that executes one turn
    :param reason: why it takes no turns, '' if it does. A turn that raises
        sets it, and ``failed``
    """

    name: str
    turn: Callable[[], Figures]
    reason: str = ''
    failed: bool = False
    turns: list[Figures] = dataclasses.field(default_factory=list)


def not_served(reason: str) -> str:
    """Return the reason of a `Side` that declines a measurement.

    :param reason: '' if it does not
    """
    return reason and f'not served: {reason}'


def failure(exc: Exception) -> str:
    """Return an exception as the reason of a row, on one line."""
    exc = process.cause(exc)
    text = ' '.join(str(exc).split())
    if len(text) > _REASON:
        # The end of a program's output is what it died of.
        text = f'{text[:_REASON // 3]} … {text[-2 * _REASON // 3:]}'
    return f'failed: {text or type(exc).__name__}'


def alternate(sides: Sequence[Side], count: int,
              say: Callable[[str], None]) -> None:
    """Have programs take turns, in every second round the other way round.

    :param sides: this project's first
    :param count: number of rounds
    :param say: function that gets what failed, and who takes no turns
    """
    _introduce(sides, say)
    for number in range(count):
        for side in sides if number % 2 else sides[::-1]:
            _take(side, say)


def compare(what: str, sides: Sequence[Side], count: int,
            say: Callable[[str], None]) -> Iterator[report.Row]:
    """`alternate`, and return the `rows`; say what it is about before."""
    say(what)
    alternate(sides, count, say)
    return rows(what, sides)


def together(sides: Sequence[Side], say: Callable[[str], None]) -> None:
    """Have programs take one turn at the same time, as `alternate` does."""
    _introduce(sides, say)
    # Daemon threads do not delay the end of a run that gets a signal.
    threads = [threading.Thread(target=_take, args=(side, say), daemon=True)
               for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _introduce(sides: Sequence[Side], say: Callable[[str], None]) -> None:
    for side in sides:
        if side.reason:
            # The table has no row of it beside those of other agents.
            say(f'{side.name}: {side.reason}')


def _take(side: Side, say: Callable[[str], None]) -> None:
    if side.reason:
        return
    try:
        side.turns.append(side.turn())
    # Whatever a foreign program provokes.
    except Exception as exc:
        side.failed, side.reason = True, failure(exc)
        say(f'{side.name} failed: {process.cause(exc)}')


def rows(what: str, sides: Sequence[Side]) -> Iterator[report.Row]:
    """Yield a row for each figure and each neighbour.

    :param what: name of the row that has the reasons if nothing was measured
    :param sides: this project's first; without others the rows have no
        neighbour. Those that take no turns have no row if others do
    """
    ours, *others = sides
    keys = next((side.turns[0] for side in sides if side.turns),
                {(what, ''): 0})
    for key in keys:
        measured = [side for side in others if side.failed or any(
            key in turn for turn in side.turns)]
        for other in measured or [
                side for side in others if side.reason] or (None,):
            yield _row(key, ours, other)


def _row(key: tuple[str, str], ours: Side, other: Side | None) -> report.Row:
    pair = [side for side in (ours, other) if side]
    values, others = ([turn[key] for turn in side.turns if key in turn]
                      if side else [] for side in (ours, other))
    row = functools.partial(
        report.Row, *key, statistics.median(values) if values else None,
        other.name if other else None,
        statistics.median(others) if others else None, values=values or None,
        rounds=len(values) or None,
        failed=[side.name for side in pair if side.failed] or None)
    if reasons := [f'{side.name}: {side.reason}' for side in pair
                   if side.reason]:
        return row(reason='; '.join(reasons))
    if not (values and others):
        return row()
    if not statistics.median(others):
        # A short turn may take no measurable time of the processor.
        return row(reason='too short to measure')
    ratios = [mine / one for mine, one in zip(values, others) if one]
    low, middle, high = (statistics.quantiles(ratios, method='inclusive')
                         if len(ratios) > 1 else ratios * 3)
    return row(ratio=middle, spread=[low, high] if len(ratios) > 1 else None)
