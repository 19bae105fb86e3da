# SPDX-License-Identifier: Apache-2.0
"""The generated reference of the resource is up to date with its CRD."""

from oslotest import base
import yaml

from tools import resource_reference


class ResourceReferenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.definition = yaml.safe_load(resource_reference.CRD.read_text())
        version, = self.definition['spec']['versions']
        self.schema = version['schema']['openAPIV3Schema']
        self.page = resource_reference.page(self.definition)

    def fields(self, where, schema):
        for name, one in (schema.get('properties') or {}).items():
            path = f'{where}.{name}'
            yield path, one
            yield from self.fields(path, one)
            yield from self.fields(path + '[]', one.get('items') or {})

    def all_fields(self):
        for part in 'spec', 'status':
            yield from self.fields(part, self.schema['properties'][part])

    def test_page_is_up_to_date(self):
        self.assertEqual(
            self.page, resource_reference.PAGE.read_text(),
            'run: python -m tools.resource_reference > '
            f'{resource_reference.PAGE}')

    def test_every_field_has_a_description(self):
        found = dict(self.all_fields())
        self.assertGreater(len(found), 60)
        self.assertEqual([], [path for path, one in found.items()
                              if not one.get('description')])
        for path in found:
            self.assertIn(f'\n``{path}``\n    ', self.page)

    def test_page_lists_constraints_of_values(self):
        for text in ('Text, required, 1 to 253 characters.',
                     'Default: ``ClusterIP``. One of ``ClusterIP``,',
                     'Whole number, 1 to 65535.',
                     'List of texts, at most 64 of them.'):
            self.assertIn(text, self.page)

    def test_page_lists_validation_rules(self):
        text = ' '.join(self.page.split())
        for one in (self.schema['properties']['spec'],
                    *(one for _, one in self.all_fields())):
            for rule in one.get('x-kubernetes-validations') or ():
                self.assertIn('- ' + rule['message'], text)
