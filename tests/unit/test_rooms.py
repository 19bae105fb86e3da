# SPDX-License-Identifier: Apache-2.0
"""Imports between packages follow the layers in doc/source/internals.rst.

The sources are parsed, not imported, so that imports within functions count
as well.
"""

import ast
import functools
import graphlib
import pathlib
import sys

from oslotest import base

ROOT = pathlib.Path(__file__).parents[2]

OURS = 'sushy_kubevirt', 'vbmc_kubevirt'

# For each layer, the packages of this project and others that it may import.
# The standard library and the layer itself are always allowed.
ROOMS = {
    'sushy_kubevirt.kube': {'urllib3', 'kubernetes'},
    'sushy_kubevirt.machine': {'sushy_kubevirt.kube', 'urllib3'},
    'sushy_kubevirt.redfish.services': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine', 'bcrypt'},
    'sushy_kubevirt.redfish.protocol': {
        'sushy_kubevirt.kube.errors',
        'sushy_kubevirt.redfish.services.authenticator',
        'flask', 'werkzeug', 'sushy_tools.error'},
    'sushy_kubevirt.redfish.resources': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.redfish.services', 'sushy_kubevirt.redfish.protocol',
        'flask', 'cryptography'},
    'sushy_kubevirt.pod': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.emulator.plugin', 'sushy_kubevirt.redfish',
        'sushy_tools.emulator', 'flask', 'werkzeug'},
    'sushy_kubevirt.operator': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.pod.prometheus', 'sushy_kubevirt.pod.health',
        'sushy_kubevirt.redfish.services.state_secret', 'cryptography'},
    'vbmc_kubevirt.ipmi': {'cryptography'},
    'vbmc_kubevirt': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.pod.prometheus', 'sushy_kubevirt.pod.health',
        'cliff', 'stevedore', 'virtualbmc'},
}

# Packages that cost a long-running process much memory, and the one module
# that may import them, as it runs in a separate process.
HEAVY = {'kubernetes'}
SHORT_LIVED = 'sushy_kubevirt.kube.kubeconfig'


def within(name, packages):
    return any(name == one or name.startswith(one + '.') for one in packages)


@functools.cache
def modules(*tops):
    """List the imports of the modules of some packages.

    :param tops: names of packages; this project's if there are none
    :returns: dictionary of modules and the full names that each imports
    """
    return {module: tuple(imports(tree))
            for top in tops or OURS for module, tree in sources(top)}


def sources(top):
    for path in sorted((ROOT / top.replace('.', '/')).rglob('*.py')):
        parts = path.relative_to(ROOT).with_suffix('').parts
        if parts[-1] == '__init__':
            parts = parts[:-1]
        yield '.'.join(parts), ast.parse(path.read_bytes())


def imports(tree):
    """Yield the full names of imports outside of the standard library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, 'relative imports are not our style'
            names = [f'{node.module}.{alias.name}'
                     for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition('.')[0] not in sys.stdlib_module_names:
                yield name


class RoomsTestCase(base.BaseTestCase):

    def test_no_circles(self):
        """Not within a layer either, and not for type annotations alone."""
        known = modules()
        uses = {}
        for module, names in known.items():
            # The import is a module, or a name in one.
            found = {name if name in known else name.rpartition('.')[0]
                     for name in names}
            uses[module] = found & set(known) - {module}
        self.assertTrue(any(uses.values()))
        graphlib.TopologicalSorter(uses).prepare()

    def test_each_room_imports_what_it_may(self):
        wrong, seen = [], set()
        for module, names in modules().items():
            rooms = [room for room in ROOMS if within(module, {room})]
            if not rooms:
                continue
            room = max(rooms, key=len)
            seen.add(room)
            wrong += [f'{module} imports {name}'
                      for name in names
                      if not within(name, {room} | ROOMS[room])]
        self.assertEqual([], wrong)
        self.assertEqual(set(ROOMS), seen)

    def test_sandbox_is_imported_by_tests_alone(self):
        """Tests import nothing of it but its fixtures."""
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules(*OURS, 'tests', 'tools').items()
            for name in names if within(name, {'kubevirt_sandbox'})
            if within(module, OURS)
            or not within(name, {'kubevirt_sandbox.testing'})])

    def test_tools_import_fixtures_alone(self):
        """Fixtures import no tests either."""
        fixtures = {'tests.fixtures'}
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules('tools', 'tests.fixtures').items()
            for name in names if within(name, {'tests'})
            and not within(name, fixtures)])

    def test_functional_tests_share_fixtures_alone(self):
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules('tests.functional').items()
            for name in names if within(name, {'tests'})
            and not within(name, {'tests.fixtures'})])

    def test_views_alone_know_the_resources(self):
        resources = {'sushy_kubevirt.redfish.resources'}
        may = {'sushy_kubevirt.redfish.routes'} | resources
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules().items()
            if not within(module, may)
            for name in names if within(name, resources)])

    def test_heavy_packages_are_for_the_short_lived(self):
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules().items()
            if module != SHORT_LIVED
            for name in names if within(name, HEAVY)])
