# SPDX-License-Identifier: Apache-2.0
"""What each account can do, and that nothing of it is not needed.

What is needed is what was used, while the operator and a BMC did all that
they do; the sandbox keeps account of it.
"""

import json

import yaml

from sushy_kubevirt.kubevirt import cluster
from sushy_kubevirt.kubevirt import connection
from sushy_kubevirt.kubevirt import media
from sushy_kubevirt.kubevirt import options
from sushy_kubevirt.kubevirt import power
from sushy_kubevirt.operator import rights
from sushy_kubevirt.operator import spec
from tests.functional import imageserver
from tests.functional import kubectl
from tests.functional import machines
from tests.functional import operator
from tests.functional import sandbox
from tests.functional import webserver

R = power.ResetType

# What a Role cannot name, and gives all the same (see rights).
UNNAMED = {('create', 'events'), ('list', 'events'), ('delete', 'events'),
           ('create', 'uploadtokenrequests.upload.cdi.kubevirt.io')}

# For clusters with OwnerReferencesPermissionEnforcement; the sandbox has not
# got that.
OWNERSHIP = {('update', 'virtualmachinebmcs.bmc.kubevirt.io/finalizers')}


def granted(user, namespace):
    """What ``kubectl auth can-i --list`` says.

    :param user: a :class:`kubectl.Kubectl`.
    :returns: {(verb, resource): set of names, empty for all}.
    """
    asked = {'apiVersion': 'authorization.k8s.io/v1',
             'kind': 'SelfSubjectRulesReview', 'metadata': {'name': 'x'},
             'spec': {'namespace': namespace}}
    review = json.loads(user('create', '-o', 'json', '--validate=false', '-f',
                             '-', stdin=json.dumps(asked)))
    assert not review['status'].get('incomplete'), review
    return of_rules(review['status']['resourceRules'])


def of_rules(rules):
    """The same, of rules as a Role has them."""
    found = {}
    for rule in rules:
        for group in rule['apiGroups']:
            for resource in rule['resources']:
                name, slash, sub = resource.partition('/')
                what = (name + ('.' + group if group else '') + slash + sub)
                for verb in rule['verbs']:
                    names = set(rule.get('resourceNames') or ())
                    known = found.get((verb, what))
                    # All, if one of the rules says all.
                    found[verb, what] = names if known is None else (
                        known | names if known and names else set())
    return found


def flat(counts):
    """Of the sandbox's counts of one user: {(verb, resource)}."""
    return {(verb, what) for verb, counted in (counts or {}).items()
            for what in counted if not what.startswith('/')}


