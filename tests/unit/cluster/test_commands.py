# SPDX-License-Identifier: Apache-2.0
"""The commands for Kubernetes, and those that read."""

import contextlib
import io
import json
import os
import pathlib
import stat
import subprocess
import sys

import fixtures
from oslotest import base
import yaml

from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cmd import cluster
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from tests.unit.cluster import commands_case
from tests.unit.cluster import live

VMS, BMCS = commands_case.VMS, commands_case.BMCS


class KubernetesTestCase(commands_case.CommandsTestCase):

    def test_plan_changes_nothing(self):
        self.assertEqual(
            [('create', kind, node) for node in ('lab-0', 'lab-1')
             for kind in ('Secret', 'VirtualMachine', 'VirtualMachineBMC')],
            [(one['Action'], one['Kind'], one['Node'])
             for one in self.json('plan', self.file(),
                                  '--without-openstack')])
        self.assertEqual([], self.api.writes)
        self.assertEqual([], self.clouds)

    def test_plan_gives_reasons(self):
        self.run_command('apply', self.file())
        path = self.file(memory_mb=1024)
        changes = [one for one in self.json('plan', path)
                   if one['Kind'] == 'VirtualMachine']
        self.assertEqual(['memory_mb: 512 -> 1024'], changes[0]['Reasons'])
        self.assertIn('memory_mb: 512 -> 1024',
                      self.run_command('plan', path))

    def test_network_has_no_node(self):
        path = pathlib.Path(self.file(0))
        path.write_text(path.read_text() + 'networks: {a: {}}\n')
        self.assertIsNone(self.json('plan', str(path))[0]['Node'])
        self.assertNotIn('None', self.run_command('plan', str(path)))

    def test_plan_reports_conflict(self):
        self.run_command('apply', self.file())
        self.run_command('plan', self.file(), '--name', 'other')
        found = self.run_command('apply', self.file(1), '--name', 'other')
        self.assertNotIn('failed', found)
        self.api.objects[VMS, 'other-0']['metadata']['labels'] = {}
        self.run_command('plan', self.file(1), '--name', 'other', expected=1)
        self.assertIn('belongs to no cluster', self.stderr)

    def test_plan_reports_a_missing_network_once(self):
        path = pathlib.Path(self.file(3, physical_networks=['a']))
        path.write_text(path.read_text() + 'physnet_mappings: {a: none}\n')
        self.run_command('plan', str(path), expected=1)
        self.assertEqual(1, self.stderr.count('does not exist'))

    def test_warning_is_plain_text(self):
        self.run_command('plan', self.file(cpu_mode='x'))
        self.assertIn('KubeVirt determines it; "vm" can change it.',
                      self.stderr)

    def test_namespace_is_a_name(self):
        for words in (('show',), ('power', 'lab-0')):
            self.run_command(*words, '--namespace', 'a/../b', expected=2)
            self.assertIn('cannot name a namespace', self.stderr)
        self.assertEqual([], self.api.calls)

    def test_apply_waits_and_shows_progress(self):
        self.assertEqual(
            [{'Node': 'lab-0', 'Result': 'ready', 'Reason': ''},
             {'Node': 'lab-1', 'Result': 'ready', 'Reason': ''}],
            self.json('apply', self.file()))
        self.assertRegex(self.stderr, r'(?m)^ +\d+\.\d s  lab-0  bmc  done$')
        self.assertEqual(['lab-0', 'lab-1'], self.api.names(VMS))

    def test_apply_again(self):
        self.run_command('apply', self.file())
        self.api.calls.clear()
        self.assertEqual('nothing to do\n',
                         self.run_command('apply', self.file()))
        self.assertEqual([], self.api.writes)
        self.assertEqual('nothing to do\n', self.run_command(
            'plan', self.file(), '--without-openstack'))
        self.assertEqual([], self.clouds)

    def test_quiet(self):
        self.run_command('--quiet', 'apply', self.file())
        self.assertEqual('', self.stderr)

    def test_failed_node(self):
        self.api.refuse = lambda verb, plural, name: errors.Rejected(
            'no such class') if (verb, plural, name) == (
                'create', VMS, 'lab-0') else None
        found = self.json('apply', self.file(), expected=1)
        self.assertEqual(
            [('lab-0', 'failed', 'no such class'), ('lab-1', 'ready', '')],
            [tuple(one.values()) for one in found])

    def test_unreachable_cluster(self):
        self.api.refuse = lambda *words: errors.Unavailable('no route')
        self.run_command('plan', self.file(), expected=1)
        self.assertEqual('no route\n', self.stderr)

    def test_manifests(self):
        found = list(yaml.safe_load_all(self.run_command(
            'apply', self.file(), '--output', 'yaml')))
        self.assertEqual(
            ['VirtualMachine', 'VirtualMachineBMC'] * 2,
            [one['kind'] for one in found])
        self.assertEqual([], self.api.calls)

    def test_manifests_with_a_hash_that_looks_like_a_number(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.cluster.identity.hash_of',
            lambda value: '12345678901234e5'))
        self.assertIn(": '12345678901234e5'\n", self.run_command(
            'apply', self.file(), '--output', 'yaml'))

    def test_switch(self):
        path = self.file()
        content = yaml.safe_load(pathlib.Path(path).read_text())
        content['networks'] = {'physnet1': {'attachment': 'pod'}}
        pathlib.Path(path).write_text(yaml.safe_dump(content))
        made = self.folder / 'ml2_conf_genericswitch.ini'
        printed = self.run_command('switch', path)
        self.assertIn('[genericswitch:physnet1]\n', printed)
        words = 'switch', path, '--output-file', str(made)
        self.assertEqual('', self.run_command(*words))
        self.assertIn('Restart Neutron', self.stderr)
        self.assertEqual(printed, made.read_text())
        self.assertEqual('nothing to do\n', self.run_command(*words))
        self.run_command(*words, '--name', 'other', expected=1)
        self.assertIn('not written for the cluster other', self.stderr)
        self.assertEqual(printed, made.read_text())
        pipe = self.folder / 'pipe'
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.run_command('switch', path, '--output-file', str(pipe))
        self.assertEqual(printed, os.read(reader, 9999).decode())
        self.assertEqual([], self.api.calls)

    def test_invalid_file(self):
        path = self.folder / 'bad.yaml'
        path.write_text('node_typs: {}\n')
        self.run_command('apply', str(path), expected=2)
        self.assertIn(f'{path}:1:1: ', self.stderr)
        self.assertIn('node_types', self.stderr)
        self.assertEqual([], self.api.calls)

    def test_invalid_option(self):
        with self.assertRaises(SystemExit) as error:
            self.run_command('apply', self.file(), '--parallel', '0')
        self.assertEqual(2, error.exception.code)


