# SPDX-License-Identifier: Apache-2.0
"""Clients of KubeVirtBMC work with this project, unchanged.

The manifests have the fields of KubeVirtBMC's, and the commands are the kinds
that its README (v0.7.0) has, run by a shell; `test_kubevirtbmc_guides` has
those of its guides.
"""

import json
import re

import yaml

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import webserver
from tests.fixtures import image_server
from tests.fixtures import kubevirtbmc
from tests.fixtures import operator
from tests.fixtures import transcript_case

# A VM, a Secret and a VirtualMachineBMC, with the fields that KubeVirtBMC's
# users set.
VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: rack7, namespace: default}
spec:
  runStrategy: Halted
  template:
    spec:
      domain:
        cpu: {cores: 1}
        memory: {guest: 1Gi}
        machine: {type: q35}
        features: {acpi: {enabled: true}}
        firmware: {bootloader: {efi: {secureBoot: false}}}
        devices:
          disks: [{name: drive, cdrom: {bus: sata}}]
          interfaces: [{name: net, masquerade: {}}]
      networks: [{name: net, pod: {}}]
"""

SECRET = """---
apiVersion: v1
kind: Secret
metadata: {name: rack7-login, namespace: default}
data: {username: YWRtaW4=, password: cGFzc3dvcmQ=}
"""

BMC = """
apiVersion: bmc.kubevirt.io/v1beta1
kind: VirtualMachineBMC
metadata: {name: rack7-bmc, namespace: default}
spec:
  virtualMachineRef: {name: rack7}
  authSecretRef: {name: rack7-login}
