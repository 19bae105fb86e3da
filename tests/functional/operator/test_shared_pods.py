# SPDX-License-Identifier: Apache-2.0
"""Shared pods with their processes, used by clients."""

import json

import yaml

from kubevirt_sandbox.testing import machines
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from tests.fixtures import access_case
from tests.fixtures import image_server
from tests.fixtures import operator
from tests.fixtures import sandbox

MERGE_PATCH = 'application/merge-patch+json'
BASE = 'sushy-kubevirt-shared-%d-virtbmc'


class SharedPodsTestCase(operator.OperatorTestCase):
    """A pod has two BMCs."""

    ARGUMENTS = ('--bmcs-per-pod', '2')

    def shared(self, name, **spec):
        made = self.bmc(name, name, name + '-key', placement='Shared', **spec)
        return made

    def pods(self):
        """Return {name of a pod: number of restarts} of shared pods."""
        return {
            pod['metadata']['name']: sum(
                one['restartCount'] for one in pod['status'].get(
                    'containerStatuses') or ())
            for pod in self.kubectl.get(
                'pods', '-l', 'bmc.kubevirt.io/shared')['items']}

    def test_bmcs_of_a_pod_are_separate(self):
        bmcs = [self.shared(name) for name in 'abc']
        for bmc in bmcs:
            self.assertEqual('Off', bmc.ready().works())
        self.assertEqual(2, len(self.pods()))
        first, second, third = bmcs
        first.ipmi('power', 'on')
        self.until('first is on', first.works, 'On')
        self.assertEqual(['Off', 'Off'], [second.works(), third.works()])
        # The password of one BMC is no password of another one.
        self.assertEqual(401, second.curl(password=first.password).code)
        before = self.pods()
        # New credentials, by the same pods.
        password = second.password
        second.password = self.secret('b-key')
        self.until('new password', second.works, 'Off')
        self.assertEqual(401, second.curl(password=password).code)
        # Another BMC comes, in the room of one that goes.
        session = first.curl(
            '/redfish/v1/SessionService/Sessions', '-H',
            'Content-Type: application/json', '-d', json.dumps({
                'UserName': first.username, 'Password': first.password}))
        self.assertEqual(201, session.code, session.text)
        token = session.headers['x-auth-token']
        slot = second.status['placement']['slot']
        self.kubectl('delete', 'vmbmc', 'b')
        fourth = self.shared('d').ready()
        self.assertEqual('Off', fourth.works())
        self.assertNotEqual(slot, fourth.status['placement']['slot'])
        self.assertEqual(before, self.pods())
        found = operator.curl(
            first.url(), config=f'header = "X-Auth-Token: {token}"\n'
            f'cacert = "{first.ca_file()}"\n')
        self.assertEqual(200, found.code)
        self.assertEqual('On', found.json()['PowerState'])
        self.assert_no_warnings(pods=True)

    def test_placement_changes_both_ways(self):
        bmc = self.bmc('box').ready()
        self.shared('other').ready()
        bmc.ipmi('chassis', 'identify', '0')
        endpoints = bmc.status['endpoints']
        bmc.patch(placement='Shared')
        self.until('shared', lambda: bmc.status['placement']['type'],
                   'Shared')
        self.assertEqual('Off', bmc.ready().works())
        self.until('own pod gone', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])
        self.assertEqual('Off', bmc.works())
        self.assertEqual(endpoints, bmc.status['endpoints'])
        bmc.patch(placement='PerVM')
        self.until('own pod', lambda: bmc.status['placement']['type'],
                   'PerVM')
        self.assertEqual('Off', bmc.ready().works())
        self.assertEqual(endpoints, bmc.status['endpoints'])
        self.assertEqual(1, len(self.pods()))

    def post(self, bmc, path, code, **body):
        answer = bmc.curl(path, '-H', 'Content-Type: application/json', '-d',
                          json.dumps(body))
        self.assertEqual(code, answer.code, answer.text)

    def state(self, bmc):
        """Return what clients have set in a BMC."""
        system = '/redfish/' + bmc.url().partition('/redfish/')[2]
        medium = bmc.curl(system + '/VirtualMedia/Cd').json()
        return {
            'boot': bmc.curl().json()['Boot']['BootSourceOverrideTarget'],
            'boot of IPMI': bmc.ipmi('chassis', 'bootparam', 'get', '5'),
            'medium': [medium[key] for key in (
                'Image', 'Inserted', 'WriteProtected', 'TransferMethod')],
            'subscriptions': sorted(bmc.curl(one['@odata.id']).json()[
                'Destination'] for one in bmc.curl(
                    '/redfish/v1/EventService/Subscriptions').json()[
                        'Members']),
            'accounts': sorted(bmc.curl(one['@odata.id']).json()[
                'UserName'] for one in bmc.curl(
                    '/redfish/v1/AccountService/Accounts').json()[
                        'Members'])}

    def test_state_survives_changes_of_the_placement(self):
        images = self.useFixture(image_server.ImageServer())
        bmc = self.bmc(virtualMedia={'allowLoopback': True}).ready()
        system = '/redfish/' + bmc.url().partition('/redfish/')[2]
        bmc.ipmi(*'raw 4 2 4 7 1 0x6f 1 0 0'.split())
        self.post(bmc, system + '/VirtualMedia/Cd/Actions/'
                  'VirtualMedia.InsertMedia', 204,
                  Image=images.url + '/a.iso')
        self.assertLess(bmc.curl(
            system, '-X', 'PATCH', '-H', 'Content-Type: application/json',
            '-d', json.dumps({'Boot': {
                'BootSourceOverrideTarget': 'Pxe',
                'BootSourceOverrideEnabled': 'Once'}})).code, 300)
        self.post(bmc, '/redfish/v1/EventService/Subscriptions', 201,
                  Destination='https://192.0.2.1/events', Protocol='Redfish')
        self.post(bmc, '/redfish/v1/AccountService/Accounts', 201,
                  UserName='bob', Password='secret-of-bob',
                  RoleId='ReadOnly')
        self.until('imported', lambda: [
            one.get('status', {}).get('phase') for one in self.sandbox.list(
                'datavolumes', self.namespace)], ['Succeeded'])
        before, log = self.state(bmc), set(
            bmc.ipmi('sel', 'elist').splitlines())
        self.assertIn('Thermal Trip', '\n'.join(log))
        self.assertEqual('Pxe', before['boot'])
        self.assertTrue(before['medium'][1])
        self.assertEqual(1, len(before['subscriptions']))
        self.assertEqual(['admin', 'bob'], before['accounts'])
        for placement in 'Shared', 'PerVM':
            bmc.patch(placement=placement)
            self.until(placement, lambda: bmc.status['placement']['type'],
                       placement)
            bmc.ready()
            self.until('state ' + placement, lambda: self.state(bmc), before)
            # The import, and the process that starts, add entries.
            self.assertLessEqual(
                log, set(bmc.ipmi('sel', 'elist').splitlines()))
        self.assertEqual(1, len(self.sandbox.list(
            'datavolumes', self.namespace)))
        self.assert_no_warnings(pods=True)

    def test_protocols_and_a_vm_of_another_namespace(self):
        far = self.new_namespace()
        vm = machines.vm('far', 'Halted', far)
        vm['metadata']['annotations'] = {
            'bmc.kubevirt.io/allow-from': self.namespace}
        self.sandbox.create('virtualmachines', vm, far)
        password = self.secret('far-key')
        self.kubectl.apply(operator.bmc_manifest(
            'far', secret='far-key', placement='Shared',
            virtualMachine={'name': 'far', 'namespace': far}))
        away = operator.Bmc(self.kubectl, 'far', 'admin', password)
        # HTTP beside HTTPS.
        both = self.bmc(
            'both', 'both', None, placement='Shared', virtualMachine=None,
            virtualMachineRef={'name': 'both'},
            authSecretRef={'name': 'both-key'})
        both.password = self.secret('both-key')
        ipmi = self.shared('ipmi', redfish={'enabled': False})
        plain = self.shared('plain', redfish={'plainHTTP': True},
                            ipmi={'enabled': False})
        for bmc in away, both, ipmi, plain:
            bmc.ready()
        self.assertEqual(2, len(self.pods()))
        self.assertEqual('Off', away.works())
        away.ipmi('power', 'on')
        self.sandbox.wait_running('far', far)
        self.until('far is on', away.works, 'On')
        self.assertEqual('Off', both.works())
        url = both.url()
        self.assertTrue(url.startswith('https://'), url)
        login = f'user = "admin:{both.password}"\n'
        found = operator.curl(url.replace('https', 'http', 1), config=login)
        self.assertEqual((200, 'Off'), (found.code, found.json().get(
            'PowerState')))
        self.assertEqual('Chassis Power is off', ipmi.ipmi('power', 'status'))
        self.assertNotIn('redfish', ipmi.status['endpoints'])
        self.assertTrue(plain.url().startswith('http://'), plain.url())
        self.assertEqual('Off', plain.power())
        self.assertNotIn('ipmi', plain.status['endpoints'])
        self.assert_no_warnings(pods=True)

    def test_web_page(self):
        bmc = self.shared('box').ready()
        other = self.shared('other', redfish={'webPage': False}).ready()
        self.assertEqual(1, len(self.pods()))
        for page in True, False, True:
            bmc.patch(redfish={'webPage': page})
            bmc.current()
            self.until('page', lambda: bmc.curl('/').code,
                       200 if page else 404)
            self.assertEqual(page, self.may_see_display('box', BASE % 0))
            self.assertEqual(404, other.curl('/').code)
            self.assertFalse(self.may_see_display('other', BASE % 0))
        for one in bmc, other:
            self.assertEqual('Off', one.works())

    def test_deleted_config_maps_interrupt_nothing(self):
        bmc, other = self.shared('a').ready(), self.shared('b').ready()
        self.post(bmc, '/redfish/v1/EventService/Subscriptions', 201,
                  Destination='https://192.0.2.1/', Protocol='Redfish')
        answer = bmc.curl(
            '/redfish/v1/SessionService/Sessions', '-H',
            'Content-Type: application/json', '-d', json.dumps({
                'UserName': bmc.username, 'Password': bmc.password}))
        token = answer.headers['x-auth-token']
        uid = self.kubectl.get('configmap', BASE % 0)['metadata']['uid']
        self.kubectl('delete', 'configmap', BASE % 0, BASE % 0 + '-served')
        self.until('made again', lambda: self.kubectl.get(
            'configmap', BASE % 0)['metadata']['uid'] != uid, True)
        self.until('reported again', lambda: sorted(self.kubectl.get(
            'configmap', BASE % 0 + '-served').get('data') or ()),
            ['a', 'b'], seconds=120)
        found = operator.curl(
            bmc.url(), config=f'header = "X-Auth-Token: {token}"\n'
            f'cacert = "{bmc.ca_file()}"\n')
        self.assertEqual(200, found.code)
        for one in bmc, other:
            self.assertEqual('Off', one.ready().works())

    def test_deleted_vm_and_restarted_pod(self):
        bmc = self.shared('box')
        bmc.ready().works()
        uid = self.kubectl.get('pods', '-l', 'bmc.kubevirt.io/shared')[
            'items'][0]['metadata']['uid']
        self.kubectl('delete', 'pods', '-l', 'bmc.kubevirt.io/shared')
        self.until('another pod', lambda: [
            one for one in self.kubectl.get(
                'pods', '-l', 'bmc.kubevirt.io/shared')['items']
            if one['metadata']['uid'] == uid], [])
        self.assertEqual('Off', bmc.ready().works())
        self.kubectl('delete', 'virtualmachine', 'box')
        self.until('reported', bmc.condition,
                   ('False', 'VirtualMachineNotFound'))
        self.vm('box')
        self.assertEqual('Off', self.until('works', bmc.ready().works, 'Off'))


