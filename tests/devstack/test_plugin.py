# SPDX-License-Identifier: Apache-2.0
"""Phases of the DevStack plugin, and Ironic's ``enroll_nodes`` after them."""

import re
import shutil
import sys

import yaml

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.devstack import case
from tests.fixtures import base
from tests.fixtures import ironic
from tests.fixtures import operator


class SandboxTestCase(case.Mixin, base.FunctionalTestCase):
    """The sandbox as a service, QEMU guests, Redfish, a real installation."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.devstack = cls.share(case.DevStack({
            'SUSHY_KUBEVIRT_SANDBOX': 'True', 'IRONIC_VM_COUNT': '2',
            'IRONIC_VM_SPECS_RAM': '256', 'IRONIC_VM_SPECS_DISK': '1',
            'IRONIC_DEFAULT_TRAITS': 'CUSTOM_GOLD CUSTOM_LAB'}))
        # pip takes its time, for which no test's timeout is meant.
        cls.installed = cls.devstack.run('stack', 'install')
        cls.devstack.localrc['OFFLINE'] = 'True'
        cls.devstack.write_localrc()
        cls.ironic = cls.share(ironic.Ironic(cls.devstack.ironic_config()))
        cls.devstack.write_clouds(cls.ironic.url)

    def test_stack_unstack_clean(self):
        self.assertEqual(0, self.installed.returncode,
                         self.installed.stdout[-5000:])
        output = self.check('stack')
        self.assertIn('flavor: 1 256 1\n', output)
        self.assertIn(f'{self.devstack.opt}/sushy-kubevirt/bindep.txt '
                      'devstack\n', self.log('bindep'))
        unit = self.devstack.ini(
            'systemd/devstack@sushy-kubevirt-sandbox.service')
        self.assertEqual('CAP_NET_BIND_SERVICE',
                         unit['Service']['AmbientCapabilities'])
        lines = (self.devstack.data / 'hardware_info').read_text().split('\n')
        for index in range(2):
            self.assert_enrolled(f'node-{index}', *lines[index].split())

        node = self.ironic.baremetal.get_node('node-1')
        self.ironic.power(node, 'power on', 'power on')
        admin = kubectl.Kubectl(shutil.copy(
            self.devstack.data / 'sandbox.kubeconfig', self.devstack.top))
        self.until(lambda: admin.get('vm', 'node-1')['status'][
            'printableStatus'] == 'Running')
        self.ironic.power(node, 'power off', 'power off')
        tempest = self.devstack.ini('tempest.conf')
        self.assertEqual(
            {'enabled_power_interfaces': 'fake,redfish',
             'enabled_management_interfaces': 'fake,redfish'},
            dict(tempest['baremetal']))
        self.assertEqual('False', tempest['validation']['run_validation'])

        self.check('unstack')
        self.assertEqual(
            ['venv'], [one.name for one in self.devstack.data.iterdir()])
        self.assertEqual([], process.running(str(self.devstack.data)))
        # There is nothing left to do.
        self.check('unstack')
        self.check('clean')
        self.assertFalse(self.devstack.data.exists())

    def log(self, name):
        return (self.devstack.top / 'logs' / name).read_text()

    def assert_enrolled(self, name, address, mac, user, password, system):
        node = self.ironic.baremetal.get_node(name)
        self.assertEqual(
            ('available', 'redfish', 'redfish-virtual-media', 'ramdisk',
             'noop', 'baremetal', ['CUSTOM_GOLD', 'CUSTOM_LAB']),
            (node.provision_state, node.driver, node.boot_interface,
             node.deploy_interface, node.network_interface,
             node.resource_class, sorted(node.traits)))
        self.assertEqual(
            (f'https://{address}', system, user),
            tuple(node.driver_info[f'redfish_{key}'] for key in (
                'address', 'system_id', 'username')))
        self.assertEqual('boot_mode:uefi', node.properties['capabilities'])
        self.assertEqual([mac], [
            one.address for one in self.ironic.baremetal.ports(
                node_id=node.id)])


CLUSTER = """
# Nodes of two sizes, with the variables of DevStack and without.
default_ironic_driver: ${IRONIC_DEPLOY_DRIVER}
default_boot_mode: bios
physnet_mappings: ${SUSHY_KUBEVIRT_MAPPINGS}
node_types:
  small: &small
    vcpus: 1
    memory_mb: 256
    volumes: []
    physical_networks: ${SUSHY_KUBEVIRT_PHYSICAL_NETWORKS}
    bmc: {service: {type: ${SUSHY_KUBEVIRT_SERVICE_TYPE}}}
    vm: {metadata: {annotations: {note: "${HOME} stays"}}}
  large:
    <<: *small
    vcpus: 2
    memory_mb: 512
