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
         conditions.ENDPOINT, conditions.READY)


def reasons():
    """Return {(type, reason)} of all conditions that conditions.py creates.

    They are read from its source, so that new ones are included: each is
    created by ``Condition(TYPE, status, REASON, message)`` or by a function
    with a parameter ``type_`` that calls it.
    """
    tree = ast.parse(pathlib.Path(conditions.__file__).read_text())
    helpers = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for call in condition_calls(function):
                if getattr(call.args[0], 'id', '') == 'type_':
                    helpers[function.name] = value(call.args[2])
    produced = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, 'id', '')
        if name in helpers:
            produced.add((value(node.args[0]), helpers[name]))
        elif name == 'Condition' and getattr(
                node.args[0], 'id', '') != 'type_':
            produced.add((value(node.args[0]), value(node.args[2])))
    return produced


def condition_calls(function):
    return [node for node in ast.walk(function)
            if isinstance(node, ast.Call)
            and getattr(node.func, 'id', '') == 'Condition']


def value(node):
    """Return the value of a literal or of a name of conditions.py."""
    return (node.value if isinstance(node, ast.Constant)
            else getattr(conditions, node.id))


def host_reasons():
    """Return the reasons of all states that host_state.py creates.

    Each is created by ``_state(STATUS, REASON, message, …)``.
    """
    return {
        value(node.args[1]) if isinstance(node.args[1], ast.Constant)
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
        titles = [(match[1], match.end()) for match in re.finditer(
            r'(?m)^``(\w+)``\n=+\n', text)]
        ends = [end for _, end in titles[1:]] + [len(text)]
        self.sections = {
            title: text[begin:end]
            for (title, begin), end in zip(titles, ends)}

    def test_every_type_has_a_section(self):
        self.assertEqual(list(TYPES), list(self.sections))

    def test_every_reason_is_documented_and_no_other(self):
        documented = {(title, reason) for title, text in self.sections.items()
                      for line in text.splitlines() if line.startswith('``')
                      for reason in re.findall(r'``(\w+)``', line)
                      if reason not in TYPES}
        produced = reasons()
        self.assertGreater(len(produced), 20)
        self.assertEqual([], sorted(produced - documented), 'not explained')
        self.assertEqual([], sorted(documented - produced), 'no longer there')
