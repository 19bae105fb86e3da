# SPDX-License-Identifier: Apache-2.0
"""What tests of Bifrost share: its playbooks, ours, Ironic and a cluster.

Bifrost's playbooks are those of its source distribution, unchanged. It would
install Ironic, a web server and OpenStack's client configuration on the
machine that runs the playbooks; here they are processes of the test.
"""

import json
import os
import pathlib
import re
import shutil

import fixtures
from testtools import content
import yaml

from kubevirt_sandbox.testing import images
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import qemu
from kubevirt_sandbox.testing import webserver
from tests.fixtures import checkout
from tests.fixtures import environments
from tests.fixtures import ironic
from tests.fixtures import operator
from tests.fixtures import terminal

#: The release whose playbooks are tested, and documented.
VERSION = '21.1.0'

ENVIRONMENT = environments.ENVIRONMENTS['bifrost']

#: Folder of its programs. Tests have another HOME, with another cache.
BIN = ENVIRONMENT.bin

#: What users of the wheel find in ``etc/sushy-kubevirt/bifrost``.
OURS = checkout.ROOT / 'etc' / 'bifrost'
CREATE = OURS / 'sushy-kubevirt-create-vm-nodes.yaml'
UNPROVISION = pathlib.Path(__file__).with_name('unprovision.yaml')

#: All kinds of objects of a cluster.
KINDS = 'vm,vmbmc,secret,datavolume,deployment'


