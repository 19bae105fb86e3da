# SPDX-License-Identifier: Apache-2.0
"""The chart's templates are up to date with the manifests.

``tests/clients/test_helm.py`` compares what helm renders with kustomize.
"""

import contextlib
import io
import json
import pathlib
import re
import shutil

import fixtures
from oslotest import base
import yaml

from sushy_kubevirt.operator import command_line
from tests.clients import environment
from tests.fixtures import checkout
from tests.fixtures import documents
from tools import helm_chart


SELECTORS = (
    'a', '!a', '! a', 'a=b', 'a==b', 'a != b', 'a=', 'x.y/a-b=c_d.e',
    'a in (b)', 'a notin (b, c)', 'a in(b,c),!d,e', 'tier in (a, b),!old',
    'a in ()', 'a in (b,)', 'a, b')
NO_SELECTORS = (
    ',', ' ', 'a,', 'a, ', ',a', 'a,,b', 'a=b=c', '!a=b', '=b', 'a in b',
    'a in (b', 'a (b)', 'ain (b)', 'a=-b', 'a-', '-a', 'X/a', 'a/b/c', '/a',
    'a b', 'a=(b)', '!', '!!a', 'a=!b', 'a="b"', 'a>1')


class TemplatesTestCase(base.BaseTestCase):

    def copy(self):
        """Return a copy of the manifests, to change."""
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'k'
        return pathlib.Path(shutil.copytree(helm_chart.MANIFESTS, folder))

    def assertUnknown(self, message, manifests):
        self.assertRaisesRegex(helm_chart.Unknown, message,
                               helm_chart.templates, manifests)

    def test_templates_are_up_to_date(self):
        found = {path.name: path.read_text()
                 for path in helm_chart.TEMPLATES.glob('*.yaml')}
        self.assertEqual(helm_chart.templates(), found,
                         'run: python -m tools.helm_chart')

    def test_names_no_namespace_of_its_own(self):
        for name, text in helm_chart.templates().items():
            self.assertNotIn(helm_chart.NAMESPACE, text, name)

    def test_changes_of_manifests_are_rendered(self):
        manifests = self.copy()
        path = manifests / 'base/account.yaml'
        path.write_text(path.read_text() + 'secrets: [{name: "{{ any }}"}]\n')
        self.assertIn("""secrets:\n  - name: '{{ "{{" }} any }}'\n""",
                      helm_chart.templates(manifests)['account.yaml'])

    def test_component_without_condition(self):
        manifests = self.copy()
        shutil.copytree(manifests / 'components/openshift',
                        manifests / 'components/another')
        self.assertUnknown('another has no condition', manifests)

    def test_unknown_field_of_kustomization(self):
        manifests = self.copy()
        path = manifests / 'base/kustomization.yaml'
        path.write_text(path.read_text() + 'namePrefix: my-\n')
        self.assertUnknown('namePrefix', manifests)

    def test_unknown_patch(self):
        for patch in ('- {op: replace, path: /spec/replicas, value: 1}',
                      'apiVersion: apps/v1\nkind: Deployment\nmetadata: '
                      '{name: sushy-kubevirt-operator}\nspec: {replicas: 1}'):
            manifests = self.copy()
            (manifests / 'components/openshift/operator.yaml').write_text(
                patch)
            self.assertUnknown('a patch', manifests)

    def test_namespaces_that_differ(self):
        manifests = self.copy()
        path = manifests / 'components/namespaced/operator.yaml'
        path.write_text(path.read_text().replace('=lab', '=other'))
        self.assertUnknown('other patches', manifests)

    def test_files_of_the_same_name(self):
        manifests = self.copy()
        folder = manifests / 'components/prometheus'
        (folder / 'rules.yaml').rename(folder / 'users.yaml')
        path = folder / 'kustomization.yaml'
        path.write_text(path.read_text().replace('rules.yaml', 'users.yaml'))
        self.assertUnknown('have the same name', manifests)


class ValuesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.values = yaml.safe_load(
            (helm_chart.CHART / 'values.yaml').read_text())
        self.schema = json.loads(
            (helm_chart.CHART / 'values.schema.json').read_text())
        self.chart = yaml.safe_load(
            (helm_chart.CHART / 'Chart.yaml').read_text())

    def test_images_are_those_of_manifests(self):
        found = yaml.safe_load((
            helm_chart.MANIFESTS / 'base/kustomization.yaml').read_text())
        self.assertEqual(
            {one['name']: (one.get('newName', one['name']), one['newTag'])
             for one in found['images']},
            {f'sushy-kubevirt-{name}': (image['repository'],
                                        self.chart['appVersion'])
             for name, image in self.values['images'].items()})

    def fields(self, schema, place=''):
        for name, one in (schema.get('properties') or {}).items():
            yield place + name, one
            if one.get('$ref'):
                one = self.schema['definitions'][one['$ref'].split('/')[-1]]
            yield from self.fields(one, f'{place}{name}.')

    def test_every_value_is_in_schema(self):
        # These have no defaults.
        free = {'global', *(f'certManager.issuerRef.{name}'
                            for name in ('group', 'kind', 'name'))}
        objects = 'resources.', 'nodeSelector.'
        self.assertEqual(
            {name for name in _paths(self.values)
             if not name.startswith(objects)},
            {name for name, field in self.fields(self.schema)
             if not field.get('deprecated')} - free)

    def test_values_of_kubevirtbmc_are_documented(self):
        page = documents.KUBEVIRTBMC.read_text()
        values = yaml.safe_load((
            checkout.ROOT / 'tests/clients/kubevirtbmc/values.yaml'
        ).read_text())
        for name in values:
            self.assertIn(name, self.schema['properties'])
            self.assertIn(f'\n``{name}', page)
        self.assertEqual(set(), {
            name for name, field in self.fields(self.schema)
            if field.get('deprecated')} - set(values))

    def test_selectors_are_those_that_the_operator_accepts(self):
        schema = self.schema['properties']['autoCreate']
        for text in SELECTORS:
            self.assertTrue(_accepts(schema, text), text)
            self.assertEqual(text, command_line.parse(
                ['--auto-create', text]).auto_create)
        for text in NO_SELECTORS:
            self.assertFalse(_accepts(schema, text), text)
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertRaises(SystemExit, command_line.parse,
                                  ['--auto-create', text])
        # None is created then.
        self.assertTrue(_accepts(schema, ''))
        self.assertEqual(
            {**schema, 'description': None},
            {**self.schema['properties']['bareMetalHosts'],
             'description': None})

    def test_schema_refuses_other_values(self):
        self.assertIs(False, self.schema['additionalProperties'])
        for name, one in self.fields(self.schema):
            if 'properties' in one:
                self.assertIs(False, one['additionalProperties'], name)


def _accepts(schema, text):
    return (re.search(schema['pattern'], text) is not None
            and not re.search(schema['not']['pattern'], text))


def _paths(values, place=''):
    for name, value in values.items():
        yield place + name
        if isinstance(value, dict):
            yield from _paths(value, f'{place}{name}.')


class VersionTestCase(base.BaseTestCase):

    def test_versions(self):
        for version, wanted in (
                ('1.2.0', '1.2.0'), ('1.2.0.0rc1', '1.2.0-rc1'),
                ('1.2.0.0a2', '1.2.0-a2'), ('1.2.0rc1', '1.2.0-rc1'),
                ('1.2.1.dev5', '1.2.1-dev5'),
                ('1.2.0.0rc2.dev3', '1.2.0-rc2.dev3'),
                ('0.0.1.dev1234+g0123abc', '0.0.1-dev1234')):
            self.assertEqual(wanted, helm_chart.semantic_version(version))

    def test_no_version(self):
        self.assertRaises(ValueError, helm_chart.semantic_version, 'main')


class InstalledHelmTestCase(base.BaseTestCase):

    def test_other_major_versions_are_not_used(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.assertIsNone(environment.installed_helm(folder))
        program = folder / 'helm'
        for version, used in (('v3.19.0', False), ('v40.0.0', False),
                              ('v4.0.1', True)):
            program.write_text(f'#!/bin/sh\necho {version}\n')
            program.chmod(0o755)
            self.assertEqual(str(program) if used else None,
                             environment.installed_helm(folder))
