# SPDX-License-Identifier: Apache-2.0
"""Permissions of the operator's account, for each kind of installation.

The account has no permission that the operator does not need.
"""

import json

from kubevirt_sandbox.testing import kubectl
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from tests.fixtures import access_case
from tests.fixtures import checkout
from tests.fixtures import operator

OURS = {naming.MANAGED_BY: naming.OPERATOR}

# For clusters with the admission plug-in OwnerReferencesPermissionEnforcement,
# which the sandbox does not have.
OWNERSHIP = {('update', 'virtualmachinebmcs.bmc.kubevirt.io/finalizers')}


@operator.other_platforms
class OperatorAccountTestCase(access_case.AccessTestCase):

    # The Lease is renewed every four seconds, less than the test takes.
    ARGUMENTS = ('--lease-seconds', '12')

    def exercise_operator(self):
        """Make the operator do everything that it does for BMCs."""
        box = self.bmc(networkPolicy={'enabled': True})
        box.ready()
        kinds = ('deployment', 'service', 'sa', 'role', 'rolebinding',
                 'networkpolicy', 'configmap')

        def made():
            return self.kubectl.names(','.join(kinds), '-l',
                                      operator.LABEL + box.name)
        expected = made()
        self.assertEqual(len(kinds) + 1, len(expected))
        # The operator restores deleted and changed objects.
        self.kubectl('delete', ','.join(kinds), '-l',
                     operator.LABEL + box.name)
        self.until('restored objects', made, expected)
        for kind in kinds:
            self.kubectl('label', kind, box.base, 'kubevirt.io/'
                         'virtualmachinebmc-name=other', '--overwrite')
        self.until('labels', made, expected)
        box.current()
        # The class of a load balancer can only be changed by a new Service.
        box.patch(service={'type': 'LoadBalancer',
                           'loadBalancerClass': 'example.test/none'})
        self.until('class', box.condition, ('False', 'LoadBalancerPending'))
        box.patch(service={'loadBalancerClass': None})
        box.current()
        # Objects that are not needed any more are deleted.
        box.patch(networkPolicy={'enabled': False},
                  redfish={'enabled': False})
        box.current()
        self.kubectl('delete', 'vmbmc', box.name)
        self.until('nothing', lambda: self.owned(box.name), [])
        self.use_other_namespace()

    def use_other_namespace(self):
        """Use a VM and a Secret of another namespace; withdraw them."""
        far = self.new_namespace()
        self.vm('far', namespace=far)
        password = self.secret('key', namespace=far)
        allow = 'bmc.kubevirt.io/allow-from'
        there = self.admin.within(far)
        for what in ('vm/far', 'secret/key'):
            there('annotate', what, f'{allow}={self.namespace}')
        self.kubectl.apply(operator.bmc_manifest(
            'away', virtualMachine={'namespace': far, 'name': 'far'},
            authSecret={'namespace': far, 'name': 'key'}))
        away = operator.Bmc(self.kubectl, 'away', 'admin', password).ready()
        for what in ('vm/far', 'secret/key'):
            there('annotate', what, allow + '-')
        self.until('withdrawn', lambda: away.condition()[0], 'False')
        # The certificate does not depend on them and stays.
        self.until('withdrawn', lambda: self.owned('away'), [
            'secret/away-virtbmc-tls', 'service/away-virtbmc'])
        self.assertEqual([], there.names(
            'roles,rolebindings', '-l', operator.LABEL + 'away'))
        self.kubectl('delete', 'vmbmc', 'away')

    def test_has_only_permissions_it_uses_or_grants(self):
        self.exercise_operator()
        self.assert_nothing_denied()
        needed = self.used(operator.USER) | OWNERSHIP
        bmc = spec.read(operator.bmc_manifest('a') | {'metadata': {
            'name': 'a', 'namespace': 'b', 'uid': 'c', 'generation': 1}})
        # An account cannot grant permissions that it does not have.
        given = set(access_case.of_rules(rbac.rules(bmc, True)))
        user = kubectl.Kubectl(self.account)
        everywhere = self.can(user)
        # Its CA and the Lease are in its own namespace.
        home = {what: names for what, names in self.can(
            user, operator.NAMESPACE).items() if what not in everywhere}
        self.assertEqual({operator.NAME}, set().union(
            *home.values()), home)
        self.assertEqual([], sorted(
            (set(everywhere) | set(home)) - needed - given))
        # It may grant its own permissions only.
        for verb in ('escalate', 'bind', 'impersonate', '*'):
            self.assertNotIn(verb, {verb for verb, _ in everywhere})
        self.assertNotIn(('create', 'virtualmachinebmcs.bmc.kubevirt.io'),
                         everywhere)

    def test_cannot_grant_other_permissions(self):
        user = kubectl.Kubectl(self.account)
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
                        'name': 'mine', 'namespace': self.namespace,
                        'labels': OURS},
                    'rules': [rule]}
            words = ('create', '-f', '-', '--dry-run=server')
            if allowed:
                user(*words, stdin=json.dumps(role))
            else:
                self.assertIn('attempting to grant RBAC permissions not '
                              'currently held', user.refused(
                                  *words, stdin=json.dumps(role)))
        self.assertIn('not currently held', user.refused(
            'create', 'rolebinding', 'mine', '--clusterrole=cluster-admin',
            '--serviceaccount=default:default', '-n', self.namespace))
        # What rights cannot express: the account of a pod, and of a binding.
        self.kubectl('create', 'role', 'mine', '--verb=get',
                     '--resource=virtualmachines')
        metadata = {'name': 'mine', 'namespace': self.namespace,
                    'labels': OURS}
        group = 'rbac.authorization.k8s.io'
        for said, obj in (
                ('only pods with the account of a BMC', {
                    'apiVersion': 'apps/v1', 'kind': 'Deployment',
                    'spec': {'selector': {'matchLabels': {'a': 'b'}},
                             'template': {
                                 'metadata': {'labels': {'a': 'b'}},
                                 'spec': {'containers': [
                                     {'name': 'a', 'image': 'a'}]}}}}),
                ('only Secrets of types Opaque', {
                    'apiVersion': 'v1', 'kind': 'Secret',
                    'type': 'bootstrap.kubernetes.io/token'}),
                ('bind only Roles, to accounts of BMCs', {
                    'apiVersion': group + '/v1', 'kind': 'RoleBinding',
                    'roleRef': {'apiGroup': group, 'kind': 'Role',
                                'name': 'mine'},
                    'subjects': [{'kind': 'ServiceAccount', 'name': 'default',
                                  'namespace': 'default'}]})):
            self.assertIn(said, user.refused(
                'create', '-f', '-', stdin=json.dumps(
                    {**obj, 'metadata': metadata})))

    def test_cannot_change_what_others_created(self):
        # A ConfigMap may say who administers the cluster, a Service where its
        # webhooks are.
        user = kubectl.Kubectl(self.account).within(self.namespace)
        self.kubectl('create', 'configmap', 'theirs', '--from-literal=a=b')
        self.kubectl('create', 'service', 'clusterip', 'theirs', '--tcp=443')
        self.kubectl('create', 'sa', 'theirs')
        self.secret('theirs')
        for kind in 'configmap', 'service', 'sa', 'secret':
            for words in (('delete', kind, 'theirs'),
                          ('patch', kind, 'theirs', '-p', json.dumps({
                              'metadata': {'labels': OURS}}))):
                self.assertIn('only objects with its label',
                              user.refused(*words))
        self.vm()
        for change, said in (
                # KubeVirt would mount the token of the account in the guest.
                ([('/spec/template/spec/volumes/-', {
                    'name': 'a', 'serviceAccount': {
                        'serviceAccountName': 'theirs'}}),
                  ('/spec/template/spec/domain/devices/disks/-', {
                      'name': 'a', 'disk': {}})], 'only its own drives'),
                ([('/metadata/annotations/harvesterhci.io~1'
                   'volumeClaimTemplates', '[]')], 'its own annotations')):
            self.assertIn(said, user.refused(
                'patch', 'vm', 'box', '--type', 'json', '-p', json.dumps([
                    {'op': 'add', 'path': path, 'value': value}
                    for path, value in change])))
        self.assertIn('source http or upload', user.refused(
            'create', '-f', '-', stdin=json.dumps({
                'apiVersion': 'cdi.kubevirt.io/v1beta1', 'kind': 'DataVolume',
                'metadata': {'name': 'a', 'namespace': self.namespace},
                'spec': {'source': {'pvc': {
                    'name': 'theirs', 'namespace': self.namespace}},
                    'storage': {'resources': {'requests': {
                        'storage': '1Gi'}}}}})))