specs:
  - type: small
    count: 1
    node_name_prefix: small-
    ironic_config: {resource_class: baremetal}
  - type: large
    count: 1
    node_name_prefix: large-
    ironic_config: {resource_class: baremetal}
"""

KINDS = ('vm,vmi,vmbmc,secret,configmap,datavolume,persistentvolumeclaim,'
         'deployment,pod,service,serviceaccount,role,rolebinding')


class ClusterTestCase(case.Mixin, operator.OperatorTestCase):
    """A cluster with the operator, IPMI, a cluster file of the user."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.devstack = cls.share(case.DevStack({
            'SUSHY_KUBEVIRT_KUBECONFIG': cls.sandbox.kubeconfig,
            # Programs of this checkout.
            'OFFLINE': 'True', 'SUSHY_KUBEVIRT_VENV': sys.prefix,
            'IRONIC_DEPLOY_DRIVER': 'ipmi', 'IRONIC_BOOT_MODE': 'bios',
            'IRONIC_ENABLED_HARDWARE_TYPES': 'ipmi',
            # This Ironic has no Neutron, and there is no agent.
            'IRONIC_NETWORK_INTERFACE': 'noop',
            'IRONIC_AUTOMATED_CLEAN_ENABLED': 'False',
            'SUSHY_KUBEVIRT_NETWORKS': 'pod lan'}))
        cls.ironic = cls.share(ironic.Ironic(cls.devstack.ironic_config()))
        cls.devstack.write_clouds(cls.ironic.url)

    def setUp(self):
        super().setUp()
        self.kubectl.apply({
            'apiVersion': 'k8s.cni.cncf.io/v1',
            'kind': 'NetworkAttachmentDefinition',
            'metadata': {'name': 'lan'},
            'spec': {'config': '{"type": "bridge", "bridge": "lan"}'}})
        file = self.devstack.top / 'lab.yaml'
        file.write_text(CLUSTER)
        self.devstack.localrc.update(
            SUSHY_KUBEVIRT_NAMESPACE=self.namespace,
            SUSHY_KUBEVIRT_CLUSTER_FILE=file)
        self.devstack.write_localrc()

    def objects(self):
        return [one for one in self.kubectl.names(KINDS)
                if one not in ('configmap/kube-root-ca.crt',
                               'serviceaccount/default')]

    def test_stack_unstack_clean(self):
        before = self.objects()
        output = self.check('stack')
        # What both have.
        self.assertIn('flavor: 1 256 0\n', output)
        for index, name in enumerate(['small-0', 'large-0']):
            node = self.ironic.baremetal.get_node(f'node-{index}')
            self.assertEqual(
                ('available', 'ipmi', 'ipxe'),
                (node.provision_state, node.driver, node.boot_interface))
            ports = list(self.ironic.baremetal.ports(node_id=node.id))
            self.assertEqual(2, len(ports))
            vm = self.sandbox.vm(name, self.namespace)
            self.assertEqual('${HOME} stays',
                             vm['metadata']['annotations']['note'])
            self.assertEqual({one.address for one in ports}, {
                one['macAddress'] for one in vm['spec']['template']['spec'][
                    'domain']['devices']['interfaces']})
            self.ironic.power(node, 'power on', 'power on')
            self.sandbox.wait_running(name, namespace=self.namespace)
        self.assertEqual('LoadBalancer', self.kubectl.get(
            'vmbmc', 'small-0')['spec']['service']['type'])
        tempest = self.devstack.ini('tempest.conf')
        self.assertEqual('ipmi', tempest['baremetal']['driver'])
        self.assertNotIn('validation', tempest)

        self.unreachable()
        self.check('unstack')
        self.until('nothing is left', self.objects, before)
        self.assertEqual([], list(self.devstack.data.iterdir()))
        self.check('clean')
        self.assertFalse(self.devstack.data.exists())

    def unreachable(self):
        """Check that a failed deletion can be repeated."""
        self.devstack.write_localrc(
            SUSHY_KUBEVIRT_KUBECONFIG=self.devstack.top / 'none')
        self.assertIn('run unstack.sh again', self.check('unstack'))
        self.assertTrue((self.devstack.data / 'cluster.yaml').exists())
        # It keeps the name and the namespace that it was made with.
        self.devstack.write_localrc(
            SUSHY_KUBEVIRT_CLUSTER_NAME='another',
            SUSHY_KUBEVIRT_NAMESPACE='default')


