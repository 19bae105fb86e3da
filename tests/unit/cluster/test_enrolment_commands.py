# SPDX-License-Identifier: Apache-2.0
"""The commands that use Ironic."""

import io
import pathlib
from unittest import mock

import fixtures

from sushy_kubevirt.cluster import problems
from tests.unit.cluster import commands_case
from tests.unit.cluster import live

VMS, BMCS = commands_case.VMS, commands_case.BMCS


class OpenStackTestCase(commands_case.CommandsTestCase):

    def states(self):
        return {one['name']: one['provision_state']
                for one in self.ironic.objects['nodes'].values()}

    def test_enrol(self):
        self.run_command('apply', self.file())
        self.assertEqual(
            [('lab-0', 'available', ''), ('lab-1', 'available', '')],
            [tuple(one.values()) for one in self.json(
                'enrol', self.file(), '--os-cloud', 'mine')])
        self.assertEqual(['mine'], self.clouds)
        self.assertRegex(self.stderr, r'lab-0  provide')
        self.assertNotIn(live.password(self.api, 'lab-0'), self.stderr)

    def test_enrol_before_apply(self):
        self.run_command('apply', self.file(1))
        found = self.json('enrol', self.file(2), expected=1)
        self.assertEqual(['available', 'failed'],
                         sorted(one['Result'] for one in found))
        self.assertIn('Run "apply" first', str(found))

    def planned(self, *words):
        """:returns: set of action, kind and name of what is planned"""
        return {(one['Action'], one['Kind'], one['Name'])
                for one in self.json('plan', *words)}

    def test_plan(self):
        self.assertLessEqual(
            {('create', 'Ironic node', 'lab-0'),
             ('create', 'VirtualMachine', 'lab-0')},
            self.planned(self.file()))
        self.run_command('deploy', self.file())
        self.assertEqual(set(), self.planned(self.file()))
        path = pathlib.Path(self.file())
        path.write_text(path.read_text().replace(': rc', ': other'))
        self.assertEqual([{
            'Action': 'change', 'Kind': 'Ironic node', 'Name': name,
            'Node': name, 'Reasons': ['resource_class']}
            for name in ('lab-0', 'lab-1')], self.json('plan', str(path)))
        self.assertEqual(
            {(action, kind, name) for action, kind in (
                ('recreate', 'VirtualMachine'), ('recreate', 'Ironic node'))
             for name in ('lab-0', 'lab-1')},
            self.planned(self.file(memory_mb=1024)))
        self.assertIn(('delete', 'Ironic node', 'lab-1'),
                      self.planned(self.file(1)))
        self.assertIn(('delete', 'Ironic node', 'lab-1'),
                      self.planned(self.file(0)))
        self.deploy_server('lab-1')
        self.ironic.writes.clear()
        for words in (self.file(0),), (self.file(memory_mb=1024),):
            self.assertEqual(
                {'lab-0': [], 'lab-1': [
                    'has an instance: refused without --force']},
                {one['Name']: one['Reasons']
                 for one in self.json('plan', *words)
                 if one['Kind'] == 'Ironic node'})
        path = pathlib.Path(self.file())
        path.write_text(path.read_text().replace(': rc', ': other'))
        self.assertIn('resource_class not while it has an instance',
                      str(self.json('plan', str(path))))
        self.assertEqual([], self.ironic.writes)

    def test_plan_without_a_cloud(self):
        self.no_cloud()
        self.assertEqual(6, len(self.planned(self.file())))
        self.assertIn('Ironic and Nova are not asked', self.stderr)
        self.run_command('plan', self.file(), '--os-cloud', 'mine',
                         expected=1)
        self.assertIn('no cloud', self.stderr)

    def test_plan_without_an_answer_of_ironic(self):
        def refuse(kind, fields):
            raise problems.ServiceError('no answer')
        self.ironic.list = refuse
        self.run_command('plan', self.file(), expected=1)
        self.assertIn('no answer. For the changes in Kubernetes alone, give '
                      '--without-openstack', self.stderr)

    def test_deploy_without_a_cloud(self):
        self.no_cloud()
        self.run_command('deploy', self.file(), expected=1)
        self.assertIn('no cloud', self.stderr)
        self.assertEqual([], self.api.calls)

    def test_deploy_twice(self):
        self.assertEqual(
            ['available', 'available'],
            [one['Result'] for one in self.json('deploy', self.file())])
        self.ironic.writes.clear()
        self.api.calls.clear()
        self.assertEqual('nothing to do\n',
                         self.run_command('deploy', self.file()))
        self.assertEqual(([], []), (self.ironic.writes, self.api.writes))

    def test_nodes_that_are_not_ready_are_not_enrolled(self):
        """Nova would use them."""
        self.api.objects[VMS, 'lab-1'] = {'metadata': {
            'name': 'lab-1', 'uid': 'other', 'resourceVersion': '0'}}
        found = self.json('deploy', self.file(), expected=1)
        self.assertEqual(
            [('lab-1', 'failed'), ('lab-0', 'available')],
            [(one['Node'], one['Result']) for one in found])
        self.assertIn('belongs to no cluster', found[0]['Reason'])
        self.assertEqual({'lab-0': 'available'}, self.states())
        self.assertEqual([], self.json('plan', self.file(), expected=1))
        self.assertIn('belongs to no cluster', self.stderr)

    def test_fewer_nodes(self):
        self.run_command('deploy', self.file())
        self.ironic.writes.clear()
        found = self.json('deploy', self.file(1))
        self.assertEqual([('lab-1', 'removed')], [
            (one['Node'], one['Result']) for one in found
            if one['Result'] != 'ready'])
        self.assertEqual({'lab-0': 'available'}, self.states())
        self.assertEqual(['lab-0'], self.api.names(VMS))

    def test_nodes_with_an_instance_stay(self):
        self.run_command('deploy', self.file())
        self.deploy_server('lab-1')
        self.api.calls.clear()
        self.ironic.writes.clear()
        for command in (['apply', self.file(1)], ['enrol', self.file(1)],
                        ['deploy', self.file(1)],
                        ['teardown', self.file(1), '--yes']):
            self.run_command(*command, expected=3)
            self.assertIn('lab-1', self.stderr)
        self.assertEqual(([], []), (self.ironic.writes, self.api.writes))
        self.run_command('apply', self.file(1), '--force')
        self.assertEqual(['lab-0'], self.api.names(VMS))
        self.assertEqual({'lab-0': 'available'}, self.states())

    def test_nodes_of_another_kubernetes_cluster_stay(self):
        self.run_command('deploy', self.file())
        self.ironic.writes.clear()
        # The same command where namespace and cluster have the same names.
        self.api.objects['namespaces', 'space']['metadata']['uid'] = 'other'
        self.run_command('enrol', self.file(1), expected=1)
        self.run_command('teardown', self.file(1), '--yes')
        self.assertEqual([], self.api.names(VMS))
        self.assertEqual([], self.ironic.writes)

    def test_changed_type_is_enrolled_again(self):
        self.run_command('deploy', self.file())
        uid = self.api.find(VMS, 'lab-0')['metadata']['uid']
        found = self.json('deploy', self.file(memory_mb=1024))
        self.assertEqual({'available'}, {one['Result'] for one in found})
        self.assertNotEqual(uid, self.api.find(VMS, 'lab-0')['metadata'][
            'uid'])
        self.assertEqual({1024}, {
            one['properties']['memory_mb']
            for one in self.ironic.objects['nodes'].values()})

    def test_vm_stays_if_its_node_does(self):
        self.run_command('deploy', self.file())

        def refuse(kind, uuid):
            raise problems.ServiceError('Ironic refuses')
        self.ironic.delete = refuse
        found = self.json('apply', self.file(1), expected=1)
        self.assertIn('still in Ironic: Ironic refuses', str(found))
        self.assertEqual(['lab-0', 'lab-1'], self.api.names(VMS))

    def test_teardown_with_an_unreachable_ironic(self):
        self.run_command('apply', self.file())

        def refuse(kind, fields):
            raise problems.ServiceError('no answer')
        self.ironic.list = refuse
        self.run_command('teardown', self.file(), '--yes', expected=1)
        self.assertIn('whether nodes have an instance: no answer. If they are '
                      'not enrolled, give --without-openstack', self.stderr)
        self.assertEqual(2, len(self.api.names(VMS)))

    def test_without_the_extra(self):
        self.run_command('apply', self.file())
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.cluster.cloud.connect',
            lambda name: __import__('openstack').connect(name)))
        with mock.patch.dict('sys.modules', openstack=None):
            self.run_command('enrol', self.file(), expected=1)
        self.assertIn('The Python package of openstack is not installed: '
                      'pip install "sushy-kubevirt[cluster]"', self.stderr)

    def test_deletion_without_openstack_is_explicit(self):
        self.no_cloud()
        self.run_command('apply', self.file())
        for command in (['apply', self.file(1)],
                        ['teardown', 'lab', '--yes', '--namespace', 'space']):
            self.run_command(*command, expected=1)
            self.assertIn('--without-openstack', self.stderr)
        self.assertEqual(2, len(self.api.names(VMS)))
        self.run_command('apply', self.file(1), '--without-openstack')
        self.assertEqual(['lab-0'], self.api.names(VMS))
        self.run_command('teardown', 'lab', '--yes', '--without-openstack')
        self.assertEqual([], self.api.names(VMS))


class TeardownTestCase(commands_case.CommandsTestCase):

    def teardown(self, *words, answer='', terminal=True, expected=0):
        stdin = io.StringIO(answer)
        stdin.isatty = lambda: terminal
        self.useFixture(fixtures.MonkeyPatch('sys.stdin', stdin))
        return self.run_command('teardown', self.file(), *words,
                                expected=expected)

    def test_asks(self):
        self.run_command('deploy', self.file())
        self.teardown(answer='n\n', expected=3)
        self.assertIn('Delete cluster space/lab: 2 VMs with their disks, 2 '
                      'Ironic nodes', self.stderr)
        self.teardown(terminal=False, expected=3)
        self.assertIn('--yes', self.stderr)
        self.assertEqual(2, len(self.api.names(VMS)))
        self.teardown(answer='y\n')
        for plural in VMS, BMCS, 'secrets':
            self.assertEqual([], self.api.names(plural))
        self.assertEqual({}, self.ironic.objects['nodes'])
        self.assertEqual('nothing to do\n', self.teardown())

    def test_neither_file_nor_name(self):
        self.run_command('teardown', 'No/Such', '--yes', expected=2)
        self.assertIn('neither a file nor the name', self.stderr)
