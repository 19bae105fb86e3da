# SPDX-License-Identifier: Apache-2.0
"""The page explains every finding that asks for something to be done."""

import ast
import pathlib
import re

from oslotest import base

from sushy_kubevirt.operator import diagnose

PAGE = pathlib.Path(__file__).parents[4] / (
    'doc/source/operator/troubleshooting.rst')


def reasons():
    """Read the reasons of findings from the source of all checks."""
    found = set()
    for path in pathlib.Path(diagnose.__file__).parent.glob('*.py'):
        tree = ast.parse(path.read_text())
        constants = {node.targets[0].id: node.value.value
                     for node in tree.body if isinstance(node, ast.Assign)
                     and isinstance(node.value, ast.Constant)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(
                    node.func, 'attr', '') in ('problem', 'warning'):
                found |= set(words(node.args[0], constants))
    return found


def words(node, constants):
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Name):
        yield constants[node.id]
    elif isinstance(node, ast.IfExp):
        yield from words(node.body, constants)
        yield from words(node.orelse, constants)
    elif isinstance(node, ast.Call):
        # ready.get('reason', 'NotManaged')
        yield from words(node.args[1], constants)
    else:
        # The reason of a condition, which not-ready.rst explains.
        assert ast.unparse(node) == 'condition.reason', ast.unparse(node)


class ReasonsTestCase(base.BaseTestCase):

    def test_reasons_are_explained(self):
        produced = reasons()
        self.assertGreater(len(produced), 30)
        terms = set(re.findall(r'``(\w+)``', ' '.join(
            re.findall(r'(?m)^(``\w+``(?:, ``\w+``)*)$', PAGE.read_text()))))
        self.assertEqual(set(), produced - terms)
        self.assertEqual(set(), terms - produced)
