# SPDX-License-Identifier: Apache-2.0
"""The generated reference is up to date with the table of keys."""

import pathlib
import re

from oslotest import base
import yaml

from sushy_kubevirt.cluster import fields
from tools import cluster_reference


class ClusterReferenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.page = cluster_reference.page()

    def test_page_is_up_to_date(self):
        self.assertEqual(
            self.page, cluster_reference.PAGE.read_text(),
            'run: python -m tools.cluster_reference > '
            f'{cluster_reference.PAGE}')

    def test_page_explains_every_key_once(self):
        for field in fields.FIELDS:
            if field.origin is fields.Origin.IGNORED:
                self.assertIn(f'``{field.path}``', self.page)
            else:
                self.assertEqual(
                    1, self.page.count(f'\n``{field.path}``\n    '),
                    field.path)

    def test_page_lists_facts(self):
        for text in ('``uefi`` or ``bios``.', 'Default: ``true``.',
                     'Not in Tenks.', 'A whole number, required. 0 to 10000.',
                     'At most 80 characters.'):
            self.assertIn(text, self.page)

    def test_migration_page_has_every_option_of_tenks(self):
        page = (cluster_reference.PAGE.parents[1]
                / 'openstack/tenks.rst').read_text()
        document = yaml.safe_load((
            pathlib.Path(__file__).parent
            / 'samples/tenks-every-option.yml').read_text())
        keys = _keys(document)
        self.assertGreater(len(keys), 80)
        self.assertEqual([], sorted(
            keys - set(re.findall(r'``(\w+)``', page))))


def _keys(value):
    """Return the keys of mappings that are not names of the user's choice."""
    if isinstance(value, list):
        return {key for one in value for key in _keys(one)}
    if not isinstance(value, dict):
        return set()
    found = set()
    for key, one in value.items():
        found.add(key)
        if key == 'node_types':
            one = list(one.values())
        elif key in ('physnet_mappings', 'properties', 'custom_specs',
                     'bmc_emulators'):
            continue
        found |= _keys(one)
    return found


class TableTestCase(base.BaseTestCase):

    def test_paths_are_unique(self):
        paths = [one.path for one in fields.FIELDS]
        self.assertEqual(sorted(set(paths)), sorted(paths))

    def test_every_key_is_in_a_mapping_of_the_table(self):
        containers = {'': None}
        for one in fields.FIELDS:
            suffix = {fields.Kind.MAPPING: '',
                      fields.Kind.NAMED_MAPPINGS: '.*',
                      fields.Kind.LIST: '[]'}.get(one.kind)
            if suffix is not None:
                containers[one.path + suffix] = one
        for one in fields.FIELDS:
            self.assertIn(one.parent, containers, one.path)

    def test_texts_are_sentences(self):
        for one in fields.FIELDS:
            self.assertRegex(one.text, r'(?s)^[A-Z`].*\.$', one.path)
