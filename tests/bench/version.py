# SPDX-License-Identifier: Apache-2.0
"""The programs of another version of this project."""

import pathlib
import shlex

from kubevirt_sandbox.testing import process
from tests.bench import rounds

#: A command whose last word is the folder with the programs, and its name.
OURS = str(process.BIN), 'ours'


def sides(others, program, turn):
    """Return the `rounds.Side` of this version and of others.

    :param others: pairs of a command, such as
        ``tests/bench/agents/project FOLDER``, and what it is called
    :param program: name of the program that is measured
    :param turn: function of the program's path; returns `rounds.Figures`
    :returns: list; others without the program take no turns
    """
    return [_side(name, pathlib.Path(shlex.split(command)[-1], program), turn)
            for command, name in (OURS, *others)]


def _side(name, path, turn):
    return rounds.Side(
        name, lambda: turn(path), '' if path.exists() else
        rounds.not_served(f'{path.parent} has no {path.name}'))
