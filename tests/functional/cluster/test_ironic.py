# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster in a real Ironic, with both kinds of BMC."""

import dataclasses
from unittest import mock

from sushy_kubevirt.cluster.ironic import client
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster.ironic import teardown
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from sushy_kubevirt.remote import endpoint
from tests.fixtures import base
from tests.fixtures import ipmi_pod
from tests.fixtures import ironic
from tests.fixtures import redfish_pod
from tests.fixtures import sandbox
from tests.fixtures import steps

OWNER = 'default/functional/uid'
INTERFACES = {'ipmi': {'boot_interface': 'pxe',
                       'management_interface': 'ipmitool'},
              'redfish': {'boot_interface': 'redfish-virtual-media'}}
LACP = {'mode': '802.3ad', 'properties': {'miimon': '100'}}


class Killed(BaseException):
    """The process has ended at a write, whose answer it did not read."""


class Enrolments:
    """A mixin that enrols nodes in ``ironic`` and records requests."""

    def setUp(self):
        super().setUp()
        self.client = client.Client(
            mock.Mock(baremetal=self.ironic.baremetal))
        self.requests = []
        self.killed_at = None
        send = self.client._send

        def recorded(method, path, *words):
            answer = send(method, path, *words)
            if answer is None or answer.status_code in (409, 500, 503):
                # The node, or SQLite, is locked: the client asks again.
                return answer
            self.requests.append((method, path))
            if len(self.writes()) == self.killed_at:
                raise Killed
            return answer
        self.client._send = recorded

    def enrol(self, wanted):
        """Enrol nodes.

        :returns: list of their `provision.Result`
        """
        self.requests.clear()
        self.reports = steps.Steps()
        return provision.Enrolment(
            self.client, OWNER, wanted, lines=self.reports).apply()

    def writes(self):
        return [one for one in self.requests if one[0] != 'GET']

    def assert_done(self, state, results):
        self.assertEqual([(state, None)] * len(results), [
            (one.state, one.error) for one in results])

    def assert_only_reads(self, wanted, state='available'):
        self.assert_done(state, self.enrol(wanted))
        self.assertEqual([('GET', '/nodes'), ('GET', '/ports'),
                          ('GET', '/portgroups')], self.requests)