class AccessTestCase(operator.OperatorTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.share(imageserver.ImageServer())

    def nobody(self, namespace=None):
        """What everybody can do who has an account."""
        namespace = namespace or self.namespace
        return granted(self.user('default', namespace), namespace)

    def user(self, name, namespace=None):
        namespace = namespace or self.namespace
        return kubectl.Kubectl(self.sandbox.account(name, namespace),
                               namespace)

    def used(self, name):
        return flat(self.sandbox.stats()['used'].get(name))

    def nothing_refused(self):
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def can(self, user, namespace=None):
        """What somebody can do that not everybody can."""
        namespace = namespace or self.namespace
        common = self.nobody(namespace)
        return {what: names for what, names in granted(
            user, namespace).items() if common.get(what) != names}


class OperatorAccountTestCase(AccessTestCase):

    # Renewed every second.
    ARGUMENTS = ('--lease-seconds', '3')

    def work(self):
        """Have the operator do all that it does for BMCs."""
        box = self.bmc(networkPolicy={'enabled': True})
        box.ready()
        # What is deleted or changed is put right.
        self.kubectl('delete', 'deployment,service,sa,role,rolebinding,'
                     'networkpolicy,configmap', '-l',
                     operator.LABEL + box.name)
        self.until('all of it', lambda: len(self.owned(box.name)) > 8, True)
        for kind in ('deployment', 'service', 'sa', 'role', 'rolebinding',
                     'networkpolicy', 'configmap'):
            self.kubectl('label', kind, box.base, 'kubevirt.io/'
                         'virtualmachinebmc-name=other', '--overwrite')
        self.until('labels', lambda: len(self.owned(box.name)) > 8, True)
        box.current()
        # The class of a load balancer can only be changed by a new Service.
        box.patch(service={'type': 'LoadBalancer',
                           'loadBalancerClass': 'example.test/none'})
        self.until('class', box.condition, ('False', 'LoadBalancerPending'))
        box.patch(service={'loadBalancerClass': None})
        box.current()
        # What is no longer wanted goes.
        box.patch(networkPolicy={'enabled': False},
                  redfish={'enabled': False})
        box.current()
        self.kubectl('delete', 'vmbmc', box.name)
        self.until('nothing', lambda: self.owned(box.name), [])
        self.elsewhere()

    def elsewhere(self):
        """A VM and a Secret of another namespace; then not any more."""
        far = self.new_namespace()
        self.vm('far', namespace=far)
        password = self.secret('key', namespace=far)
        allow = 'bmc.kubevirt.io/allow-from'
        there = self.admin.within(far)
        for what in ('vm/far', 'secret/key'):
            there('annotate', what, '%s=%s' % (allow, self.namespace))
        self.kubectl.apply(operator.bmc_manifest(
            'away', virtualMachineRef=None,
            virtualMachine={'namespace': far, 'name': 'far'},
            authSecret={'namespace': far, 'name': 'key'}))
        away = operator.Bmc(self.kubectl, 'away', 'admin', password).ready()
        for what in ('vm/far', 'secret/key'):
            there('annotate', what, allow + '-')
        self.until('withdrawn', lambda: away.condition()[0], 'False')
        # Its certificate is its own.
        self.until('withdrawn', lambda: self.owned('away'), [
            'secret/away-virtbmc-tls', 'service/away-virtbmc'])
        self.assertEqual([], there.names(
            'roles,rolebindings', '-l', operator.LABEL + 'away'))
        self.kubectl('delete', 'vmbmc', 'away')

    def test_it_has_what_it_uses_and_gives(self):
        self.work()
        self.nothing_refused()
        needed = self.used(operator.USER) | OWNERSHIP
        bmc = spec.read(operator.bmc_manifest('a') | {'metadata': {
            'name': 'a', 'namespace': 'b', 'uid': 'c', 'generation': 1}})
        # Nobody can give what he has not.
        given = set(of_rules(rights.rules(bmc, True)))
        me = kubectl.Kubectl(self.account)
        everywhere = self.can(me)
        # Its CA and the Lease are in its own namespace.
        home = {what: names for what, names in self.can(
            me, operator.NAMESPACE).items() if what not in everywhere}
        self.assertEqual({operator.NAME}, set().union(
            *home.values()), home)
        self.assertEqual([], sorted(
            (set(everywhere) | set(home)) - needed - given))
        # It may name nobody's rights but grant its own.
        for verb in ('escalate', 'bind', 'impersonate', '*'):
            self.assertNotIn(verb, {verb for verb, _ in everywhere})
        self.assertNotIn(('create', 'virtualmachinebmcs.bmc.kubevirt.io'),
                         everywhere)

    def test_it_grants_nothing_that_it_has_not(self):
        me = kubectl.Kubectl(self.account)
        for rule, allowed in (
                (rights.rules(spec.read(operator.bmc_manifest('a') | {
                    'metadata': {'name': 'a', 'namespace': self.namespace,
                                 'uid': 'c', 'generation': 1}}))[0], True),
                ({'apiGroups': ['kubevirt.io'], 'verbs': ['delete'],
                  'resources': ['virtualmachines']}, False),
                ({'apiGroups': [''], 'verbs': ['create'],
                  'resources': ['pods']}, False),
                ({'apiGroups': ['*'], 'verbs': ['*'],
                  'resources': ['*']}, False)):
            role = {'apiVersion': 'rbac.authorization.k8s.io/v1',
                    'kind': 'Role', 'metadata': {
                        'name': 'mine', 'namespace': self.namespace},
                    'rules': [rule]}
            words = ('create', '-f', '-', '--dry-run=server')
            if allowed:
                me(*words, stdin=json.dumps(role))
            else:
                self.assertIn('attempting to grant RBAC permissions not '
                              'currently held', me.refused(
                                  *words, stdin=json.dumps(role)))
        self.assertIn('not currently held', me.refused(
            'create', 'rolebinding', 'mine', '--clusterrole=cluster-admin',
            '--serviceaccount=default:default', '-n', self.namespace))


class AutoCreateAccountTestCase(AccessTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'auto-create'
    ARGUMENTS = ('--auto-create', 'bmc=auto')
    SANDBOX = ('--pods', 'pretended')

    def test_it_makes_bmcs_as_well(self):
        self.vm()
        self.kubectl('label', 'vm', 'box', 'bmc=auto')
        self.until('made', lambda: len(self.kubectl.names('vmbmc')), 1)
        self.kubectl('label', 'vm', 'box', 'bmc-')
        self.until('gone', lambda: self.kubectl.names('vmbmc'), [])
        self.nothing_refused()
        mine = {(verb, 'virtualmachinebmcs.bmc.kubevirt.io')
                for verb in ('create', 'delete')}
        self.assertEqual(mine, mine & self.used(operator.USER))
        self.assertEqual(mine, mine & set(self.can(
            kubectl.Kubectl(self.account))))


class NamespacedAccountTestCase(AccessTestCase):
    """An operator for the namespaces ``default`` and ``lab``."""

    RUNS = False
    FOLDER = operator.MANIFESTS / 'overlays' / 'namespaced'
    SANDBOX = ('--pods', 'pretended')

    @classmethod
    def install(cls):
        cls.admin('create', 'namespace', 'lab')
        super().install()

    def test_it_has_its_rights_there_only(self):
        running = self.useFixture(operator.Operator(self.account, (
            '--namespace', 'default', '--namespace', 'lab')))
        self.namespace, self.kubectl = 'lab', self.admin.within('lab')
        self.bmc().ready()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('nothing', lambda: self.owned('box'), [])
        self.nothing_refused()
        self.assertEqual([], running.complaints())
        me = kubectl.Kubectl(self.account)
        self.assertEqual({}, self.can(me, 'kube-public'))
        self.assertEqual(self.can(me, 'default'), self.can(me, 'lab'))
        self.assertIn(('patch', 'virtualmachines.kubevirt.io'),
                      self.can(me, 'lab'))
        for what in 'secrets', 'vm', 'vmbmc':
            self.assertIn('forbidden', me.refused('get', what, '-A'))
            self.assertIn('forbidden', me.refused(
                'get', what, '-n', 'kube-public'))


class PodAccountTestCase(AccessTestCase):
    """The account of a BMC's pod, of an operator that knows CDI's proxy."""

    RUNS = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        config = cls.sandbox.request(
            'GET', '/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config',
            expect=200).json()
        bundle = cls.sandbox.get('configmaps',
                                 'cdi-uploadproxy-signer-bundle', 'cdi')
        cls.proxy_ca = bundle['data']['ca-bundle.crt']
        path = cls.sandbox.kubeconfig.with_name('proxy.pem')
        path.write_text(cls.proxy_ca)
        cls.operator = cls.share(operator.Operator(cls.account, (
            '--upload-proxy-url', config['status']['uploadProxyURL'],
            '--upload-proxy-ca', path)))

    def who(self, name):
        return 'system:serviceaccount:%s:%s' % (self.namespace, name)

    def ask(self, bmc, method, path, body=None, content='application/json'):
        """A request with the token of a BMC's pod."""
        config = yaml.safe_load(self.sandbox.account(
            bmc.base, self.namespace).read_text())
        return self.sandbox.request(
            method, path, headers={
                'Authorization': 'Bearer ' + config['users'][0]['user'][
                    'token'], 'Content-Type': content},
            data=None if body is None else json.dumps(body))

    def alone(self, bmc):
        """A process as that in the pod, with the account of the pod."""
        made = cluster.Cluster(
            connection.Connection.from_options(str(
                self.sandbox.account(bmc.base, self.namespace))),
            vm='%s/%s' % (self.namespace, bmc.name),
            options=options.Options(
                gates_seconds=0, media=options.MediaOptions(
                    allow_loopback=True)))
        self.addCleanup(made.close)
        made.wait_ready()
        return made.machine('%s/%s' % (self.namespace, bmc.name))

    def work(self, box):
        """Do all that a BMC does."""
        box.works()
        box.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.services(box, self.system(box))
        machine = self.alone(box)
        for reset in (R.PAUSE, R.RESUME, R.FORCE_RESTART, R.FORCE_OFF):
            machine.reset(reset)
        self.sandbox.wait_stopped('box', self.namespace)
        self.media(box, machine)
        self.rarely(machine)

    def post(self, box, path, **body):
        answer = box.curl(path, '-X', 'POST', '-H', 'Content-Type: '
                          'application/json', '-d', json.dumps(body))
        self.assertLess(answer.code, 300, answer.text)

    def services(self, box, system):
        """What is kept of the services, and the log of the system."""
        self.assertLess(box.curl(
            '/redfish/v1/EventService', '-X', 'PATCH', '-H', 'Content-Type: '
            'application/json', '-d', '{"DeliveryRetryAttempts": 4}').code,
            300)
        log = system + '/LogServices/Events'
        self.until('log', lambda: box.curl(log + '/Entries').json()[
            'Members@odata.count'] > 0, True)
        self.post(box, log + '/Actions/LogService.ClearLog')

    def media(self, box, machine):
        machine.insert_media('Cd', media.Source(
            self.images.url + '/private/a.iso',
            username=self.images.USER, password=self.images.PASSWORD),
            wait=True)
        machine.eject_media('Cd')
        made = [machine.add_media_certificate('Cd', text) for text in (
            self.proxy_ca, box.trust().read_text())]
        # With nothing known beforehand, as after a start.
        self.assertEqual(2, len(self.alone(box).media_certificates('Cd')))
        for one in made:
            machine.delete_media_certificate('Cd', one.id)
        # The pod itself uploads one.
        device = self.system(box) + '/VirtualMedia/Cd'
        images = self.useFixture(imageserver.ImageServer(self.here))
        self.post(box, device + '/Actions/VirtualMedia.InsertMedia',
                  Image=images.url + '/b.iso', TransferMethod='Upload')
        self.until('there', lambda: [
            (set(one['spec']['source']), one['status'].get('phase'))
            for one in self.sandbox.list('datavolumes', self.namespace)],
            [({'upload'}, 'Succeeded')])
        self.post(box, device + '/Actions/VirtualMedia.EjectMedia')

    def system(self, box):
        return '/redfish/' + box.url().partition('/redfish/')[2]

    def rarely(self, machine):
        """What few VMs need."""
        def patch(name, **spec):
            self.sandbox.patch('virtualmachines', name, {'spec': spec},
                               self.namespace)
        # One that is being restarted: the start is taken back.
        patch('box', runStrategy='Always')
        self.sandbox.wait_running('box', self.namespace)
        self.sandbox.do('box', 'restart', namespace=self.namespace)
        machine.reset(R.FORCE_OFF)
        self.sandbox.wait_stopped('box', self.namespace)
        # One that runs once, and has run.
        self.vm('once', 'Once')
        once = self.alone(self.bmc('once', 'once', 'once-bmc').ready())
        self.sandbox.wait_running('once', self.namespace)
        self.sandbox.guest_does('once', 'shutdown', self.namespace)
        self.sandbox.wait('virtualmachineinstances', 'once', lambda vmi: (
            vmi and vmi['status']['phase'] == 'Succeeded'), self.namespace)
        once.reset(R.ON)
        self.sandbox.wait_running('once', self.namespace)
        # One of an instance type.
        self.sandbox.request(
            'POST', '/apis/instancetype.kubevirt.io/v1beta1/namespaces/%s/'
            'virtualmachineinstancetypes' % self.namespace, {
                'apiVersion': 'instancetype.kubevirt.io/v1beta1',
                'kind': 'VirtualMachineInstancetype',
                'metadata': {'name': 'small'}, 'spec': {
                    'cpu': {'guest': 1}, 'memory': {'guest': '2Gi'}}},
            expect=201)
        small = {'kind': 'VirtualMachineInstancetype', 'name': 'small'}
        patch('box', instancetype=small, template={'spec': {'domain': {
            'cpu': None, 'memory': None, 'resources': None}}})
        self.until('sizes', lambda: machine.inventory().memory_bytes, 2 << 30)

    def test_it_has_what_it_uses(self):
        self.here = webserver.own_address()
        if self.here is None:
            self.skipTest('only loopback: a BMC takes nothing from there')
        vm = machines.vm('box', 'Halted', self.namespace)
        vm['spec']['template']['metadata']['annotations'] = {
            'sandbox.sushy-kubevirt/ignore-acpi': 'true'}
        # The installer that the VM comes with is not to be in the way.
        del vm['spec']['template']['spec']['volumes'][1]
        self.sandbox.create('virtualmachines', vm, self.namespace)
        box = self.bmc(virtualMedia={
            'allowedHosts': [self.here]}).ready()
        self.work(box)
        self.nothing_refused()
        mine = self.can(self.user(box.base))
        # All is about this VM.
        unnamed = {what for what, names in mine.items() if not names}
        self.assertEqual(UNNAMED, unnamed)
        for what, names in mine.items():
            self.assertEqual([], [one for one in names if one != 'box'
                                  and not one.startswith('box-bmc-')], what)
        used = self.used(self.who(box.base)) | self.used(self.who(
            'once-virtbmc'))
        self.assertEqual([], sorted(set(mine) - used))

    def test_it_reads_nobody_elses(self):
        self.bmc(name='other', vm='other', secret='other-bmc').ready()
        box = self.bmc().ready()
        vms = sandbox.path('virtualmachines', namespace=self.namespace)
        core = '/api/v1/namespaces/%s/' % self.namespace
        cdi = '/apis/cdi.kubevirt.io/v1beta1/namespaces/%s/' % self.namespace
        for path in vms + '/box', core + 'secrets/box-bmc-state':
            self.assertEqual(200, self.ask(box, 'GET', path).status_code)
        for method, path, *body in (
                ('GET', vms + '/other'), ('GET', vms), ('DELETE', vms),
                ('GET', vms + '?watch=true'),
                ('GET', vms.replace('machines', 'machineinstances')),
                ('GET', vms + '?fieldSelector=metadata.name%3Dother'),
                ('GET', '/apis/kubevirt.io/v1/virtualmachines'),
                ('GET', '/apis/bmc.kubevirt.io/v1beta1/namespaces/%s/'
                 'virtualmachinebmcs' % self.namespace),
                ('DELETE', vms + '/box'),
                ('GET', core + 'secrets'),
                ('GET', core + 'secrets/other-bmc-state'),
                ('GET', core + 'secrets/other-virtbmc-tls'),
                ('GET', core + 'secrets/box-bmc'),
                ('GET', core + 'secrets/box-virtbmc-tls'),
                ('GET', '/api/v1/namespaces/%s/secrets/sushy-kubevirt-ca'
                 % operator.NAMESPACE),
                ('POST', core + 'secrets', {'metadata': {'name': 'mine'}}),
                ('POST', core + 'configmaps', {'metadata': {'name': 'm'}}),
                ('GET', core + 'configmaps/box-virtbmc'),
                ('GET', core + 'pods'), ('GET', cdi + 'datavolumes'),
                ('POST', cdi + 'datavolumes', {'metadata': {'name': 'm'}}),
                ('POST', core + 'serviceaccounts/box-virtbmc/token', {}),
                ('POST', core + 'serviceaccounts/default/token', {}),
                ('GET', '/apis/rbac.authorization.k8s.io/v1/namespaces/%s/'
                 'roles/box-virtbmc' % self.namespace),
                ('GET', '/sandbox/stats')):
            self.assertEqual(403, self.ask(
                box, method, path, *body).status_code, (method, path))

    def test_what_it_can_write_gives_it_nothing(self):
        """The attacks that rights alone would let pass."""
        box = self.bmc().ready()
        self.kubectl('create', 'secret', 'generic', 'private',
                     '--from-literal=a=b')
        uid = self.sandbox.vm('box', self.namespace)['metadata']['uid']
        vms = sandbox.path('virtualmachines', 'box', self.namespace)

        def attack(plural, obj):
            return self.ask(
                box, 'PATCH', sandbox.path(plural, obj['metadata']['name'],
                                           self.namespace)
                + '?fieldManager=evil', obj, 'application/apply-patch+yaml'
            ).json()['message']

        def patch(*operations, sub=''):
            return self.ask(box, 'PATCH', vms + sub, operations,
                            sandbox.JSON_PATCH).json()['message']

        # The token of another account.
        self.assertIn('for servers of images only', attack('secrets', {
            'apiVersion': 'v1', 'kind': 'Secret',
            'type': 'kubernetes.io/service-account-token',
            'metadata': {'name': 'box-bmc-cd-0', 'annotations': {
                'kubernetes.io/service-account.name': 'default'}}}))
        # A Secret of others, or a volume, by way of CDI.
        http = {'url': 'http://evil.test/'}
        volume = {'apiVersion': 'cdi.kubevirt.io/v1beta1',
                  'kind': 'DataVolume', 'metadata': {'name': 'box-bmc-cd-0'}}
        storage = {'resources': {'requests': {'storage': '1Gi'}}}
        for said, source, notes in (
                ('no Secret as a header', {'http': {
                    **http, 'secretExtraHeaders': ['private']}}, {}),
                ("DataVolume's own Secret", {'http': {
                    **http, 'secretRef': 'private'}}, {}),
                ('from HTTP or by upload', {'pvc': {
                    'name': 'root', 'namespace': self.namespace}}, {}),
                ('nothing by annotations', {'http': http}, {
                    'cdi.kubevirt.io/storage.import.secretExtraHeaders.0':
                        'private'})):
            made = json.loads(json.dumps(volume))
            made['metadata']['annotations'] = notes
            made['spec'] = {'source': source, 'storage': storage}
            self.assertIn(said, attack('datavolumes', made))
        # Or of the guest.
        volumes = '/spec/template/spec/volumes/-'
        for value in ({'secret': {'secretName': 'private'}},
                      {'serviceAccount': {'serviceAccountName': 'default'}},
                      {'persistentVolumeClaim': {'claimName': 'other'}},
                      {'configMap': {'name': 'other'}},
                      {'dataVolume': {'name': 'other-bmc-cd-0'}}):
            self.assertIn('adds no volumes', patch(
                {'op': 'add', 'path': volumes, 'value': {
                    'name': 'x', **value}},
                {'op': 'add', 'path':
                 '/spec/template/spec/domain/devices/disks/-',
                 'value': {'name': 'x', 'disk': {'bus': 'virtio'}}}))
        self.assertIn('has KubeVirt make no DataVolumes', patch(
            {'op': 'add', 'path': volumes, 'value': {
                'name': 'x', 'dataVolume': {'name': 'box-bmc-x'}}},
            {'op': 'add', 'path': '/spec/dataVolumeTemplates', 'value': [{
                'metadata': {'name': 'box-bmc-x'}, 'spec': {
                    'storage': storage, 'source': {'http': {
                        **http, 'secretExtraHeaders': ['private']}}}}]}))
        for said, path, value in (
                ('gives its VM to nobody', '/metadata/annotations', {
                    'bmc.kubevirt.io/allow-from': 'evil'}),
                ('no labels', '/spec/template/metadata/annotations', {
                    'hooks.kubevirt.io/hookSidecars': '[]'}),
                ('whether its VM stays', '/metadata/ownerReferences', [{
                    'apiVersion': 'v1', 'kind': 'ConfigMap', 'name': 'none',
                    'uid': uid}])):
            self.assertIn(said, patch(
                {'op': 'add', 'path': path, 'value': value}))
        self.assertIn('no more', patch({
            'op': 'add', 'path': '/status/volumeRequests', 'value': [{
                'addVolumeOptions': {
                    'name': 'x', 'disk': {'disk': {}}, 'volumeSource': {
                        'persistentVolumeClaim': {
                            'claimName': 'other'}}}}]}, sub='/status'))
        self.assertIn("guest's credentials, account", patch({
            'op': 'add', 'path': '/spec/template/spec/serviceAccountName',
            'value': 'default'}))
        # What is known of others.
        events = sandbox.path('events', namespace=self.namespace)
        found = self.ask(box, 'GET', events).json()['items']
        theirs = next(one for one in found
                      if one['involvedObject']['kind'] == 'Pod')
        for method, path, *body in (
                ('DELETE', '%s/%s' % (events, theirs['metadata']['name'])),
                ('POST', events, {**theirs, 'metadata': {'name': 'x'}})):
            self.assertIn('entries of its own log', self.ask(
                box, method, path, *body).json()['message'])
        self.assertEqual([], [
            one for one in self.kubectl.names('secrets,datavolumes')
            if 'box-bmc-cd' in one])
        # And it still does its work.
        box.works()


class TenantTestCase(AccessTestCase):
    """Somebody who may make BMCs in his namespace, and nothing else."""

    SANDBOX = ('--pods', 'pretended')

    def setUp(self):
        super().setUp()
        self.kubectl('create', 'serviceaccount', 'tenant')
        self.kubectl('create', 'role', 'tenant',
                     '--verb=get,list,watch,create,patch,delete',
                     '--resource=virtualmachinebmcs')
        self.kubectl('create', 'rolebinding', 'tenant', '--role=tenant',
                     '--serviceaccount=%s:tenant' % self.namespace)
        self.tenant = self.user('tenant')
        self.mark = self.operator.process.mark()

    def make(self, name, vm='box', **spec):
        """Have him make a BMC, which does not come to be ready.

        :returns: :class:`operator.Bmc`, when it was looked at.
        """
        self.tenant('create', '--validate=false', '-f', '-', stdin=json.dumps(
            operator.bmc_manifest(name, vm, **spec)))
        found = operator.Bmc(self.kubectl, name, 'admin', None)
        self.until('looked at', lambda: (found.condition() or ('',))[0],
                   'False')
        return found

    def refused(self, bmc, reason, said):
        self.until('reason', bmc.condition, ('False', reason))
        self.assertIn(said, bmc.message())

    def nothing_of(self, name, *kinds):
        self.assertEqual([], [
            one for one in self.kubectl.names(
                ','.join(kinds or ('deployments', 'roles', 'rolebindings')))
            if name in one])

    def test_names_of_others(self):
        """An account, a binding, a Secret with the name that is needed."""
        self.vm()
        self.kubectl('create', 'serviceaccount', 'a-virtbmc')
        self.kubectl('create', 'rolebinding', 'a-virtbmc',
                     '--clusterrole=admin',
                     '--serviceaccount=%s:a-virtbmc' % self.namespace)
        labels = {'app': 'x'}
        self.kubectl.apply({
            'apiVersion': 'apps/v1', 'kind': 'Deployment',
            'metadata': {'name': 'b-virtbmc'}, 'spec': {
                'replicas': 0, 'selector': {'matchLabels': labels},
                'template': {'metadata': {'labels': labels}, 'spec': {
                    'containers': [{'name': 'x', 'image': 'x'}]}}}})
        self.vm('database')
        self.kubectl('create', 'secret', 'generic', 'database-bmc-state',
                     '--from-literal=password=very-secret')
        before = self.kubectl.get('secret', 'database-bmc-state')
        a = self.make('a')
        self.refused(a, 'NameTaken', 'ServiceAccount a-virtbmc')
        self.assertEqual([], self.kubectl.names(
            'deployments', '-l', operator.LABEL + 'a'))
        b = self.make('b')
        self.refused(b, 'NameTaken', 'Deployment b-virtbmc')
        self.assertEqual('x', self.kubectl.get('deployment', 'b-virtbmc')[
            'spec']['template']['spec']['containers'][0]['image'])
        # A pod's rights would name it.
        c = self.make('c', 'database')
        self.refused(c, 'NameTaken', 'Secret database-bmc-state')
        self.nothing_of('c-virtbmc')
        self.assertEqual(before, self.kubectl.get(
            'secret', 'database-bmc-state'))

    def test_secrets_of_others(self):
        self.vm()
        self.kubectl('create', 'secret', 'generic', 'token',
                     '--from-literal=token=very-secret')
        box = self.make('box', secret='token')
        self.refused(box, 'SecretIncomplete', 'username')
        self.assertNotIn('very-secret', json.dumps(box.resource))
        self.assertEqual([], self.kubectl.names('deployments'))
        # That of the operator, in its namespace.
        away = self.make('away', authSecretRef=None, virtualMachineRef=None,
                         virtualMachine={'namespace': self.namespace,
                                         'name': 'box'},
                         authSecret={'namespace': operator.NAMESPACE,
                                     'name': 'sushy-kubevirt-ca'})
        self.refused(away, 'ReferenceNotPermitted', 'allow-from')
        self.assertNotIn('away-virtbmc-auth', ' '.join(
            self.kubectl.names('secrets')))

    def test_machines_of_others(self):
        far = self.new_namespace()
        self.vm('far', namespace=far)
        # It is not told whether there is one.
        said = set()
        for name in 'far', 'none':
            bmc = self.make(
                'to-' + name, virtualMachineRef=None,
                virtualMachine={'namespace': far, 'name': name},
                authSecret={'namespace': self.namespace, 'name': 'none'})
            self.refused(bmc, 'ReferenceNotPermitted',
                         'bmc.kubevirt.io/allow-from')
            said.add(bmc.message().replace(name, 'X'))
        self.assertEqual(1, len(said), said)
        self.assertEqual([], self.admin.within(far).names(
            'roles,rolebindings,secrets'))

    def test_what_runs_and_where(self):
        self.vm()
        self.secret()
        evil = self.make('evil', secret='box-bmc', image='evil.test/evil:1')
        self.refused(evil, 'ImageNotAllowed', 'evil.test/evil:1')
        self.assertEqual([], self.kubectl.names('deployments'))
        # Text is text.
        text = "'; import os; os.abort() #"
        told = self.make('told', secret='box-bmc', virtualMedia={
            'allowedHosts': [text]})
        self.assertEqual('False', told.condition()[0])
        for one in self.kubectl.get('configmaps')['items']:
            self.assertNotIn("\n'; import", json.dumps(one['data']))

    def test_he_gains_nothing(self):
        before = self.can(self.tenant)
        self.vm()
        self.secret()
        self.tenant('create', '--validate=false', '-f', '-', stdin=json.dumps(
            operator.bmc_manifest('box', secret='box-bmc')))
        bmc = operator.Bmc(self.kubectl, 'box', 'admin', None).ready()
        self.assertEqual(before, self.can(self.tenant))
        self.assertEqual({'virtualmachinebmcs.bmc.kubevirt.io'},
                         {what for _, what in before})
        # What is said of it is the operator's alone.
        self.assertIn('forbidden', self.tenant.refused(
            'patch', 'vmbmc', 'box', '--subresource=status', '--type=merge',
            '-p', '{"status": {"serviceIP": "192.0.2.1"}}'))
        self.assertNotEqual('192.0.2.1', bmc.status['serviceIP'])
