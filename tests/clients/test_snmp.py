# SPDX-License-Identifier: Apache-2.0
"""Clients of virtualpdu-kubevirt, at whose first outlet the VM is.

The functional tests in ``tests/functional/pdu`` use Net-SNMP too, for details.
"""

import subprocess
import textwrap

from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.clients import case
from tests.clients import environment
from tests.fixtures import ironic
from tests.fixtures import pdu


class PduTestCase(case.ClientTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pdu = cls.share(pdu.Pdu(pdu.account(cls.sandbox), [case.NAME]))


class NetSnmpTestCase(PduTestCase):

    CLIENT = 'Net-SNMP'

    @classmethod
    def version(cls):
        # "NET-SNMP version: 5.9.3", to standard error
        return subprocess.run(
            ['snmpget', '--version'], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True).stdout.split()[-1]

    def test_get_and_set(self):
        for version in '1', '2c', '3':
            self.power('Off')
            self.until(lambda: self.pdu.get(version=version) == pdu.OFF)
            self.pdu.set(pdu.ON, version=version)
            self.wait_power('On')
            self.until(lambda: self.pdu.get(version=version) == pdu.ON)
            self.pdu.set(pdu.OFF, version=version)
            self.wait_power('Off')
            self.record(f'snmpget -v {version}', f'snmpset -v {version}')

    def test_walk(self):
        done = self.pdu.run('snmpgetnext', outlet=0)
        self.assertIn(f'.{pdu.COMMAND}.1 = INTEGER: ', done.stdout)
        self.record('snmpgetnext -v 2c')

    def test_bulk(self):
        done = self.pdu.run('snmpbulkget')
        self.assertNotEqual(0, done.returncode)
        self.record('snmpbulkget -v 2c',
                    result='virtualpdu does not answer')


class IronicSnmpTestCase(PduTestCase):
    """The hardware type ``snmp`` with its driver ``apc_rackpdu``."""

    CLIENT = 'Ironic, snmp'

    @classmethod
    def version(cls):
        return environment.IRONIC.version_of('ironic').partition('.')[0]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = cls.share(ironic.Ironic(
            # The VMs of a host under load stop slowly.
            {'snmp': {'power_timeout': 60}}, drivers=('snmp',),
            programs=environment.IRONIC.bin))

    def enrol(self, name, **info):
        return self.ironic.enrol(name, 'snmp', {
            'snmp_driver': 'apc_rackpdu', 'snmp_address': '127.0.0.1',
            'snmp_outlet': 1, **info})

    def check_power(self, node):
        self.power('Off')
        self.ironic.wait(node, lambda now: now.power_state == 'power off')
        count = len(self.boots())
        self.ironic.power(node, 'power on', 'power on')
        self.wait_power('On')
        vmi = self.sandbox.vmi(case.NAME)['metadata']['uid']
        self.ironic.power(node, 'rebooting', 'power on')
        self.sandbox.wait_running(case.NAME, other_than=vmi)
        self.ironic.power(node, 'power off', 'power off')
        self.wait_power('Off')
        self.assertEqual(count + 2, len(self.boots()))

    def test_version_2c(self):
        node = self.enrol('v2c', snmp_port=self.pdu.ports['2c'],
                          snmp_version='2c',
                          snmp_community=self.pdu.community)
        self.check_power(node)
        self.record('power on', 'power off', 'reboot')

    def test_version_1(self):
        self.check_power(self.enrol(
            'v1', snmp_port=self.pdu.ports['2c'],
            snmp_community=self.pdu.community))

    def test_version_3(self):
        self.check_power(self.enrol(
            'v3', snmp_port=self.pdu.ports['3'], snmp_version='3',
            snmp_user='ironic', snmp_auth_protocol='sha256',
            snmp_auth_key=self.pdu.auth, snmp_priv_protocol='aes',
            snmp_priv_key=self.pdu.priv))

    def test_guest_that_shuts_itself_down(self):
        node = self.enrol('guest', snmp_port=self.pdu.ports['2c'],
                          snmp_version='2c',
                          snmp_community=self.pdu.community)
        self.power('On')
        self.ironic.wait(node, lambda now: now.power_state == 'power on')
        self.sandbox.guest_does(case.NAME, 'shutdown')
        self.ironic.wait(node, lambda now: now.power_state == 'power off')
        self.record('synchronization of power states')

    def test_wrong_community(self):
        self.power('Off')
        e = self.assertRaises(
            AssertionError, self.enrol, 'wrong',
            snmp_port=self.pdu.ports['2c'], snmp_version='2c',
            snmp_community='public')
        self.assertIn('SNMP', str(e))

    def command(self, *words):
        return self.run_command(
            process.BIN / 'sushy-kubevirt-cluster', *words)

    @classmethod
    def environment(cls):
        return {**super().environment(), **cls.ironic.env,
                'KUBECONFIG': str(cls.sandbox.kubeconfig)}

    def test_node_of_a_cluster_file(self):
        port = self.useFixture(ports.Port()).number
        path = self.home / 'lab.yaml'
        path.write_text(textwrap.dedent(f"""
            cluster: {{name: lab, namespace: {case.NAMESPACE}}}
            default_ironic_driver: snmp
            pdu: {{address: 127.0.0.1, port: {port}, community: lab}}
            physnet_mappings: {{net: pod}}
            node_types:
              small: {{vcpus: 1, memory_mb: 256, physical_networks: [net]}}
            specs:
            - type: small
              count: 1
              ironic_config: {{resource_class: rc, provide: false}}
            """))
        self.command('apply', path)
        config = self.home / 'virtualpdu.conf'
        self.command('inventory', path, '--format', 'virtualpdu',
                     '--output-file', config)
        self.useFixture(process.Process(
            ['virtualpdu-kubevirt', config], env=self.pdu.env,
            ready=f'listens at 127.0.0.1:{port}'))
        self.command('enrol', path)
        node = self.ironic.baremetal.get_node('lab-0')
        self.assertEqual(
            ('manageable', 'power off', 'snmp', 'noop'),
            (node.provision_state, node.power_state, node.power_interface,
             node.management_interface))
        self.ironic.power(node, 'power on', 'power on')
        self.sandbox.wait_running('lab-0')
        self.assertEqual(
            'Pxe', self.sandbox.wait_boot('lab-0', 1)['class'])
        self.ironic.power(node, 'power off', 'power off')
        self.sandbox.wait_stopped('lab-0')
        self.command('teardown', path, '--yes')
