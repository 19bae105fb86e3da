# SPDX-License-Identifier: Apache-2.0
"""Names in the product say what their values are."""

import ast

from oslotest import base

from tests.fixtures import checkout
from tests.repository import test_rooms

#: Words that could stand for any value.
FILLERS = {'one', 'found', 'made', 'at', 'each', 'thing'}


def bound(path):
    """Yield the names that a module binds, with their lines.

    :param path: `pathlib.Path` of a Python file
    """
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.lineno, node.name


class NamesTestCase(base.BaseTestCase):

    def test_no_filler_words(self):
        paths = [path for package in test_rooms.OURS
                 for path in (checkout.ROOT / package).rglob('*.py')]
        self.assertLess(300, len(paths))
        self.assertEqual([], [
            f'{path.relative_to(checkout.ROOT)}:{line}: {name}'
            for path in sorted(paths) for line, name in bound(path)
            if name.strip('_') in FILLERS])
