# SPDX-License-Identifier: Apache-2.0
"""The workflow that releases: ``.github/workflows/release.yaml``."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import fixtures
from oslotest import base
import yaml

from tests.clients import environment
from tests.fixtures import checkout
from tests.fixtures import containerfile
from tools import locks

FILE = checkout.ROOT / '.github/workflows/release.yaml'

#: The jobs that publish packages, by what they need beside a read of the
#: source.
PUBLISHING = {
    'publish-python': {'id-token': 'write'},
    'publish-images': {'packages': 'write'},
    'publish-chart': {'id-token': 'write', 'packages': 'write'},
    'publish-release': {'contents': 'write'},
}

#: All others.
BUILDING = {
    'test': {'contents': 'read'},
    'packages': {'contents': 'read', 'id-token': 'write',
                 'attestations': 'write'},
    # Nothing names an image before the chart is published.
    'images': {'contents': 'read', 'id-token': 'write', 'packages': 'write'},
}


class WorkflowCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.text = FILE.read_text()
        self.workflow = yaml.safe_load(self.text)
        self.jobs = self.workflow['jobs']

    def steps(self):
        for name, job in self.jobs.items():
            for step in job['steps']:
                yield name, step

    def step(self, job, text):
        """Return the step of a job whose YAML contains a text."""
        found, = (step for name, step in self.steps()
                  if name == job and text in yaml.safe_dump(step))
        return found


class WorkflowTestCase(WorkflowCase):

    def test_schema(self):
        # The schema is part of check-jsonschema.
        done = subprocess.run(
            [sys.executable, '-m', 'check_jsonschema', '--builtin-schema',
             'vendor.github-workflows', FILE], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_runs_for_versions_only(self):
        # YAML 1.1 reads the key "on" as True.
        self.assertEqual(
            {'push': {'tags': ['[0-9]+.[0-9]+.[0-9]+']}},
            self.workflow[True])

    def test_jobs_have_the_rights_they_need(self):
        self.assertEqual({}, self.workflow['permissions'])
        self.assertEqual(
            {**BUILDING, **PUBLISHING},
            {name: job['permissions'] for name, job in self.jobs.items()})

    def before(self, name):
        """Return the names of all jobs that have succeeded before a job."""
        needs = self.jobs[name].get('needs', [])
        needs = [needs] if isinstance(needs, str) else needs
        return set(needs).union(*map(self.before, needs))

    def test_tests_come_first_and_publishing_last(self):
        for name in self.jobs:
            if name != 'test':
                self.assertIn('test', self.before(name))
            if name in PUBLISHING:
                self.assertLessEqual(set(BUILDING), self.before(name))

    def test_registry_is_checked_before_anything_else(self):
        step = self.jobs['test']['steps'][0]
        self.assertEqual({'REGISTRY': '${{ vars.IMAGE_REGISTRY }}'},
                         step['env'])
        for registry, code in ('', 1), ('images.test/team', 0):
            done = subprocess.run(
                ['bash', '-eo', 'pipefail', '-c', step['run']],
                env={'REGISTRY': registry}, capture_output=True, text=True)
            self.assertEqual((code, ''), (done.returncode, done.stderr))
            # One line, as the runner reads it.
            self.assertRegex(done.stdout, '^::error::.* Set it in .*\n$'
                             if code else '^$')

    def test_actions_are_pinned(self):
        for _, step in self.steps():
            if 'uses' in step:
                self.assertRegex(step['uses'], r'^[\w-]+/[\w-]+@[0-9a-f]{40}$')
                self.assertRegex(
                    self.text,
                    rf"uses: {re.escape(step['uses'])} # v\d+\.\d+\.\d+\n")
            if step.get('uses', '').startswith('actions/checkout@'):
                self.assertIs(False, step['with']['persist-credentials'])

    def test_images_that_build_are_pinned(self):
        for action, option in (('setup-qemu-action', 'image'),
                               ('setup-buildx-action', 'driver-opts')):
            given = self.step('images', f'docker/{action}@')['with'][option]
            self.assertRegex(given, r'@sha256:[0-9a-f]{64}$')

    def test_scripts_are_valid_and_contain_no_expressions(self):
        # An expression would be executed; variables are not.
        for job, step in self.steps():
            if 'run' not in step:
                continue
            self.assertNotIn('${{', step['run'])
            done = subprocess.run(['bash', '-n'], input=step['run'], text=True,
                                  capture_output=True)
            self.assertEqual('', done.stderr, job)
            env = {**self.jobs[job].get('env', {}), **step.get('env', {})}
            for name in re.findall(r'\$\{?([A-Z][A-Z_]+)\b', step['run']):
                self.assertIn(name, (*env, 'GITHUB_ENV', 'GITHUB_OUTPUT'),
                              step['run'])
            program = step['run'].split()[0]
            if '/' in program:
                self.assertTrue(
                    os.access(checkout.ROOT / program, os.X_OK), program)

    def test_python_is_that_of_the_images(self):
        # The runner's own is another one, and pip refuses its wheels.
        for job in 'test', 'packages':
            given = self.step(job, 'actions/setup-python@')['with']
            self.assertEqual(locks.python_version(),
                             given['python-version'])

    def test_helm_is_that_of_the_tests(self):
        found = re.search(r'helm\.sh/helm/v4 v([\d.]+)', (
            environment.HELM_SOURCES / 'go.mod').read_text())
        for job in 'test', 'packages', 'publish-chart':
            self.assertEqual(
                'v' + found[1],
                self.step(job, 'azure/setup-helm@')['with']['version'])

    def test_versions_are_read_from_tags(self):
        for job in 'test', 'packages':
            self.assertEqual(0, self.step(
                job, 'actions/checkout@')['with']['fetch-depth'])

    def test_every_image_is_built_for_both_architectures(self):
        self.assertEqual(
            list(containerfile.NAMES),
            self.jobs['images']['strategy']['matrix']['image'])
        given = self.step('images', 'docker/build-push-action@')['with']
        self.assertEqual('linux/amd64,linux/arm64', given['platforms'])
        self.assertIn('rewrite-timestamp=true', given['outputs'])
        names = re.findall(r'(?m)^(\w+)=', given['build-args'])
        for image in containerfile.NAMES:
            self.assertIn(given['file'].replace('${{ matrix.image }}', image),
                          containerfile.tracked('images'))
            arguments, stages = containerfile.read(image)
            declared = {text.partition('=')[0] for stage in stages.values()
                        for text in stage.all('ARG')}
            self.assertEqual(declared - set(arguments), set(names))

    def test_images_are_tagged_after_the_approval(self):
        given = self.step('images', 'docker/build-push-action@')['with']
        self.assertNotIn('tags', given)
        self.assertIn('push-by-digest=true', given['outputs'])
        for name in PUBLISHING:
            if name != 'publish-release':
                self.assertEqual('release', self.jobs[name]['environment'])
        self.assertEqual(set(containerfile.NAMES),
                         set(self.jobs['images']['outputs']))
        self.assertIn('publish-images', self.before('publish-chart'))

    def test_what_is_published_is_signed(self):
        for job, text in (
                ('images', 'cosign sign'), ('images', 'cosign attest'),
                ('publish-chart', 'cosign sign'),
                ('packages', 'actions/attest-build-provenance'),
                # It makes attestations itself.
                ('publish-python', 'pypa/gh-action-pypi-publish')):
            self.assertTrue(self.step(job, text))

    def test_chart_names_the_images(self):
        step = self.step('packages', 'sed --in-place')
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        chart = 'charts/sushy-kubevirt'
        shutil.copytree(checkout.ROOT / chart, folder / chart)
        subprocess.run(['bash', '-ec', step['run']], check=True, cwd=folder,
                       env={**os.environ, 'REGISTRY': 'images.test/team'})
        values = yaml.safe_load((folder / chart / 'values.yaml').read_text())
        self.assertEqual(
            {name: f'images.test/team/sushy-kubevirt-{name}'
             for name in containerfile.NAMES},
            {name: one['repository']
             for name, one in values['images'].items()})


INDEX = {'manifests': [
    {'digest': 'sha256:a', 'platform': {'architecture': 'amd64'}},
    {'digest': 'sha256:b', 'platform': {'architecture': 'arm64'}},
    # What buildx adds about each of them.
    {'digest': 'sha256:c', 'platform': {'architecture': 'unknown'}}]}

#: What programs print, by the words of the call. As helm 4.3
#: (pkg/registry/client.go).
PRINTED = {
    'helm push': 'Pushed: images.test:5000/team/charts/sushy-kubevirt:1.2.3\n'
                 'Digest: sha256:d\n',
    'docker buildx': json.dumps(INDEX),
    'docker create': 'container\n'}


class SigningTestCase(WorkflowCase):
    """Scripts that sign, with programs that record how they are called."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.folder / 'dist').mkdir()
        (self.folder / 'dist/sushy-kubevirt-1.2.3.tgz').touch()
        for name in 'helm', 'docker', 'cosign':
            cases = ''.join(
                f"'{words}'*) echo '{text}';;\n"
                for words, text in PRINTED.items())
            (self.folder / name).write_text(
                f'#!/bin/sh\nset -- {name} "$@"\necho "$*" >>calls\n'
                'case "$*" in\n*--password-stdin*) cat >>stdin;;\n'
                f'{cases}esac\n')
            (self.folder / name).chmod(0o755)

    def calls(self, job, script='cosign sign', **env):
        step = self.step(job, script)
        subprocess.run(
            ['bash', '--noprofile', '--norc', '-eo', 'pipefail', '-c',
             step['run']], check=True, cwd=self.folder, env={
                 'PATH': f'{self.folder}:/usr/bin:/bin', **env},
            stdout=subprocess.DEVNULL)
        return (self.folder / 'calls').read_text().splitlines()

    def test_chart(self):
        login = '--username bot --password-stdin images.test:5000'
        self.assertEqual([
            f'helm registry login {login}', f'cosign login {login}',
            'helm push dist/sushy-kubevirt-1.2.3.tgz '
            'oci://images.test:5000/team/charts',
            'cosign sign --yes images.test:5000/team/charts/sushy-kubevirt'
            '@sha256:d'], self.calls(
                'publish-chart', REGISTRY='images.test:5000/team',
                USERNAME='bot', PASSWORD='secret'))
        self.assertEqual('secret\n' * 2,
                         (self.folder / 'stdin').read_text())

    def test_tags(self):
        calls = self.calls('publish-images', 'imagetools create',
                           REGISTRY='images.test/team', TAG='1.2.3',
                           EMULATOR='sha256:e', OPERATOR='sha256:o')
        self.assertEqual([
            'docker buildx imagetools create --prefer-index=false --tag '
            f'images.test/team/sushy-kubevirt-{name}:1.2.3 '
            f'images.test/team/sushy-kubevirt-{name}@sha256:{name[0]}'
            for name in ('emulator', 'operator')], calls)

    def test_image(self):
        calls = self.calls('images', NAME='images.test/x', DIGEST='sha256:i',
                           TAG='1.2.3')
        self.assertEqual([
            *('cosign attest --yes --type cyclonedx --predicate '
              f'sbom.cdx.json images.test/x@sha256:{one}' for one in 'ab'),
            'cosign sign --yes --recursive images.test/x@sha256:i'],
            [one for one in calls if one.startswith('cosign')])
        self.assertEqual(2, calls.count(
            f'docker cp container:{containerfile.OPT}/sbom.cdx.json .'))

    def test_image_that_does_not_start_is_not_signed(self):
        # docker executes the command, as if this were the image.
        (self.folder / 'sushy-x').write_text('#!/bin/sh\necho "x $VERSION"\n')
        (self.folder / 'sushy-x').chmod(0o755)
        with (self.folder / 'docker').open('a') as stub:
            stub.write('[ "$2" != run ] || exec sh -ec "$(echo "${12}" | '
                       f'sed "s#{containerfile.OPT}/bin#{self.folder}#")" '
                       '"${13}"\n')
        env = {'NAME': 'images.test/x', 'DIGEST': 'sha256:i', 'TAG': '1.2.3'}
        self.assertRaises(subprocess.CalledProcessError, self.calls, 'images',
                          VERSION='1.2.4', **env)
        self.assertNotIn('cosign', (self.folder / 'calls').read_text())
        self.assertIn('cosign sign', ' '.join(
            self.calls('images', VERSION='1.2.3', **env)))
