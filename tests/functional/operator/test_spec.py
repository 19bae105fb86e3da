# SPDX-License-Identifier: Apache-2.0
"""Change every field of the spec of a BMC that is in use."""

import datetime
import json
import ssl

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import webserver
from sushy_kubevirt.operator import pki
from tests.fixtures import image_server
from tests.fixtures import operator


class SpecTestCase(operator.OperatorTestCase):

    @classmethod
    def arguments(cls):
        url, ca = cls.sandbox.upload_proxy()
        return ('--image', 'registry.test/emulator:1',
                '--allowed-images', 'registry.test/emulator',
                '--upload-proxy-url', url, '--upload-proxy-ca', ca)

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()
        self.sandbox.reset_stats()
        self.box = self.bmc().ready()

    def tearDown(self):
        self.assert_no_warnings(self.mark, pods=True)
        super().tearDown()

    def pod(self):
        """Return the only pod of the settled Deployment."""
        found = [one for one in self.kubectl.get(
            'pods', '-l', operator.LABEL + 'box')['items']
            if 'deletionTimestamp' not in one['metadata']]
        self.assertEqual(1, len(found))
        return found[0]

    def container(self):
        one, = self.pod()['spec']['containers']
        return one

    def port_names(self):
        return {port['name'] for port in self.container()['ports']}

    def service(self):
        return self.kubectl.get('service', self.box.base)

    def ports(self):
        return {one['port'] for one in self.service()['spec']['ports']}

    def serial_console(self):
        """Return IPMI's part of Redfish's SerialConsole; None without one."""
        types = self.box.curl('/redfish/v1/Managers/1').json()[
            'SerialConsole']['ConnectTypesSupported']
        found = self.box.curl().json()['SerialConsole'].get('IPMI')
        self.assertEqual(['Oem'] if found is None else ['IPMI', 'Oem'], types)
        return found

    def endpoints(self):
        return set(self.box.status['endpoints'])

    def test_enabled_protocols(self):
        endpoint = self.box.status['endpoints']['ipmi']
        url = self.box.url()
        self.assertEqual(623, self.serial_console()['Port'])
        self.box.patch(ipmi={'enabled': False})
        self.box.current()
        self.assertEqual({'redfish'}, self.endpoints())
        self.assertEqual({'redfish', 'bmc-health'}, self.port_names())
        self.assertEqual({443}, self.ports())
        self.assertEqual('Off', self.box.power())
        self.assertIsNone(self.serial_console())
        self.assertNotEqual(0, operator.vbmcd.ipmitool(
            ipmi_bmc(endpoint), 'mc', 'info', username='admin',
            password=self.box.password,
            options=('-N', '1', '-R', '1')).returncode)

        self.box.patch(ipmi={'enabled': True}, redfish={'enabled': False})
        self.box.current()
        self.assertEqual({'ipmi'}, self.endpoints())
        self.assertEqual({'ipmi', 'bmc-health'}, self.port_names())
        self.assertEqual({623}, self.ports())
        self.assertIn('is off', self.box.ipmi('power', 'status'))
        self.assertRaises(AssertionError, operator.curl, url)
        # The ConfigMap is used by Redfish only.
        self.until('config', lambda: self.kubectl.names(
            'configmaps', '-l', operator.LABEL + 'box'), [])

        self.box.patch(redfish={'enabled': True})
        self.box.current()
        self.assertEqual('Off', self.box.works())
        self.assertEqual(623, self.serial_console()['Port'])

        self.assertIn('enable ipmi, redfish or both', self.kubectl.refused(
            'patch', 'vmbmc', 'box', '--type=merge', '-p', json.dumps(
                {'spec': {'ipmi': {'enabled': False},
                          'redfish': {'enabled': False}}})))

    def test_plain_http(self):
        self.box.patch(redfish={'plainHTTP': True})
        self.box.current()
        self.assertRegex(self.box.url(), r'^http://[0-9.]+/redfish/v1/Sys')
        self.assertEqual({80, 623}, self.ports())
        self.assertNotIn('certificateAuthority',
                         self.box.status['endpoints']['redfish'])
        self.assertEqual('Off', self.box.works())
        self.box.patch(redfish={'plainHTTP': None})
        self.box.current()
        self.assertRegex(self.box.url(), r'^https://')
        self.assertEqual('Off', self.box.works())

    def test_web_page(self):
        self.assertEqual(200, self.box.curl('/').code)
        self.assertTrue(self.may_see_display('box', self.box.base))
        self.box.patch(redfish={'webPage': False})
        self.box.current()
        self.assertEqual(404, self.box.curl('/').code)
        self.assertFalse(self.may_see_display('box', self.box.base))
        self.assertEqual('Off', self.box.works())
        self.box.patch(redfish={'webPage': True})
        self.box.current()
        self.assertEqual(200, self.box.curl('/').code)
        self.assertTrue(self.may_see_display('box', self.box.base))

    def test_own_certificate(self):
        self.box.patch(redfish={'tls': {'secretName': 'mine'}})
        self.until('reason', self.box.condition,
                   ('False', 'CertificateMissing'))
        self.assertIn('mine', self.box.message())
        address = self.service()['spec']['clusterIP']
        first = self.own_secret(address)
        self.box.current()
        self.assertNotIn('certificateAuthority',
                         self.box.status['endpoints']['redfish'])
        self.assertEqual('Off', self.box.power(ca=first.ca))
        # A renewal, as by cert-manager, restarts no process.
        pids = self.box.processes()
        second = self.own_secret(address)
        self.until('new certificate', lambda: self.power_with(second), 'Off')
        self.assertIsNone(self.power_with(first))
        self.assertEqual(pids, self.box.processes())
        self.check_expiry(address, pids)
        self.box.patch(redfish={'tls': None})
        self.box.current()
        self.assertEqual('Off', self.box.works())

    def check_expiry(self, address, pids):
        """Let the certificate expire, then renew it."""
        begin = (datetime.datetime.now(datetime.UTC)
                 - pki.CERTIFICATE_LIFE + datetime.timedelta(seconds=6))
        late = self.useFixture(certificates.Certificate())
        pair = pki.issue(pki.make('mine', begin), [address],
                         begin)
        late.certificate.write_text(pair.certificate)
        late.key.write_text(pair.key)
        self.apply_secret(late)
        # The operator reacts to the time only.
        self.until('expired', lambda: self.box.condition('EndpointReady'),
                   ('False', 'CertificateExpired'))
        self.assertIn('renew it', self.box.message())
        self.until('served', lambda: self.served() == ssl.PEM_cert_to_DER_cert(
            pair.certificate), True)
        self.assertEqual(200, operator.curl(
            self.box.url(), '--insecure', config=(
                f'user = "{self.box.username}:{self.box.password}"\n')).code)
        self.assertEqual(('True', 'EmulatorReady'),
                         self.box.condition('BMCEmulatorReady'))
        renewed = self.own_secret(address)
        self.box.ready()
        self.until('renewed', lambda: self.power_with(renewed), 'Off')
        self.assertEqual(pids, self.box.processes())

    def served(self):
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((
            self.service()['spec']['clusterIP'], 443)))

    def own_secret(self, address):
        """Create or change a Secret with a certificate; return the fixture."""
        made = self.useFixture(certificates.Certificate([address]))
        self.apply_secret(made)
        return made

    def apply_secret(self, made):
        self.kubectl.apply(self.kubectl(
            'create', 'secret', 'tls', 'mine', '--cert', made.certificate,
            '--key', made.key, '--dry-run=client', '-o', 'yaml'))

    def power_with(self, certificate):
        """Read the power state with a trusted certificate; None if refused."""
        try:
            return self.box.power(ca=certificate.ca)
        except AssertionError:
            return None

    def test_service_types(self):
        node = self.admin.get('nodes')['items'][0]['status']['addresses'][0][
            'address']
        self.box.patch(service={'type': 'NodePort', 'annotations': {
            'example.test/a': 'b'}})
        self.box.current()
        ports = {one['name']: one['nodePort']
                 for one in self.service()['spec']['ports']}
        self.assertEqual('b', self.service()['metadata']['annotations'][
            'example.test/a'])
        self.assertIn('is off', self.box.ipmi(
            'power', 'status', host=node, port=ports['ipmi']))
        self.assertEqual(200, operator.curl(
            f"https://{node}:{ports['redfish']}/redfish/v1",
            '--insecure', '-L').code)

        self.box.patch(service={'nodePorts': {'redfish': 31443,
                                              'ipmi': 31623}})
        self.box.current()
        self.assertEqual(
            {'ipmi': 31623, 'redfish': 31443},
            {one['name']: one['nodePort']
             for one in self.service()['spec']['ports']})
        self.until('answer', lambda: self.box.ipmitool(
            'power', 'status', host=node, port=31623).returncode, 0)

        # Two Services of a cluster cannot have the same fixed node port.
        self.box.patch(service={'type': 'LoadBalancer', 'nodePorts': None,
                                'annotations': None})
        self.box.current()
        found = self.service()
        self.assertNotIn('example.test/a',
                         found['metadata'].get('annotations') or {})
        balancer = found['status']['loadBalancer']['ingress'][0]['ip']
        status = self.box.status
        self.assertEqual(balancer, status['endpoints']['ipmi']['host'])
        self.assertIn(balancer, self.box.url())
        self.assertEqual(found['spec']['clusterIP'], status['serviceIP'])
        self.assertEqual(balancer, status['loadBalancerIP'])
        # The certificate is valid for that address too.
        self.until('power', self.box.works, 'Off')

        self.box.patch(service={'type': 'ClusterIP', 'ports': {
            'redfish': 8443, 'ipmi': 6623}})
        self.box.current()
        self.assertEqual({8443, 6623}, self.ports())
        # The BMC tells its clients.
        protocols = self.box.curl(
            '/redfish/v1/Managers/1/NetworkProtocol').json()
        self.assertEqual([8443, 6623], [
            protocols[name]['Port'] for name in ('HTTPS', 'IPMI')])
        port = self.serial_console()['Port']
        self.assertEqual(6623, port)
        self.assertRegex(self.box.ipmi('sol', 'info', port=port),
                         r'Payload Port +: 6623')
        self.assertNotIn('loadBalancerIP', self.box.status)
        self.assertIn(':8443/', self.box.url())
        self.until('power', self.box.works, 'Off')
        self.assertEqual('ClusterIP', self.service()['spec']['type'])

    def test_load_balancer_class(self):
        self.box.patch(service={'type': 'LoadBalancer',
                                'loadBalancerClass': 'example.test/none'})
        self.until('reason', self.box.condition,
                   ('False', 'LoadBalancerPending'))
        self.assertEqual(('False', 'ServiceNotReady'),
                         self.box.condition('ServiceReady'))
        self.assertNotIn('loadBalancerIP', self.box.status)
        self.assertEqual('example.test/none',
                         self.service()['spec']['loadBalancerClass'])
        # A class cannot be changed, so the Service is replaced.
        self.box.patch(service={'loadBalancerClass': None})
        self.box.current()
        self.until('power', self.box.works, 'Off')

    def test_auth_secret(self):
        old = self.box.password
        self.box.password = self.secret('second')
        self.box.patch(authSecret={'name': 'second'})
        self.box.current()
        self.assertEqual('second', self.box.status['authSecret'])
        self.until('power', self.box.works, 'Off')
        self.assertEqual(401, self.box.curl(password=old).code)
        # A Secret that the operator generates.
        self.box.patch(authSecret=None)
        self.box.current()
        self.assertEqual('box-virtbmc-auth', self.box.status['authSecret'])
        self.assertEqual(401, self.box.curl().code)
        self.box.password = self.kubectl(
            'get', 'secret', 'box-virtbmc-auth', '-o',
            'go-template={{.data.password | base64decode}}')
        self.passwords.add(self.box.password)
        self.until('power', self.box.works, 'Off')

    def test_virtual_media(self):
        host = webserver.own_address()
        if host is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        url = self.useFixture(image_server.ImageServer(host)).url + '/a.iso'
        where = '/redfish/v1/Managers/BMC/VirtualMedia/CD1/Actions/' \
                'VirtualMedia.%sMedia'

        def insert():
            return self.box.curl(
                where % 'Insert', '-X', 'POST', '-H',
                'Content-Type: application/json', '-d',
                json.dumps({'Image': url}))

        def eject():
            self.assertEqual(204, self.box.curl(
                where % 'Eject', '-X', 'POST', '-H',
                'Content-Type: application/json', '-d', '{}').code)

        self.box.patch(virtualMedia={'allowedHosts': ['other.test']})
        self.box.current()
        answer = insert()
        self.assertEqual(400, answer.code, answer.text)
        self.assertIn('spec.virtualMedia.allowedHosts of VirtualMachineBMC '
                      f'{self.namespace}/box', answer.text)
        self.box.patch(virtualMedia={
            'allowedHosts': [host], 'storageClassName': 'slow',
            'accessMode': 'ReadWriteMany', 'mode': 'import'})
        self.box.current()
        answer = insert()
        self.assertEqual(204, answer.code, answer.text)
        found = self.kubectl.get('datavolumes')['items']
        storage, = (one['spec']['storage'] for one in found)
        self.assertEqual(('slow', ['ReadWriteMany']), (
            storage['storageClassName'], storage['accessModes']))
        self.assertIn('http', found[0]['spec']['source'])
        eject()
        self.box.patch(virtualMedia={'mode': 'upload',
                                     'accessMode': None,
                                     'storageClassName': None})
        self.box.current()
        answer = insert()
        self.assertEqual(204, answer.code, answer.text)
        self.until('upload', lambda: [
            set(one['spec']['source']) for one in
            self.kubectl.get('datavolumes')['items']], [{'upload'}])
        eject()
        # An invalid host does not stop the running pod.
        pids = self.box.processes()
        self.box.patch(virtualMedia={'allowedHosts': ['10.0.0.1/8']})
        self.until('condition', lambda: self.box.condition()[0], 'False')
        self.assertIn('10.0.0.1/8', self.box.message())
        self.assertEqual(pids, self.box.processes())
        self.box.patch(virtualMedia=None)
        self.box.current()
        self.assertEqual('Off', self.box.works())

    def test_images_without_length_and_from_loopback(self):
        url = self.useFixture(image_server.ImageServer()).url
        device = '/redfish/v1/Systems/1/VirtualMedia/Cd'

        def insert(**more):
            return self.box.curl(
                device + '/Actions/VirtualMedia.InsertMedia',
                '-H', 'Content-Type: application/json', '-d',
                json.dumps({'Image': url + '/unsized.iso', **more}))
        # Messages name the field that allows each.
        for field, value in (('allowLoopback', True), ('defaultSize', '96Mi')):
            answer = insert()
            self.assertEqual(400, answer.code, answer.text)
            self.assertIn(f'spec.virtualMedia.{field} of VirtualMachineBMC '
                          f'{self.namespace}/box', answer.text)
            self.box.patch(virtualMedia={field: value})
            self.box.current()
        for more, source in (({}, 'http'),
                             ({'TransferMethod': 'Upload'}, 'upload')):
            answer = insert(**more)
            self.assertEqual(204, answer.code, answer.text)
            self.until('image', lambda source=source: [
                (source in one['spec']['source'], one['spec']['storage'][
                    'resources']['requests']['storage'],
                 one.get('status', {}).get('phase')) for one in
                self.kubectl.get('datavolumes')['items']],
                [(True, '96Mi', 'Succeeded')])
            self.assertEqual(204, self.box.curl(
                device + '/Actions/VirtualMedia.EjectMedia', '-X',
                'POST').code)
            self.until('ejected', lambda: self.kubectl.names(
                'datavolumes'), [])

    def test_run_strategy(self):
        for strategy, by in (('Manual', self.power_by_ipmi),
                             ('Always', self.power_by_redfish)):
            self.sandbox.patch('virtualmachines', 'box', {
                'spec': {'runStrategy': 'Halted'}}, self.namespace)
            self.box.patch(runStrategy=strategy)
            self.box.current()
            by('on')
            self.sandbox.wait_running('box', self.namespace)
            self.assertEqual(strategy, self.sandbox.vm(
                'box', self.namespace)['spec']['runStrategy'])
            by('off')
            self.sandbox.wait_stopped('box', self.namespace)

    def power_by_ipmi(self, state):
        self.box.ipmi('power', state)

    def power_by_redfish(self, state):
        answer = self.box.curl(
            '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset', '-X',
            'POST', '-H', 'Content-Type: application/json', '-d', json.dumps(
                {'ResetType': 'On' if state == 'on' else 'ForceOff'}))
        self.assertEqual(204, answer.code, answer.text)

    def test_node_selector_tolerations_and_resources(self):
        node = self.admin.get('nodes')['items'][0]['metadata']['name']
        self.addCleanup(self.admin, 'taint', 'node', node, 'only-')
        self.addCleanup(self.admin, 'label', 'node', node, 'rack-')
        self.admin('taint', 'node', node, 'only=bmcs:NoSchedule')
        self.box.patch(nodeSelector={'rack': 'one'}, resources={
            'redfish': {'requests': {'memory': '99Mi'},
                        'limits': {'memory': '123Mi'}},
            'ipmi': {'requests': {'cpu': '3m'}, 'limits': {
                'memory': '77Mi'}}})
        self.until('reason', lambda: self.box.condition()[0], 'False')
        self.admin('label', 'node', node, 'rack=one')
        self.box.patch(tolerations=[{'key': 'only', 'operator': 'Equal',
                                     'value': 'bmcs'}])
        self.box.current()
        self.assertEqual({'requests': {'memory': '176Mi', 'cpu': '3m'},
                          'limits': {'memory': '200Mi'}},
                         self.container()['resources'])
        self.assertEqual('Off', self.box.works())
        own = {'requests': {'memory': '30Mi', 'cpu': '4m'},
               'limits': {'memory': '300Mi'}}
        self.box.patch(nodeSelector=None, resources={
            'bmc': own, 'redfish': None, 'ipmi': None})
        self.box.current()
        self.assertEqual(own, self.container()['resources'])
        self.assertNotIn('nodeSelector', self.pod()['spec'])

    def test_image(self):
        self.assertEqual('registry.test/emulator:1',
                         self.container()['image'])
        self.box.patch(image='registry.test/emulator:2')
        self.box.current()
        self.assertEqual('registry.test/emulator:2',
                         self.container()['image'])
        pids = self.box.processes()
        self.box.patch(image='evil.test/emulator:2')
        self.until('reason', self.box.condition,
                   ('False', 'ImageNotAllowed'))
        self.assertEqual(pids, self.box.processes())
        self.box.patch(image=None)
        self.box.current()
        self.assertEqual('registry.test/emulator:1',
                         self.container()['image'])
        self.assertEqual('Off', self.box.works())

    def test_network_policy(self):
        def policies():
            return self.kubectl.get('networkpolicies')['items']
        self.assertEqual([], policies())
        self.box.patch(networkPolicy={
            'enabled': True, 'allowedCIDRs': ['10.0.0.0/8'],
            'allowedNamespaces': ['metal']})
        self.box.current()
        self.until('made', lambda: len(policies()), 1)
        rule = policies()[0]['spec']['ingress'][0]
        self.assertEqual(2, len(rule['from']))
        self.assertEqual({('TCP', 8000), ('UDP', 6230)}, {
            (one['protocol'], one['port']) for one in rule['ports']})
        self.box.patch(networkPolicy={'allowedNamespaces': None})
        self.until('changed', lambda: len(policies()[0]['spec']['ingress'][
            0]['from']), 1)
        self.box.patch(networkPolicy=None)
        self.until('gone', policies, [])

    @given_cluster.needs_sandbox('a definition that it may change')
    def test_network_that_kubernetes_refuses(self):
        """A BMC that was stored before stays closed to it, and says so."""
        crd = 'virtualmachinebmcs.bmc.kubevirt.io'
        said = self.kubectl.refused(
            'patch', 'vmbmc', 'box', '--type=merge', '-p', json.dumps(
                {'spec': {'networkPolicy': {'enabled': True,
                                            'allowedCIDRs': ['10.0.0.1/8']}}}))
        self.assertIn('has bits behind its prefix', said)
        place = ('/spec/versions/0/schema/openAPIV3Schema/properties/spec/'
                 'properties/networkPolicy/properties/allowedCIDRs/items')
        items = self.admin.get('crd', crd)
        for part in place.split('/')[1:]:
            items = items[int(part) if part.isdigit() else part]

        def define(value):
            self.admin('patch', 'crd', crd, '--type=json', '-p', json.dumps(
                [{'op': 'replace', 'path': place, 'value': value}]))
        self.addCleanup(define, items)
        define({'type': 'string'})
        self.box.patch(networkPolicy={'enabled': True, 'allowedCIDRs': [
            '10.0.0.1/8', 'fd00::1/8', 'fd01::/16']})
        define(items)
        self.until('said', self.box.condition,
                   ('False', 'AllowedCIDRsInvalid'))
        self.assertIn('refuses 10.0.0.1/8, fd00::1/8. ', self.box.message())
        [policy] = self.kubectl.get('networkpolicies')['items']
        self.assertEqual([{'ipBlock': {'cidr': 'fd01::/16'}}],
                         policy['spec']['ingress'][0]['from'])
        self.box.patch(networkPolicy={'allowedCIDRs': ['10.0.0.0/8']})
        self.box.current()
        self.box.patch(networkPolicy=None)
        self.box.current()

    def test_vm_reference_is_immutable(self):
        said = self.kubectl.refused(
            'patch', 'vmbmc', 'box', '--type=merge', '-p',
            '{"spec":{"virtualMachine":{"name":"other"}}}')
        self.assertIn('the virtual machine cannot be changed', said)


def ipmi_bmc(endpoint):
    """Return the IPMI endpoint of a status as a BMC for ``ipmitool``."""
    bmc = operator.vbmcd.Bmc('box', port=endpoint['port'])
    bmc.address = endpoint['host']
    return bmc
