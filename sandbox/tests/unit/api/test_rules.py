# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import cel_rules

LEAF = {'type': 'string'}


def ruled(rule, **fields):
    return {'type': 'object', 'properties': fields,
            'x-kubernetes-validations': [{'rule': rule}]}


# schema, new, old, what is said of it
CASES = (
    (ruled('self.a == "x"', a=LEAF), {'a': 'x'}, None, []),
    (ruled('self.a == "x"', a=LEAF), {'a': 'y'}, None,
     ['<nil>: Invalid value: "object": failed rule: self.a == "x"']),
    # Names that CEL keeps for itself, and letters that it has not.
    (ruled('self.__namespace__ == self.b__dash__c', namespace=LEAF,
           **{'b-c': LEAF}), {'namespace': 'x', 'b-c': 'x'}, None, []),
    # In a map nothing is escaped.
    ({'type': 'object', 'additionalProperties': LEAF,
      'x-kubernetes-validations': [{'rule': '"a-b" in self'}]},
     {'a-b': ''}, None, []),
    # What changes: not asked when there was nothing.
    (ruled('self.a == oldSelf.a', a=LEAF), {'a': 'x'}, None, []),
    (ruled('self.a == oldSelf.a', a=LEAF), {'a': 'x'}, {'a': 'x'}, []),
    (ruled('self.a == oldSelf.a', a=LEAF), {'a': 'x'}, {'a': 'y'},
     ['<nil>: Invalid value: "object": failed rule: self.a == oldSelf.a']),
    # Below.
    ({'properties': {'o': ruled('has(self.a)', a=LEAF)}}, {'o': {}}, None,
     ['o: Invalid value: "object": failed rule: has(self.a)']),
    ({'properties': {'l': {'items': ruled('has(self.a)', a=LEAF)}}},
     {'l': [{'a': 'x'}, {}]}, None,
     ['l[1]: Invalid value: "object": failed rule: has(self.a)']),
    # A rule that fails is no rule that holds.
    (ruled('self.a == "x"', a=LEAF), {}, None,
     ['<nil>: Invalid value: "object": \'a\' evaluating rule: '
      'self.a == "x"']),
    # One that says neither yes nor no, too.
    (ruled('self.a', a=LEAF), {'a': 'x'}, None,
     ['<nil>: Invalid value: "object": failed rule: self.a']),
)


class RulesTestCase(unittest.TestCase):

    def test_cases(self):
        for schema, new, old, said in CASES:
            with self.subTest(schema=schema, new=new, old=old):
                self.assertEqual(
                    said, [str(c) for c in cel_rules.causes(schema, new, old)])

    def test_a_message_is_said(self):
        schema = ruled('false')
        schema['x-kubernetes-validations'][0].update(
            message='no', reason='FieldValueForbidden')
        cause = cel_rules.causes(schema, {})[0]
        self.assertEqual(('FieldValueForbidden',
                          'Invalid value: "object": no'),
                         (cause.reason, cause.message))

    def test_what_is_no_rule(self):
        schema = {'properties': {'o': ruled('self ==== 1')}}
        self.assertEqual(
            ['properties[o].x-kubernetes-validations[0].rule'],
            [cause.field for cause in cel_rules.problems(schema)])
        self.assertEqual([], cel_rules.problems(ruled('self.a == 1')))