class ReadersTestCase(commands_case.CommandsTestCase):

    def setUp(self):
        super().setUp()
        self.run_command('deploy', self.file(11))
        self.deploy_server('lab-1')
        self.api.objects['virtualmachineinstances', 'lab-1'] = {
            'metadata': self.api.find(VMS, 'lab-1')['metadata'],
            'status': {'nodeName': 'worker-2'}}

    def test_show(self):
        self.no_cloud()
        found = self.json('show', '--namespace', 'space')
        self.assertEqual([f'lab-{index}' for index in range(11)],
                         [one['Node'] for one in found])
        self.assertEqual({
            'Cluster': 'lab', 'Node': 'lab-1', 'VM': 'Stopped',
            'BMC': 'Ready', 'Ironic': None, 'Server': None,
            'Kubernetes node': 'worker-2', 'Problem': None}, found[1])
        self.assertNotIn('None', self.run_command(
            'show', '--namespace', 'space'))

    def test_show_without_an_answer_of_ironic(self):
        def refuse(kind, fields):
            raise problems.ServiceError('no answer')
        self.ironic.list = refuse
        found = self.json('show', 'lab', '--namespace', 'space', expected=1)
        self.assertEqual(('Ready', None),
                         (found[1]['BMC'], found[1]['Ironic']))
        self.assertIn('no answer', self.stderr)

    def test_show_with_ironic(self):
        found = self.json('show', 'lab', '--namespace', 'space',
                          '--os-cloud', 'mine')
        self.assertEqual(('active', 'server'),
                         (found[1]['Ironic'], found[1]['Server']))
        node = next(one for one in self.ironic.objects['nodes'].values()
                    if one['name'] == 'lab-2')
        node.update(maintenance=True, maintenance_reason='broken')
        found = self.json('show', 'lab', '--namespace', 'space',
                          '--os-cloud', 'mine')
        self.assertEqual(('available, maintenance', 'broken'),
                         (found[2]['Ironic'], found[2]['Problem']))
        node.update(uuid=self.api.find(VMS, 'lab-2')['metadata']['uid'],
                    name='by-bifrost', extra={})
        self.assertEqual(
            'available, maintenance',
            self.json('show', 'lab', '--namespace', 'space',
                      '--os-cloud', 'mine')[2]['Ironic'])
        self.assertIn('no nodes of the cluster other in the namespace default',
                      self.run_command('show', 'other'))

    def test_show_of_a_file(self):
        self.assertEqual(self.json('show', 'lab', '--namespace', 'space'),
                         self.json('show', self.file(1)))
        for words in 'lab.yml', 'lab,x!=y':
            self.run_command('show', words, expected=2)
            self.assertIn('neither a file nor the name of a cluster',
                          self.stderr)

    def test_show_says_why_a_vm_does_not_run(self):
        self.api.objects[VMS, 'lab-1']['status'] = {
            'printableStatus': 'ErrorUnschedulable', 'conditions': [{
                'type': 'PodScheduled', 'status': 'False',
                'reason': 'Unschedulable', 'message': '0/3 nodes'}]}
        found = self.json('show', self.file())
        self.assertEqual(
            ('ErrorUnschedulable',
             'VirtualMachine lab-1: Unschedulable: 0/3 nodes'),
            (found[1]['VM'], found[1]['Problem']))

    def test_show_of_a_vm_without_its_pvc(self):
        message = 'PVC space/root does not exist, waiting for it to appear'
        conditions = [
            {'type': 'PodScheduled', 'status': 'False',
             'reason': 'Unschedulable', 'message': message},
            {'type': 'Synchronized', 'status': 'False',
             'reason': 'FailedPvcNotFound', 'message': message}]
        for order in (1, -1):
            self.api.objects[VMS, 'lab-1']['status'] = {
                'printableStatus': 'ErrorPvcNotFound',
                'conditions': conditions[::order]}
            self.assertEqual(
                f'VirtualMachine lab-1: FailedPvcNotFound: {message}',
                self.json('show', self.file())[1]['Problem'])

    def test_nodes_are_in_the_order_of_their_numbers(self):
        names = [f'lab-{index}' for index in range(12)]
        self.assertEqual(names, [
            one['Node'] for one in self.json('apply', self.file(12))])

    def test_texts_of_services_do_not_control_the_terminal(self):
        node = next(iter(self.ironic.objects['nodes'].values()))
        node.update(maintenance=True, maintenance_reason='\x1b[2Jone\ntwo')
        self.api.find(VMS, 'lab-3')['metadata']['annotations'].update({
            stored_names.HASH: 'other',
            stored_names.DECLARED: '{"\\u001b[2J": 1}'})
        shown = self.run_command(
            'show', '--namespace', 'space', '--os-cloud', 'mine')
        self.assertIn('\\x1b[2Jone', shown)
        self.assertIn(' two ', shown)
        planned = self.run_command('plan', self.file(11))
        self.assertIn('\\u001b[2J: 1 -> none', planned)
        self.api.refuse = lambda *words: errors.Unavailable('\x1b[2J')
        self.run_command('plan', self.file(11), expected=1)
        self.assertNotIn('\x1b', shown + planned + self.stderr)

    def test_inventory(self):
        for name, text in (('ironic', '"redfish_password"'),
                           ('bifrost', '"nics"'), ('ansible', '"hosts"'),
                           ('metal3', 'kind: BareMetalHost')):
            found = self.run_command(
                'inventory', self.file(11), '--format', name)
            self.assertIn(text, found)
            self.assertEqual(
                name in ('ironic', 'bifrost'),
                live.password(self.api, 'lab-1') in found)

    def test_inventory_says_what_it_leaves_out(self):
        path = pathlib.Path(self.file(2))
        content = yaml.safe_load(path.read_text())
        del content['specs'][0]['ironic_config']
        path.write_text(yaml.safe_dump(content))
        self.assertEqual('{}\n', self.run_command(
            'inventory', str(path), '--format', 'bifrost'))
        self.assertIn('left out: lab-0, lab-1', self.stderr)

    def test_inventory_without_network_is_unsuitable_for_devstack(self):
        self.run_command('inventory', self.file(11), '--format', 'devstack',
                         expected=1)
        self.assertIn('MAC address', self.stderr)

    def test_inventory_is_complete_or_fails(self):
        self.assertEqual('', self.run_command(
            'inventory', self.file(12), '--format', 'ansible', expected=1))
        self.assertIn('lab-11', self.stderr)

    def test_inventory_file_is_private(self):
        path = self.folder / 'nodes.json'
        path.write_text('old')
        path.chmod(0o644)
        self.assertEqual('', self.run_command(
            'inventory', self.file(11), '--format', 'ironic',
            '--output-file', str(path)))
        self.assertEqual(0o600, stat.S_IMODE(path.stat().st_mode))
        self.assertEqual(11, len(json.loads(path.read_text())['nodes']))
        self.assertEqual(['lab.yaml', 'nodes.json'],
                         sorted(os.listdir(self.folder)))

    def test_console(self):
        called = []

        def run(connect):
            called.append(connect())
            return 143
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.remote.redfish.Client', lambda bmc, api: bmc))
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.remote.console.run', run))
        self.run_command('console', 'lab-1', expected=143)
        (bmc,) = called
        self.assertEqual(('lab-1', live.password(self.api, 'lab-1')),
                         (bmc.name, bmc.password))

    def test_console_of_unknown_node(self):
        self.run_command('console', 'lab-99', expected=1)
        self.assertIn('there is no VirtualMachineBMC', self.stderr)

    def test_power_of_unknown_node(self):
        self.run_command('power', 'lab-99', 'on', expected=1)
        self.assertIn('there is no VirtualMachineBMC', self.stderr)


class HelpTestCase(base.BaseTestCase):

    def run_command(self, *words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                found = cluster.main(list(words))
            except SystemExit as error:
                found = error.code
        self.assertFalse(found)
        return out.getvalue()

    def test_without_a_command(self):
        for name in cluster.COMMANDS:
            self.assertIn(f'\n  {name} ', self.run_command())

    def test_each_command_tells_exit_statuses(self):
        for name in cluster.COMMANDS:
            self.assertIn('exit status:', self.run_command(name, '--help'))

    def test_completion(self):
        found = self.run_command('complete')
        self.assertIn('teardown', found)
        self.assertIn('--without-openstack', found)

    def test_is_light(self):
        """Help does not wait for the import of openstacksdk or sushy."""
        done = subprocess.run(
            [sys.executable, '-c', 'import sys\n'
             'from sushy_kubevirt.cmd import cluster\n'
             'cluster.main(["plan", "--help"])\n'
             'print([one for one in ("openstack", "keystoneauth1", "sushy", '
             '"requests") if one in sys.modules], file=sys.stderr)'],
            capture_output=True, text=True, timeout=60)
        self.assertEqual('[]\n', done.stderr)
