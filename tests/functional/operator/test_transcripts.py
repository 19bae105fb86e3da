# SPDX-License-Identifier: Apache-2.0
"""Commands from KubeVirtBMC's documentation work with this project.

The commands are those of KubeVirtBMC's README (v0.7.0) and guides, run by a
shell. As there is no DNS, curl gets the addresses of the cluster's names.
As in KubeVirtBMC, the Service is found by its label; here it has the name of
the BMC.
"""

import json
import re
import subprocess

import yaml

from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import webserver
from tests.fixtures import image_server
from tests.fixtures import operator

# The VM of that README, its Secret and its VirtualMachineBMC.
VM = '''
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: test-vm
  namespace: default
spec:
  runStrategy: Halted
  template:
    metadata:
      labels:
        kubevirt.io/domain: test-vm
    spec:
      domain:
        cpu:
          cores: 2
        devices:
          disks:
          - cdrom:
              bus: sata
            name: cdrom
          interfaces:
          - name: default
            masquerade: {}
        features:
          acpi:
            enabled: true
        firmware:
          bootloader:
            efi:
              secureBoot: false
        machine:
          type: q35
        memory:
          guest: 4Gi
        resources:
          limits:
            cpu: "2"
            memory: 4Gi
      hostname: test-vm
      networks:
      - name: default
        pod: {}
      evictionStrategy: LiveMigrateIfPossible
---
apiVersion: v1
kind: Secret
metadata:
  name: vmbmc-auth-secret
  namespace: default
data:
  password: cGFzc3dvcmQ= # password
  username: YWRtaW4=     # admin
'''

BMC = '''
apiVersion: bmc.kubevirt.io/v1beta1
kind: VirtualMachineBMC
metadata:
  name: test-vmbmc
  namespace: default
spec:
  virtualMachineRef:
    name: test-vm
  authSecretRef:
    name: vmbmc-auth-secret
'''

JSON = '-H "Content-Type: application/json"'


class TranscriptTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.default = self.admin.within('default')

    def shell(self, command, stdin=None):
        """Return the output of a command run in a shell in the cluster."""
        done = subprocess.run(
            ['sh', '-c', command], input=stdin, capture_output=True,
            text=True, timeout=90, env=process.environment(
                self.operator.home, {'KUBECONFIG': self.sandbox.kubeconfig,
                                     'CURL_HOME': self.operator.home}))
        self.assertEqual(0, done.returncode, (command, done.stderr))
        return done.stdout

    def curl(self, command):
        """Return status line, headers and body that ``curl -i`` prints."""
        text = self.shell(command)
        head, _, body = text.replace('\r', '').partition('\n\n')
        found = re.match(r'HTTP/1\.1 (\d+) ([A-Za-z ]+)\n', head + '\n')
        self.assertIsNotNone(found, text)
        return '%s %s' % found.groups(), head, body

    def find(self, name, plain):
        """Find a BMC's Service by the label; return address and base URL."""
        found = self.default.get('services', '-l',
                                 operator.LABEL + name)['items']
        self.assertEqual(1, len(found), found)
        service = found[0]
        self.assertEqual('ClusterIP', service['spec']['type'])
        address = service['spec']['clusterIP']
        ports = {(one['protocol'], one['port'])
                 for one in service['spec']['ports']}
        port = 80 if plain else 443
        self.assertEqual({('UDP', 623), ('TCP', port)}, ports)
        host = f"{service['metadata']['name']}.default.svc"
        lines = ['resolve = "%s:%d:%s"' % (host, port, address),
                 'noproxy = "*"', 'silent', 'show-error']
        if not plain:
            ca = self.operator.home / 'ca.crt'
            ca.write_text(self.shell(
                'kubectl get configmap %s-virtbmc-ca -o '
                'jsonpath="{.data.ca\\.crt}"' % name))
            lines.append(f'cacert = "{ca}"')
        (self.operator.home / '.curlrc').write_text('\n'.join(lines))
        self.addCleanup((self.operator.home / '.curlrc').unlink,
                        missing_ok=True)
        return address, ('http://' if plain else 'https://') + host

    def power_cycle_by_ipmi(self, address):
        ipmi = f'ipmitool -I lan -U admin -P password -H {address} '
        self.assertEqual('Chassis Power is off\n',
                         self.shell(ipmi + 'power status'))
        self.assertEqual('Chassis Power Control: Up/On\n',
                         self.shell(ipmi + 'power on'))
        self.until('power', lambda: self.shell(ipmi + 'power status'),
                   'Chassis Power is on\n')
        # IPMI v2.0 works as well.
        self.assertEqual('Chassis Power is on\n', self.shell(
            ipmi.replace('-I lan ', '-I lanplus ') + 'power status'))

    def run_redfish_transcript(self, url):
        """Run the README's transcript; the VM is off before and after."""
        root = json.loads(self.shell(f'curl -L {url}/redfish/v1'))
        self.assertEqual({'@odata.id': '/redfish/v1/Systems'},
                         root['Systems'])
        self.assertEqual('/redfish/v1/SessionService/Sessions',
                         root['Links']['Sessions']['@odata.id'])

        said, head, body = self.curl(
            'curl -i -X POST %s %s/redfish/v1/SessionService/Sessions '
            '-d \'{"UserName":"admin","Password":"password"}\''
            % (JSON, url))
        self.assertEqual('201 CREATED', said.upper())
        self.assertEqual('admin', json.loads(body)['UserName'])
        session = re.search(r'(?im)^Location: (\S+)$', head)[1]
        self.assertIn('/redfish/v1/SessionService/Sessions/', session)
        session = session.partition('/redfish/')[2]
        token = '-H "X-Auth-Token: %s"' % re.search(
            r'(?im)^X-Auth-Token: (\S+)$', head)[1]

        where = url + '/redfish/v1/Systems/1'

        def system():
            return json.loads(self.shell(f'curl {token} {where}'))
        self.assertEqual('Off', system()['PowerState'])

        said, _, body = self.curl(
            'curl -i -X PATCH %s %s %s -d \'{"Boot":{'
            '"BootSourceOverrideTarget":"Pxe",'
            '"BootSourceOverrideEnabled":"Continuous"}}\''
            % (JSON, token, where))
        self.assertEqual(('204 NO CONTENT', ''), (said.upper(), body))
        self.assertEqual(
            ('Pxe', 'Continuous'),
            (system()['Boot']['BootSourceOverrideTarget'],
             system()['Boot']['BootSourceOverrideEnabled']))

        def reset(kind):
            said, _, body = self.curl(
                'curl -i -X POST %s %s %s/Actions/ComputerSystem.Reset '
                '-d \'{"ResetType":"%s"}\'' % (JSON, token, where, kind))
            self.assertEqual(('204 NO CONTENT', ''), (said.upper(), body),
                             kind)

        boots = len(self.sandbox.boots('test-vm'))
        reset('On')
        self.until('power', lambda: system()['PowerState'], 'On')
        self.sandbox.wait_boot('test-vm', boots + 1)
        reset('ForceRestart')
        boot = self.sandbox.wait_boot('test-vm', boots + 2)
        self.assertEqual('Pxe', boot['class'])
        reset('GracefulShutdown')
        self.until('power', lambda: system()['PowerState'], 'Off')

        said, _, body = self.curl('curl -i -X DELETE %s %s/redfish/%s'
                                  % (token, url, session))
        self.assertEqual(('204 NO CONTENT', ''), (said.upper(), body))
        said, _, _ = self.curl(f'curl -i {token} {where}')
        self.assertEqual('401 UNAUTHORIZED', said.upper())

    def use_virtual_media(self, url):
        """Use virtual media under the manager's name of the README."""
        # A BMC refuses URLs of the loopback address.
        images = self.useFixture(image_server.ImageServer(
            webserver.own_address())).url + '/live-server-amd64.iso'
        user = '-u admin:password'
        where = url + '/redfish/v1/Managers/BMC/VirtualMedia/CD1'
        manager = json.loads(self.shell(
            f'curl {user} {url}/redfish/v1/Managers/BMC'))
        self.assertIn('VirtualMedia', manager)
        said, _, body = self.curl(f'curl -i {user} {where}')
        self.assertEqual('200 OK', said)
        self.assertFalse(json.loads(body)['Inserted'])
        said, _, _ = self.curl(
            'curl -i -X POST %s %s %s/Actions/VirtualMedia.InsertMedia -d '
            '\'{"Image": "%s", "Inserted": true}\''
            % (JSON, user, where, images))
        self.assertEqual('204 NO CONTENT', said.upper())
        _, _, body = self.curl(f'curl -i {user} {where}')
        self.assertEqual((True, images), (
            json.loads(body)['Inserted'], json.loads(body)['Image']))
        said, _, _ = self.curl(
            'curl -i -X POST %s %s %s/Actions/VirtualMedia.EjectMedia '
            '-d \'{}\'' % (JSON, user, where))
        self.assertEqual('204 NO CONTENT', said.upper())
        _, _, body = self.curl(f'curl -i {user} {where}')
        self.assertFalse(json.loads(body)['Inserted'])

    def delete_bmcs(self, *names):
        for name in names:
            self.default('delete', 'vmbmc', name)
            self.until('nothing left', lambda name=name: self.default.names(
                operator.OWNED, '-l', operator.LABEL + name), [])

    def test_readme(self):
        self.default.apply(VM)
        self.addCleanup(self.default, 'delete', 'vm/test-vm',
                        'secret/vmbmc-auth-secret')
        # As written, with HTTPS, and then with HTTP as in KubeVirtBMC.
        self.shell(f'cat <<EOF | kubectl apply -f -{BMC}EOF')
        self.shell('kubectl wait --for=condition=Ready '
                   'virtualmachinebmcs/test-vmbmc --timeout=60s')
        status = yaml.safe_load(self.shell(
            'kubectl get virtualmachinebmcs test-vmbmc -o yaml'))['status']
        address, url = self.find('test-vmbmc', plain=False)
        self.assertEqual(address, status['clusterIP'])
        self.assertIn(('Ready', 'True', 'ServiceReady'), [
            (one['type'], one['status'], one['reason'])
            for one in status['conditions']])
        lines = self.shell('kubectl get pods,services -l '
                           + operator.LABEL + 'test-vmbmc').splitlines()
        self.assertRegex(lines[1], r'^pod/test-vmbmc-virtbmc-\S+ +2/2 +'
                                   r'Running +0 ')
        self.assertRegex(
            lines[-1], r'^service/test-vmbmc-virtbmc +ClusterIP +'
            + re.escape(address) + r' +<none> +443/TCP,623/UDP ')
        self.power_cycle_by_ipmi(address)
        self.shell('ipmitool -I lanplus -U admin -P password -H %s power off'
                   % address)
        self.sandbox.wait_stopped('test-vm')
        self.run_redfish_transcript(url)

        self.default('patch', 'vmbmc', 'test-vmbmc', '--type=merge', '-p',
                     '{"spec":{"redfish":{"plainHTTP":true}}}')
        operator.Bmc(self.default, 'test-vmbmc', 'admin',
                     'password').current()
        again, url = self.find('test-vmbmc', plain=True)
        self.assertEqual(address, again)
        self.run_redfish_transcript(url)
        if webserver.own_address():
            self.use_virtual_media(url)
        self.delete_bmcs('test-vmbmc')

    def test_guide(self):
        """The commands of "Getting Started", which differ from the README."""
        self.default('apply', '-f', '-', stdin=VM.partition('---')[0].replace(
            'test-vm', 'testvm'))
        self.shell('kubectl create secret generic bmc-secret '
                   '--from-literal=username=admin '
                   '--from-literal=password=admin123 -n default')
        self.addCleanup(self.default, 'delete', 'vm/testvm',
                        'secret/bmc-secret')
        for name, refs in (('test-bmc', ('virtualMachineRef',
                                         'authSecretRef')),
                           ('other-bmc', ('virtualMachine', 'authSecret'))):
            self.default.apply({
                'apiVersion': 'bmc.kubevirt.io/v1beta1',
                'kind': 'VirtualMachineBMC', 'metadata': {'name': name},
                'spec': {refs[0]: {'name': 'testvm'},
                         refs[1]: {'name': 'bmc-secret'},
                         'redfish': {'plainHTTP': True}}})
        for name in ('test-bmc', 'other-bmc'):
            self.default.wait('vmbmc/' + name, 'condition=Ready')
            address, url = self.find(name, plain=True)
            system = json.loads(self.shell(
                f'curl -u admin:admin123 {url}/redfish/v1/Systems/1'))
            self.assertEqual('Off', system['PowerState'])
            token = self.shell(
                'curl -s -i -X POST %s %s/redfish/v1/SessionService/Sessions '
                '-d \'{"UserName":"admin","Password":"admin123"}\' | grep -i '
                '"X-Auth-Token" | cut -d" " -f2 | tr -d "\\r"' % (JSON, url))
            self.assertIn('"PowerState"', self.shell(
                'curl -H "X-Auth-Token: %s" %s/redfish/v1/Systems/1'
                % (token.strip(), url)))
            self.assertEqual('Chassis Power is off\n', self.shell(
                'ipmitool -I lanplus -U admin -P admin123 -H %s power status'
                % address))
        self.delete_bmcs('test-bmc', 'other-bmc')

    def test_samples(self):
        """The samples of this project work."""
        folder = operator.MANIFESTS / 'samples'
        for name in ('vm', 'secret', 'bmc'):
            self.shell(f'kubectl apply -f {folder}/{name}.yaml')
        self.addCleanup(self.default, 'delete', 'vm/node-0',
                        'secret/node-0-bmc')
        self.default('apply', '-f', '-', stdin=VM)
        self.shell(f'kubectl apply -f {folder}/kubevirtbmc.yaml')
        self.addCleanup(self.default, 'delete', 'vm/test-vm',
                        'secret/vmbmc-auth-secret')
        for name in ('node-0', 'test-vmbmc'):
            bmc = operator.Bmc(self.default, name, 'admin', 'password')
            self.assertEqual('Off', bmc.ready().works())
        self.delete_bmcs('node-0', 'test-vmbmc')
