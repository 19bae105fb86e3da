# SPDX-License-Identifier: Apache-2.0
"""Servers of Nova on declared nodes, from their flavor to their console.

They are one class, as each class starts a cloud.
"""

import base64
import re
import shutil

import yaml

from kubevirt_sandbox.testing import images
from kubevirt_sandbox.testing import qemu
from sushy_kubevirt.cluster.commands import status
from tests.fixtures import checkout
from tests.fixtures import documents
from tests.fixtures import operator
from tests.openstack import case
from tests.openstack import configuration
from tests.openstack import services

#: In the console, the user types its escape characters.
TERMINAL = '''
kubectl config set-context --current --namespace={namespace}
export OS_CLOUD=tests OS_CLIENT_CONFIG_FILE={clouds}
openstack() {{ {folder}/openstack "$@"; }}
sushy-kubevirt-cluster() {{
    echo "arguments: $*" >&2
    if [ "$1" = console ]; then echo '~.'; fi |
        command sushy-kubevirt-cluster "$@"
}}
'''

KINDS = 'vm,vmi,vmbmc,datavolumes,pvc,' + operator.OWNED


class ServersTestCase(case.OpenstackTestCase):

    def deploy(self):
        """Deploy the cluster, after which Nova can use both nodes."""
        self.command('deploy', self.file)
        for name in 'small', 'large':
            node = self.node(name + '-0')
            provider, = self.connection.placement.resource_providers(
                resources=f'CUSTOM_LAB_{name.upper()}:1',
                required='CUSTOM_' + name.upper())
            self.assertEqual(('available', provider.id), (
                node.provision_state, node.id))
        # Nova's scheduler has to discover the host of nova-compute, too.
        self.until('hypervisors', lambda: len(list(
            self.connection.compute.hypervisors())), 2, 200)

    def wait_boot(self, name, mark=0):
        """Wait until the ISO reports on the console of a VM.

        :param mark: position of the console's output to search from
        """
        self.console(name).wait(
            f'{qemu.ISO} by .* on {self.uuid(name)}', mark, timeout=300)

    def test_life_of_a_server(self):
        console = self.console('small-0')
        self.deploy()
        self.openstack('server', 'create', '--image', case.IMAGE, '--flavor',
                       'small', '--network', configuration.NETWORK, '--wait',
                       'life')
        server, = self.connection.compute.servers()
        uuid = server.id
        self.wait_boot('small-0')
        self.assertEqual('ACTIVE', self.server(uuid).status)
        self.check_running(uuid)
        self.assertEqual('nothing to do\n',
                         self.command('deploy', self.file).stdout)

        # The guest shuts down when it is asked to, not when it is reset.
        for option, asked in ('--soft', True), ('--hard', False):
            mark = console.mark()
            self.openstack('server', 'reboot', option, '--wait', 'life')
            self.wait_boot('small-0', mark)
            self.assertEqual(asked, 'power button' in console.output[mark:])

        self.openstack('server', 'stop', 'life')
        self.wait_status(uuid, 'SHUTOFF')
        self.assertEqual('Off', self.bmc('small-0').power())
        mark = console.mark()
        self.openstack('server', 'start', 'life')
        self.wait_status(uuid, 'ACTIVE')
        self.wait_boot('small-0', mark)
        mark = console.mark()
        # From 2.93 on, Nova 34 asks for a new boot volume, also of servers
        # without one, and its driver for Ironic refuses.
        self.openstack('--os-compute-api-version', '2.92', 'server',
                       'rebuild', '--image', case.IMAGE, '--wait', 'life')
        self.wait_boot('small-0', mark)
        self.check_running(uuid)

        self.openstack('server', 'delete', '--wait', 'life')
        self.check_free('small-0')
        self.assertEqual('nothing to do\n',
                         self.command('deploy', self.file).stdout)

    def check_running(self, uuid):
        """Check a server on node small-0, and its port."""
        node = self.node('small-0')
        self.assertEqual((uuid, 'active', 'power on'), (
            node.instance_id, node.provision_state, node.power_state))
        bmc = self.bmc('small-0')
        self.assertEqual('On', bmc.power())
        self.assertTrue(self.medium('small-0'))
        port, = self.connection.network.ports(device_id=uuid)
        ironic_port, = self.connection.baremetal.ports(
            node=node.id, details=True)
        self.assertEqual(('ACTIVE', ironic_port.address), (
            port.status, port.mac_address))
        link = {'switch_id': '00:00:00:00:00:00',
                'switch_info': case.PHYSICAL_NETWORK,
                'port_id': f'small-0-{case.PHYSICAL_NETWORK}'}
        self.assertEqual(link, ironic_port.local_link_connection)
        self.assertEqual(
            [link], port.binding_profile['local_link_information'])
        self.assertRegex(self.cloud.neutron.output,
                         re.escape(f"plug port {link['port_id']} to network"))

    def check_free(self, name):
        """Check that a node can have the next server."""
        self.until('provision state', lambda: self.node(name).provision_state,
                   'available', 200)
        node = self.node(name)
        self.assertEqual((None, 'power off'), (
            node.instance_id, node.power_state))
        self.assertEqual('Off', self.bmc(name).power())
        self.assertIsNone(self.medium(name))
        vm = self.sandbox.vm(name, self.namespace)
        self.assertEqual([f'{name}vol0'], [
            one['dataVolume']['name']
            for one in vm['spec']['template']['spec']['volumes']])

    def test_flavors_select_nodes(self):
        initial = self.kubectl.names(KINDS)
        self.deploy()
        for name in 'small', 'large':
            self.console(name + '-0')
        # Its class is that of small-0, which is still free: only the trait
        # excludes it.
        failed = self.wait_status(self.create_server('none'), 'ERROR')
        self.assertIn('No valid host was found', failed.fault['message'])
        self.check_free('small-0')
        uuids = {name: self.create_server(name)
                 for name in ('small', 'large')}
        for name in 'small', 'large':
            self.wait_status(uuids[name], 'ACTIVE')
            self.assertEqual(uuids[name], self.node(name + '-0').instance_id)
        for name, firmware in ('small', 'BIOS'), ('large', 'UEFI'):
            self.wait_boot(name + '-0')
            self.assertIn(f'{qemu.ISO} by {firmware} on',
                          self.console(name + '-0').output)

        self.check_credentials()
        before = self.kubectl.names(KINDS)
        refused = self.command('teardown', self.file, '--yes',
                               expected=status.REFUSED)
        for name in 'small-0', 'large-0':
            self.assertIn(name, refused.stderr)
            self.assertEqual('active', self.node(name).provision_state)
        self.assertEqual(before, self.kubectl.names(KINDS))
        self.command('teardown', self.file, '--yes', '--force')
        self.assertEqual([], list(self.connection.baremetal.nodes()))
        self.assertEqual([], list(self.connection.compute.flavors()))
        self.until('objects', lambda: self.kubectl.names(KINDS), initial, 200)

    def check_credentials(self):
        """Check that nothing in Kubernetes has those of OpenStack."""
        stored = self.kubectl('get', KINDS, '--output', 'yaml')
        self.assertIn('large-0', stored)
        password = configuration.PASSWORD
        for text in (password, base64.b64encode(password.encode()).decode(),
                     self.connection.auth_token,
                     self.cloud.place.url('keystone')):
            self.assertNotIn(text, stored)

    def declare_as_on_page(self, flavors, interfaces):
        """Write the sample of cluster files with what the page adds."""
        interfaces = yaml.safe_load(interfaces)['ironic_config']
        del interfaces['resource_class']
        file = yaml.safe_load(
            (checkout.ROOT / 'etc/cluster/lab.yaml').read_text())
        file['cluster']['namespace'] = self.namespace
        file['default_boot_mode'] = 'bios'
        for one in file['node_types'].values():
            # Ironic's web server is on this host.
            one['bmc'] = {'virtualMedia': {'allowLoopback': True}}
        for one in file['specs']:
            one['ironic_config'] |= interfaces
        self.file.write_text(yaml.safe_dump(file | yaml.safe_load(flavors)))

    def test_commands_of_the_page(self):
        """The commands of the page about Nova, its flavors and interfaces."""
        found = {}
        for title, text, _ in documents.blocks(documents.NOVA.read_text()):
            found.setdefault(title, []).append(text)
        [flavors], [interfaces, commands] = (
            found['Flavors'], found['A server'])
        self.declare_as_on_page(flavors, interfaces)
        self.command('deploy', self.file)
        # Nova's scheduler has to discover the host of nova-compute, too.
        self.until('hypervisors', lambda: len(list(
            self.connection.compute.hypervisors())), 3, 200)
        shutil.copy(images.iso(), self.home / 'system.iso')
        kubeconfig = shutil.copy(self.sandbox.kubeconfig, self.home)
        said = documents.run(
            [('Terminal', TERMINAL.format(
                namespace=self.namespace, clouds=self.cloud.clouds_file,
                folder=services.BIN)),
             ('A server', commands)], self.home, kubeconfig,
            timeout=400)['A server']
        server, = self.connection.compute.servers()
        self.assertEqual(('first', 'ACTIVE'), (server.name, server.status))
        node = next(one for one in self.connection.baremetal.nodes()
                    if one.instance_id == server.id)
        self.assertRegex(said, rf'\| {node.name} .* active +\| {server.id}')
        self.assertIn(f'arguments: console {node.name}\n', said)
        self.assertIn('Connected to the BMC of ', said)
        self.until('console', lambda: qemu.ISO in self.sandbox.request(
            'GET', f'/sandbox/guests/{self.namespace}/{node.name}/console'
        ).text, True, 300)
