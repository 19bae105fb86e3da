# SPDX-License-Identifier: Apache-2.0
"""The map of the code is up to date, and its names exist."""

import ast

from oslotest import base

from tests.fixtures import checkout
from tools import code_map

#: Packages that run in the pod of a BMC.
PODS = ('sushy_kubevirt/kube', 'sushy_kubevirt/machine', 'sushy_kubevirt/bmc',
        'sushy_kubevirt/redfish', 'sushy_kubevirt/pod', 'vbmc_kubevirt')


def threads(path):
    """Yield the names of the threads that a module starts, without what
    follows a fixed beginning.

    :param path: `pathlib.Path` of a Python file
    """
    for node in ast.walk(ast.parse(path.read_bytes())):
        if not isinstance(node, ast.Call):
            continue
        keywords = {word.arg: word.value for word in node.keywords}
        name = {'Thread': keywords.get('name'),
                'Worker': node.args and node.args[0],
                'ThreadPoolExecutor': keywords.get('thread_name_prefix') or (
                    node.args[1:] and node.args[1]),
                }.get(getattr(node.func, 'attr', None))
        if isinstance(name, ast.JoinedStr):
            name = name.values[0]
        if isinstance(name, ast.Constant):
            yield name.value


class CodeMapTestCase(base.BaseTestCase):

    def test_page_is_up_to_date(self):
        self.assertEqual(
            code_map.page(), code_map.PAGE.read_text(),
            f'run: python -m tools.code_map > {code_map.PAGE}')

    def test_flows_pass_what_exists(self):
        self.assertEqual(5, len(code_map.FLOWS))
        for _title, steps in code_map.FLOWS:
            for reference, _what in steps:
                self.assertTrue(callable(code_map.resolve(reference)),
                                reference)

    def test_architecture_names_each_thread(self):
        names = {name for package in PODS
                 for path in (checkout.ROOT / package).rglob('*.py')
                 for name in threads(path)}
        self.assertLess(15, len(names))
        text = (checkout.ROOT / 'doc/source/internals.rst').read_text()
        section = text[text.index('.. _threads:'):]
        section = section[:section.index('Consoles\n====')]
        self.assertEqual([], [
            name for name in sorted(names) if f'``{name}' not in section])