class EnrolmentTestCase(Enrolments, base.SandboxTestCase):

    VMS = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.redfish = [cls.share(redfish_pod.RedfishPod(
            cls.sandbox, f'vm-{index}')) for index in range(2)]
        cls.ipmi = cls.share(ipmi_pod.Pod(cls.account('vm-2'), 'vm-2'))
        cls.ironic = cls.share(ironic.Ironic(ironic.WITHOUT_SYNC))

    @classmethod
    def account(cls, vm):
        """Create the account that the operator creates for a BMC.

        :returns: path of its kubeconfig
        """
        bmc = spec.read({
            'metadata': {'name': vm, 'namespace': sandbox.NAMESPACE,
                         'uid': 'u'},
            'spec': {'virtualMachine': {'name': vm}}})
        for plural, made in (('serviceaccounts', rbac.account(bmc)),
                             ('roles', rbac.role(bmc)),
                             ('rolebindings', rbac.binding(bmc))):
            # The owner, a VirtualMachineBMC, does not exist here.
            del made['metadata']['ownerReferences']
            cls.sandbox.create(plural, made)
        return cls.sandbox.account(rbac.account(bmc)['metadata']['name'])

    def setUp(self):
        super().setUp()
        self.addCleanup(self.clean)

    def clean(self):
        for node in self.ironic.baremetal.nodes():
            self.ironic.baremetal.set_node_maintenance(node)
            self.ironic.baremetal.delete_node(node)

    def remove(self):
        return teardown.remove(self.client, nodes.owned(
            self.client.list('nodes', nodes.FIELDS), OWNER))

    def wanted(self, revision='1', **config):
        """Make the three nodes: two with Redfish, one with IPMI."""
        found = []
        for index, pod in enumerate([*self.redfish, self.ipmi]):
            driver = 'ipmi' if pod is self.ipmi else 'redfish'
            bmc = endpoint.Bmc(
                '127.0.0.1', username='admin', password=pod.password,
                revision=revision, **{f'{driver}_port': pod.port})
            kind = model.NodeType(
                'type0', 1, 256, (model.Volume('1G'),), driver=driver)
            interfaces = tuple(
                model.Interface(one, model.Network(one, switch_info=one),
                                f'52:54:00:00:0{index}:0{number}')
                for number, one in enumerate(('net1', 'net2')))
            found.append(nodes.Wanted(
                model.Node(f'tk{index}', index, kind, interfaces,
                           ironic=model.IronicConfig(**{
                               'resource_class': 'my_rc',
                               'interfaces': INTERFACES[driver],
                               'ca_file': str(getattr(pod, 'ca', '')) or None,
                               **config})), bmc, f'vm-{index}'))
        return found

    def node(self, index):
        return self.ironic.baremetal.get_node(f'tk{index}')

    def test_life_of_nodes(self):
        declared = {
            'traits': ('CUSTOM_A', 'CUSTOM_B'), 'port_group': LACP,
            'pxe_networks': ('net1',), 'capabilities': {'lab': 'x'},
            'attributes': {'owner': 'o', 'lessee': 'l', 'shard': 's',
                           'description': 'd', 'extra': {'row': 7}}}
        self.assert_done('available', self.enrol(self.wanted(**declared)))
        for index in range(3):
            self.assert_enrolled(index)
        self.assert_only_reads(self.wanted(**declared))

        # A few values change, and others leave.
        changed = {'traits': ('CUSTOM_A',), 'attributes': {'owner': 'p'},
                   'resource_class': 'other', 'pxe_networks': ('net2',)}
        self.assert_done('available', self.enrol(self.wanted(**changed)))
        for index in range(3):
            node = self.node(index)
            self.assertEqual(['CUSTOM_A'], node.traits)
            self.assertEqual(('p', None, None, None, 'other'), (
                node.owner, node.lessee, node.shard, node.description,
                node.resource_class))
            self.assertNotIn('row', node.extra)
            self.assertEqual('boot_mode:uefi',
                             node.properties['capabilities'])
            self.assertFalse(node.is_maintenance)
            self.assertEqual([], list(
                self.ironic.baremetal.port_groups(node=node.id)))
        self.assert_only_reads(self.wanted(**changed))

        self.assertEqual(['delete'] * 3,
                         [one.action for one in self.remove()])
        self.assertEqual([], list(self.ironic.baremetal.nodes()))
        self.assertEqual([], list(self.ironic.baremetal.ports()))

    def assert_enrolled(self, index):
        node = self.node(index)
        self.assertEqual({'CUSTOM_A', 'CUSTOM_B'}, set(node.traits))
        self.assertEqual(('o', 'l', 's', 'd'), (
            node.owner, node.lessee, node.shard, node.description))
        self.assertEqual('boot_mode:uefi,lab:x',
                         node.properties['capabilities'])
        ports = {one.physical_network: one for one in
                 self.ironic.baremetal.ports(node=node.id, details=True)}
        self.assertEqual(
            {'net1': True, 'net2': False},
            {name: one.is_pxe_enabled for name, one in ports.items()})
        self.assertEqual({
            'switch_id': '00:00:00:00:00:00', 'switch_info': 'net2',
            'port_id': f'tk{index}-net2'},
            ports['net2'].local_link_connection)
        group, = self.ironic.baremetal.port_groups(
            node=node.id, details=True)
        self.assertEqual('802.3ad', group.mode)
        self.assertEqual(
            {'net1': group.id, 'net2': None},
            {name: one.port_group_id for name, one in ports.items()})

    def test_killed_at_each_write(self):
        """Runs of one write each get as far as one that is not killed."""
        declared = {'traits': ('CUSTOM_A',), 'port_group': LACP,
                    'pxe_networks': ('net1',)}
        wanted = self.wanted(**declared)[:1]
        self.killed_at, kills = 1, []
        while True:
            try:
                self.assert_done('available', self.enrol(wanted))
                break
            except Killed:
                kills += [path.rpartition('/')[2]
                          for _, path in self.writes()]
                self.assertLess(len(kills), 15)
        self.assertEqual(['nodes', 'portgroups', 'ports', 'ports',
                          'provision', 'provision', 'traits'], sorted(kills))
        self.assertEqual(1, len(list(self.ironic.baremetal.port_groups())))
        self.assertEqual(2, len(list(self.ironic.baremetal.ports())))
        self.assert_only_reads(wanted)
        self.assertRaises(Killed, self.remove_killed)
        self.killed_at = None
        self.remove()
        self.assertEqual([], list(self.ironic.baremetal.nodes()))

    def remove_killed(self):
        self.requests.clear()
        self.killed_at = 1
        self.remove()

    def test_rotated_credentials(self):
        self.assert_done('available', self.enrol(self.wanted('1')))
        pod = self.redfish[0]
        self.addCleanup(pod.set_password, pod.password)
        pod.set_password('second password')
        self.assert_done('available', self.enrol(self.wanted('2')))
        self.assertEqual(
            {'redfish_password', 'ipmi_password'},
            {words[2] for words in self.reports if words[1] == 'change'})
        self.assertEqual(['PATCH'] * 3, [one[0] for one in self.writes()])
        for target in 'power on', 'power off':
            self.ironic.power(self.node(0), target, target)
        self.assert_only_reads(self.wanted('2'))

    def test_failing_node(self):
        wanted = self.wanted()
        wrong = dataclasses.replace(
            wanted[0], bmc=dataclasses.replace(
                wanted[0].bmc, password='not the password'))
        results = self.enrol([wrong, *wanted[1:]])
        self.assertEqual(['failed', 'create', 'create'],
                         [one.action for one in results])
        self.assertTrue(results[0].error.startswith('manage: enroll: '),
                        results[0].error)
        self.assertNotIn('not the password', results[0].error)
        fixed = self.wanted('2')
        self.assert_done('available', self.enrol([fixed[0], *wanted[1:]]))

    def test_failed_inspection(self):
        """A node is changed, though Ironic changes none that has failed."""
        self.assert_done('manageable', self.enrol(
            self.wanted(provide=False)[:1]))
        node = self.ironic.baremetal.patch_node(self.node(0), [{
            'op': 'replace', 'path': '/driver_info/redfish_system_id',
            'value': '/redfish/v1/Systems/none'}])
        self.ironic.baremetal.set_node_provision_state(node, 'inspect')
        self.ironic.baremetal.wait_for_nodes_provision_state(
            [node], 'inspect failed', timeout=60,
            abort_on_failed_state=False)
        changed = self.wanted(resource_class='other', pxe_networks=(),
                              interfaces={**INTERFACES['redfish'],
                                          'vendor_interface': 'no-vendor'})
        self.assert_done('available', self.enrol(changed[:1]))
        node = self.node(0)
        self.assertEqual(('other', 'no-vendor'), (
            node.resource_class, node.vendor_interface))
        self.assert_only_reads(changed[:1])

    def test_nodes_with_an_instance(self):
        wanted = self.wanted()[:1]
        self.assert_done('available', self.enrol(wanted))
        node = self.node(0)
        self.ironic.baremetal.update_node(
            node, instance_id='11111111-2222-3333-4444-555555555555')
        changed = self.wanted(resource_class='other', pxe_networks=(),
                              attributes={'description': 'kept'})[:1]
        result, = self.enrol(changed)
        self.assertEqual(('resource_class', 'ports'), result.deferred)
        self.assertEqual('kept', self.node(0).description)
        self.assert_only_reads(changed)
        error = self.assertRaises(problems.NodesInUse, self.remove)
        self.assertEqual(('tk0',), error.names)
        self.ironic.baremetal.patch_node(node, [
            {'op': 'remove', 'path': '/instance_uuid'}])
        self.assert_done('available', self.enrol(changed))
        self.assertEqual('other', self.node(0).resource_class)


