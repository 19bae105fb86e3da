# SPDX-License-Identifier: Apache-2.0
"""Which nodes in Ironic are a cluster's."""

from unittest import mock

from oslotest import base

from sushy_kubevirt.cluster import deploy
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.kube import api_resources

OWNER = 'default/lab'


def node(name, uuid, cluster=None, state='available'):
    return {'name': name, 'uuid': uuid, 'instance_uuid': None,
            'provision_state': state, 'extra': {
                nodes.RECORD: {'cluster': cluster}} if cluster else {}}


class EnrolledTestCase(base.BaseTestCase):

    def openstack(self, *existing):
        made = mock.create_autospec(deploy.Openstack, instance=True)
        made.owner, made.force = OWNER, False
        made.client.list.return_value = list(existing)
        return made

    def test_nodes_with_the_uuid_of_a_vm(self):
        """Bifrost enrols nodes so, without a record."""
        openstack = self.openstack(
            node('a', 'u1'), node('b', 'u2', OWNER), node('c', 'u3'),
            node('d', 'u4', 'default/other'))
        self.assertEqual(['b'], [
            one['name'] for one in deploy.owned(openstack)])
        self.assertEqual(['b', 'a'], [
            one['name'] for one in deploy.owned(openstack, {'u1', 'u4'})])

    def test_nodes_of_deleted_vms_leave_under_their_names(self):
        changes = plan.Plan('lab', 'default', changes=(plan.Change(
            plan.Action.DELETE, api_resources.VM, 'vm', 'vm',
            live={'metadata': {'uid': 'u1'}}),))
        openstack = self.openstack(
            node('a', 'u1'), node('b', 'u2'), node('c', 'u3', OWNER))
        with mock.patch.object(deploy, 'remove', return_value=[
                provision.Result('a', 'failed', error='busy')]) as remove:
            self.assertEqual({'vm': 'busy'},
                             deploy.leave(openstack, changes))
        (_, leaving), _ = remove.call_args
        self.assertEqual(['a'], [one['name'] for one in leaving])
