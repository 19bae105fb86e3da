# SPDX-License-Identifier: Apache-2.0
"""The direction of imports between the packages of the sandbox.

The sources are read, not imported: an import within a function counts too.
"""

import ast
import graphlib
import pathlib
import sys

from oslotest import base

ROOT = pathlib.Path(__file__).parents[2]

TOP = 'kubevirt_sandbox'

#: What each package may import beside itself and the standard library.
PACKAGES = {
    'kubevirt_sandbox.api': {
        'aiohttp', 'cel', 'cryptography', 'jsonpatch', 'jsonpointer', 'yaml'},
    'kubevirt_sandbox.testing': {
        'aiohttp', 'fixtures', 'kubernetes', 'kubevirt_sandbox.api',
        'oslotest', 'requests', 'testtools', 'websocket', 'yaml'},
    'kubevirt_sandbox': {'aiohttp', 'cryptography', 'yaml'},
}


def within(name, packages):
    return any(name == one or name.startswith(one + '.') for one in packages)


def modules():
    """:returns: of each module the full names of what it imports"""
    found = {}
    for path in sorted((ROOT / TOP).rglob('*.py')):
        parts = path.relative_to(ROOT).with_suffix('').parts
        if parts[-1] == '__init__':
            parts = parts[:-1]
        found['.'.join(parts)] = tuple(imports(ast.parse(path.read_bytes())))
    return found


def imports(tree):
    """:returns: full names of what is imported, standard library left out"""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, 'relative imports are not our style'
            names = [f'{node.module}.{alias.name}' for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition('.')[0] not in sys.stdlib_module_names:
                yield name


class ImportsTestCase(base.BaseTestCase):

    def test_no_cycles(self):
        known = modules()
        uses = {module: {name if name in known else name.rpartition('.')[0]
                         for name in names} & set(known) - {module}
                for module, names in known.items()}
        self.assertTrue(any(uses.values()))
        graphlib.TopologicalSorter(uses).prepare()

    def test_each_package_imports_what_it_may(self):
        """The product of this repository is not among it."""
        wrong, seen = [], set()
        for module, names in modules().items():
            package = max((one for one in PACKAGES if within(module, {one})),
                          key=len)
            seen.add(package)
            allowed = {package} | PACKAGES[package]
            wrong += [f'{module} imports {name}' for name in names
                      if not within(name, allowed)]
        self.assertEqual([], wrong)
        self.assertEqual(set(PACKAGES), seen)

    def test_testing_is_not_imported_by_the_server(self):
        testing = {'kubevirt_sandbox.testing'}
        self.assertEqual([], [
            f'{module} imports {name}' for module, names in modules().items()
            if not within(module, testing)
            for name in names if within(name, testing)])