class ScaleTestCase(Enrolments, base.FunctionalTestCase):
    """Many nodes, of a hardware type that needs no BMC."""

    COUNT = 25

    FAKE = {f'{kind}_interface': 'fake'
            for kind in ('boot', 'deploy', 'management', 'power')}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = cls.share(ironic.Ironic({
            'DEFAULT': {
                'enabled_hardware_types': 'fake-hardware',
                'default_deploy_interface': 'fake',
                **{f'enabled_{kind}s': 'fake' for kind in cls.FAKE}},
            # Lists have several pages.
            'api': {'max_limit': '10'}, **ironic.WITHOUT_SYNC}))

    def test_unchanged_nodes_are_read_in_pages(self):
        wanted = [nodes.Wanted(
            model.Node(f'many{index}', index, model.NodeType(
                'type0', 1, 256, driver='fake-hardware'), (model.Interface(
                    'net', model.Network('net'),
                    f'52:54:00:01:00:{index:02x}'),),
                ironic=model.IronicConfig('rc', interfaces=self.FAKE)),
            endpoint.Bmc('192.0.2.1', revision='1'), f'vm-{index}')
            for index in range(self.COUNT)]
        for _ in range(2):
            self.assert_done('available', self.enrol(wanted))
        self.assertEqual([], self.writes())
        self.assertEqual(
            3, self.requests.count(('GET', '/nodes')), self.requests)
