# SPDX-License-Identifier: Apache-2.0
"""Permissions of the operator's account, for each kind of installation.

The account has no permission that the operator does not need.
"""

import json

from kubevirt_sandbox.testing import kubectl
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from tests.fixtures import access_case
from tests.fixtures import operator

# For clusters with OwnerReferencesPermissionEnforcement; the sandbox has not
# got that.
OWNERSHIP = {('update', 'virtualmachinebmcs.bmc.kubevirt.io/finalizers')}


class OperatorAccountTestCase(access_case.AccessTestCase):

    # Renewed every four seconds; its work takes longer.
    ARGUMENTS = ('--lease-seconds', '12')

    def work(self):
        """Have the operator do all that it does for BMCs."""
        box = self.bmc(networkPolicy={'enabled': True})
        box.ready()
        kinds = ('deployment', 'service', 'sa', 'role', 'rolebinding',
                 'networkpolicy', 'configmap')

        def made():
            return self.kubectl.names(','.join(kinds), '-l',
                                      operator.LABEL + box.name)
        all_of_it = made()
        self.assertEqual(len(kinds) + 1, len(all_of_it))
        # The operator restores what is deleted or changed.
        self.kubectl('delete', ','.join(kinds), '-l',
                     operator.LABEL + box.name)
        self.until('all of it', made, all_of_it)
        for kind in kinds:
            self.kubectl('label', kind, box.base, 'kubevirt.io/'
                         'virtualmachinebmc-name=other', '--overwrite')
        self.until('labels', made, all_of_it)
        box.current()
        # The class of a load balancer can only be changed by a new Service.
        box.patch(service={'type': 'LoadBalancer',
                           'loadBalancerClass': 'example.test/none'})
        self.until('class', box.condition, ('False', 'LoadBalancerPending'))
        box.patch(service={'loadBalancerClass': None})
        box.current()
        # What is no longer wanted goes.
        box.patch(networkPolicy={'enabled': False},
                  redfish={'enabled': False})
        box.current()
        self.kubectl('delete', 'vmbmc', box.name)
        self.until('nothing', lambda: self.owned(box.name), [])
        self.elsewhere()

    def elsewhere(self):
        """A VM and a Secret of another namespace; then not any more."""
        far = self.new_namespace()
        self.vm('far', namespace=far)
        password = self.secret('key', namespace=far)
        allow = 'bmc.kubevirt.io/allow-from'
        there = self.admin.within(far)
        for what in ('vm/far', 'secret/key'):
            there('annotate', what, f'{allow}={self.namespace}')
        self.kubectl.apply(operator.bmc_manifest(
            'away', virtualMachineRef=None,
            virtualMachine={'namespace': far, 'name': 'far'},
            authSecret={'namespace': far, 'name': 'key'}))
        away = operator.Bmc(self.kubectl, 'away', 'admin', password).ready()
        for what in ('vm/far', 'secret/key'):
            there('annotate', what, allow + '-')
        self.until('withdrawn', lambda: away.condition()[0], 'False')
        # Its certificate is its own.
        self.until('withdrawn', lambda: self.owned('away'), [
            'secret/away-virtbmc-tls', 'service/away-virtbmc'])
        self.assertEqual([], there.names(
            'roles,rolebindings', '-l', operator.LABEL + 'away'))
        self.kubectl('delete', 'vmbmc', 'away')

    def test_it_has_what_it_uses_and_gives(self):
        self.work()
        self.nothing_refused()
        needed = self.used(operator.USER) | OWNERSHIP
        bmc = spec.read(operator.bmc_manifest('a') | {'metadata': {
            'name': 'a', 'namespace': 'b', 'uid': 'c', 'generation': 1}})
        # An account cannot grant permissions that it does not have.
        given = set(access_case.of_rules(rbac.rules(bmc, True)))
        me = kubectl.Kubectl(self.account)
        everywhere = self.can(me)
        # Its CA and the Lease are in its own namespace.
        home = {what: names for what, names in self.can(
            me, operator.NAMESPACE).items() if what not in everywhere}
        self.assertEqual({operator.NAME}, set().union(
            *home.values()), home)
        self.assertEqual([], sorted(
            (set(everywhere) | set(home)) - needed - given))
        # It may name nobody's rights but grant its own.
        for verb in ('escalate', 'bind', 'impersonate', '*'):
            self.assertNotIn(verb, {verb for verb, _ in everywhere})
        self.assertNotIn(('create', 'virtualmachinebmcs.bmc.kubevirt.io'),
                         everywhere)

    def test_it_grants_nothing_that_it_has_not(self):
        me = kubectl.Kubectl(self.account)
        for rule, allowed in (
                (rbac.rules(spec.read(operator.bmc_manifest('a') | {
                    'metadata': {'name': 'a', 'namespace': self.namespace,
                                 'uid': 'c', 'generation': 1}}))[0], True),
                ({'apiGroups': ['kubevirt.io'], 'verbs': ['delete'],
                  'resources': ['virtualmachines']}, False),
                ({'apiGroups': [''], 'verbs': ['create'],
                  'resources': ['pods']}, False),
                ({'apiGroups': ['*'], 'verbs': ['*'],
                  'resources': ['*']}, False)):
            role = {'apiVersion': 'rbac.authorization.k8s.io/v1',
                    'kind': 'Role', 'metadata': {
                        'name': 'mine', 'namespace': self.namespace},
                    'rules': [rule]}
            words = ('create', '-f', '-', '--dry-run=server')
            if allowed:
                me(*words, stdin=json.dumps(role))
            else:
                self.assertIn('attempting to grant RBAC permissions not '
                              'currently held', me.refused(
                                  *words, stdin=json.dumps(role)))
        self.assertIn('not currently held', me.refused(
            'create', 'rolebinding', 'mine', '--clusterrole=cluster-admin',
            '--serviceaccount=default:default', '-n', self.namespace))


