# SPDX-License-Identifier: Apache-2.0
"""Shared pods, as the operator manages them.

The sandbox reports the pods as running, and `SharedPods` stands for what they
report. `test_shared_pods` runs the pods themselves.
"""

import json

from kubevirt_sandbox.testing import given_cluster
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import shard_manifests
from tests.fixtures import operator
from tests.fixtures import operator_kills
from tests.fixtures import shared_pods

BASE = 'sushy-kubevirt-shared-%d-virtbmc'
OWN = 'deployments,serviceaccounts,roles,rolebindings'
SHARED = operator.OWNED + ',-l,bmc.kubevirt.io/shared'


class SharedCase(operator.OperatorTestCase):
    """An operator with two BMCs in a pod."""

    SANDBOX = operator.PRETENDED_PODS
    ARGUMENTS = ('--bmcs-per-pod', '2')

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pods = cls.share(shared_pods.SharedPods(cls.sandbox.kubeconfig))

    def shared(self, name='box', **spec):
        spec.setdefault('placement', 'Shared')
        return self.bmc(name, name, None, **spec)

    def members(self, shard=0):
        """Return {name: entry} of a shard; {} if there is none."""
        found = self.sandbox.get('configmaps', BASE % shard, self.namespace)
        return {name: json.loads(text) for name, text in (
            (found or {}).get('data') or {}).items()}

    def slots(self):
        """Return {name: (shard, slot)}, as recorded."""
        return {name: (shard, one['slot']) for shard in range(4)
                for name, one in self.members(shard).items()}

    def objects(self):
        return self.kubectl.names(
            operator.OWNED, '-l', 'bmc.kubevirt.io/shared')

    def rights(self):
        """Return {VM: numbers of the shards whose accounts may change it};
        None stands for the account of a pod of its own.
        """
        found = {}
        for one in self.kubectl.get('rolebindings')['items']:
            role = self.kubectl.get('role', one['roleRef']['name'])
            for vm in shard_manifests.granted(role):
                found.setdefault(vm, set()).update(
                    naming.shard_number(account['name'])
                    for account in one['subjects'])
        return found

    def service(self, name):
        """Return (selector, target ports) of a BMC's Service."""
        found = self.kubectl.get('service', f'{name}-virtbmc')['spec']
        return found['selector'], [
            port['targetPort'] for port in found['ports']]