class SettingsTestCase(case.Mixin, base.FunctionalTestCase):
    """Wrong settings end stack.sh before anything is created."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.devstack = cls.share(case.DevStack({
            'SUSHY_KUBEVIRT_SANDBOX': 'True', 'OFFLINE': 'True',
            'SUSHY_KUBEVIRT_VENV': sys.prefix}))

    def fails(self, text, **values):
        """Check that settings are refused with a text."""
        self.devstack.write_localrc(**values)
        done = self.devstack.run('stack', 'install')
        self.assertNotEqual(0, done.returncode, values)
        end = done.stdout[-2000:]
        self.assertIn(text, end)
        self.assertIn('[ERROR]', end)
        self.assertFalse((self.devstack.data / 'cluster.yaml').exists())
        return done.stdout

    def test_checked_before_packages_are_installed(self):
        installed = self.devstack.top / 'logs' / 'bindep'
        # Of another test.
        installed.unlink(missing_ok=True)
        for name, value in (
                ('IRONIC_DEPLOY_DRIVER', 'idrac'),
                ('IRONIC_BOOT_MODE', 'efi'),
                ('IRONIC_VM_COUNT', '0'),
                ('IRONIC_VM_COUNT', 'two'),
                ('IRONIC_HW_NODE_RAM', '3 GiB'),
                ('IRONIC_VM_SPECS_DISK', '-1'),
                ('IRONIC_VM_EPHEMERAL_DISK', 'much'),
                # The sandbox does not run such guests.
                ('IRONIC_HW_ARCH', 'aarch64'),
                # BMCs take no images from there.
                ('HOST_IP', '127.0.0.1'),
                ('SUSHY_KUBEVIRT_NETWORKS', 'pod; rm'),
                ('SUSHY_KUBEVIRT_STORAGE_CLASS', '}'),
                ('SUSHY_KUBEVIRT_SERVICE_TYPE', 'NodePort'),
                ('SUSHY_KUBEVIRT_CLUSTER_FILE', '/etc'),
                ('SUSHY_KUBEVIRT_CLUSTER_FILE', '/etc/no such file'),
                ('SUSHY_KUBEVIRT_KUBECONFIG', '/etc/hostname'),
                ('HOST_TOPOLOGY_ROLE', 'subnode'),
                ('DISABLED_SERVICES', 'ironic')):
            shown = {'IRONIC_VM_SPECS_DISK': 'IRONIC_HW_NODE_DISK',
                     'IRONIC_VM_EPHEMERAL_DISK': 'IRONIC_HW_EPHEMERAL_DISK',
                     'HOST_TOPOLOGY_ROLE': 'primary node',
                     'DISABLED_SERVICES': 'enable_plugin ironic'}
            self.fails(shown.get(name, name), **{name: value})
        for path in '', '/etc', '/etc/no such file':
            self.fails('SUSHY_KUBEVIRT_SANDBOX=True', **{
                'SUSHY_KUBEVIRT_SANDBOX': 'no',
                'SUSHY_KUBEVIRT_KUBECONFIG': path})
        self.assertFalse(installed.exists())

    def test_ephemeral_disk_is_part_of_the_disk(self):
        self.fails('IRONIC_HW_EPHEMERAL_DISK is 11, but', **{
            'IRONIC_HW_NODE_DISK': '10', 'IRONIC_HW_EPHEMERAL_DISK': '11'})

    def test_architecture(self):
        self.devstack.write_localrc(
            SUSHY_KUBEVIRT_SANDBOX='no', IRONIC_HW_ARCH='aarch64',
            SUSHY_KUBEVIRT_MANIFESTS='of the operator',
            SUSHY_KUBEVIRT_KUBECONFIG=__file__)
        self.check('stack', 'install')
        declared = yaml.safe_load(
            (self.devstack.data / 'cluster.yaml.new').read_text())
        self.assertEqual('arm64', declared['node_types']['devstack']['vm'][
            'spec']['template']['spec']['architecture'])

    def test_cluster(self):
        kubeconfig = self.devstack.top / 'kubeconfig'
        for content, text in (
                ('nothing\n', 'it must have keys and values'),
                (yaml.safe_dump({
                    'current-context': 'lab', 'contexts': [{
                        'name': 'lab', 'context': {'cluster': 'lab'}}],
                    'clusters': [{'name': 'lab', 'cluster': {
                        # Nothing listens there.
                        'server': 'https://127.0.0.1:1'}}]}),
                 'does not answer')):
            kubeconfig.write_text(content)
            output = self.fails(text, **{
                'SUSHY_KUBEVIRT_SANDBOX': 'no',
                'SUSHY_KUBEVIRT_KUBECONFIG': kubeconfig})
            self.assertIn(f'{kubeconfig} cannot be used', output)

    def test_clean_names_what_remains(self):
        self.devstack.write_localrc()
        self.assertNotIn('remain', self.check('clean'))
        self.devstack.data.mkdir(parents=True)
        for name in 'cluster.yaml', 'cluster.yaml.name':
            (self.devstack.data / name).write_text('devstack\nlab\n')
        self.assertIn('remain: run sushy-kubevirt-cluster teardown devstack '
                      '--force --without-openstack --namespace lab\n',
                      self.check('clean'))
        self.assertFalse(self.devstack.data.exists())

    def test_sample(self):
        sample = self.devstack.opt / 'sushy-kubevirt' / 'devstack' / (
            'local.conf.sample')
        section, = sample.read_text().split('[[local|localrc]]\n')[1:]
        localrc = self.devstack.top / 'localrc'
        self.devstack.write_localrc()
        # The sample precedes what tests need.
        localrc.write_text(section + localrc.read_text())
        done = self.devstack.run('stack', 'install')
        self.assertEqual(0, done.returncode, done.stdout[-2000:])
        self.assertIn('flavor: 2 3072 10\n', done.stdout)
        # All alternatives are settings.
        words = set(re.findall(r'(?m)^#(SUSHY_KUBEVIRT_\w+)=', section))
        self.assertGreater(len(words), 2)
        self.assertLessEqual(words, set(re.findall(
            r'SUSHY_KUBEVIRT_\w+', ''.join(
                (sample.parent / name).read_text()
                for name in ('settings', 'override-defaults')))))

    def test_missing_program(self):
        path = self.devstack.env['PATH']
        self.addCleanup(self.devstack.env.update, PATH=path)
        folder = self.devstack.top / 'bin'
        folder.mkdir()
        for name in ('bash', 'awk', 'cat', 'cut', 'dirname', 'grep', 'head',
                     'hostname', 'id', 'mkdir', 'sed', 'sort', 'tee', 'tr'):
            (folder / name).symlink_to(shutil.which(name, path=path))
        (folder / 'python3').symlink_to(sys.executable)
        self.devstack.env['PATH'] = str(folder)
        self.fails('kubectl is missing')

    def test_size_of_guests(self):
        """Guests of the sandbox are not cut to the size of the flavor."""
        file = self.devstack.top / 'sizes.yaml'
        file.write_text(CLUSTER.replace('bios', 'uefi'))
        for given, expected in ({}, 512), (
                {'SUSHY_KUBEVIRT_SANDBOX_MEMORY': '300'}, 300):
            self.devstack.write_localrc(
                SUSHY_KUBEVIRT_CLUSTER_FILE=file, **given)
            self.assertRegex(
                self.check('stack', 'install'),
                f'flavor: 1 256 0\nsandbox: {expected}\n')
        self.fails('SUSHY_KUBEVIRT_SANDBOX_MEMORY',
                   SUSHY_KUBEVIRT_SANDBOX_MEMORY='4 GiB')

    def test_cluster_file(self):
        file = self.devstack.top / 'mine.yaml'
        for text, changes in (
                ('did you mean', {'vcpus': 'vcpu'}),
                ('driver ipmi', {'${IRONIC_DEPLOY_DRIVER}': 'ipmi'}),
                ('boot mode bios', {'boot_mode: bios': 'boot_mode: bios'}),
                ('no "ironic_config"', {
                    'ironic_config: {resource_class: baremetal}': ''})):
            content = CLUSTER
            for old, new in changes.items():
                content = content.replace(old, new)
            if 'bios' not in text:
                content = content.replace('mode: bios', 'mode: uefi')
            file.write_text(content)
            self.assertIn('SUSHY_KUBEVIRT_CLUSTER_FILE', self.fails(
                text, SUSHY_KUBEVIRT_CLUSTER_FILE=file))
