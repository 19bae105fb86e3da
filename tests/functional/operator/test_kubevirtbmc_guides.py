# SPDX-License-Identifier: Apache-2.0
"""What KubeVirtBMC's documents have users do works, in any cluster.

One test for each of its guides (getting started, Redfish, IPMI, virtual media)
and for the demo of Metal3 with it, of August 2026: manifests with their fields
and names, and their commands. Only the namespace is the test's.
"""

import json

import sushy
from sushy import auth

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import webserver
from tests.fixtures import image_server
from tests.fixtures import kubevirtbmc
from tests.fixtures import transcript_case

VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: testvm}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        devices:
          disks:
            - {name: system, disk: {bus: virtio}}
            - {name: cdrom, cdrom: {bus: sata}}
          interfaces: [{name: default, masquerade: {}}]
        resources: {requests: {memory: 64Mi}}
      volumes: [{name: system, containerDisk: {image: MEDIUM}}]
      networks: [{name: default, pod: {}}]
""".replace('MEDIUM', machines.MEDIUM)

BMC = """
apiVersion: bmc.kubevirt.io/v1beta1
kind: VirtualMachineBMC
metadata: {name: test-bmc}
spec:
  virtualMachineRef: {name: testvm}
  authSecretRef: {name: bmc-secret}
"""

SECRET = ('kubectl create secret generic bmc-secret -n default '
          '--from-literal=username=admin --from-literal=password=admin123')

#: As Metal3's demo: a BMC whose Secret is a manifest, and a VM that is off.
DEMO_VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: demo-vm}
spec:
  runStrategy: Halted
  template:
    spec:
      domain:
        cpu: {cores: 1}
        memory: {guest: 1Gi}
        devices:
          disks:
            - {name: rootdisk, disk: {bus: virtio}}
            - {name: cdrom, cdrom: {bus: sata}}
          interfaces:
            - {name: default, macAddress: "02:00:00:00:00:01", masquerade: {}}
        firmware: {bootloader: {efi: {secureBoot: false}}}
      networks: [{name: default, pod: {}}]
      volumes: [{name: rootdisk, emptyDisk: {capacity: 1Gi}}]
"""
DEMO_BMC = """
apiVersion: v1
kind: Secret
metadata: {name: demo-secret}
stringData: {username: admin, password: password}
---
apiVersion: bmc.kubevirt.io/v1beta1
kind: VirtualMachineBMC
metadata: {name: demo-bmc}
spec:
  virtualMachineRef: {name: demo-vm}
  authSecretRef: {name: demo-secret}
"""

HOST = 'testvm-virtbmc.default.svc.cluster.local'
JSON = '-H "Content-Type: application/json"'
RESET = 'Systems/1/Actions/ComputerSystem.Reset'
MEDIUM = 'Managers/BMC/VirtualMedia/CD1'

TARGETS = 'Pxe', 'Hdd', 'Cd'


