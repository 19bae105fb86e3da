# SPDX-License-Identifier: Apache-2.0
"""Zuul's configuration meets its schema, and its parents exist."""

import pathlib
import shutil
import subprocess

import fixtures
from oslotest import base
import yaml

from tests.bifrost import case as bifrost
from tests.devstack import case
from tests.fixtures import checkout
from tests.fixtures import environments


class ZuulTestCase(base.BaseTestCase):

    def lint(self, folder):
        return subprocess.run(
            [case.BIN / 'zuulcilint', '--check-playbook-paths',
             '--ignore-warnings', '.zuul.yaml'], cwd=folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)

    def test_schema(self):
        done = self.lint(checkout.ROOT)
        self.assertEqual(0, done.returncode, done.stdout)

    def test_schema_is_checked(self):
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        shutil.copytree(checkout.ROOT / 'playbooks', top / 'playbooks')
        text = (checkout.ROOT / '.zuul.yaml').read_text()
        wrong = text.replace('timeout: 7200', 'timeout: long', 1)
        self.assertNotEqual(text, wrong)
        (top / '.zuul.yaml').write_text(wrong)
        self.assertNotEqual(0, self.lint(top).returncode)

    def test_functional_jobs_have_what_the_sandbox_needs(self):
        """Without kubectl, tests are skipped."""
        items = yaml.safe_load((checkout.ROOT / '.zuul.yaml').read_text())
        jobs = {one['job']['name']: one['job']
                for one in items if 'job' in one}
        for job in items[-1]['project']['check']['jobs']:
            if isinstance(job, dict):
                jobs.update(job)
        for name in ('openstack-tox-functional', 'sushy-kubevirt-tox-qemu',
                     'sushy-kubevirt-bifrost', 'sushy-kubevirt-devstack'):
            self.assertEqual('playbooks/sandbox.yaml',
                             jobs[name]['pre-run'])

    def test_jobs_of_others(self):
        used = {each['job']['parent'] for each in yaml.safe_load(
            (checkout.ROOT / '.zuul.yaml').read_text()) if 'job' in each}
        for package, version in (('ironic', case.IRONIC),
                                 ('bifrost', bifrost.VERSION)):
            folder = environments.source(package, version) / 'zuul.d'
            names = {each['job']['name'] for each in yaml.safe_load((
                folder / f'{package}-jobs.yaml').read_text())
                if 'job' in each}
            parents = {name for name in used if name.startswith(package)}
            self.assertTrue(parents)
            self.assertLessEqual(parents, names)