class BifrostTestCase(operator.OperatorTestCase):
    """A sandbox with QEMU guests and the operator, Ironic, and playbooks.

    :cvar DRIVER: of the nodes.
    """

    SANDBOX = ('--guests', 'qemu', '--qemu-accel', qemu.ACCELERATOR)
    DRIVER = 'redfish'

    @classmethod
    def setUpClass(cls):
        if missing := qemu.needed():
            raise AssertionError('these packages are missing (see bindep.txt)'
                                 ': ' + ' '.join(missing))
        ENVIRONMENT.prepare()
        cls.playbooks = environments.source('bifrost', VERSION) / 'playbooks'
        super().setUpClass()
        # Published by the web server that Bifrost would install.
        cls.published = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.web = cls.share(webserver.files(cls.published))
        # The guest reads a config drive on USB.
        shutil.copy(images.iso(full=True), cls.published / 'guest.iso')
        cls.ironic = cls.share(ironic.Ironic({
            'deploy': {'http_root': cls.published, 'http_url': cls.web.url},
            # What Bifrost sets: there is no Neutron.
            'dhcp': {'dhcp_provider': 'none'}}))

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.home / 'clouds.yaml').write_text(yaml.safe_dump({'clouds': {
            'bifrost': {'auth_type': 'none', 'auth': {
                'endpoint': self.ironic.url}}}}))
        (self.home / 'key.pub').write_text('ssh-ed25519 AAAA test\n')
        self.cluster_file = self.home / 'bifrost.yaml'
        self.baremetal = self.home / 'baremetal.json'
        self.variables = {
            'ansible_python_interpreter': str(BIN / 'python'),
            # The published folder belongs to the user of the tests.
            'ansible_become': False,
            # Bifrost's, for this Ironic and this web server.
            'http_boot_folder': str(self.published),
            'file_url_port': self.web.port, 'network_interface': 'lo',
            'ssh_public_key_path': str(self.home / 'key.pub'),
            'wait_for_node_deploy': True, 'provision_state_retry_interval': 1,
            # Of our role.
            'baremetal_json_file': str(self.baremetal),
            'baremetal_nodes_json': str(self.home / 'nodes.json'),
            'test_vm_node_driver': self.DRIVER, 'test_vm_disk_gib': 1,
            'test_vm_memory_size': 256,
            'sushy_kubevirt_namespace': self.namespace,
            'sushy_kubevirt_overrides': {'node_types': {'testvm': {'bmc': {
                # The web server is on this host.
                'virtualMedia': {'allowLoopback': True}}}}}}
        # Runs before the sandbox forgets the namespace, even after a failure.
        self.addCleanup(self.delete_nodes)

    def delete_nodes(self):
        for node in self.ironic.baremetal.nodes():
            self.ironic.baremetal.set_node_maintenance(node)
            self.ironic.baremetal.delete_node(node)

    def environment(self, **more):
        return process.environment(self.home, {
            'PATH': os.pathsep.join((
                str(BIN), str(process.BIN),
                os.environ['PATH'], '/usr/sbin')),
            'KUBECONFIG': self.sandbox.kubeconfig,
            'OS_CLIENT_CONFIG_FILE': self.home / 'clouds.yaml',
            'OS_CLOUD': 'bifrost', 'TMPDIR': self.home,
            'ANSIBLE_HOME': self.home / 'ansible', 'ANSIBLE_NOCOLOR': '1',
            'ANSIBLE_LOCALHOST_WARNING': 'false',
            'ANSIBLE_INVENTORY_UNPARSED_WARNING': 'false',
            'ANSIBLE_PIPELINING': 'true',
            # Bifrost's folder is not written to, and each program is compiled
            # once.
            'PYTHONPYCACHEPREFIX': ENVIRONMENT.folder / 'bytecode',
            'ANSIBLE_ROLES_PATH': self.playbooks / 'roles',
            'ANSIBLE_LIBRARY': self.playbooks / 'library',
            'BIFROST_INVENTORY_SOURCE': self.baremetal,
            'SUSHY_KUBEVIRT_CLUSTER_FILE': self.cluster_file, **more})

    def run_program(self, *words, expected=0, timeout=600):
        """Run a program of Bifrost's environment, and all its children.

        :returns: its output
        """
        words = [BIN / words[0], *words[1:]]
        # A playbook's name is more telling than the program's.
        name = pathlib.Path(words[1]).name
        with process.Process(words, env=self.environment(),
                             cwd=self.playbooks) as running:
            running.wait(timeout)
            self.addDetail(name, content.text_content(running.output))
            self.assertEqual(expected, running.returncode,
                             (name, running.tail()))
            return running.output

    def play(self, playbook, inventory=None, expected=0, **variables):
        """Run a playbook.

        :param playbook: path, from Bifrost's folder of playbooks
        :param inventory: path of a script; none for ours, which makes VMs
        :param variables: in addition to `self.variables`
        :returns: dict of host to dict of counts, such as ``changed``
        """
        file = self.home / 'variables.json'
        file.write_text(json.dumps({**self.variables, **variables}))
        sources = ('--inventory', inventory, '--inventory',
                   'inventory/target') if inventory else ()
        output = self.run_program(
            'ansible-playbook', playbook, *sources, '--extra-vars',
            f'@{file}', expected=expected)
        for password in self.bmc_passwords():
            self.assertNotIn(password, output)
        return {host: {key: int(value) for key, value in re.findall(
            r'(\w+)=(\d+)', counts)} for host, counts in re.findall(
                r'^(\S+) +: (ok=.*)$', output, re.MULTILINE)}

    def bmc_passwords(self):
        if not self.baremetal.exists():
            return []
        return [value for node in json.loads(
            self.baremetal.read_text()).values()
            for key, value in node['driver_info'].items()
            if key.endswith('_password')]

    def console(self, node):
        """Connect to the console of a node, by our command."""
        opened = self.useFixture(terminal.Terminal(
            [process.BIN / 'sushy-kubevirt-cluster', 'console', node,
             '--namespace', self.namespace], self.environment(TERM='dumb')))
        self.addOnException(lambda _exc_info: self.addDetail(
            'console', content.text_content(
                opened.output[-20000:].decode(errors='replace'))))
        opened.wait(b'Connected to the BMC of')
        return opened

    def assert_nothing_remains(self):
        self.kubectl('wait', '--for=delete', KINDS, '--all', '--timeout=60s')
        self.assertEqual('', self.kubectl('get', KINDS, '-o', 'name'))
        self.assertEqual([], [one.name for one in self.home.glob('*.json')
                              if one.name != 'variables.json'])
