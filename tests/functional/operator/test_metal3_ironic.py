# SPDX-License-Identifier: Apache-2.0
"""Ironic with BareMetalHosts of the operator, driven as Metal3 does.

The requests are those of baremetal-operator's provisioner
(``pkg/provisioner/ironic`` and ``pkg/hardwareutils/bmc`` of its main branch of
August 2026): register, fast inspection, provision, power, adopt, deprovision,
delete. Every input is a field of the BareMetalHost or of its Secret.
baremetal-operator itself does so in :mod:`tests.metal3`.
"""

import base64
import hashlib
from urllib import parse

import requests

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import webserver
from tests.fixtures import file_servers
from tests.fixtures import image_server
from tests.fixtures import ironic
from tests.fixtures import ironic_agent
from tests.fixtures.metal3 import hosts
from tests.fixtures.metal3 import programs
from tests.fixtures import operator

#: The newest that baremetal-operator asks for.
MICROVERSION = '1.110'

CAPABILITIES = {'UEFI': 'boot_mode:uefi', 'legacy': 'boot_mode:bios'}


class Provisioner:
    """The requests of baremetal-operator for one host.

    :param services: an `ironic.Ironic`
    :param host: dict, the BareMetalHost
    :param secret: dict, the Secret of its credentials
    """

    def __init__(self, services, host, secret):
        self._services, self._host = services, host
        self._secret = {key: base64.b64decode(value).decode()
                        for key, value in secret['data'].items()}
        self.node = None

    def ask(self, method, path, body=None):
        """Send a request.

        :returns: the JSON of the response, or None
        """
        response = requests.request(
            method, f'{self._services.url}/v1/{path}', json=body, timeout=60,
            headers={'X-OpenStack-Ironic-API-Version': MICROVERSION})
        if not response.ok:
            raise AssertionError(f'{method} {path}: {response.text}')
        return response.json() if response.content else None

    def get(self, path=''):
        return self.ask('GET', f'nodes/{self.node.id}{path}')

    def update(self, **fields):
        """Change fields of the node; ``a__b`` is field b of field a."""
        self.ask('PATCH', f'nodes/{self.node.id}', [
            {'op': 'add', 'path': '/' + name.replace('__', '/'),
             'value': value} for name, value in fields.items()])

    def wait(self, state):
        """Wait for a provision state.

        :raises AssertionError: the node has an error
        """
        return self._services.wait(
            self.node, lambda now: now.provision_state == state)

    def change(self, target, state):
        self.ask('PUT', f'nodes/{self.node.id}/states/provision',
                 {'target': target})
        return self.wait(state)

    def driver_info(self):
        bmc = self._host['spec']['bmc']
        url = parse.urlsplit(bmc['address'])
        given = {'redfish_username': self._secret['username'],
                 'redfish_password': self._secret['password'],
                 'redfish_address':
                     url.scheme.partition('+')[2] + '://' + url.netloc,
                 'redfish_system_id': url.path}
        if bmc['disableCertificateVerification']:
            given['redfish_verify_ca'] = False
        return given

    def register(self, **interfaces):
        """Enrol the node and make it manageable."""
        metadata, spec = self._host['metadata'], self._host['spec']
        uuid = self.ask('POST', 'nodes', {
            'name': f"{metadata['namespace']}~{metadata['name']}",
            'driver': 'redfish', 'driver_info': self.driver_info(),
            'boot_interface': 'redfish-virtual-media',
            'firmware_interface': 'redfish', 'inspect_interface': 'redfish',
            'raid_interface': 'redfish', 'disable_power_off': False,
            'properties': {'capabilities': CAPABILITIES[spec['bootMode']],
                           'cpu_arch': spec['architecture']},
            **interfaces})['uuid']
        self.node = self._services.baremetal.get_node(uuid)
        self.ask('POST', 'ports', {
            'node_uuid': uuid, 'address': spec['bootMACAddress'],
            'pxe_enabled': True})
        self.change('manage', 'manageable')
        self.update(automated_clean=spec['automatedCleaningMode']
                    != 'disabled')

    def provision(self, url):
        """Boot a live ISO."""
        self.change('provide', 'available')
        hints = {'deviceName': 'name', 'serialNumber': 'serial'}
        self.update(
            instance_uuid=self._host['metadata']['uid'],
            instance_info__capabilities={},
            instance_info__root_device={
                hints[key]: f's== {value}' for key, value in self._host[
                    'spec']['rootDeviceHints'].items()},
            instance_info__boot_iso=url, deploy_interface='ramdisk',
            driver_info__force_persistent_boot_device='Default')
        found = self.get('/validate')
        for one in 'boot', 'deploy':
            if not found[one]['result']:
                raise AssertionError(found[one]['reason'])
        return self.change('active', 'active')

    def deploy(self, url, content, deploy_iso):
        """Begin to write an image in qcow2, with a deploy ramdisk.

        :param content: of the image
        :param deploy_iso: URL of the ramdisk, as in DEPLOY_ISO_URL
        """
        self.update(driver_info__deploy_iso=deploy_iso)
        self.change('provide', 'available')
        self.update(
            instance_uuid=self._host['metadata']['uid'],
            instance_info__capabilities={},
            instance_info__image_source=url,
            instance_info__image_disk_format='qcow2',
            instance_info__image_os_hash_algo='sha256',
            instance_info__image_os_hash_value=hashlib.sha256(
                content).hexdigest(),
            driver_info__force_persistent_boot_device='Default')
        self.ask('PUT', f'nodes/{self.node.id}/states/provision',
                 {'target': 'active'})

    def power(self, target, **more):
        self.ask('PUT', f'nodes/{self.node.id}/states/power',
                 {'target': target, **more})
        state = 'power off' if target.endswith('off') else target
        self._services.wait(self.node, lambda now: now.power_state == state)

    def delete(self):
        """Remove the node; one in use is not deprovisioned."""
        if self.get()['provision_state'] in ('available', 'manageable'):
            self.ask('PATCH', f'nodes/{self.node.id}', [
                {'op': 'remove', 'path': '/instance_uuid'}])
        else:
            self.ask('PUT', f'nodes/{self.node.id}/maintenance',
                     {'reason': 'forcing deletion in baremetal-operator'})
        self.ask('DELETE', f'nodes/{self.node.id}')


