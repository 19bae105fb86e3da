# SPDX-License-Identifier: Apache-2.0
"""The page about Nova: its flavors and interfaces, and its commands."""

import shutil

import yaml

from kubevirt_sandbox.testing import images
from kubevirt_sandbox.testing import qemu
from tests.fixtures import checkout
from tests.fixtures import documents
from tests.openstack import case
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


class PageTestCase(case.OpenstackTestCase):

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

    def test_commands(self):
        found = {}
        for title, text, _ in documents.blocks(documents.NOVA.read_text()):
            found.setdefault(title, []).append(text)
        [flavors], [interfaces, commands] = (
            found['Flavors'], found['A server'])
        self.declare_as_on_page(flavors, interfaces)
        self.command('deploy', self.file)
        # Nova's scheduler has to discover the host of nova-compute, too.
        self.until('hypervisors', lambda: len(list(
            self.connection.compute.hypervisors())), 3, 60)
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
        self.assertIn('[terminated ipmitool]', said)
        self.until('console', lambda: qemu.ISO in self.sandbox.request(
            'GET', f'/sandbox/guests/{self.namespace}/{node.name}/console'
        ).text, True, 300)
