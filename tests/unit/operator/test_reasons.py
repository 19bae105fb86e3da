# SPDX-License-Identifier: Apache-2.0
"""Every condition reason is documented in the right place."""

import ast
import pathlib
import re

from oslotest import base

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator.metal3 import host_state

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / 'doc/source/operator/not-ready.rst'

TYPES = (conditions.VM, conditions.SECRET, conditions.EMULATOR,
         conditions.ENDPOINT, conditions.SERVICE, conditions.READY)


def reasons():
    """Return {(type, reason)} of all conditions of a BMC's emulator."""
    return {(conditions.READY, 'ServiceReady'),
            (conditions.SERVICE, 'ServiceReady'),
            (conditions.SERVICE, 'ServiceNotReady'), *(
        (type_, words.reason) for type_, by_cause in conditions.WORDS.items()
        for words in by_cause.values())}


def host_reasons():
    """Return the reasons of all states that host_state.py creates.

    Each is created by ``_state(STATUS, REASON, message, …)``.
    """
    return {
        node.args[1].value if isinstance(node.args[1], ast.Constant)
        else getattr(conditions, node.args[1].attr)
        for node in ast.walk(ast.parse(
            pathlib.Path(host_state.__file__).read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, 'id', '') == '_state'}


class HostReasonsTestCase(base.BaseTestCase):

    def test_every_reason_is_documented_and_no_other(self):
        text = (ROOT / 'doc/source/operator/metal3.rst').read_text()
        section = text.split('Condition ``HostReady``')[1].split('\n====')[1]
        documented = {
            reason for line in section.splitlines() if line.startswith('``')
            for reason in re.findall(r'``(\w+)``', line)}
        self.assertGreater(len(documented), 10)
        self.assertEqual(host_reasons(), documented)


class ReasonsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        text = PAGE.read_text()
        titles = list(re.finditer(r'(?m)^``(\w+)``\n=+\n', text))
        ends = [title.start() for title in titles[1:]] + [len(text)]
        self.sections = {title[1]: text[title.end():end]
                         for title, end in zip(titles, ends)}

    def test_every_type_has_a_section(self):
        self.assertEqual(list(TYPES), list(self.sections))

    def test_every_reason_is_documented_and_no_other(self):
        documented = {(title, reason) for title, text in self.sections.items()
                      for line in text.splitlines() if line.startswith('``')
                      for reason in re.findall(r'``(\w+)``', line)}
        produced = reasons()
        self.assertGreater(len(produced), 20)
        self.assertEqual([], sorted(produced - documented), 'not explained')
        self.assertEqual([], sorted(documented - produced), 'no longer there')
