# SPDX-License-Identifier: Apache-2.0
import time

from oslotest import base

from sushy_kubevirt.operator.metal3 import claims

LABELS = {'rack': 'r1', 'size': '8', 'empty': ''}


def expression(key, operator, *values):
    return {'matchExpressions': [
        {'key': key, 'operator': operator, 'values': list(values)}]}


def policy(**constraints):
    return {'spec': {'hostClaimNamespaces': constraints}}


def body(condition=None, **status):
    if condition:
        status['conditions'] = [dict(zip(
            ('type', 'status', 'reason'), condition, strict=True))]
    return {'metadata': {'namespace': 'tenant', 'name': 'c', 'uid': 'u'},
            'spec': {'poweredOn': True}, 'status': status}


class SelectorTestCase(base.BaseTestCase):

    def test_matches(self):
        for selector in (
                {}, {'matchLabels': {'rack': 'r1'}},
                expression('rack', 'In', 'r0', 'r1'),
                expression('rack', 'notin', 'r2'),
                expression('other', 'NotIn', 'r2'),
                expression('rack', '=', 'r1'), expression('rack', '==', 'r1'),
                expression('rack', '!=', 'r2'),
                expression('other', '!=', 'r2'),
                expression('empty', 'Exists'), expression('other', '!'),
                expression('size', 'Gt', '7'), expression('size', 'lt', '9'),
                # 64 bits, and zeros in front.
                expression('size', 'lt', str(2 ** 63 - 1)),
                expression('size', 'gt', '0' * 62 + '7'),
                {'matchExpressions': [{'key': f"{'a.' * 126}a/x",
                                       'operator': '!', 'values': None}]},
                expression('empty', '=', '')):
            self.assertTrue(claims.matches(selector, LABELS), selector)

    def test_does_not_match(self):
        for selector in (
                {'matchLabels': {'rack': 'r1', 'other': 'x'}},
                expression('rack', 'in', 'r2'), expression('other', 'in', 'x'),
                expression('rack', 'NotIn', 'r1'),
                expression('other', 'exists'), expression('rack', '!'),
                expression('size', 'gt', '8'), expression('rack', 'gt', '1'),
                expression('other', 'lt', '1')):
            self.assertFalse(claims.matches(selector, LABELS), selector)

    def test_refused(self):
        for selector in (
                expression('rack', 'In'), expression('rack', 'Exists', 'x'),
                # Metal3 does not map this name to "!".
                expression('rack', 'DoesNotExist'),
                expression('rack', '=', 'a', 'b'), expression('a b', 'exists'),
                expression('rack', 'like', 'r'),
                expression('size', 'gt', 'many'),
                expression('size', 'gt', '9' * 5000),
                expression('size', 'gt', str(2 ** 63)),
                expression('a..b/x', '!'), expression('a-.b/x', '!'),
                expression(f"{'a.' * 127}a/x", '!'), expression('/x', '!'),
                expression(None, 'exists'), expression('rack', None, 'x'),
                {'matchLabels': {'rack': 'not a value'}},
                {'matchLabels': {'other': 'x', '../x': 'y'}}):
            self.assertRaises(
                claims.Invalid, claims.matches, selector, LABELS)


class PolicyTestCase(base.BaseTestCase):

    def admitted(self, *policies, namespace='team-a', labels=None):
        return claims.admitted(policies, namespace, labels or {})

    def test_constraints(self):
        for expected, one in (
                (False, {}), (False, {'spec': {'hostClaimNamespaces': None}}),
                (True, policy()), (True, policy(names=['x', 'team-a'])),
                (False, policy(names=['x'])), (False, policy(names=[])),
                (True, policy(nameMatches='eam')),
                (False, policy(nameMatches='^eam')),
                (True, policy(nameMatches='')),
                (True, policy(nameMatches=r'^team-\pL$')),
                (False, policy(names=['team-a'], nameMatches='b')),
                (False, policy(hasLabels=[{'name': 'tier'}]))):
            self.assertEqual(expected, self.admitted(one), one)
        self.assertTrue(self.admitted(policy(names=['x']), policy()))
        # An invalid one matters if none admits the claim.
        invalid = policy(nameMatches='(')
        self.assertTrue(self.admitted(invalid, policy()))
        self.assertFalse(self.admitted(policy(names=['x'], nameMatches='(')))
        self.assertRaises(claims.Invalid, self.admitted, invalid,
                          policy(names=['x']))

    def test_labels(self):
        for expected, pairs in (
                (True, [{'name': 'tier'}]),
                (True, [{'name': 'tier', 'value': ''}]),
                (True, [{'name': 'tier', 'value': 'a'}]),
                (False, [{'name': 'tier', 'value': 'b'}]),
                (False, [{'name': 'tier'}, {'name': 'zone'}])):
            one = policy(hasLabels=pairs)
            self.assertTrue(claims.needs_labels([one]))
            self.assertEqual(expected, self.admitted(
                one, labels={'tier': 'a'}), pairs)
        self.assertFalse(claims.needs_labels([policy(), {}]))

    def test_regular_expressions_are_those_of_go(self):
        for pattern in '(a', '(?=x)', r'(a)\1', '(x{1000}){1000}':
            message = str(self.assertRaises(
                claims.Invalid, self.admitted, policy(nameMatches=pattern)))
            self.assertIn('nameMatches', message)

    def test_expensive_regular_expressions(self):
        """Each takes longer than a day with Python's own `re`."""
        name = 'a' * 62 + 'b'
        start = time.monotonic()
        for pattern in ('^(a+)+$', '^(a|a)*$', '^(a|aa)+$',
                        '^' + 'a?' * 63 + 'a' * 63 + '$'):
            self.assertFalse(self.admitted(
                policy(nameMatches=pattern), namespace=name))
        self.assertLess(time.monotonic() - start, 10)


class ReadTestCase(base.BaseTestCase):

    def test_unmet(self):
        unmet = 'Associated', 'False', 'NoBareMetalHost'
        self.assertTrue(claims.read(body(unmet)).unmet)
        for one in (
                body(),
                body(('Associated', 'True', 'BareMetalHostAssociated')),
                body(('Associated', 'False', 'MissingBareMetalHost')),
                body(unmet, bareMetalHost={'name': 'n', 'namespace': 'x'})):
            self.assertFalse(claims.read(one).unmet, one)
        self.assertEqual(('x', 'n'), claims.read(one).host)

    def test_consumers(self):
        ref = claims.consumer_ref('tenant', 'c')
        self.assertEqual(('tenant', 'c'), claims.consumer(
            {'spec': {'consumerRef': ref}}))
        self.assertIsNone(claims.consumer({'spec': {}}))
        for host in {'spec': {}}, {'spec': {'consumerRef': ref}}:
            self.assertFalse(claims.has_other_consumer(host))
        for other in {'kind': 'Machine'}, {'apiVersion': 'x.test/v1'}:
            host = {'spec': {'consumerRef': {**ref, **other}}}
            self.assertIsNone(claims.consumer(host))
            self.assertTrue(claims.has_other_consumer(host))