class GuideTestCase(transcript_case.TranscriptCase):

    def shell(self, command, stdin=None):
        return super().shell(self.here(command), stdin)

    def here(self, text):
        """Replace the namespace that the guides have."""
        return text.replace('.default.', f'.{self.namespace}.').replace(
            '-n default', f'-n {self.namespace}')

    def apply(self, *manifests):
        for text in manifests:
            self.shell('kubectl apply -n default -f -', stdin=text)

    def start(self, bmc=BMC):
        """Follow the guide to a BMC that is ready, and to its address."""
        self.apply(VM)
        self.shell(SECRET)
        self.apply(bmc)
        self.shell('kubectl wait -n default --for=condition=Ready '
                   'virtualmachinebmc/test-bmc --timeout=600s')
        self.until('running', lambda: self.kubectl.get('vm', 'testvm')[
            'status'].get('printableStatus'), 'Running', 600)
        return self.find('testvm-virtbmc', self.namespace)

    def log_in(self):
        """Create a session as the guides do; return curl's option."""
        token = self.shell(
            f'curl -s -i -X POST {JSON} '
            f'http://{HOST}/redfish/v1/SessionService/Sessions '
            '-d \'{"UserName":"admin","Password":"admin123"}\' | '
            'grep -i "X-Auth-Token" | cut -d" " -f2 | tr -d "\\r"')
        return f'-H "X-Auth-Token: {token.strip()}"'

    def read(self, token, path):
        return json.loads(self.shell(
            f'curl {token} http://{HOST}/redfish/v1/{path}'))

    def send(self, token, method, path, body):
        """Send a request, which has to succeed with an empty response."""
        said, _, text = self.curl(
            f'curl -i -X {method} {JSON} {token} '
            f"http://{HOST}/redfish/v1/{path} -d '{json.dumps(body)}'")
        self.assertEqual(('204 NO CONTENT', ''), (said.upper(), text), body)

    def power(self, token, wanted):
        self.until('power', lambda: self.read(token, 'Systems/1')[
            'PowerState'], wanted, 600)

    def boots(self):
        return len(self.sandbox.boots('testvm', self.namespace))

    def wait_boot(self, count):
        return self.sandbox.wait_boot('testvm', count,
                                      namespace=self.namespace)

    def test_getting_started(self):
        address = self.start()
        names, row = map(str.split, self.shell(
            'kubectl get virtualmachinebmc test-bmc -n default').splitlines())
        shown = dict(zip(names, row, strict=False))
        ip = self.shell('kubectl get virtualmachinebmc test-bmc -n default '
                        "-o jsonpath='{.status.clusterIP}'")
        self.assertEqual(('testvm', 'bmc-secret', ip, 'True'), tuple(
            shown[name] for name in (
                'VIRTUALMACHINE', 'SECRET', 'CLUSTERIP', 'SERVICEREADY')))
        self.shell('curl --fail -s -u admin:admin123 '
                   f'http://{ip}/redfish/v1/Systems/1')
        found = self.shell('kubectl get pods,services -n default -l '
                           f'{kubevirtbmc.LABEL}=test-bmc')
        self.assertRegex(found, r'\npod/test-bmc-virtbmc-\S+ +1/1 +Running ')
        self.assertRegex(found, r'\nservice/testvm-virtbmc +ClusterIP +'
                         + address)

    def test_redfish_guide(self):
        self.start()
        root = json.loads(self.shell(f'curl http://{HOST}/redfish/v1'))
        self.assertIn('SessionService', root)
        basic = self.shell("echo -n 'admin:admin123' | base64").strip()
        self.assertIn('"PowerState"', self.shell(
            f'curl -u admin:admin123 http://{HOST}/redfish/v1/Systems/1'))
        self.assertIn('"PowerState"', self.shell(
            f'curl -H "Authorization: Basic {basic}" '
            f'http://{HOST}/redfish/v1/Systems/1'))
        token = self.log_in()
        self.power(token, 'On')
        system = self.read(token, 'Systems/1')
        self.assertEqual(('On', 'KubeVirt', 'Virtual'), tuple(
            system[name] for name in (
                'PowerState', 'Manufacturer', 'SystemType')))
        self.assertIn('FirmwareVersion', self.read(token, 'Managers/BMC'))
        for kind in 'GracefulShutdown', 'On', 'ForceOff', 'On':
            self.send(token, 'POST', RESET, {'ResetType': kind})
            self.power(token, 'On' if kind == 'On' else 'Off')
        for kind in 'GracefulRestart', 'ForceRestart':
            count = self.boots()
            self.send(token, 'POST', RESET, {'ResetType': kind})
            self.wait_boot(count + 1)
            self.power(token, 'On')
        for enabled in 'Once', 'Continuous':
            for target in TARGETS:
                boot = {'BootSourceOverrideTarget': target,
                        'BootSourceOverrideEnabled': enabled}
                self.send(token, 'PATCH', 'Systems/1', {'Boot': boot})
                shown = self.read(token, 'Systems/1')['Boot']
                self.assertEqual(boot, {key: shown[key] for key in boot})
        self.send(token, 'PATCH', 'Systems/1', {
            'Boot': {'BootSourceOverrideEnabled': 'Disabled'}})
        self.send(token, 'PATCH', 'Systems/1', {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Once',
            'BootSourceOverrideMode': 'UEFI'}})
        count = self.boots()
        self.send(token, 'POST', RESET, {'ResetType': 'ForceRestart'})
        boot = self.wait_boot(count + 1)
        self.assertEqual(('Pxe', 'efi'), (boot['class'], boot['firmware']))
        self.send(token, 'PATCH', 'Systems/1', {
            'Boot': {'BootSourceOverrideMode': 'Legacy'}})

    def test_ipmi_guide(self):
        address = self.start(BMC + '  ipmi: {enabled: true}\n')
        for interface in 'lanplus', 'lan':
            self.use_ipmi(f'ipmitool -I {interface} -U admin -P admin123 '
                          f'-H {address} ')

    def use_ipmi(self, ipmi):
        def power(wanted):
            self.until('power', lambda: self.shell(ipmi + 'power status'),
                       f'Chassis Power is {wanted}\n', 600)
        power('on')
        for word, then in (('soft', 'off'), ('on', 'on'), ('off', 'off'),
                           ('on', 'on')):
            self.shell(f'{ipmi}power {word}')
            power(then)
        for word in 'cycle', 'reset':
            count = self.boots()
            self.shell(f'{ipmi}power {word}')
            self.wait_boot(count + 1)
            power('on')
        self.assertIn('Device ID', self.shell(ipmi + 'mc info'))
        self.assertIn('Product Manufacturer  : KubeVirt',
                      self.shell(ipmi + 'fru print 0'))
        for device, shown in (('pxe', 'Force PXE'),
                              ('disk', 'Force Boot from default Hard-Drive'),
                              ('cdrom', 'Force Boot from CD/DVD')):
            for options, lasts in (('', 'only next boot'), (
                    ' options=persistent', 'all future boots'), (
                    ' options=efiboot', 'only next boot'), (
                    ' options=persistent,efiboot', 'all future boots')):
                self.shell(f'{ipmi}chassis bootdev {device}{options}')
                text = self.shell(ipmi + 'chassis bootparam get 5')
                self.assertIn(f'Options apply to {lasts}', text)
                self.assertIn(shown, text)
        self.shell(ipmi + 'raw 0x00 0x08 0x05 0xe0 0x04 0x00 0x00 0x00')
        self.assertIn('Force PXE', self.shell(
            ipmi + 'chassis bootparam get 5'))
        self.shell(ipmi + 'chassis bootdev none')
        self.assertIn('No override', self.shell(
            ipmi + 'chassis bootparam get 5'))

    def images(self):
        address = webserver.own_address()
        if not address:
            self.skipTest('the host has no address that BMCs may load from')
        return self.useFixture(image_server.ImageServer(address)).url

    def test_virtual_media_guide(self):
        image = self.images() + '/live-server-amd64.iso'
        self.start()
        token = self.log_in()
        self.send(token, 'POST', MEDIUM + '/Actions/VirtualMedia.InsertMedia',
                  {'Image': image, 'Inserted': True})
        medium = self.read(token, MEDIUM)
        self.assertEqual((image, True), (medium['Image'], medium['Inserted']))
        self.assertIn('CD', medium['MediaTypes'])
        self.send(token, 'POST', MEDIUM + '/Actions/VirtualMedia.EjectMedia',
                  {})
        self.assertFalse(self.read(token, MEDIUM)['Inserted'])

    def test_metal3_demo(self):
        """Ironic's library boots an image, by the address of a host."""
        image = self.images() + '/live.iso'
        self.apply(DEMO_VM, DEMO_BMC)
        self.shell('kubectl wait -n default --for=condition=Ready '
                   'virtualmachinebmc/demo-bmc --timeout=600s')
        address = self.kubectl.get('service', 'demo-vm-virtbmc')['spec'][
            'clusterIP']
        client = sushy.Sushy(f'http://{address}:80/redfish/v1', auth=(
            auth.SessionOrBasicAuth('admin', 'password')))
        system = client.get_system('/redfish/v1/Systems/1')
        medium = next(one for one in client.get_manager(
            system.managers[0].path).virtual_media.get_members()
            if sushy.VIRTUAL_MEDIA_CD in one.media_types)
        medium.insert_media(image)
        system.set_system_boot_options(sushy.BOOT_SOURCE_TARGET_CD,
                                       sushy.BOOT_SOURCE_ENABLED_ONCE)
        system.reset_system(sushy.RESET_ON)
        boot = self.sandbox.wait_boot('demo-vm', 1, namespace=self.namespace)
        self.assertEqual(('Cd', 'efi'), (boot['class'], boot['firmware']))