"""

JSON = '-H "Content-Type: application/json"'


class TranscriptTestCase(transcript_case.TranscriptCase):

    def setUp(self):
        super().setUp()
        self.default = self.admin.within('default')

    @staticmethod
    def ports(service):
        return sorted((one['protocol'], one['port'])
                      for one in service['spec']['ports'])

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

        boots = len(self.sandbox.boots('rack7'))
        reset('On')
        self.until('power', lambda: system()['PowerState'], 'On')
        self.sandbox.wait_boot('rack7', boots + 1)
        reset('ForceRestart')
        boot = self.sandbox.wait_boot('rack7', boots + 2)
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

    @given_cluster.needs_sandbox('the namespace default for itself')
    def test_readme(self):
        self.default.apply(VM, SECRET)
        self.addCleanup(self.default, 'delete', 'vm/rack7',
                        'secret/rack7-login')
        self.shell(f'cat <<EOF | kubectl apply -f -{BMC}EOF')
        self.shell('kubectl wait --for=condition=Ready '
                   'virtualmachinebmcs/rack7-bmc --timeout=60s')
        status = yaml.safe_load(self.shell(
            'kubectl get virtualmachinebmcs rack7-bmc -o yaml'))['status']
        self.assertIn(('Ready', 'True', 'ServiceReady'), [
            (one['type'], one['status'], one['reason'])
            for one in status['conditions']])
        # The Service has the VM's name.
        address = self.find('rack7-virtbmc')
        url = 'http://rack7-virtbmc.default.svc'
        # Scripts that find one by the label, or by the status, get the same.
        found = self.default.get('services', '-l', operator.LABEL
                                 + 'rack7-bmc')['items']
        self.assertEqual({'rack7-virtbmc', 'rack7-bmc-virtbmc'}, {
            one['metadata']['name'] for one in found})
        for one in found:
            self.assertEqual([('TCP', 80), ('TCP', 443), ('UDP', 623)],
                             self.ports(one))
        self.assertIn(status['clusterIP'], [
            one['spec']['clusterIP'] for one in found])
        self.assertRegex(
            self.shell('kubectl get pods -l ' + operator.LABEL
                       + 'rack7-bmc').splitlines()[1],
            r'^rack7-bmc-virtbmc-\S+ +1/1 +Running +0 ')
        for each in (address, status['clusterIP']):
            self.power_cycle_by_ipmi(each)
            self.shell('ipmitool -I lanplus -U admin -P password -H %s power '
                       'off' % each)
            self.sandbox.wait_stopped('rack7')
        self.run_redfish_transcript(url)
        if webserver.own_address():
            self.use_virtual_media(url)
        self.check_https()
        self.delete_bmcs('rack7-bmc')

    def check_https(self):
        """HTTPS is served beside HTTP, with a certificate for both names."""
        bmc = operator.Bmc(self.default, 'rack7-bmc', 'admin', 'password')
        self.assertRegex(bmc.url(), '^https://')
        self.assertEqual('Off', bmc.power())
        self.shell('curl --cacert %s -u admin:password --fail '
                   'https://rack7-virtbmc.default.svc/redfish/v1/Systems/1'
                   % bmc.ca_file())
        protocols = bmc.curl('/redfish/v1/Managers/1/NetworkProtocol').json()
        self.assertEqual((80, 443, 623), tuple(
            protocols[name]['Port'] for name in ('HTTP', 'HTTPS', 'IPMI')))
        # Users can switch HTTP off, or HTTPS.
        for plain, ports in ((False, [('TCP', 443), ('UDP', 623)]),
                             (True, [('TCP', 80), ('UDP', 623)])):
            bmc.patch(redfish={'plainHTTP': plain})
            bmc.current()
            for name in 'rack7-virtbmc', 'rack7-bmc-virtbmc':
                self.assertEqual(ports, self.ports(
                    self.default.get('service', name)))
            self.assertEqual('Off', bmc.power())

    def test_name_of_service_is_taken(self):
        self.default.apply(VM.replace('rack7', 'rack9'), SECRET)
        self.addCleanup(self.default, 'delete', 'vm/rack9',
                        'secret/rack7-login')
        self.default('create', 'service', 'clusterip', 'rack9-virtbmc',
                     '--tcp=80:80')
        self.default.apply(BMC.replace('rack7-login', 'login').replace(
            'rack7', 'rack9').replace('login', 'rack7-login'))
        bmc = operator.Bmc(self.default, 'rack9-bmc', 'admin', 'password')
        bmc.ready()
        self.assertEqual('Off', bmc.works())
        self.assertEqual(('True', 'SecondServiceNameTaken'),
                         bmc.condition('EndpointReady'))
        self.assertIn('Service rack9-virtbmc', bmc.message('EndpointReady'))
        self.until('Event', lambda: 'SecondServiceNameTaken' in [
            one['reason'] for one in self.default.get(
                'events', '--field-selector',
                'involvedObject.name=rack9-bmc')['items']])
        self.assertEqual([('TCP', 80)], self.ports(self.default.get(
            'service', 'rack9-virtbmc')))
        self.default('delete', 'service', 'rack9-virtbmc')
        self.until('second Service', lambda: bmc.condition('EndpointReady'),
                   ('True', 'EndpointAssigned'))
        self.find('rack9-virtbmc')
        self.shell('curl -u admin:password --fail '
                   'http://rack9-virtbmc.default.svc/redfish/v1/Systems/1')
        self.delete_bmcs('rack9-bmc')

    def test_samples(self):
        """The samples of this project work."""
        folder = operator.MANIFESTS / 'samples'
        for name in ('vm', 'secret', 'bmc'):
            self.shell(f'kubectl apply -f {folder}/{name}.yaml')
        self.addCleanup(self.default, 'delete', 'vm/node-0',
                        'secret/node-0-bmc')
        self.default.apply(VM.replace('rack7', 'test-vm'))
        self.shell(f'kubectl apply -f {folder}/kubevirtbmc.yaml')
        self.addCleanup(self.default, 'delete', 'vm/test-vm',
                        'secret/vmbmc-auth-secret')
        for name in ('node-0', 'test-vmbmc'):
            bmc = operator.Bmc(self.default, name, 'admin', 'password')
            self.assertEqual('Off', bmc.ready().works())
        self.delete_bmcs('node-0', 'test-vmbmc')


class MigrationTestCase(operator.OperatorTestCase):

    RUNS = False

    def test_adopts_objects_of_kubevirtbmc(self):
        """The operator takes over what KubeVirtBMC has left."""
        kubectl = self.kubectl
        before = {}
        # The objects of the second one have names that the BMC needs.
        for name, vm in (('rack7-bmc', 'rack7'), ('rack8', 'rack8')):
            kubectl.apply(
                *(text.replace('default', self.namespace) for text in (
                    VM.replace('rack7', vm), SECRET, '---' + BMC.replace(
                        'name: rack7}', f'name: {vm}}}').replace(
                            'rack7-bmc', name))))
            bmc = kubectl.get('vmbmc', name)
            kubectl('create', '-f', '-', stdin=json.dumps({
                'apiVersion': 'v1', 'kind': 'List',
                'items': kubevirtbmc.objects(bmc, vm)}))
            before[vm] = kubectl.get('service', f'{vm}-virtbmc')
        running = self.useFixture(operator.Operator(self.account))
        for name, vm in (('rack7-bmc', 'rack7'), ('rack8', 'rack8')):
            bmc = operator.Bmc(kubectl, name, 'admin', 'password').ready()
            self.assertEqual(('True', 'EndpointAssigned'),
                             bmc.condition('EndpointReady'))
            after = kubectl.get('service', f'{vm}-virtbmc')
            for part, field in (('metadata', 'uid'), ('spec', 'clusterIP')):
                self.assertEqual(before[vm][part][field], after[part][field])
            self.assertEqual(
                {80: 'redfish-http', 443: 'redfish', 623: 'ipmi'},
                {port['port']: port['targetPort']
                 for port in after['spec']['ports']})
            self.assertEqual('Off', operator.curl(
                'http://%s/redfish/v1/Systems/1' % after['spec']['clusterIP'],
                config='user = "admin:password"').json()['PowerState'])
        for kind, name in (('serviceaccount', 'rack8-virtbmc'),
                           ('deployment', 'rack8-virtbmc')):
            self.assertEqual(operator.NAME, kubectl.get(kind, name)[
                'metadata']['labels']['app.kubernetes.io/managed-by'])
        # What has another name is left, for the administrator to delete.
        self.assertEqual(['deployment.apps/rack7-virtbmc'],
                         kubectl.names('deployments', '-l', kubevirtbmc.LEFT))
        self.assertEqual([], running.warnings())
