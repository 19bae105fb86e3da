# SPDX-License-Identifier: Apache-2.0
"""Rights that ``kubectl bmc`` needs, and what it says without them."""

from tests.fixtures import kubectl_case
from tests.fixtures import operator

RULES = 'rbac.authorization.k8s.io'


class AccessTestCase(kubectl_case.KubectlCase):

    def test_rights_of_role_are_needed(self):
        """Without any of them, a command says which is missing."""
        self.bmc().ready()
        role = self.admin.get('clusterrole', self.ROLE)
        for rule in role['rules']:
            for resource in rule['resources']:
                for verb in rule['verbs']:
                    words = ['power', 'box']
                    if verb == 'list' and resource != 'pods':
                        words = ['list']
                    elif resource == 'virtualmachinebmcs' and verb != 'get':
                        name = 'new' if verb == 'create' else 'box'
                        words = ['create', 'box', '--name', name]
                    self.check_without(role['rules'], rule['apiGroups'][0],
                                       resource, verb, words)

    def check_without(self, rules, group, resource, verb, words):
        name = f'without-{verb}-' + resource.replace('/', '-')
        left = [{'apiGroups': rule['apiGroups'], 'resources': [one],
                 'verbs': [other for other in rule['verbs']
                           if (one, other) != (resource, verb)]}
                for rule in rules for one in rule['resources']]
        self.admin.within(self.namespace).apply(
            {'apiVersion': RULES + '/v1', 'kind': 'Role',
             'metadata': {'name': name},
             'rules': [rule for rule in left if rule['verbs']]})
        user = self.bind(name, name, 'Role')
        text = self.refusal(*words, user=user)
        if 'pods/portforward' == resource:
            # One request needs both.
            verb = 'create'
        self.assertIn(f'kubectl auth can-i {verb} '
                      + f'{resource}.{group}'.rstrip('.'), text)
        self.assertIn('bmc-user', text)

    def test_names(self):
        self.vm('vm')
        self.assertIn('kubectl bmc create vm', self.refusal('power', 'vm'))
        self.bmc('first', vm='vm').ready()
        self.assertEqual('Off\n', self.plugin('power', 'vm'))
        self.kubectl.apply(operator.bmc_manifest('second', 'vm'))
        self.assertIn('VM vm has the BMCs first, second',
                      self.refusal('power', 'vm'))
        self.assertEqual('Off\n', self.plugin('power', 'first'))
        # Options of kubectl may come before the command.
        self.assertEqual('Off\n', self.plugin(
            '--namespace', self.namespace, 'power', 'first',
            user=self.admin_user))

    def test_bmc_that_is_not_ready(self):
        self.kubectl.apply(operator.bmc_manifest('lost', 'no-such-vm'))
        self.until('condition', lambda: 'VirtualMachineNotFound'
                   in self.refusal('power', 'lost'))
