# SPDX-License-Identifier: Apache-2.0
"""OpenShift's installers: the documented files, and the requests of Ironic.

The VMs, BMCs and commands are those of the documentation.
``openshift-install`` and the hub cluster do not run; what they do with a BMC
does: the agent-based installer leaves the boot to the user (``boot-iso.sh``),
the others register the hosts with Ironic as Metal3's baremetal-operator does
(``pkg/hardwareutils/bmc`` and ``pkg/provisioner/ironic`` of August 2026), with
the settings of OpenShift's cluster-baremetal-operator.
"""

import json
import pathlib
import subprocess
from urllib import parse

import fixtures
import yaml

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import webserver
from tests.fixtures import checkout
from tests.fixtures import documents
from tests.fixtures import image_server
from tests.fixtures import ironic
from tests.fixtures import ironic_agent
from tests.fixtures import operator

NAMESPACE = 'my-cluster'
NETWORK = {'apiVersion': 'k8s.cni.cncf.io/v1',
           'kind': 'NetworkAttachmentDefinition',
           'metadata': {'name': 'machine-network', 'namespace': NAMESPACE},
           'spec': {'config': '{"cniVersion": "0.3.1", "type": "bridge"}'}}
SAMPLES = checkout.ROOT / 'etc/kubernetes/samples/openshift-installers'


def hosts_of_install_config():
    """:returns: {name: (address, bootMACAddress, whether to verify)}"""
    text = (SAMPLES / 'install-config.yaml').read_text()
    return {one['name']: (
        one['bmc']['address'], one['bootMACAddress'],
        not one['bmc']['disableCertificateVerification'])
        for one in yaml.safe_load(text)['platform']['baremetal']['hosts']}


def hosts_of_ztp():
    """:returns: likewise, of the ClusterInstance

    Its template of BareMetalHosts never verifies (siteconfig operator,
    ``ai-node-templates-v1``).
    """
    found = yaml.safe_load_all((SAMPLES / 'ztp.yaml').read_text())
    nodes = next(one for one in found if one['kind'] == 'ClusterInstance')[
        'spec']['nodes']
    return {one['hostName'].partition('.')[0]: (
        one['bmcAddress'], one['bootMACAddress'], False) for one in nodes}


