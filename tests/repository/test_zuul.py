# SPDX-License-Identifier: Apache-2.0
"""What Zuul's configuration refers to exists."""

import configparser
import pathlib
import re

from oslotest import base
import yaml

ROOT = pathlib.Path(__file__).parents[2]

#: Jobs of OpenDev (openstack-zuul-jobs, Ironic, Bifrost) that are used.
FOREIGN = {'bifrost-base', 'ironic-base', 'openstack-tox',
           'openstack-tox-functional'}

#: Project templates of openstack-zuul-jobs, and the environments of tox that
#: their jobs run.
TEMPLATES = {'openstack-cover-jobs': ('cover',),
             'openstack-python3-jobs': ('pep8',),
             'publish-openstack-docs-pti': ('docs',),
             'release-notes-jobs-python3': ('releasenotes',)}


class ZuulTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        entries = yaml.safe_load((ROOT / '.zuul.yaml').read_text())
        self.jobs = {each['job']['name']: each['job']
                     for each in entries if 'job' in each}
        self.project, = [each['project']
                         for each in entries if 'project' in each]
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(ROOT / 'tox.ini')
        self.environments = {
            name.removeprefix('testenv:') for name in tox.sections()}

    def used(self):
        for pipeline in 'check', 'gate':
            for one in self.project[pipeline]['jobs']:
                yield one if isinstance(one, str) else next(iter(one))

    def test_jobs(self):
        known = {*self.jobs, *FOREIGN}
        for name, job in self.jobs.items():
            self.assertIn(job['parent'], known, name)
        self.assertLessEqual(set(self.used()), known)
        # Every job is run, or is the parent of another one.
        self.assertLessEqual(set(self.jobs), {
            *self.used(), *(job['parent'] for job in self.jobs.values())})
        for name in self.used():
            self.assertFalse(self.jobs.get(name, {}).get('abstract'), name)

    def test_same_jobs_in_check_and_gate(self):
        self.assertEqual(self.project['check'], self.project['gate'])

    def test_tox_environments(self):
        wanted = {one for template in self.project['templates']
                  for one in TEMPLATES[template]} | {'functional'}
        for job in self.jobs.values():
            wanted |= set(filter(None, [
                job.get('vars', {}).get('tox_envlist')]))
        self.assertLessEqual(wanted, self.environments)

    def test_playbooks(self):
        named = {path for job in self.jobs.values()
                 for key in ('pre-run', 'run', 'post-run')
                 for path in [job.get(key)] if path}
        self.assertEqual({
            str(path.relative_to(ROOT))
            for path in (ROOT / 'playbooks').glob('**/*.yaml')}, named)
        for name in named:
            for play in yaml.safe_load((ROOT / name).read_text()):
                self.assertIn('hosts', play, name)
                self.assertTrue(play.get('tasks') or play.get('roles'), name)

    def test_suites(self):
        from tools.checks import suites
        for path in (ROOT / 'playbooks').glob('*.yaml'):
            for name in re.findall(r'tools/test (?:--\S+ )*(\w+)',
                                   path.read_text()):
                self.assertIn(name, suites.SUITES)

    def test_bindep_profiles(self):
        declared = set(re.findall(
            r'\w+', ' '.join(re.findall(
                r'\[(.*)\]', (ROOT / 'bindep.txt').read_text()))))
        for job in self.jobs.values():
            # Packages without a profile are for "test".
            for name in job.get('vars', {}).get(
                    'bindep_profile', 'test').split():
                self.assertIn(name, {'test', *declared})

    def test_required_projects(self):
        for job in self.jobs.values():
            for name in job.get('required-projects', ()):
                self.assertTrue(name.startswith('opendev.org/openstack/'))
            for name, url in job.get('vars', {}).get(
                    'devstack_plugins', {}).items():
                # Zuul would clone the plugin from elsewhere.
                self.assertEqual(f'https://opendev.org/openstack/{name}', url)
                self.assertIn(url.removeprefix('https://'),
                              job['required-projects'])
