# SPDX-License-Identifier: Apache-2.0
"""Plans: what differs between a cluster and its declaration."""

import copy

from oslotest import base

from sushy_kubevirt.cluster import apply
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster.objects import catalog
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from tests.unit.cluster import memory
from tests.unit.cluster import nodes

NETWORKS = 'network-attachment-definitions'


class Base(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = memory.Memory()
        self.api.controller = nodes.ready

    def plan(self, cluster):
        return plan.make(self.api, cluster, 'space')

    def teardown(self, name):
        return self.plan(model.Cluster(name))

    def texts(self, cluster):
        return [str(one) for one in self.plan(cluster).changes]

    def apply(self, cluster):
        made = self.plan(cluster)
        result = apply.run(self.api, made, limits=apply.Limits(
            ready=10, gone=10))
        self.assertEqual({}, result.failed)
        return made

    def cluster(self, count=2, **more):
        more.setdefault('volumes', (model.Volume('1G', ephemeral=True),))
        return nodes.cluster(count, **more)


class PlanTestCase(Base):

    def test_new_cluster(self):
        self.assertEqual([
            'create Secret tk0-bmc', 'create VirtualMachine tk0',
            'create VirtualMachineBMC tk0'], self.texts(self.cluster(1)))
        self.assertEqual([], self.api.writes)

    def test_unchanged_cluster_costs_one_list_for_each_kind(self):
        cluster = self.cluster(50)
        self.apply(cluster)
        self.api.calls.clear()
        self.assertFalse(self.plan(cluster))
        self.assertEqual(['list'] * 4, [one[0] for one in self.api.calls])

    def test_changed_type_is_recreated(self):
        self.apply(self.cluster())
        made = self.plan(self.cluster(memory_mb=512))
        self.assertEqual(
            ['recreate VirtualMachine tk0 (memory_mb: 256 -> 512)',
             'recreate VirtualMachine tk1 (memory_mb: 256 -> 512)'],
            [str(one) for one in made.changes])
        self.assertEqual(('tk0', 'tk1'), made.recreated)

    def test_values_of_raw_fields_are_not_shown(self):
        self.apply(self.cluster(1))
        self.assertEqual(
            ['recreate VirtualMachine tk0 (vm: changed)'],
            self.texts(self.cluster(1, vm={'spec': {'secret': 'word'}})))

    def test_changed_bmc_and_credentials_keep_the_vm(self):
        self.apply(self.cluster(1))
        self.assertEqual(
            ['change Secret tk0-bmc (credentials: 0 -> 1)',
             'change VirtualMachineBMC tk0 (bmc: changed)'],
            self.texts(self.cluster(1, more={'credentials': 1},
                                    bmc={'ipmi': {'enabled': False}})))

    def test_nodes_are_removed_from_the_highest_index(self):
        self.apply(self.cluster(12))
        made = self.plan(self.cluster(9))
        self.assertEqual(('tk11', 'tk10', 'tk9'), made.removed)
        self.assertEqual(9, len(made.changes))

    def test_vm_that_is_being_deleted_is_recreated(self):
        self.apply(self.cluster(1))
        self.api.change('virtualmachines', 'tk0', lambda vm: vm[
            'metadata'].update(deletionTimestamp='now'))
        self.assertEqual(['recreate VirtualMachine tk0 (is being deleted)'],
                         self.texts(self.cluster(1)))

    def test_objects_of_others_are_conflicts(self):
        self.apply(self.cluster(1, name='one'))
        self.api.objects['secrets', 'tk1-bmc'] = {
            'metadata': {'name': 'tk1-bmc'}}
        made = self.plan(self.cluster(3, name='two'))
        self.assertEqual({'tk0', 'tk1'}, {one.node for one in made.conflicts})
        texts = '\n'.join(map(str, made.conflicts))
        self.assertIn('VirtualMachine space/tk0 belongs to cluster one',
                      texts)
        self.assertIn('Secret space/tk1-bmc exists and belongs to no cluster',
                      texts)
        self.assertEqual({'tk2'}, {one.node for one in made.changes})

    def test_volumes_of_others_are_conflicts(self):
        cluster = nodes.cluster(3)
        for plural, name, labels in (
                ('persistentvolumeclaims', 'tk0vol0', {}),
                ('datavolumes', 'tk1vol0', {stored_names.CLUSTER: 'other'}),
                ('datavolumes', 'tk2vol0', {stored_names.CLUSTER: 'tenks'}),
                ('persistentvolumeclaims', 'tk2vol0', {})):
            self.api.objects[plural, name] = {'metadata': {
                'name': name, 'labels': labels}}
        made = self.plan(cluster)
        self.assertEqual(
            ['PersistentVolumeClaim space/tk0vol0 exists and belongs to no '
             'cluster', 'DataVolume space/tk1vol0 belongs to cluster other'],
            [str(one).partition('.')[0] for one in made.conflicts])
        self.assertEqual({'tk2'}, {one.node for one in made.changes})
        self.api.refuse = lambda verb, plural, name: (
            errors.AccessDenied('no') if plural in (
                'datavolumes', 'persistentvolumeclaims') else None)
        self.assertEqual((), self.plan(cluster).conflicts)

    def test_copies_of_objects_are_nobodys(self):
        """They have the labels of the cluster and another name."""
        self.apply(self.cluster(1))
        for plural, name in (('virtualmachines', 'tk0'), ('secrets',
                             'tk0-bmc'), ('virtualmachinebmcs', 'tk0')):
            copied = copy.deepcopy(self.api.find(plural, name))
            copied['metadata'].update(name='tk1', uid='copied')
            self.api.objects[plural, 'tk1'] = copied
        self.assertFalse(self.plan(self.cluster(1)))
        self.assertEqual(('tk0',), self.teardown('tenks').removed)
        [conflict, _] = self.plan(self.cluster(2)).conflicts
        self.assertIn('space/tk1 exists and belongs to no cluster',
                      str(conflict))

    def test_two_clusters_in_a_namespace(self):
        one, two = (self.cluster(name=name, prefix=name)
                    for name in ('one', 'two'))
        self.apply(one)
        self.apply(two)
        self.assertFalse(self.plan(one))
        self.assertFalse(self.plan(two))
        self.assertEqual(('two1', 'two0'), self.teardown('two').removed)


class MissingTestCase(Base):
    """Objects that the file refers to, without which a VM cannot start."""

    def test_network(self):
        cluster = self.cluster(2, networks=(
            model.Network('lan', 'other/br0'), model.Network('pod')))
        found = self.plan(cluster).conflicts
        self.assertEqual(['tk0', 'tk1'], [one.node for one in found])
        self.assertEqual(
            'NetworkAttachmentDefinition other/br0 does not exist, which the '
            'network lan is attached to. Create it, or change the file.',
            str(found[0]))
        self.api.objects[NETWORKS, 'br0'] = {'metadata': {'name': 'br0'}}
        self.assertEqual((), self.plan(cluster).conflicts)
        self.assertEqual((), self.plan(cluster).conflicts)
        del self.api.objects[NETWORKS, 'br0']
        self.api.refuse = lambda verb, plural, name: (
            errors.AccessDenied('no') if name == 'br0' else None)
        self.assertEqual((), self.plan(cluster).conflicts)

    def test_claim(self):
        cluster = self.cluster(2, volumes=(
            model.Volume(None, 'claim', 'disk-{index}'),))
        self.api.objects['persistentvolumeclaims', 'disk-0'] = {
            'metadata': {'name': 'disk-0'}}
        [found] = self.plan(cluster).conflicts
        self.assertEqual('tk1', found.node)
        self.assertIn('PersistentVolumeClaim space/disk-1', str(found))
        self.api.refuse = lambda verb, plural, name: (
            errors.AccessDenied('no') if plural == 'persistentvolumeclaims'
            else None)
        self.assertEqual((), self.plan(cluster).conflicts)


class ManifestsTestCase(Base):
    """Manifests that another tool has applied."""

    def put(self, cluster):
        for body in catalog.manifests(cluster, 'space'):
            resource = (api_resources.VM if body['kind'] == 'VirtualMachine'
                        else kinds.BMC)
            if (resource.plural, body['metadata']['name']) in self.api.objects:
                self.api.apply(resource, 'space', body['metadata']['name'],
                               body)
            else:
                self.api.create(resource, 'space', body)

    def test_nothing_to_do(self):
        self.put(self.cluster(2))
        self.api.calls.clear()
        self.assertFalse(self.plan(self.cluster(2)))
        self.assertEqual(4, len(self.api.calls))

    def test_changes(self):
        self.put(self.cluster(1))
        self.assertEqual(
            ['change VirtualMachineBMC tk0 (bmc: changed)'],
            self.texts(self.cluster(1, bmc={'ipmi': {'enabled': False}})))
        self.assertEqual(
            ['delete VirtualMachine tk0', 'delete VirtualMachineBMC tk0'],
            self.texts(self.cluster(0)))
        rotated = self.cluster(1, more={'credentials': 1})
        self.assertEqual(['create Secret tk0-bmc', 'change VirtualMachineBMC'],
                         [one[:24] for one in self.texts(rotated)])
        self.apply(rotated)
        self.assertFalse(self.plan(rotated))

    def test_secret_that_exists_is_kept(self):
        """A tool may leave the reference to it in the BMC."""
        cluster = self.cluster(1)
        self.apply(cluster)
        self.put(cluster)
        self.assertNotIn('delete', '\n'.join(self.texts(cluster)))


class NetworksTestCase(Base):

    def sharing(self, name, config=None):
        return self.cluster(1, name=name, prefix=name, networks=(
            model.Network('lan', 'lan', config or {'type': 'bridge'}, True),))

    def test_own_definition(self):
        cluster = self.cluster(1, networks=(
            model.Network('lan', 'tenks-lan', {'type': 'bridge'}),))
        self.assertEqual('create NetworkAttachmentDefinition tenks-lan',
                         self.texts(cluster)[0])
        self.apply(cluster)
        self.assertFalse(self.plan(cluster))
        self.assertIn('delete NetworkAttachmentDefinition tenks-lan',
                      self.texts(self.cluster(1)))

    def test_shared_definition_is_deleted_by_its_last_user(self):
        one, two = self.sharing('one'), self.sharing('two')
        self.apply(one)
        self.assertEqual('join NetworkAttachmentDefinition lan',
                         self.texts(two)[0])
        self.apply(two)
        self.assertFalse(self.plan(one))
        self.assertFalse(self.plan(two))
        self.assertEqual({'one', 'two'}, networks.users(
            self.api.find(NETWORKS, 'lan')))
        gone = self.teardown('one')
        self.assertEqual('leave NetworkAttachmentDefinition lan',
                         str(gone.changes[0]))
        apply.run(self.api, gone)
        self.assertFalse(self.plan(two))
        apply.run(self.api, self.teardown('two'))
        self.assertEqual({}, self.api.objects)

    def test_users_that_leave_at_the_same_time(self):
        made = [self.sharing(name) for name in ('one', 'two')]
        for one in made:
            self.apply(one)
        for gone in [self.teardown(one.name)
                     for one in made]:
            self.assertEqual({}, apply.run(self.api, gone).failed)
        self.assertEqual({}, self.api.objects)

    def test_shared_definition_with_another_configuration(self):
        one, other = self.sharing('one'), {'type': 'macvlan'}
        self.apply(one)
        self.assertEqual(
            ['change NetworkAttachmentDefinition lan (config: changed)'],
            self.texts(self.sharing('one', other))[:1])
        self.apply(self.sharing('two'))
        made = self.plan(self.sharing('one', other))
        [conflict] = made.conflicts
        self.assertIn('is shared with two', str(conflict))
        self.assertEqual('one0', conflict.node)

    def test_cluster_without_multus(self):
        self.api.refuse = lambda verb, plural, name: (
            errors.Unavailable('not served') if plural == NETWORKS else None)
        self.assertTrue(self.plan(self.cluster(1)).changes)
        self.assertRaises(errors.Unavailable, self.plan, self.sharing('one'))
