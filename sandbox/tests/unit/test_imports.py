# SPDX-License-Identifier: Apache-2.0
"""Imports between the packages of the sandbox follow its layers."""

import graphlib
import pathlib

from oslotest import base

from kubevirt_sandbox.testing import imports

ROOT = pathlib.Path(__file__).parents[2]

# For each layer, the packages that it may import. The standard library and
# the layer itself are always allowed.
ALLOWED = {
    'kubevirt_sandbox.api': {
        'cel', 'cryptography', 'httptools', 'multidict', 'websockets',
        'yaml'},
    'kubevirt_sandbox.testing': {
        'aiohttp', 'fixtures', 'kubernetes', 'kubevirt_sandbox.api',
        'kubevirt_sandbox.harvester', 'kubevirt_sandbox.kubevirt.firmware',
        'kubevirt_sandbox.workloads.workload_kinds', 'oslotest', 'requests',
        'testtools', 'websocket', 'yaml'},
    'kubevirt_sandbox': {'aiohttp', 'cryptography', 'yaml'},
}


def modules():
    return imports.modules(ROOT, 'kubevirt_sandbox')


class ImportsTestCase(base.BaseTestCase):

    def test_modules_do_not_import_each_other_in_a_cycle(self):
        graph = imports.graph(modules())
        self.assertTrue(any(graph.values()))
        graphlib.TopologicalSorter(graph).prepare()

    def test_layers_import_allowed_packages_only(self):
        """The product of this repository is not one of them."""
        forbidden, seen = imports.forbidden(modules(), ALLOWED)
        self.assertEqual([], forbidden)
        self.assertEqual(set(ALLOWED), seen)

    def test_server_does_not_import_test_fixtures(self):
        testing = {'kubevirt_sandbox.testing'}
        self.assertEqual([], [
            f'{module} imports {name}' for module, names in modules().items()
            if not imports.within(module, testing)
            for name in names if imports.within(name, testing)])