@operator.other_platforms
class AutoCreateAccountTestCase(access_case.AccessTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'auto-create'
    ARGUMENTS = ('--auto-create', 'bmc=auto')
    SANDBOX = ('--pods', 'pretended')

    def test_may_create_and_delete_bmcs(self):
        self.vm()
        self.kubectl('label', 'vm', 'box', 'bmc=auto')
        self.until('made', lambda: len(self.kubectl.names('vmbmc')), 1)
        self.kubectl('label', 'vm', 'box', 'bmc-')
        self.until('gone', lambda: self.kubectl.names('vmbmc'), [])
        self.assert_nothing_denied()
        auto_create = {(verb, 'virtualmachinebmcs.bmc.kubevirt.io')
                       for verb in ('create', 'delete')}
        self.assertEqual(auto_create, auto_create & self.used(operator.USER))
        self.assertEqual(auto_create, auto_create & set(self.can(
            kubectl.Kubectl(self.account))))


@operator.other_platforms
class BareMetalHostsAccountTestCase(access_case.AccessTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'bare-metal-hosts'
    ARGUMENTS = ('--auto-create', 'metal3=true', '--bare-metal-hosts',
                 'metal3=true', '--host-label', 'rack')
    SANDBOX = operator.PRETENDED_PODS

    def test_may_create_and_delete_hosts(self):
        self.admin('apply', '-f', checkout.ROOT
                   / 'tests/fixtures/metal3/definitions.yaml')
        self.vm()
        interface = {'name': 'default', 'masquerade': {},
                     'macAddress': '52:54:00:00:00:0a'}
        self.kubectl('patch', 'vm', 'box', '--type=merge', '-p', json.dumps(
            {'spec': {'template': {'spec': {
                'domain': {'devices': {'interfaces': [interface]}},
                'networks': [{'name': 'default', 'pod': {}}]}}}}))
        self.kubectl('label', 'vm', 'box', 'metal3=true')
        self.until('host', lambda: len(self.kubectl.names('bmh')), 1)
        self.kubectl('label', 'vm', 'box', 'rack=r1')
        self.until('label', lambda: self.kubectl.get('bmh', 'box')[
            'metadata']['labels'].get('rack'), 'r1')
        self.kubectl('delete', 'vm', 'box')
        # The finalizer of the BMC is removed after that of the VM.
        self.until('nothing is left', lambda: self.kubectl.names(
            'bmh,vmbmc'), [])
        self.assert_nothing_denied()
        hosts = {(verb, 'baremetalhosts.metal3.io') for verb in (
            'list', 'watch', 'create', 'patch', 'delete')}
        self.assertEqual(hosts, hosts & self.used(operator.USER))
        # A host whose creation was not seen is read.
        self.assertEqual({('get', 'baremetalhosts.metal3.io')}, {
            one for one in self.can(kubectl.Kubectl(self.account))
            if one[1] == 'baremetalhosts.metal3.io'} - hosts)


@operator.other_platforms
class NamespacedAccountTestCase(access_case.AccessTestCase):
    """An operator for the namespaces ``default`` and ``lab``."""

    RUNS = False
    FOLDER = operator.MANIFESTS / 'overlays' / 'namespaced'
    SANDBOX = ('--pods', 'pretended')

    @classmethod
    def install(cls):
        cls.admin('create', 'namespace', 'lab')
        super().install()

    def test_has_permissions_in_its_namespaces_only(self):
        running = self.useFixture(operator.Operator(self.account, (
            '--namespace', 'default', '--namespace', 'lab')))
        self.namespace, self.kubectl = 'lab', self.admin.within('lab')
        self.bmc().ready()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('nothing', lambda: self.owned('box'), [])
        self.assert_nothing_denied()
        self.assertEqual([], running.warnings())
        user = kubectl.Kubectl(self.account)
        self.assertEqual({
            ('get', 'endpointslices.discovery.k8s.io'): {'kubernetes'},
            ('list', 'servicecidrs.networking.k8s.io'): set()},
            self.can(user, 'kube-public'))
        self.assertEqual(self.can(user, 'default'), self.can(user, 'lab'))
        self.assertIn(('patch', 'virtualmachines.kubevirt.io'),
                      self.can(user, 'lab'))
        for what in 'secrets', 'vm', 'vmbmc':
            self.assertIn('forbidden', user.refused('get', what, '-A'))
            self.assertIn('forbidden', user.refused(
                'get', what, '-n', 'kube-public'))

    def test_users_have_rights_to_bmcs_by_their_roles(self):
        bmcs = 'virtualmachinebmcs.bmc.kubevirt.io'
        read = {'get', 'list', 'watch'}
        write = read | {'create', 'update', 'patch', 'delete',
                        'deletecollection'}
        for role, verbs in (('view', read), ('edit', write), ('admin', write)):
            self.kubectl('create', 'serviceaccount', role)
            self.kubectl('create', 'rolebinding', role,
                         '--clusterrole=' + role,
                         f'--serviceaccount={self.namespace}:{role}')
            user = self.user(role)
            self.assertEqual({bmcs: verbs}, {
                what: {verb for verb, one in self.can(user) if one == what}
                for _, what in self.can(user) if bmcs in what})
            self.assertIn('forbidden', user.refused('get', 'vmbmc', '-A'))
