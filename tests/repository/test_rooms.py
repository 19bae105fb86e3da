# SPDX-License-Identifier: Apache-2.0
"""Imports between packages follow the layers in doc/source/internals.rst."""

import graphlib
import pathlib

from oslotest import base

from kubevirt_sandbox.testing import imports

ROOT = pathlib.Path(__file__).parents[2]

OURS = 'sushy_kubevirt', 'vbmc_kubevirt'

# For each layer, the packages of this project and others that it may import.
# The standard library and the layer itself are always allowed.
ALLOWED = {
    'sushy_kubevirt.kube': {'urllib3', 'kubernetes', 'websockets', 'yaml'},
    'sushy_kubevirt.machine': {'sushy_kubevirt.kube', 'urllib3'},
    'sushy_kubevirt.bmc': {'sushy_kubevirt.kube', 'sushy_kubevirt.machine'},
    'sushy_kubevirt.redfish.services': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.bmc', 'bcrypt', 'httptools'},
    'sushy_kubevirt.redfish.protocol': {
        'sushy_kubevirt.kube.blocking', 'sushy_kubevirt.kube.errors',
        # Types of the machine, which it passes to the resources.
        'sushy_kubevirt.machine.cluster', 'sushy_kubevirt.machine.machine',
        'sushy_kubevirt.bmc.shares',
        'sushy_kubevirt.redfish.services.account_files',
        'sushy_kubevirt.redfish.services.authenticator',
        'sushy_kubevirt.redfish.services.server_threads',
        'sushy_kubevirt.redfish.services.service_context',
        'sushy_kubevirt.redfish.services.settings',
        'sushy_kubevirt.redfish.services.system_id',
        'flask', 'werkzeug', 'sushy_tools.error', 'websockets'},
    'sushy_kubevirt.redfish.resources': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.bmc', 'sushy_kubevirt.redfish.services',
        'sushy_kubevirt.redfish.protocol', 'sushy_kubevirt.web', 'flask',
        'werkzeug', 'cryptography'},
    'sushy_kubevirt.emulator': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.redfish', 'flask', 'stevedore', 'sushy_tools'},
    'sushy_kubevirt.cmd': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.operator',
        'sushy_kubevirt.cluster', 'sushy_kubevirt.kubectl',
        'sushy_kubevirt.pdu',
        # Of the command for PDUs, which serves VMs itself.
        'sushy_kubevirt.machine', 'cliff'},
    'sushy_kubevirt.pdu': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine', 'pysnmp',
        'virtualpdu'},
    'sushy_kubevirt.pod': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine.cluster',
        'sushy_kubevirt.bmc.shares', 'sushy_kubevirt.redfish', 'flask',
        'httptools', 'uvicorn'},
    # The operator shares the probes and metrics of the pods, names the Secret
    # in which a BMC keeps its state, and writes its options.
    'sushy_kubevirt.operator': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.pod.prometheus', 'sushy_kubevirt.pod.health',
        'sushy_kubevirt.pod.options_file',
        'sushy_kubevirt.bmc.state_secret', 'cryptography', 're2'},
    # A process of its own, not part of the operator's.
    'sushy_kubevirt.operator.diagnose': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.operator', 'cryptography', 'yaml'},
    'sushy_kubevirt.cluster.objects': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine.architecture',
        'sushy_kubevirt.cluster.identity',
        'sushy_kubevirt.cluster.model', 'sushy_kubevirt.operator.naming',
        'sushy_kubevirt.operator.credentials',
        'sushy_kubevirt.operator.bmc_resources'},
    # What commands for users share; no process in a pod imports these.
    'sushy_kubevirt.remote': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.operator.bmc_resources',
        'sushy_kubevirt.operator.credentials',
        'sushy_kubevirt.operator.naming', 'urllib3', 'websockets'},
    'sushy_kubevirt.kubectl': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.operator.bmc_resources',
        'sushy_kubevirt.operator.naming', 'sushy_kubevirt.operator.spec',
        'sushy_kubevirt.remote', 'yaml'},
    'sushy_kubevirt.cluster': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.pdu.config',
        'sushy_kubevirt.operator.credentials',
        'sushy_kubevirt.operator.naming', 'sushy_kubevirt.remote', 'cliff',
        'keystoneauth1', 'openstack', 'requests', 'yaml'},
    'vbmc_kubevirt.ipmi': {'sushy_kubevirt.bmc.shares', 'Cryptodome'},
    'vbmc_kubevirt': {
        'sushy_kubevirt.kube', 'sushy_kubevirt.machine',
        'sushy_kubevirt.bmc', 'sushy_kubevirt.pod', 'sushy_kubevirt.emulator',
        'sushy_kubevirt.redfish.services', 'cliff', 'stevedore', 'virtualbmc',
        'sushy_tools.emulator'},
}

# Packages that cost a process much memory, and the one module that may import
# them, for rare kubeconfigs.
HEAVY = {'kubernetes'}
RARE = 'sushy_kubevirt.kube.kubeconfig'


def modules(*packages):
    """List the imports of packages, by default of the product's."""
    return imports.modules(ROOT, *packages or OURS)


class LayersTestCase(base.BaseTestCase):

    def test_modules_do_not_import_each_other_in_a_cycle(self):
        """Imports within a layer and for type annotations count as well."""
        graph = imports.graph(modules())
        self.assertTrue(any(graph.values()))
        graphlib.TopologicalSorter(graph).prepare()

    def test_layers_import_allowed_packages_only(self):
        forbidden, seen = imports.forbidden(modules(), ALLOWED)
        self.assertEqual([], forbidden)
        self.assertEqual(set(ALLOWED), seen)

    def test_only_tests_import_the_sandbox(self):
        """Of the sandbox, tests import its fixtures only."""
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules(*OURS, 'tests', 'tools').items()
            for name in names if imports.within(name, {'kubevirt_sandbox'})
            if imports.within(module, OURS)
            or not imports.within(name, {'kubevirt_sandbox.testing'})])

    def test_tools_import_test_fixtures_only(self):
        """Fixtures do not import tests either."""
        fixtures = {'tests.fixtures'}
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules('tools', 'tests.fixtures').items()
            for name in names if imports.within(name, {'tests'})
            and not imports.within(name, fixtures)])

    def test_functional_tests_import_fixtures_only(self):
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules('tests.functional').items()
            for name in names if imports.within(name, {'tests'})
            and not imports.within(name, {'tests.fixtures'})])

    def test_only_routes_import_resources(self):
        resources = {'sushy_kubevirt.redfish.resources'}
        allowed = {'sushy_kubevirt.redfish.routes'} | resources
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules().items()
            if not imports.within(module, allowed)
            for name in names if imports.within(name, resources)])

    def test_one_module_imports_heavy_packages(self):
        self.assertEqual([], [
            f'{module} imports {name}'
            for module, names in modules().items()
            if module != RARE
            for name in names if imports.within(name, HEAVY)])
