# SPDX-License-Identifier: Apache-2.0
import types
import unittest

from kubevirt_sandbox.api import cel_rules
from kubevirt_sandbox.api import errors

STRING = {'type': 'string'}


def ruled(rule, **fields):
    return {'type': 'object', 'properties': fields,
            'x-kubernetes-validations': [{'rule': rule}]}


# (schema, new, old, messages)
CASES = (
    (ruled('self.a == "x"', a=STRING), {'a': 'x'}, None, []),
    (ruled('self.a == "x"', a=STRING), {'a': 'y'}, None,
     ['<nil>: Invalid value: "object": failed rule: self.a == "x"']),
    # Reserved words and characters of CEL are escaped.
    (ruled('self.__namespace__ == self.b__dash__c', namespace=STRING,
           **{'b-c': STRING}), {'namespace': 'x', 'b-c': 'x'}, None, []),
    # Keys of a map are not escaped.
    ({'type': 'object', 'additionalProperties': STRING,
      'x-kubernetes-validations': [{'rule': '"a-b" in self'}]},
     {'a-b': ''}, None, []),
    # Transition rules apply only if there was a value.
    (ruled('self.a == oldSelf.a', a=STRING), {'a': 'x'}, None, []),
    (ruled('self.a == oldSelf.a', a=STRING), {'a': 'x'}, {'a': 'x'}, []),
    (ruled('self.a == oldSelf.a', a=STRING), {'a': 'x'}, {'a': 'y'},
     ['<nil>: Invalid value: "object": failed rule: self.a == oldSelf.a']),
    # Rules of nested schemas.
    ({'properties': {'o': ruled('has(self.a)', a=STRING)}}, {'o': {}}, None,
     ['o: Invalid value: "object": failed rule: has(self.a)']),
    ({'properties': {'l': {'items': ruled('has(self.a)', a=STRING)}}},
     {'l': [{'a': 'x'}, {}]}, None,
     ['l[1]: Invalid value: "object": failed rule: has(self.a)']),
    ({'additionalProperties': ruled('has(self.a)', a=STRING)}, {'m': {}},
     None, ['m: Invalid value: "object": failed rule: has(self.a)']),
    # An error in a rule is a violation.
    (ruled('self.a == "x"', a=STRING), {}, None,
     ['<nil>: Invalid value: "object": \'a\' evaluating rule: '
      'self.a == "x"']),
    # A result that is no boolean is a violation.
    (ruled('self.a', a=STRING), {'a': 'x'}, None,
     ['<nil>: Invalid value: "object": failed rule: self.a']),
)


class CelRulesTestCase(unittest.TestCase):

    def test_causes_of_violated_rules(self):
        for schema, new, old, messages in CASES:
            with self.subTest(schema=schema, new=new, old=old):
                self.assertEqual(
                    messages,
                    [str(c) for c in cel_rules.causes(schema, new, old)])

    def test_message_and_reason_of_rule(self):
        schema = ruled('false')
        schema['x-kubernetes-validations'][0].update(
            message='no', reason='FieldValueForbidden')
        cause = cel_rules.causes(schema, {})[0]
        self.assertEqual(('FieldValueForbidden',
                          'Invalid value: "object": no'),
                         (cause.reason, cause.message))

    def test_metadata_of_objects(self):
        """Kubernetes gives rules two fields of it."""
        for field, allowed in (('name', True), ('labels', False)):
            validate = cel_rules.checker(types.SimpleNamespace(
                schema=ruled(f'has(self.metadata.{field})'),
                resource='things', plural='things', group='', kind='Thing'))
            admission = types.SimpleNamespace(
                operation='CREATE', old=None,
                new={'metadata': {'name': 'a', 'labels': {}}})
            with self.subTest(field=field):
                if allowed:
                    validate(admission)
                else:
                    self.assertRaises(errors.ApiError, validate, admission)

    def test_reports_invalid_rules(self):
        schema = {'properties': {'o': ruled('self ==== 1')}}
        self.assertEqual(
            ['properties[o].x-kubernetes-validations[0].rule'],
            [cause.field for cause in cel_rules.problems(schema)])
        self.assertEqual([], cel_rules.problems(ruled('self.a == 1')))
