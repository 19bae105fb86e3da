# SPDX-License-Identifier: Apache-2.0
"""A complete OpenStack, and a Kubernetes cluster with QEMU guests."""

import base64
import contextlib
import pathlib
import subprocess

import fixtures
from openstack import exceptions
from testtools import content
import yaml

from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import images
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import qemu
from tests.fixtures import operator
from tests.openstack import cloud
from tests.openstack import services

#: The physical network of all nodes, which is a switch of Neutron.
PHYSICAL_NETWORK = 'physnet1'

#: Name of the image that servers boot.
IMAGE = 'guest'


class OpenstackTestCase(operator.OperatorTestCase):
    """Nodes that are declared in a file, and servers on them.

    The nodes of each test are in a namespace of its own.
    """

    SANDBOX = ('--guests', 'qemu', '--qemu-accel', qemu.ACCELERATOR)

    # A request to Nova takes several processes 0.1 s of CPU.
    LONGEST_PAUSE = 2

    @classmethod
    def setUpClass(cls):
        if missing := qemu.needed():
            raise AssertionError('these packages are needed: '
                                 + ' '.join(missing))
        super().setUpClass()
        cls.home = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.file = cls.home / 'lab.yaml'
        cls.declare('default')
        done = cls.run_program(process.BIN / 'sushy-kubevirt-cluster',
                               'switch', cls.file)
        assert done.returncode == 0, done.stderr
        cls.cloud = cls.share(cloud.Cloud(done.stdout, PHYSICAL_NETWORK))
        cls.connection = cls.cloud.connection
        cls.add_image(cls.connection.image)

    @classmethod
    def add_image(cls, glance):
        """Upload the ISO, and an image that names it for servers."""
        iso = glance.create_image(
            IMAGE + '-iso', filename=str(images.iso()), disk_format='iso',
            container_format='bare')
        glance.create_image(
            IMAGE, data=b'-', disk_format='raw', container_format='bare',
            boot_iso_id=iso.id, ironic_ramdisk_deploy='true')

    @classmethod
    def declare(cls, namespace):
        """Write the cluster file: two types of one node each."""
        types = {'small': {'vcpus': 1, 'memory_mb': 256, 'boot_mode': 'bios'},
                 'large': {'vcpus': 2, 'memory_mb': 320, 'boot_mode': 'uefi'}}
        for one in types.values():
            one |= {'volumes': [{'capacity': '64MiB'}],
                    'physical_networks': [PHYSICAL_NETWORK],
                    # Ironic's web server is on this host.
                    'bmc': {'virtualMedia': {'allowLoopback': True}}}
        cls.file.write_text(yaml.safe_dump({
            'cluster': {'name': 'lab', 'namespace': namespace},
            'default_ironic_driver': 'redfish',
            'physnet_mappings': {PHYSICAL_NETWORK: 'pod'},
            'node_types': types,
            'specs': [{
                'type': name, 'count': 1, 'node_name_prefix': name + '-',
                'ironic_config': {
                    'resource_class': 'lab.' + name, 'traits': [
                        'CUSTOM_' + name.upper()], 'verify_ca': False,
                    'deploy_interface': 'ramdisk',
                    'boot_interface': 'redfish-virtual-media',
                    'network_interface': 'neutron'}} for name in types],
            'nova_flavors': [
                {'name': 'small', 'resource_class': 'lab.small',
                 'node_type': 'small', 'required_traits': ['CUSTOM_SMALL']},
                {'name': 'large', 'resource_class': 'lab.large',
                 'node_type': 'large'},
                {'name': 'none', 'resource_class': 'lab.small',
                 'node_type': 'small',
                 'forbidden_traits': ['CUSTOM_SMALL']}]}))

    @classmethod
    def run_program(cls, *words):
        """Run a program with the configuration of this Kubernetes and cloud.

        :returns: :class:`subprocess.CompletedProcess`, with text
        """
        extra = {'KUBECONFIG': cls.sandbox.kubeconfig}
        if hasattr(cls, 'cloud'):
            extra |= {'OS_CLOUD': 'tests',
                      'OS_CLIENT_CONFIG_FILE': cls.cloud.clouds_file}
        return subprocess.run(
            [str(word) for word in words], stdin=subprocess.DEVNULL,
            env=process.environment(cls.home, extra), capture_output=True,
            text=True, timeout=600)

    def setUp(self):
        super().setUp()
        self.declare(self.namespace)
        self.consoles = {}
        # Before the namespace is deleted.
        self.addCleanup(self.clean)

    def clean(self):
        """Delete servers, then everything of the cluster."""
        compute = self.connection.compute
        for server in compute.servers():
            compute.delete_server(server, force=True)
        self.until('servers', lambda: list(compute.servers()), [], 400)
        self.command('teardown', self.file, '--yes', '--force')
        self.until('resource providers', self.delete_providers, [], 200)

    def delete_providers(self):
        """Delete the resource providers of nodes that are gone.

        Nova would send the next test's servers there; it keeps those whose
        node was deleted before the server.

        :returns: list of what remains
        """
        placement = self.connection.placement
        for one in placement.resource_providers():
            with contextlib.suppress(exceptions.ConflictException):
                placement.delete_resource_provider(one)
        return list(placement.resource_providers())

    def command(self, *words, expected=0):
        """Run ``sushy-kubevirt-cluster``.

        :param expected: exit status
        :returns: :class:`subprocess.CompletedProcess`, with text
        """
        done = self.run_program(
            process.BIN / 'sushy-kubevirt-cluster', *words)
        self.addDetailUniqueName(words[0], content.text_content(
            done.stdout + done.stderr))
        self.assertEqual(expected, done.returncode, (words, done.stderr))
        return done

    def openstack(self, *words):
        """Run ``openstack``, which must succeed.

        :returns: its output
        """
        done = self.run_program(
            services.BIN / 'openstack', *words)
        self.assertEqual(0, done.returncode, (words, done.stderr))
        return done.stdout

    def create_server(self, flavor):
        """Create a server, named as its flavor, in the provider network.

        :returns: its id
        """
        compute = self.connection.compute
        return compute.create_server(
            name=flavor, flavor_id=compute.find_flavor(flavor).id,
            image_id=self.connection.image.find_image(IMAGE).id,
            networks=[{'uuid': self.cloud.network.id}]).id

    def server(self, uuid):
        """Read a server."""
        return self.connection.compute.get_server(uuid)

    def wait_status(self, uuid, status):
        """Wait until a server has a status; return it."""
        self.until('status', lambda: self.server(uuid).status, status, 400)
        return self.server(uuid)

    def node(self, name):
        """Read a node of Ironic."""
        return self.connection.baremetal.get_node(name)

    def console(self, name):
        """Connect to the serial console of a VM, for the rest of the test.

        :returns: `console.Console`
        """
        if name not in self.consoles:
            made = self.useFixture(console.Console(
                self.sandbox, name, self.namespace))
            self.addOnException(lambda _exc_info: self.addDetail(
                'console of ' + name,
                content.text_content(made.output[-20000:])))
            self.consoles[name] = made
        return self.consoles[name]

    def uuid(self, name):
        """Return the UUID that the firmware of a VM has."""
        return self.sandbox.get('virtualmachineinstances', name,
                                self.namespace)['spec']['domain'][
                                    'firmware']['uuid']

    def bmc(self, name):
        """Return the BMC of a node.

        :returns: `operator.Bmc`
        """
        password = base64.b64decode(self.kubectl.get(
            'secret', name + '-bmc')['data']['password']).decode()
        return operator.Bmc(self.kubectl, name, 'admin', password)

    def medium(self, name):
        """Return the URL of the image in the drive of a BMC, or None."""
        found = self.bmc(name).curl(
            '/redfish/v1/Systems/1/VirtualMedia/Cd').json()
        self.assertEqual(bool(found['Image']), found['Inserted'])
        return found['Image']
