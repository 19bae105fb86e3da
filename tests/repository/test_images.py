# SPDX-License-Identifier: Apache-2.0
"""The files from which the images are built."""

import json
import re

from oslotest import base
from packaging import requirements

from tests.fixtures import checkout
from tests.fixtures import containerfile
from tools import locks

DIGEST = r'sha256:[0-9a-f]{64}'

# Labels that every image has, of the OCI image specification's annotations.
LABELS = {'title', 'description', 'vendor', 'licenses', 'version', 'revision',
          'source', 'created', 'base.name', 'base.digest'}


def locked(path):
    """Read a file of pinned requirements.

    :returns: dictionary of name to (requirements.Requirement, list of hashes)
    """
    found = {}
    text = path.read_text().replace('\\\n', ' ')
    for line in text.splitlines():
        if not line.startswith('#'):
            text, *hashes = line.split()
            one = requirements.Requirement(text)
            found[one.name] = one, hashes
    return found


class ContainerfileTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.files = {name: containerfile.read(name)
                      for name in containerfile.NAMES}

    def test_images_of_manifests_are_built(self):
        manifest = checkout.ROOT / 'etc/kubernetes/base/kustomization.yaml'
        self.assertEqual(
            {f'sushy-kubevirt-{name}' for name in containerfile.NAMES},
            set(re.findall(r'- name: (\S+)', manifest.read_text())))

    def test_base_is_pinned_by_digest(self):
        bases = set()
        for arguments, stages in self.files.values():
            self.assertRegex(arguments['BASE'],
                             r'^python:\d+\.\d+\.\d+-slim-[a-z]+$')
            self.assertRegex(arguments['BASE_DIGEST'], f'^{DIGEST}$')
            for stage in stages.values():
                self.assertEqual('${BASE}@${BASE_DIGEST}', stage.base)
            bases.add(tuple(arguments.items()))
        self.assertEqual(1, len(bases), bases)

    def test_threads_share_an_arena(self):
        for name, (_, stages) in self.files.items():
            self.assertIn(' MALLOC_ARENA_MAX=1', ''.join(
                stages['image'].all('ENV')), name)

    def test_images_differ_in_name_and_programs_only(self):
        # What both files say is said twice; this keeps it equal.
        def words(name):
            text = containerfile.path(name).read_text()
            text = re.sub(r'(?s)RUN --mount.*?\n\n', '', text)
            text = re.sub(r'(?m)^(#|CMD|EXPOSE|.*description=).*\n', '', text)
            return text.replace(name, 'NAME')

        one, two = containerfile.NAMES
        self.assertEqual(words(one), words(two))

    def test_copied_files_exist(self):
        ignored = (checkout.ROOT / '.dockerignore').read_text().splitlines()
        self.assertIn('*', ignored)
        for _, stages in self.files.values():
            for text in stages['build'].all('COPY'):
                for source in text.split()[:-1]:
                    self.assertNotEqual(
                        [], containerfile.tracked(source), source)
                    self.assertIn('!' + source, ignored)

    def test_image_contains_only_the_tree(self):
        for _, stages in self.files.values():
            stage = stages['image']
            self.assertEqual(
                [f'--from=build {containerfile.OPT} {containerfile.OPT}'],
                stage.all('COPY'))
            # tests/images checks what they do.
            remove, compiled = stage.all('RUN')
            self.assertIn('pip uninstall', remove)
            self.assertIn('compileall', compiled)
            for text in remove, compiled, *stages['build'].all('RUN'):
                self.assertNotIn('apt-get', text)

    def test_images_have_user_and_labels(self):
        for _, stages in self.files.values():
            stage = stages['image']
            # Without fsGroup, group 0 owns mounted Secrets (mode 0440).
            self.assertEqual(['65532:0'], stage.all('USER'))
            label, = stage.all('LABEL')
            self.assertEqual(LABELS, set(re.findall(
                r'org\.opencontainers\.image\.([a-z.]+)=\S', label)))
            # An argument is empty in a stage that does not declare it.
            declared = {one.partition('=')[0] for one in stage.all('ARG')}
            self.assertEqual(set(re.findall(r'\$\{(\w+)\}', label)), declared)

    def test_build_arguments_are_documented(self):
        page = (checkout.ROOT / 'doc/source/operator/images.rst').read_text()
        for arguments, stages in self.files.values():
            run, = stages['build'].all('RUN')
            for name in re.findall(r'type=secret,id=([\w.-]+)', run):
                self.assertIn(f'id={name},', page)
            for name in (*arguments, *(
                    text.partition('=')[0] for stage in stages.values()
                    for text in stage.all('ARG'))):
                self.assertIn(f'``{name}``', page)


class RequirementsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.bounds = {}
        text = (checkout.ROOT / 'requirements.txt').read_text()
        for line in text.splitlines():
            if line := line.partition('#')[0].strip():
                one = requirements.Requirement(line)
                self.bounds[locks.normal(one.name)] = one

    def test_every_image_is_listed(self):
        self.assertEqual(set(containerfile.NAMES),
                         set(locks.IMPORTED))

    def test_all_are_pinned_with_hashes(self):
        files = [path for path in containerfile.FOLDER.glob('**/*.txt')]
        self.assertEqual(len(containerfile.NAMES) + 2, len(files))
        for path in files:
            for one, hashes in locked(path).values():
                self.assertRegex(str(one.specifier), r'^==[\d.]+$')
                self.assertNotEqual([], hashes, one)
                for text in hashes:
                    self.assertRegex(text, f'^--hash={DIGEST}$')

    def test_web_modules_are_pinned_with_hashes(self):
        folder = containerfile.FOLDER / 'web-modules'
        wanted = json.loads((folder / 'package.json').read_text())
        lock = json.loads((folder / 'package-lock.json').read_text())
        found = {name.removeprefix('node_modules/'): one
                 for name, one in lock['packages'].items() if name}
        self.assertEqual(wanted['dependencies'], {
            name: one['version'] for name, one in found.items()})
        for one in found.values():
            self.assertRegex(one['version'], r'^[\d.]+$')
            self.assertRegex(one['integrity'], '^sha512-')
            # npm asks the registry that it is configured with.
            self.assertNotIn('resolved', one)

    def test_versions_are_those_of_requirements(self):
        for image, names in locks.IMPORTED.items():
            found = locked(containerfile.FOLDER / image / 'requirements.txt')
            self.assertEqual(set(), locks.UNUSED & set(found))
            for name in map(locks.normal, names):
                one, _ = found[name]
                version = str(one.specifier).removeprefix('==')
                self.assertTrue(
                    self.bounds[name].specifier.contains(version),
                    f'{one} of {image}: run tools/lock')

    def test_images_have_the_same_versions(self):
        one, two = (
            locked(containerfile.FOLDER / image / 'requirements.txt')
            for image in containerfile.NAMES)
        for name in set(one) & set(two):
            self.assertEqual(one[name], two[name])
