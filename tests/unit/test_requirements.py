# SPDX-License-Identifier: Apache-2.0
"""Every imported package is a declared requirement.

A package that is only installed as a dependency of another one does not count.
"""

import configparser
from importlib import metadata
import pathlib
import re

from oslotest import base

from tests.unit import test_rooms

ROOT = pathlib.Path(__file__).parents[2]

# The package of a command that needs the extra of its name.
CLUSTER = 'sushy_kubevirt.cluster'

# Packages of this repository. Installed metadata maps other packages to their
# distributions.
FIRST_PARTY = {
    'sushy_kubevirt', 'vbmc_kubevirt', 'kubevirt_sandbox', 'tests', 'tools'}


def names(text):
    """Return the distributions in a list of requirements, as a set."""
    return {normal(re.match(r'[\w.-]+', line)[0])
            for line in text.splitlines()
            if line.strip() and not line.startswith('#')}


def normal(name):
    return re.sub(r'[-_.]+', '-', name).lower()


class RequirementsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        config = configparser.ConfigParser()
        config.read(ROOT / 'setup.cfg')
        self.runtime = names((ROOT / 'requirements.txt').read_text())
        self.extra = names(config['extras']['operator'])
        self.cluster = names(config['extras']['cluster'])
        self.runtime_and_tests = self.runtime | names(
            (ROOT / 'test-requirements.txt').read_text())
        self.distributions = metadata.packages_distributions()

    def missing(self, declared, modules):
        found = set()
        for module, imported in modules:
            for package in {name.partition('.')[0] for name in imported}:
                if package not in FIRST_PARTY and not declared.intersection(
                        map(normal, self.distributions.get(package, ()))):
                    found.add(f'{package}, by {module}')
        return sorted(found)

    def test_product_imports_declared_requirements(self):
        self.assertEqual([], self.missing(
            self.runtime, (
                one for one in test_rooms.modules().items()
                if not one[0].startswith(CLUSTER))))

    def test_cluster_extra_declares_what_the_command_imports_in_addition(self):
        self.assertEqual([], self.missing(
            self.runtime | self.cluster, (
                one for one in test_rooms.modules().items()
                if one[0].startswith(CLUSTER))))
        self.assertEqual(set(), self.cluster & self.runtime)
        self.assertLessEqual(self.cluster, self.runtime_and_tests)

    def test_operator_extra_requires_nothing_more(self):
        # Users' commands name this extra; an empty one would be unknown.
        self.assertNotEqual(set(), self.extra)
        self.assertEqual(set(), self.extra - self.runtime)

    def test_tests_import_declared_requirements(self):
        self.assertEqual([], self.missing(
            self.runtime_and_tests,
            test_rooms.modules('tests', 'tools').items()))
