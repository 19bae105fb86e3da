# SPDX-License-Identifier: Apache-2.0
"""Every imported package is a declared requirement.

A package that is only installed as a dependency of another one does not count.
"""

import configparser
from importlib import metadata
import pathlib
import re

import fixtures
from oslotest import base
import packaging.requirements

from tests.repository import test_rooms
from tools import locks

ROOT = pathlib.Path(__file__).parents[2]

# The packages of commands that need the extra of their name.
CLUSTER = 'sushy_kubevirt.cluster'
PDU = 'sushy_kubevirt.pdu'

# Packages of this repository. Installed metadata maps other packages to their
# distributions.
FIRST_PARTY = {
    'sushy_kubevirt', 'vbmc_kubevirt', 'kubevirt_sandbox', 'tests', 'tools'}


def names(text):
    """Return the distributions in a list of requirements, as a set."""
    return {locks.normal(re.match(r'[\w.-]+', line)[0])
            for line in text.splitlines()
            if line.strip() and not line.startswith('#')}


class RequirementsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        config = configparser.ConfigParser()
        config.read(ROOT / 'setup.cfg')
        self.runtime = names((ROOT / 'requirements.txt').read_text())
        self.extra = names(config['extras']['operator'])
        self.provider = names(config['extras']['auth-provider'])
        self.cluster = names(config['extras']['cluster'])
        self.pdu = names(config['extras']['pdu'])
        self.runtime_and_tests = self.runtime | names(
            (ROOT / 'test-requirements.txt').read_text())
        self.distributions = metadata.packages_distributions()

    def missing(self, declared, modules):
        found = set()
        for module, imported in modules:
            for package in {name.partition('.')[0] for name in imported}:
                if package not in FIRST_PARTY and not declared.intersection(
                        map(locks.normal,
                            self.distributions.get(package, ()))):
                    found.add(f'{package}, by {module}')
        return sorted(found)

    def test_product_imports_declared_requirements(self):
        self.assertEqual([], self.missing(
            self.runtime | self.provider, (
                one for one in test_rooms.modules().items()
                if not one[0].startswith((CLUSTER, PDU)))))

    def test_cluster_extra_declares_what_the_command_imports_in_addition(self):
        self.assertEqual([], self.missing(
            self.runtime | self.cluster, (
                one for one in test_rooms.modules().items()
                if one[0].startswith(CLUSTER))))
        self.assertEqual(set(), self.cluster & self.runtime)
        self.assertLessEqual(self.cluster, self.runtime_and_tests)

    def test_pdu_extra_declares_what_the_command_imports_in_addition(self):
        self.assertEqual([], self.missing(
            self.runtime | self.pdu, (
                one for one in test_rooms.modules().items()
                if one[0].startswith(PDU))))
        self.assertEqual(set(), self.pdu & self.runtime)
        self.assertLessEqual(self.pdu, self.runtime_and_tests)

    def test_operator_extra_requires_nothing_more(self):
        # Users' commands name this extra; an empty one would be unknown.
        self.assertNotEqual(set(), self.extra)
        self.assertEqual(set(), self.extra - self.runtime)

    def test_tests_import_declared_requirements(self):
        self.assertEqual([], self.missing(
            self.runtime_and_tests,
            test_rooms.modules('tests', 'tools').items()))


class LocksTestCase(base.BaseTestCase):
    """The files that ``tools/lock`` writes satisfy the lower bounds."""

    def requirements(self, name):
        """Yield the requirements of a file, or of an extra in it."""
        path, _, extra = name.partition('#')
        text = (ROOT / path).read_text()
        if extra:
            config = configparser.ConfigParser()
            config.read_string(text)
            text = config['extras'][extra]
        for line in text.splitlines():
            if line := line.partition('#')[0].strip():
                yield packaging.requirements.Requirement(line)

    def problems(self, lock, *names):
        """List the requirements that a lock file does not satisfy."""
        versions = locks.pinned((ROOT / lock).read_text())
        return [
            f'{name}: {requirement}, but {lock} has {found or None}'
            for name in names for requirement in self.requirements(name)
            if not ((found := versions.get(locks.normal(requirement.name)))
                    and all(map(requirement.specifier.contains, found)))]

    RUN_TIME = ('requirements.txt', 'sandbox/requirements.txt',
                'sandbox/setup.cfg#testing', 'tools/requirements.txt')
    TESTS = (*RUN_TIME, 'setup.cfg#operator', 'setup.cfg#auth-provider',
             'setup.cfg#cluster', 'setup.cfg#pdu', 'test-requirements.txt',
             'doc/requirements.txt')

    def test_run_time(self):
        self.assertEqual([], self.problems('constraints.txt', *self.RUN_TIME))

    def test_tests_and_documents(self):
        self.assertEqual([], self.problems('test-constraints.txt',
                                           *self.TESTS))

    def test_a_wrong_version_is_a_problem(self):
        folder = self.useFixture(fixtures.TempDir()).path
        lock = pathlib.Path(folder, 'lock')
        lock.write_text('uv==0.0.1\n')
        self.assertEqual(2, len(self.problems(lock, 'tools/requirements.txt')))

    def test_a_package_has_the_same_version_in_all(self):
        tested = locks.pinned((ROOT / 'test-constraints.txt').read_text())
        for lock in locks.LOCKS:
            for name, versions in locks.pinned(
                    (ROOT / lock.path).read_text()).items():
                self.assertLessEqual(versions, tested.get(name, versions),
                                     f'{name} in {lock.path}')
