# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import selectors
from tests.unit.api import base

OBJ = {'metadata': {'name': 'a', 'labels': {'x': 'y', 'n': '5', 'e': '',
                                            'p.q/r': 's'}},
       'spec': {'colour': 'red'}}


class SelectorTestCase(unittest.TestCase):

    def matches(self, labels='', fields=''):
        return selectors.Selector(labels, fields, base.thing()).matches(OBJ)

    def test_label_selectors(self):
        for text, wanted in (
                ('x=y', True), ('x==y', True), ('x = y', True),
                ('x!=y', False), ('z!=y', True), ('x=z', False),
                ('x', True), ('z', False), ('!z', True), ('!x', False),
                ('x in (y,z)', True), ('x in(y)', True),
                ('x notin (y,z)', False), ('z notin (y)', True),
                ('n>4', True), ('n<4', False), ('n > 4', True),
                ('x>4', False), ('e=', True), ('x=', False),
                ('p.q/r=s', True), ('x=y,n=5,!z', True),
                ('x in (y, w),n=6', False), (' ', True)):
            self.assertEqual(wanted, self.matches(text), text)

    def test_field_selectors(self):
        for text, wanted in (
                ('metadata.name=a', True), ('metadata.name!=a', False),
                ('metadata.name==b', False), ('spec.colour=red', True),
                ('spec.colour=red,metadata.name=b', False),
                ('metadata.namespace=', True)):
            self.assertEqual(wanted, self.matches(fields=text), text)

    def test_rejects_invalid_selectors(self):
        for labels, fields in (('x=y=z', ''), ('x in y', ''), ('=', ''),
                               ('a b', ''), ('x>y', ''), ('x,', ''),
                               ('', 'metadata.name'), ('', 'spec.size=1')):
            with self.assertRaises(errors.ApiError) as caught:
                self.matches(labels, fields)
            self.assertEqual(400, caught.exception.code)