class AutoCreateAccountTestCase(access_case.AccessTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'auto-create'
    ARGUMENTS = ('--auto-create', 'bmc=auto')
    SANDBOX = ('--pods', 'pretended')

    def test_it_makes_bmcs_as_well(self):
        self.vm()
        self.kubectl('label', 'vm', 'box', 'bmc=auto')
        self.until('made', lambda: len(self.kubectl.names('vmbmc')), 1)
        self.kubectl('label', 'vm', 'box', 'bmc-')
        self.until('gone', lambda: self.kubectl.names('vmbmc'), [])
        self.nothing_refused()
        mine = {(verb, 'virtualmachinebmcs.bmc.kubevirt.io')
                for verb in ('create', 'delete')}
        self.assertEqual(mine, mine & self.used(operator.USER))
        self.assertEqual(mine, mine & set(self.can(
            kubectl.Kubectl(self.account))))


class NamespacedAccountTestCase(access_case.AccessTestCase):
    """An operator for the namespaces ``default`` and ``lab``."""

    RUNS = False
    FOLDER = operator.MANIFESTS / 'overlays' / 'namespaced'
    SANDBOX = ('--pods', 'pretended')

    @classmethod
    def install(cls):
        cls.admin('create', 'namespace', 'lab')
        super().install()

    def test_it_has_its_rights_there_only(self):
        running = self.useFixture(operator.Operator(self.account, (
            '--namespace', 'default', '--namespace', 'lab')))
        self.namespace, self.kubectl = 'lab', self.admin.within('lab')
        self.bmc().ready()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('nothing', lambda: self.owned('box'), [])
        self.nothing_refused()
        self.assertEqual([], running.complaints())
        me = kubectl.Kubectl(self.account)
        self.assertEqual({}, self.can(me, 'kube-public'))
        self.assertEqual(self.can(me, 'default'), self.can(me, 'lab'))
        self.assertIn(('patch', 'virtualmachines.kubevirt.io'),
                      self.can(me, 'lab'))
        for what in 'secrets', 'vm', 'vmbmc':
            self.assertIn('forbidden', me.refused('get', what, '-A'))
            self.assertIn('forbidden', me.refused(
                'get', what, '-n', 'kube-public'))