class SharedAccountTestCase(access_case.AccessTestCase):
    """The account of a shared pod."""

    ARGUMENTS = ('--bmcs-per-pod', '2')

    def setUp(self):
        super().setUp()
        self.sandbox.reset_stats()
        for name in 'abc':
            self.bmc(name, name, name + '-key', placement='Shared').ready()

    def ask(self, method, path, body=None, content='application/json'):
        """Send a request with the token of the pod of shard 0."""
        config = yaml.safe_load(self.sandbox.account(
            BASE % 0, self.namespace).read_text())
        return self.sandbox.request(
            method, path, headers={
                'Authorization': 'Bearer ' + config['users'][0]['user'][
                    'token'], 'Content-Type': content},
            data=None if body is None else json.dumps(body))

    def test_has_only_permissions_it_uses(self):
        mine = self.can(self.user(BASE % 0))
        # Those of a pod of their own, which test_access_pod checks.
        expected = {}
        for name in 'ab':
            bmc = spec.read(self.kubectl.get('vmbmc', name))
            for what, names in access_case.of_rules(rbac.rules(bmc)).items():
                expected.setdefault(what, set()).update(names)
        more = {what: names - expected.get(what, set())
                for what, names in mine.items()
                if not names <= expected.get(what, set())
                or bool(names) != bool(expected.get(what))}
        vms = ('virtualmachines.kubevirt.io',
               'virtualmachineinstances.kubevirt.io')
        record, report = BASE % 0, BASE % 0 + '-served'
        self.assertEqual({
            ('list', 'configmaps'): {record},
            ('watch', 'configmaps'): {record},
            ('get', 'configmaps'): {report},
            ('patch', 'configmaps'): {report},
            ('get', 'secrets'): {'a-key', 'a-virtbmc-tls', 'b-key',
                                 'b-virtbmc-tls'},
            **{(verb, what): set() for verb in ('list', 'watch')
               for what in vms}}, more)
        self.assertEqual(set(), set(expected) - set(mine))
        # It compares its report once a minute, and lists VMs of API servers
        # without streaming lists only.
        streamed = {('list', what) for what in vms}
        self.until('used', lambda: set(more) - streamed - self.used(
            f'system:serviceaccount:{self.namespace}:{BASE % 0}'), set(),
            seconds=120)
        self.assert_nothing_denied()

    def test_cannot_use_what_is_of_others(self):
        vms = sandbox.path('virtualmachines', namespace=self.namespace)
        core = f'/api/v1/namespaces/{self.namespace}/'
        other = sandbox.path('virtualmachines', namespace='default')
        self.assertEqual(200, self.ask('GET', vms).status_code)
        for method, path, *body in (
                ('GET', vms + '/c'), ('DELETE', vms + '/a'),
                ('PATCH', vms + '/c', {'metadata': {'labels': {'a': 'b'}}}),
                ('GET', other), ('GET', '/apis/kubevirt.io/v1/'
                                 'virtualmachines'),
                ('GET', core + 'secrets'), ('GET', core + 'secrets/c-key'),
                ('GET', core + 'secrets/c-bmc-state'),
                ('GET', core + 'secrets/c-virtbmc-tls'),
                ('PATCH', core + 'secrets/a-key', {'data': {}}),
                ('GET', core + 'configmaps'),
                ('GET', core + 'configmaps/' + BASE % 1),
                ('PATCH', core + 'configmaps/' + BASE % 0, {'data': {}}),
                ('PATCH', core + 'configmaps/' + BASE % 1 + '-served',
                 {'data': {}}),
                ('DELETE', core + 'configmaps/' + BASE % 0 + '-served'),
                ('PATCH', '/apis/subresources.kubevirt.io/v1/namespaces/'
                 f'{self.namespace}/virtualmachines/c/start', {}),
                ('POST', core + f'serviceaccounts/{BASE % 0}/token', {})):
            self.assertEqual(403, self.ask(
                method, path, *body, content=MERGE_PATCH
                if method == 'PATCH' else 'application/json').status_code,
                (method, path))

    def test_tenant_cannot_change_the_record(self):
        """A user who may write all ConfigMaps of the namespace."""
        self.kubectl('create', 'serviceaccount', 'tenant')
        self.kubectl('create', 'role', 'tenant', '--verb=*',
                     '--resource=configmaps')
        self.kubectl('create', 'rolebinding', 'tenant', '--role=tenant',
                     f'--serviceaccount={self.namespace}:tenant')
        tenant = self.user('tenant')
        before = self.kubectl.get('configmap', BASE % 0)
        forged = json.dumps({'data': {'a': json.dumps({
            **json.loads(before['data']['a']),
            'vm': f'{self.namespace}/b'})}})
        for name in BASE % 0, BASE % 0 + '-served', BASE % 0 + '-config':
            self.assertIn('only who may write the status', tenant.refused(
                'patch', 'configmap', name, '--type=merge', '-p', forged))
        # The options of a pod of its own are protected alike.
        for name in BASE % 7, BASE % 7 + '-config', 'other-virtbmc':
            self.assertIn('only who may write the status', tenant.refused(
                'create', 'configmap', name, '--from-literal=a=b'))
        tenant('create', 'configmap', 'mine', '--from-literal=a=b')
        self.assertEqual(before, self.kubectl.get('configmap', BASE % 0))
