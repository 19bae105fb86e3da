# SPDX-License-Identifier: Apache-2.0
"""What accounts can do, and what they did: for tests that compare the two.

What is needed is what was used, while somebody did all that he does; the
sandbox keeps account of it.
"""

import json

from kubevirt_sandbox.testing import kubectl
from tests.functional import operator


def granted(user, namespace):
    """What ``kubectl auth can-i --list`` says.

    :param user: a :class:`kubectl.Kubectl`.
    :returns: {(verb, resource): set of names, empty for all}.
    """
    asked = {'apiVersion': 'authorization.k8s.io/v1',
             'kind': 'SelfSubjectRulesReview', 'metadata': {'name': 'x'},
             'spec': {'namespace': namespace}}
    review = json.loads(user('create', '-o', 'json', '--validate=false', '-f',
                             '-', stdin=json.dumps(asked)))
    assert not review['status'].get('incomplete'), review
    return of_rules(review['status']['resourceRules'])


def of_rules(rules):
    """The same, of rules as a Role has them."""
    found = {}
    for rule in rules:
        for group in rule['apiGroups']:
            for resource in rule['resources']:
                name, slash, sub = resource.partition('/')
                what = (name + ('.' + group if group else '') + slash + sub)
                for verb in rule['verbs']:
                    names = set(rule.get('resourceNames') or ())
                    known = found.get((verb, what))
                    # All, if one of the rules says all.
                    found[verb, what] = names if known is None else (
                        known | names if known and names else set())
    return found


def flat(counts):
    """Of the sandbox's counts of one user: {(verb, resource)}."""
    return {(verb, what) for verb, counted in (counts or {}).items()
            for what in counted if not what.startswith('/')}


class AccessTestCase(operator.OperatorTestCase):
    """A cluster with the operator, in which accounts are looked at."""

    def nobody(self, namespace=None):
        """What everybody can do who has an account."""
        namespace = namespace or self.namespace
        return granted(self.user('default', namespace), namespace)

    def user(self, name, namespace=None):
        namespace = namespace or self.namespace
        return kubectl.Kubectl(self.sandbox.account(name, namespace),
                               namespace)

    def used(self, name):
        return flat(self.sandbox.stats()['used'].get(name))

    def nothing_refused(self):
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def can(self, user, namespace=None):
        """What somebody can do that not everybody can."""
        namespace = namespace or self.namespace
        common = self.nobody(namespace)
        return {what: names for what, names in granted(
            user, namespace).items() if common.get(what) != names}