@given_cluster.needs_sandbox('pods that start at once')
class SharedTestCase(SharedCase):

    def test_bmcs_share_pods(self):
        for name in 'abc':
            self.shared(name)
        bmcs = [operator.Bmc(self.kubectl, name, 'admin', None).ready()
                for name in 'abc']
        slots = self.slots()
        self.assertEqual([(0, 0), (0, 1), (1, 0)], sorted(slots.values()))
        for bmc in bmcs:
            shard, slot = slots[bmc.name]
            self.assertEqual(
                {'type': 'Shared', 'deployment': BASE % shard, 'slot': slot},
                bmc.status['placement'])
            self.assertEqual(
                ({'app.kubernetes.io/name': 'virtbmc',
                  'bmc.kubevirt.io/shared': str(shard)},
                 [10000 + slot, 30000 + slot]), self.service(bmc.name))
            self.assertEqual([], self.kubectl.names(
                'deployments,serviceaccounts,roles,rolebindings',
                '-l', operator.LABEL + bmc.name))
        self.assertEqual(
            {name: {shard} for name, (shard, _) in slots.items()},
            self.rights())
        self.assert_no_warnings()
        # The room of a deleted BMC is used again, an empty shard removed.
        alone = next(name for name, at in slots.items() if at == (1, 0))
        other = next(name for name, at in slots.items() if at == (0, 0))
        self.kubectl('delete', 'vmbmc', alone)
        self.until('shard removed', lambda: [
            one for one in self.objects() if 'shared-1' in one], [])
        self.kubectl('delete', 'vmbmc', other)
        self.until('slot free', lambda: len(self.slots()), 1)
        self.assertEqual(
            {name: {0} for name in slots if name not in (alone, other)},
            self.rights())
        self.shared('d').ready()
        # Clients may still reach the slot by the deleted BMC's address.
        self.assertEqual((0, 2), self.slots()['d'])
        for name in self.slots():
            self.kubectl('delete', 'vmbmc', name)
        self.until('all removed', self.objects, [])

    def test_placement_changes_both_ways(self):
        bmc = self.bmc('box', secret=None).ready()
        before = bmc.status
        auth = self.kubectl.get('secret', 'box-virtbmc-auth')
        tls = self.kubectl.get('secret', 'box-virtbmc-tls')
        self.pods.problems['box'] = None
        bmc.patch(placement='Shared')
        self.until('entered', lambda: 'vm' in self.members().get('box', ()))
        # Until the shared pod serves it, its own pod does.
        bmc.current()
        self.assertEqual('PerVM', bmc.status['placement']['type'])
        self.assertEqual('PlacementWaiting',
                         bmc.condition('BMCEmulatorReady')[1])
        self.assertEqual(['redfish', 'ipmi'], self.service('box')[1])
        self.assertEqual({'box': {None, 0}}, self.rights())
        del self.pods.problems['box']
        self.pods.report_again()
        self.until('moved', lambda: bmc.status['placement'].get('slot'), 0)
        bmc.ready()
        self.assertEqual([10000, 30000], self.service('box')[1])
        self.until('own pod deleted', lambda: self.kubectl.names(
            OWN, '-l', operator.LABEL + 'box'), [])
        self.assertEqual({'box': {0}}, self.rights())
        self.assertEqual(before['endpoints'], bmc.status['endpoints'])
        bmc.patch(placement='PerVM')
        self.until('moved back', lambda: bmc.status['placement'], {
            'type': 'PerVM', 'deployment': 'box-virtbmc'})
        bmc.ready()
        self.until('shard removed', self.objects, [])
        self.assertEqual(['redfish', 'ipmi'], self.service('box')[1])
        self.assertEqual(before['endpoints'], bmc.status['endpoints'])
        self.assertEqual(auth, self.kubectl.get('secret', 'box-virtbmc-auth'))
        self.assertEqual(tls, self.kubectl.get('secret', 'box-virtbmc-tls'))
        self.assertEqual({'box': {None}}, self.rights())

    def test_forged_members_are_restored(self):
        self.shared('a').ready()
        self.shared('b').ready()
        before = self.members()
        forged = dict(before['a'], vm=f'{self.namespace}/b')
        self.kubectl('patch', 'configmap', BASE % 0, '--type=merge', '-p',
                     json.dumps({'data': {'a': json.dumps(forged), 'b': None,
                                          'c': json.dumps(forged)}}))
        self.until('restored', self.members, before)
        self.kubectl('delete', 'configmap', BASE % 0)
        self.until('created again', self.members, before)

    def test_new_credentials_change_the_entry(self):
        bmc = self.bmc('box', secret='key', placement='Shared').ready()
        before = self.members()['box']
        self.assertEqual('key', before['auth']['secret'])
        self.secret('key')
        self.until('new version', lambda: self.members()['box']['auth'][
            'version'] != before['auth']['version'])
        bmc.ready()
        self.kubectl('delete', 'secret', 'box-virtbmc-tls')
        self.until('new certificate', lambda: self.members()['box'][
            'redfish']['tls']['version'] != before['redfish']['tls'][
                'version'])

    def test_problem_of_a_pod_is_reported(self):
        self.pods.problems['box'] = 'The Secret is strange.'
        self.addCleanup(self.pods.problems.pop, 'box')
        bmc = self.shared()
        self.until('reported', bmc.condition, ('False', 'EmulatorNotReady'))
        self.assertIn('strange', bmc.message())

    def test_foreign_object_is_not_changed(self):
        self.kubectl('create', 'serviceaccount', BASE % 0)
        bmc = self.shared()
        self.until('reported', bmc.condition, ('False', 'NameTaken'))
        self.assertIn(BASE % 0, bmc.message())
        self.assertNotIn('labels', self.kubectl.get(
            'serviceaccount', BASE % 0)['metadata'])
        self.kubectl('delete', 'serviceaccount', BASE % 0)
        # The next attempt follows a pause.
        bmc.ready()

    def test_bmcs_with_policies_share_other_pods(self):
        def policies():
            return self.kubectl.names(
                'networkpolicies', '-l', 'bmc.kubevirt.io/shared')
        self.shared('open').ready()
        closed = self.shared('closed', networkPolicy={
            'enabled': True, 'allowedCIDRs': ['10.1.0.0/16']}).ready()
        self.assertEqual({'open': (0, 0), 'closed': (1, 0)}, self.slots())
        self.assertEqual(['networkpolicy.networking.k8s.io/' + BASE % 1],
                         policies())
        [rule] = self.kubectl.get('networkpolicy', BASE % 1)['spec']['ingress']
        self.assertEqual([{'ipBlock': {'cidr': '10.1.0.0/16'}}], rule['from'])
        self.assertEqual([10000, 20000, 30000],
                         [one['port'] for one in rule['ports']])
        closed.patch(networkPolicy=None)
        self.until('removed', policies, [])
        self.until('stays', self.slots, {'open': (0, 0), 'closed': (1, 0)})

    def test_rejected_policy_closes_the_pod(self):
        name = 'no-clients-' + self.namespace
        self.admin.apply({
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingAdmissionPolicy', 'metadata': {'name': name},
            'spec': {'matchConstraints': {'resourceRules': [{
                'apiGroups': ['networking.k8s.io'], 'apiVersions': ['*'],
                'operations': ['CREATE', 'UPDATE'],
                'resources': ['networkpolicies']}],
                'namespaceSelector': {'matchLabels': {
                    'kubernetes.io/metadata.name': self.namespace}}},
                'validations': [{
                    'expression': '!has(object.spec.ingress) || '
                    'object.spec.ingress.size() == 0'}]}})
        self.admin.apply({
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingAdmissionPolicyBinding',
            'metadata': {'name': name}, 'spec': {
                'policyName': name, 'validationActions': ['Deny']}})
        for kind in 'policy', 'policybinding':
            self.addCleanup(self.admin, 'delete', '--ignore-not-found',
                            f'validatingadmission{kind}', name)
        closed = self.shared('closed', networkPolicy={
            'enabled': True, 'allowedCIDRs': ['10.0.0.0/8']})
        self.until('refused', closed.condition, ('False', 'Refused'))
        self.until('pod', lambda: self.kubectl.names(
            'deployments', '-l', 'bmc.kubevirt.io/shared'),
            ['deployment.apps/' + BASE % 0])
        policy = self.kubectl.get('networkpolicy', BASE % 0)
        self.assertFalse(policy['spec'].get('ingress'))
        self.admin('delete', 'validatingadmissionpolicybinding', name)
        closed.current()
        self.assertTrue(self.kubectl.get('networkpolicy', BASE % 0)[
            'spec']['ingress'])

    def test_definition_refuses_settings_of_a_pod(self):
        self.vm()
        refused = self.kubectl.refused(
            'apply', '-f', '-', stdin=json.dumps(operator.bmc_manifest(
                'box', placement='Shared', nodeSelector={'a': 'b'})))
        self.assertIn('need placement', refused)


