# SPDX-License-Identifier: Apache-2.0
"""The names that are stored in a cluster are in one module, and on one page.
"""

import ast

from oslotest import base

from sushy_kubevirt.kube import stored_names
from tests.fixtures import checkout
from tests.repository import test_rooms
from tools import stored_names_reference

#: Prefixes of names that only this project writes.
PREFIXES = tuple(f'{prefix}/' for prefix in (
    stored_names.BMC_PREFIX.rstrip('/'), stored_names.OPERATOR_GROUP,
    stored_names.CLUSTER_GROUP))


def written(path):
    """Yield the names of a module's string constants, without docstrings."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if (isinstance(node, ast.Constant) and isinstance(node.value, str)
                and node.value.startswith(PREFIXES)
                and ' ' not in node.value):
            yield node.lineno, node.value


class StoredNamesTestCase(base.BaseTestCase):

    def test_page_is_up_to_date(self):
        self.assertEqual(
            stored_names_reference.page(),
            stored_names_reference.PAGE.read_text(),
            'run: python -m tools.stored_names_reference > '
            f'{stored_names_reference.PAGE}')

    def test_each_name_once(self):
        keys = [(stored.kind, stored.name) for stored in stored_names.ALL]
        self.assertLess(40, len(keys))
        self.assertEqual(len(keys), len(set(keys)))

    def test_no_other_module_has_such_names(self):
        self.assertEqual([], [
            f'{path.relative_to(checkout.ROOT)}:{line}: {name}'
            for package in test_rooms.OURS
            for path in sorted((checkout.ROOT / package).rglob('*.py'))
            if path.name != 'stored_names.py'
            for line, name in written(path)])