@operator.other_platforms
@given_cluster.needs_sandbox('addresses of Services that Ironic reaches')
class IronicTestCase(hosts.Hosts, operator.OperatorTestCase):

    SANDBOX = ()
    ARGUMENTS = (*hosts.Hosts.ARGUMENTS, '--host-external-address',
                 '--host-disable-certificate-verification')

    @classmethod
    def install(cls):
        super().install()
        cls.admin('apply', '-f', hosts.DEFINITIONS)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = cls.share(ironic.Ironic(programs.IRONIC))

    def setUp(self):
        super().setUp()
        self.address = webserver.own_address()
        if self.address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        self.images = self.useFixture(image_server.ImageServer(self.address))
        self.vm_with_mac('n0')
        self.bmc('n0', 'n0', None, service={'type': 'LoadBalancer'})
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')
        self.wait_condition('HostCreated')
        host = self.host()
        self.metal3 = Provisioner(self.ironic, host, self.kubectl.get(
            'secret', host['spec']['bmc']['credentialsName']))

    def boots(self, *classes):
        """Wait until the guest has booted from exactly these devices."""
        self.sandbox.wait_boot('n0', len(classes), self.namespace)
        self.assertEqual(list(classes), [
            one['class'] for one in self.sandbox.boots('n0', self.namespace)])

    def test_life_of_a_host(self):
        metal3 = self.metal3
        metal3.register()
        node = metal3.get()
        self.assertEqual(
            {'bios': 'redfish', 'boot': 'redfish-virtual-media',
             'deploy': 'direct', 'firmware': 'redfish', 'inspect': 'redfish',
             'management': 'redfish', 'power': 'redfish', 'raid': 'redfish',
             'vendor': 'redfish'},
            {name.removesuffix('_interface'): value
             for name, value in node.items() if name.endswith('_interface')
             and not value.startswith(('no-', 'noop'))})
        metal3.change('inspect', 'manageable')
        self.assertEqual([], self.sandbox.boots('n0', self.namespace))
        found = metal3.get('/inventory')['inventory']
        self.assertEqual([self.mac], [
            one['mac_address'] for one in found['interfaces']])
        self.assertEqual('x86_64', found['cpu']['architecture'])
        # What becomes HostFirmwareSettings and HostFirmwareComponents.
        self.assertEqual(
            {'BootMode': 'Legacy', 'PersistentNvram': 'Disabled',
             'SecureBoot': 'Disabled', 'Tpm': 'None'},
            {one['name']: one['value']
             for one in metal3.get('/bios?detail=True')['bios']})
        self.assertEqual(['bios', 'bmc'], sorted(
            one['component'] for one in metal3.get('/firmware')['firmware']))
        checked = metal3.get('/validate')
        for one in ('bios', 'firmware', 'inspect', 'management', 'power',
                    'raid'):
            self.assertEqual({'result': True}, checked[one])
        metal3.provision(self.images.url + '/it.iso')
        self.boots('Cd')
        metal3.power('soft power off', timeout=180)
        self.sandbox.wait_stopped('n0', self.namespace)
        metal3.power('power on')
        self.boots('Cd', 'Cd')
        metal3.change('deleted', 'available')
        self.sandbox.wait_stopped('n0', self.namespace)
        self.until('ejected', lambda: self.sandbox.list(
            'datavolumes', self.namespace), [])
        metal3.delete()
        self.assertEqual([], list(self.ironic.baremetal.nodes()))
        self.assert_no_warnings()
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def test_qcow2(self):
        """The deploy ramdisk is a medium; the disk is booted after it.

        With RebootPolicy the disk is booted twice, as the ramdisk shuts the
        guest down in its one-time boot.
        """
        self.sandbox.set_gates(off=('RebootPolicy',))
        self.addCleanup(self.sandbox.set_gates)
        content = b'QFI\xfb' + bytes(200000)
        server = self.useFixture(file_servers.Server(
            lambda handler: file_servers.send(handler, 200, content)))
        metal3 = self.metal3
        metal3.register()
        metal3.deploy(server.url + '/disk.qcow2', content,
                      self.images.url + '/ironic-python-agent.iso')
        self.boots('Cd')
        agent = self.useFixture(ironic_agent.Agent(
            self.ironic.url, metal3.node.id, 'write_image',
            lambda: self.sandbox.guest_does('n0', 'shutdown',
                                            self.namespace)))
        metal3.wait('active')
        self.assertEqual(content, agent.image)
        self.assertEqual('power_off', agent.done[-1])
        self.boots('Cd', 'Hdd')
        self.until('ejected', lambda: self.sandbox.list(
            'datavolumes', self.namespace), [])
        metal3.power('power off')
        metal3.power('power on')
        self.boots('Cd', 'Hdd', 'Hdd')
        metal3.change('deleted', 'available')
        self.sandbox.wait_stopped('n0', self.namespace)
        metal3.delete()
        self.assert_no_warnings()
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def test_adoption(self):
        """A machine that runs is not touched, with one exception in Metal3.

        Metal3 gives a live ISO's host no ``boot_iso`` for its adoption.
        """
        metal3 = self.metal3
        self.kubectl('patch', 'vm', 'n0', '--type=merge', '-p',
                     '{"spec": {"runStrategy": "Always"}}')
        self.boots('Hdd')
        metal3.register()
        metal3.change('adopt', 'active')
        self.assertEqual('power on', metal3.get()['power_state'])
        metal3.power('power off')
        metal3.power('power on')
        self.boots('Hdd', 'Hdd')
        metal3.delete()
        metal3.register(deploy_interface='ramdisk')
        error = self.assertRaises(
            AssertionError, metal3.change, 'adopt', 'active')
        self.assertIn("['kernel', 'ramdisk']", str(error))
        self.assertEqual('adopt failed', metal3.get()['provision_state'])
        metal3.delete()
        self.boots('Hdd', 'Hdd')
        self.sandbox.wait_running('n0', self.namespace)
