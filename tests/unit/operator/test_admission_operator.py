# SPDX-License-Identifier: Apache-2.0
"""Policies for what the operator writes."""

import copy

import cel

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator.shared import shard_manifests
from tests.unit.operator import admission_case
from tests.unit.operator import bodies

FOREIGN = admission_case.FOREIGN
VM_OWNER = admission_case.VM_OWNER
DISK = admission_case.DISK
spec = admission_case.spec
template = admission_case.template
SIDECAR = admission_case.SIDECAR
HARVESTER = admission_case.HARVESTER

OPERATOR = ('system:serviceaccount:sushy-kubevirt-system:'
            'sushy-kubevirt-operator')


class OperatorTestCase(admission_case.AdmissionTestCase):

    def test_accounts_of_the_operator(self):
        # (account, whether the operator's policies match, and those that
        # apply to it and to BMCs)
        for user, own, shared in (
                ('sushy-kubevirt-system:sushy-kubevirt-operator', True, True),
                # kustomize's namePrefix and nameSuffix.
                ('a:x-sushy-kubevirt-operator', True, True),
                ('a:sushy-kubevirt-operator-2', True, True),
                ('sushy-kubevirt-operator:default', False, False),
                # A BMC with such a name.
                ('a:sushy-kubevirt-operator-2-virtbmc', False, True),
                ('a:sushy-kubevirt', False, False)):
            for name, expected in (
                    ('virtbmc-operator', own),
                    ('virtbmc-operator-objects', own),
                    ('virtbmc-datavolumes', shared),
                    ('virtbmc-virtualmachines', shared),
                    ('virtbmc-virtualmachines-status', shared),
                    ('virtbmc-virtualmachineinstances', shared)):
                with self.subTest(user=user, policy=name):
                    matching = self.policies[name]['matchConditions'][0]
                    self.assertIs(expected, cel.evaluate(
                        matching['expression'], {'request': {'userInfo': {
                            'username': 'system:serviceaccount:' + user}}}))

    def test_operator_may_change_metadata_of_any_object(self):
        _, condition = self.policies['virtbmc-operator']['matchConditions']
        theirs = {'metadata': {'name': 'a'}, 'roleRef': {'kind': 'Role'},
                  'subjects': [{'kind': 'User', 'name': 'jane'}]}
        for obj, old, matches in (
                (theirs, None, True), (theirs, theirs, False),
                ({**theirs, 'metadata': {'name': 'b'}}, theirs, False),
                ({**theirs, 'subjects': []}, theirs, True),
                ({'metadata': {}, 'roleRef': {'kind': 'Role'}}, theirs, True),
                ({**theirs, 'spec': {}}, theirs, True)):
            with self.subTest(obj=obj, old=old):
                self.assertIs(matches, cel.evaluate(condition['expression'], {
                    'object': obj, 'oldObject': old}))

    def test_objects_of_the_operator(self):
        bmc = bodies.bmc()
        deployment = deployments.deployment(bmc, deployments.Defaults('a'))
        shared = shard_manifests.deployment(
            'lab', 0, deployments.Defaults('a'), 1, 'uid')
        binding = rbac.binding(bmc)

        def pod(**fields):
            changed = copy.deepcopy(deployment)
            changed['spec']['template']['spec'].update(fields)
            return changed

        container = deployment['spec']['template']['spec']['containers'][0]
        own = deployment['spec']['template']['spec']['securityContext']

        def within(**fields):
            return pod(containers=[{**container, 'securityContext': {
                **container['securityContext'], **fields}}])

        for plural, obj, allowed in (
                ('deployments', deployment, True),
                ('deployments', shared, True),
                ('rolebindings', binding, True),
                ('secrets', rbac.state(bodies.vm()), True),
                ('secrets', {'type': 'kubernetes.io/tls'}, True),
                ('deployments', deployments.deployment(
                    bmc, deployments.Defaults('a', user=None)), True),
                # What the API server and webhooks add.
                ('deployments', pod(
                    restartPolicy='Always', dnsPolicy='ClusterFirst',
                    schedulerName='default-scheduler', affinity={},
                    serviceAccount='node-virtbmc'), True),
                ('deployments', within(privileged=False), True),
                *(('deployments', within(**fields), False) for fields in (
                    {'capabilities': {'drop': ['ALL'], 'add': ['MKNOD']}},
                    {'capabilities': {'add': ['SYS_ADMIN']}},
                    {'capabilities': {'drop': ['NET_RAW']}},
                    {'capabilities': {}},
                    {'runAsUser': 0},
                    {'runAsNonRoot': False},
                    {'allowPrivilegeEscalation': True},
                    {'privileged': True},
                    {'procMount': 'Unmasked'},
                    {'seccompProfile': {'type': 'Unconfined'}},
                    {'appArmorProfile': {'type': 'Unconfined'}},
                    {'seLinuxOptions': {'type': 'spc_t'}},
                    {'windowsOptions': {'hostProcess': True}})),
                *(('deployments', pod(securityContext=context), False)
                  for context in (
                    {}, {**own, 'runAsUser': 0}, {'runAsNonRoot': True},
                    {**own, 'runAsNonRoot': False},
                    {**own, 'sysctls': [{'name': 'a', 'value': 'b'}]},
                    {**own, 'seccompProfile': {'type': 'Unconfined'}})),
                *(('deployments', pod(containers=[{
                    **container, **fields}]), False) for fields in (
                    {'ports': [{'containerPort': 22, 'hostPort': 22}]},
                    # Requests of the node to any host.
                    {'livenessProbe': {'httpGet': {
                        'host': '169.254.169.254', 'port': 80}}},
                    {'startupProbe': {'tcpSocket': {
                        'host': '10.0.0.1', 'port': 22}}},
                    {'lifecycle': {'postStart': {'httpGet': {
                        'host': '10.0.0.1', 'port': 80}}}},
                    {'securityContext': {}},
                    {'securityContext': {'capabilities': {'drop': [
                        'ALL']}}})),
                # Another container than the first.
                ('deployments', pod(containers=[
                    container, {'name': 'a', 'image': 'a'}]), False),
                *(('deployments', pod(**{field: value}), False)
                  for field, value in (
                    ('hostIPC', True), ('shareProcessNamespace', True),
                    ('nodeName', 'a'), ('runtimeClassName', 'a'),
                    ('hostAliases', []), ('dnsConfig', {}),
                    ('ephemeralContainers', [container]))),
                ('deployments', pod(serviceAccountName='admin'), False),
                ('deployments', pod(hostNetwork=True), False),
                ('deployments', pod(hostPID=True), False),
                ('deployments', pod(initContainers=[container]), False),
                ('deployments', pod(volumes=[
                    {'name': 'a', 'hostPath': {'path': '/'}}]), False),
                ('deployments', pod(volumes=[
                    {'name': 'a', 'projected': {'sources': []}}]), False),
                ('deployments', pod(containers=[
                    {**container, 'securityContext': {
                        'privileged': True}}]), False),
                ('rolebindings', {**binding, 'roleRef': {
                    **binding['roleRef'], 'kind': 'ClusterRole'}}, False),
                ('rolebindings', {**binding, 'subjects': [{
                    'kind': 'User', 'name': 'jane'}]}, False),
                ('rolebindings', {**binding, 'subjects': [{
                    **binding['subjects'][0], 'name': 'default'}]}, False),
                *(('secrets', {'type': type_}, False) for type_ in (
                    'kubernetes.io/service-account-token',
                    'bootstrap.kubernetes.io/token',
                    'kubernetes.io/dockerconfigjson'))):
            with self.subTest(plural=plural, obj=obj):
                self.assert_denied(
                    None if allowed else 'the operator may', self.denials(
                        'virtbmc-operator', obj, None, request={
                            'resource': {'resource': plural}}))

    def test_objects_that_the_operator_did_not_create(self):
        owner = naming.owner('node', 'u')
        ours, theirs = ({'metadata': {'name': 'a', 'labels': {
            naming.MANAGED_BY: value}}} for value in (naming.OPERATOR, 'Helm'))
        bare = {'metadata': {'name': 'a'}}

        def owned(obj, *owners):
            return {'metadata': {**obj['metadata'],
                                 'ownerReferences': list(owners)}}
        # Users removed or replaced the label; KubeVirtBMC's have none.
        unlabelled = (owned(bare, owner), owned(theirs, owner),
                      owned(bare, VM_OWNER, owner))
        user = {key: value for key, value in owner.items()
                if key != 'controller'}
        strange = (owned(bare), owned(bare, user), *(
            owned(bare, {**owner, **other}) for other in (
                {'controller': False}, {'kind': 'VirtualMachine'},
                {'apiVersion': 'bmc.kubevirt.io.example.test/v1'})))
        rows = (
            (ours, None, True), (ours, ours, True), (None, ours, True),
            (theirs, None, False), (bare, None, False),
            (theirs, ours, False), (bare, ours, False),
            # A ConfigMap with the users of a cluster.
            (ours, theirs, False), (ours, bare, False),
            (None, theirs, False), (None, bare, False),
            *((obj, old, True) for old in unlabelled
              for obj in (None, old, owned(ours, owner))),
            *((obj, None, False) for obj in unlabelled),
            # The operator cannot make an object of others its own.
            *((obj, old, False) for old in (bare, theirs, *strange)
              for obj in (None, old, owned(ours, owner),
                          owned(old, owner))),
            *((bare, old, False) for old in unlabelled))
        self.assert_each('virtbmc-operator-objects',
                         'only objects with its label', rows,
                         resource={'resource': 'configmaps'})

    def test_clients_that_the_operator_can_lead_elsewhere(self):
        service = network.service(bodies.bmc())
        shared = shard_manifests.policy('lab', 0, {})
        external = {**service, 'spec': {
            **service['spec'], 'externalIPs': ['192.0.2.1']}}
        other = {**service, 'spec': {
            **service['spec'], 'selector': {'app': 'a'}}}
        rows = (
            (service, None, True), (external, external, True),
            (service, external, True), (None, service, True),
            (external, None, False), (external, service, False),
            ({**service, 'spec': {'selector': {'app': 'a'}}}, None,
             False),
            ({**service, 'spec': {'type': 'ExternalName'}}, None, False),
            # The first write of a repair leaves the spec of others.
            (other, other, True), (service, other, True),
            (other, None, False), (other, service, False),
            ({**other, 'spec': {**other['spec'], 'type': 'NodePort'}},
             other, False))
        self.assert_each('virtbmc-operator-objects',
                         'only Services of pods of BMCs', rows,
                         resource={'resource': 'services'})
        closed, everything, theirs = ({**shared, 'spec': {
            'podSelector': selector}} for selector in (
                shared['spec']['podSelector'], {},
                {'matchLabels': {'app': 'a'}}))
        rows = (
            (closed, None, True), (everything, None, False),
            (theirs, None, False), (everything, closed, False),
            (theirs, everything, False), (closed, everything, True),
            (everything, everything, True), (theirs, theirs, True))
        self.assert_each('virtbmc-operator-objects',
                         'only NetworkPolicies of pods of', rows,
                         resource={'resource': 'networkpolicies'})

    def test_machines_that_the_operator_changes(self):
        def denials(old, new):
            return self.denials(
                'virtbmc-virtualmachines', {'spec': spec()['spec'], **new},
                {'spec': spec()['spec'], **old}, request={
                    'namespace': 'lab', 'userInfo': {'username': OPERATOR}})

        uid = naming.GROUP + '/claim-uid'

        def of(**fields):
            return {'metadata': {'name': 'vm', **fields}}
        for old, new, expected in (
                (of(), of(finalizers=[stored_names.HOST_FINALIZER]), None),
                (of(finalizers=['a', stored_names.HOST_FINALIZER, 'b']),
                 of(finalizers=['a', 'b']), None),
                (of(labels={'a': 'b', uid: '1'}),
                 of(labels={'a': 'b', uid: '2'}), None),
                (of(), of(annotations={
                    naming.GROUP + '/claim': 'a/b'}), None),
                (of(finalizers=['a']), of(), 'label and finalizer'),
                (of(), of(finalizers=['a']), 'label and finalizer'),
                (of(labels={'a': 'b'}), of(), 'label and finalizer'),
                (of(), of(labels={'a': 'b'}), 'label and finalizer'),
                (of(), of(annotations={HARVESTER + 'mac-address': ''}),
                 'own annotations'),
                (of(), of(ownerReferences=[FOREIGN]), 'ownerReferences'),
                # The token of another account, for a guest.
                (of(), {**of(), **spec(volumes=[{
                    'name': 'a', 'serviceAccount': {
                        'serviceAccountName': 'admin'}}])}, 'only volumes')):
            with self.subTest(old=old, new=new):
                self.assert_denied(expected, denials(old, new))

    def test_machines_that_the_operator_creates(self):
        for new, allowed in (
                (spec(), True), (template(), True),
                (spec(volumes=[DISK]), True),
                (template(annotations={'a': 'b'}), True),
                (spec(volumes=[DISK, {'name': 'a', 'serviceAccount': {
                    'serviceAccountName': 'admin'}}]), False),
                (template(annotations={SIDECAR: '[]'}), False)):
            with self.subTest(new=new):
                self.assert_denied(
                    None if allowed else 'VMs without accounts',
                    self.denials('virtbmc-operator', new, request={
                        'resource': {'resource': 'virtualmachines'}}))