@given_cluster.needs_sandbox('a cluster without the namespace my-cluster')
class InstallersTestCase(operator.OperatorTestCase):

    # The masters are on different nodes.
    SANDBOX = ('--nodes', '3')

    # In 4.22's KubeVirt, RebootPolicy is off by default.
    GATES = 'RebootPolicy', 'DeclarativeHotplugVolumes'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.address = webserver.own_address()
        cls.ironic = cls.share(ironic.Ironic({
            'DEFAULT': {'enabled_deploy_interfaces': 'custom-agent,ramdisk',
                        'enabled_firmware_interfaces': 'no-firmware,redfish',
                        'enabled_raid_interfaces': 'no-raid,redfish'},
            # Ironic passes the URL to the BMC unchanged.
            'deploy': {'ramdisk_image_download_source': 'http'},
            'agent': {'post_deploy_get_power_state_retry_interval': 1,
                      # The stand-in for the agent listens on loopback.
                      'require_tls': 'false'}}))
        cls.sandbox.set_gates(on=cls.GATES)
        cls.run_blocks('The machines')
        # The documentation takes the machines' network for granted.
        cls.shell(f"echo '{json.dumps(NETWORK)}' | kubectl create -f -")

    @classmethod
    def run_blocks(cls, title):
        """Run the commands of a section of the page."""
        blocks = [text for one, text, runs in documents.blocks(
            documents.INSTALLERS.read_text()) if one == title and runs]
        if not blocks:
            raise AssertionError(f'no commands in section {title}')
        for text in blocks:
            cls.shell(text)

    @classmethod
    def shell(cls, text, check=True):
        home = cls.sandbox.kubeconfig.parent
        done = subprocess.run(
            ['bash', '-e', '-c', text], cwd=checkout.ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=120,
            env={**process.environment(home, {
                'KUBECONFIG': str(cls.sandbox.kubeconfig)}),
                'no_proxy': '*'})
        if check and done.returncode:
            raise AssertionError(f'{text}\n{done.stdout[-3000:]}')
        return done

    def setUp(self):
        super().setUp()
        if self.address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        # Nobody can verify the certificate, as that of Metal3's web server.
        certificate = certificates.make([self.address])
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'crt').write_bytes(certificate.certificate)
        (folder / 'key').write_bytes(certificate.key)
        self.images = self.useFixture(image_server.ImageServer(
            self.address, tls=(folder / 'crt', folder / 'key')))
        self.assertTrue(self.images.url.startswith('https:'))

    def template(self, name):
        return self.sandbox.vm(name, NAMESPACE)['spec']['template']

    def boots(self, name, *classes):
        """Wait until the guest has booted from exactly these devices."""
        self.sandbox.wait_boot(name, len(classes), NAMESPACE)
        self.assertEqual(list(classes), [
            one['class'] for one in self.sandbox.boots(name, NAMESPACE)])

    def reboots(self, name):
        """Let the guest reboot, once its one-time boot is over.

        No guest is as fast as one of the sandbox.
        """
        self.until('boot order', lambda: 'bootOrder' in str(
            self.template(name)), False)
        self.sandbox.guest_does(name, 'reboot', NAMESPACE)

    def media(self, name):
        """List the DataVolumes of media of a VM."""
        return [one['metadata']['name']
                for one in self.sandbox.list('datavolumes', NAMESPACE)
                if one['metadata']['name'].startswith(name + '-bmc-')]

    def wait_ejected(self, name):
        self.until('no media', lambda: self.media(name), [])

    def enrol(self, name, hosts, **driver_info):
        """Register a host as baremetal-operator does.

        :param hosts: see `hosts_of_install_config`
        :returns: the node, and whether certificates are verified
        """
        address, mac, verify = hosts[name]
        bmc = operator.Bmc(self.admin.within(NAMESPACE), name, 'admin',
                           'password')
        given = parse.urlsplit(address)
        self.assertEqual('redfish-virtualmedia', given.scheme)
        real = parse.urlsplit(bmc.url())
        self.assertEqual(real.path, given.path)
        interfaces = self.template(name)['spec']['domain']['devices'][
            'interfaces']
        self.assertEqual(mac, interfaces[0]['macAddress'])
        node = self.ironic.enrol(
            f'{NAMESPACE}~{name}', 'redfish', {
                'redfish_address': f'https://{real.netloc}',
                'redfish_system_id': given.path,
                'redfish_username': bmc.username,
                'redfish_password': bmc.password,
                'redfish_verify_ca': str(bmc.ca_file()) if verify else False,
                **driver_info},
            firmware_interface='redfish', raid_interface='redfish',
            properties={'capabilities': 'boot_mode:uefi',
                        'cpu_arch': 'x86_64'})
        self.ironic.baremetal.create_port(address=mac, node_id=node.id)
        return self.ironic.provision(node, 'provide', 'available')

    def test_agent_based(self):
        before = self.template('master-0')
        iso = self.images.url + '/agent.x86_64.iso'
        script = SAMPLES / 'boot-iso.sh'
        run = f'export NAMESPACE={NAMESPACE}; {script} '
        self.shell(f'{run} insert {iso} master-0')
        self.boots('master-0', 'Cd')
        self.assertEqual(1, len(self.media('master-0')))
        # The installer has written the disk.
        self.reboots('master-0')
        self.boots('master-0', 'Cd', 'Hdd')
        self.shell(f'{run} eject master-0')
        self.wait_ejected('master-0')
        self.until('template', lambda: without_drives(
            self.template('master-0')), without_drives(before))
        wrong = self.shell(f'{run} insert {iso} missing', check=False)
        self.assertNotEqual(0, wrong.returncode)
        self.assertIn('"missing" not found', wrong.stdout)
        usage = self.shell(run + 'insert', check=False)
        self.assertEqual(2, usage.returncode)

    def test_installer_provisioned(self):
        """The agent of OpenShift's Ironic installs CoreOS to the disk."""
        self.sandbox.set_gates(off=('RebootPolicy',))
        self.addCleanup(self.sandbox.set_gates, on=self.GATES)
        name, hosts = 'master-1', hosts_of_install_config()
        # With bmcVerifyCA.
        hosts[name] = (*hosts[name][:2], True)
        node = self.enrol(name, hosts, deploy_iso=(
            self.images.url + '/ironic-python-agent.iso'))
        self.ironic.baremetal.update_node(
            node, deploy_interface='custom-agent')
        self.ironic.baremetal.set_node_provision_state(
            node, 'active', deploy_steps=[{
                'interface': 'deploy', 'step': 'install_coreos', 'args': {},
                'priority': 80}])
        self.boots(name, 'Cd')
        agent = self.useFixture(ironic_agent.Agent(
            self.ironic.url, node.id, 'install_coreos',
            lambda: self.sandbox.guest_does(name, 'shutdown', NAMESPACE)))
        self.ironic.wait(
            node, lambda now: now.provision_state == 'active', 180)
        self.assertEqual(
            ['get_deploy_steps', 'execute_deploy_step', 'power_off'],
            agent.done)
        self.boots(name, 'Cd', 'Hdd')
        self.wait_ejected(name)
        # The machine stays with the cluster that it is a part of.
        self.ironic.power(node, 'rebooting', 'power on')
        self.boots(name, 'Cd', 'Hdd', 'Hdd')

    def test_zero_touch_provisioning(self):
        """The assisted installer boots its ISO, once, as a live image."""
        name = 'master-2'
        # LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE
        node = self.enrol(name, hosts_of_ztp(),
                          force_persistent_boot_device='Never')
        self.ironic.baremetal.update_node(
            node, deploy_interface='ramdisk', instance_info={
                'boot_iso': self.images.url + '/minimal.iso'})
        self.ironic.provision(node, 'active', 'active', 180)
        self.boots(name, 'Cd')
        self.reboots(name)
        self.boots(name, 'Cd', 'Hdd')
        # Ironic's API has the same request as boot-iso.sh eject.
        self.ironic.baremetal.detach_vmedia_from_node(node)
        self.wait_ejected(name)
        self.boots(name, 'Cd', 'Hdd')


def without_drives(template):
    """Return a template without the drives that media have added."""
    spec = template['spec']
    devices = spec['domain']['devices']
    return {**template, 'spec': {
        **spec, 'domain': {**spec['domain'], 'devices': {
            **devices, 'disks': [
                one for one in devices['disks'] if 'cdrom' not in one]}}}}