@given_cluster.needs_sandbox('pods that start at once')
class SharedByDefaultTestCase(SharedCase):

    ARGUMENTS = ('--default-placement', 'Shared')

    def test_settings_of_a_pod_need_one(self):
        shared = self.bmc('a', 'a', None).ready()
        own = self.bmc('b', 'b', None, nodeSelector={}).ready()
        alone = self.bmc(
            'c', 'c', None, tolerations=[{'operator': 'Exists'}]).ready()
        chosen = self.bmc('d', 'd', None, placement='PerVM').ready()
        self.assertEqual(
            ['Shared', 'Shared', 'PerVM', 'PerVM'],
            [one.status['placement']['type']
             for one in (shared, own, alone, chosen)])


@given_cluster.needs_sandbox('silence and hanging requests')
class KilledTestCase(operator_kills.Kills, SharedCase):
    """The next operator goes on, wherever the former one was killed."""

    def check(self, finished, most=60):
        """Kill each operator after a few writes.

        Each may write a little more than the one before it, as all of them
        first count an Event for each BMC.

        :param finished: function; whether nothing is left to write
        """
        for number in range(most):
            self.allow_writes(2 + number // 2)
            self.start()
            if self.kill_after_writes(finished):
                return
        self.fail('not finished')

    def test_killed_between_writes(self):
        for name in 'abc':
            self.shared(name)
        bmcs = [operator.Bmc(self.kubectl, name, 'admin', None)
                for name in 'abc']

        def ready():
            return all(bmc.condition() == ('True', 'ServiceReady')
                       for bmc in bmcs)
        self.check(ready)
        slots = self.slots()
        # Of two new shards, the second may be recorded first, and is filled.
        self.assertIn(sorted(slots.values()), (
            [(0, 0), (0, 1), (1, 0)], [(0, 0), (1, 0), (1, 1)]))
        for bmc in bmcs:
            shard, slot = slots[bmc.name]
            self.assertEqual([10000 + slot, 30000 + slot],
                             self.service(bmc.name)[1])

        def deleted():
            return not self.objects()
        self.kubectl('delete', 'vmbmc', '--all')
        self.check(deleted)

    def test_killed_while_the_placement_changes(self):
        bmc = self.bmc('box', secret=None)
        self.start()
        bmc.ready()
        own = OWN, '-l', operator.LABEL + 'box'
        for placement, ports in (('Shared', [10000, 30000]),
                                 ('PerVM', ['redfish', 'ipmi'])):
            bmc.patch(placement=placement)
            shared = placement == 'Shared'

            def moved():
                return (bmc.status['placement']['type'] == placement
                        and bmc.condition() == ('True', 'ServiceReady')
                        and bmc.condition('BMCEmulatorReady')[1]
                        == 'EmulatorReady'
                        and bool(self.kubectl.names(*own)) != shared
                        and bool(self.objects()) == shared)
            self.check(moved)
            self.assertEqual(ports, self.service('box')[1])
            self.assertEqual({'box': {0 if shared else None}}, self.rights())
