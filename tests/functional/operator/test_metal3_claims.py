# SPDX-License-Identifier: Apache-2.0
"""VMs that the operator creates for HostClaims.

The tests do what baremetal-operator does with claims and hosts.
"""

import itertools
import json

import yaml

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from tests.fixtures import access_case
from tests.fixtures import checkout
from tests.fixtures.metal3 import programs
from tests.fixtures.metal3 import stand_in
from tests.fixtures import operator
from tests.fixtures import operator_kills

DEFINITIONS = checkout.ROOT / 'tests/fixtures/metal3/definitions.yaml'
ACCESS = operator.MANIFESTS / 'components/claim-templates/access.yaml'
AT = 'bare-metal'
MARK = 'bmc.kubevirt.io/claim-template'
LIMIT = 'bmc.kubevirt.io/claim-limit'
#: What baremetal-operator keeps on hosts.
METAL3 = 'baremetalhost.metal3.io'


class Claims(operator.OperatorTestCase):
    """Tests with a template and a policy that admits the test's namespace."""

    FOLDER = operator.MANIFESTS / 'overlays' / 'claim-templates'
    ARGUMENTS = ('--auto-create', 'metal3=true', '--bare-metal-hosts',
                 'metal3=true', '--host-label', 'size', '--claim-templates',
                 AT, '--claim-limit', '2')
    SANDBOX = operator.PRETENDED_PODS

    def setUp(self):
        super().setUp()
        self.admin('apply', '-f', DEFINITIONS)
        self.infra = self.admin.within(AT)
        self.admin('create', 'namespace', AT)
        self.addCleanup(self.remove_infra)
        self.template()
        self.policy(self.namespace)

    def remove_infra(self):
        for kind in 'bmh', 'vmbmc', 'vm':
            for name in self.infra.names(kind):
                self.merge_if_there(name, {'metadata': {'finalizers': None}})
        self.admin('delete', 'namespace', AT)

    def template(self, name='small', size='small', **annotations):
        vm = machines.vm(name, 'Halted', AT)
        vm['metadata'].update(
            labels={'metal3': 'true', 'size': size},
            annotations={MARK: 'true', **annotations})
        vm['spec']['dataVolumeTemplates'] = [{
            'metadata': {'name': 'root'}, 'spec': {
                'source': {'blank': {}}, 'storage': {
                    'accessModes': ['ReadWriteOnce'],
                    'resources': {'requests': {'storage': '1Gi'}}}}}]
        vm['spec']['template']['spec']['volumes'][0] = {
            'name': 'root', 'dataVolume': {'name': 'root'}}
        self.infra.apply(vm)

    def policy(self, *names, name='tenants', **more):
        self.infra.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostDeployPolicy',
            'metadata': {'name': name}, 'spec': {
                'hostClaimNamespaces': {'names': names, **more}}})

    def claim(self, name='c0', tenant=None, unmet=True, **selector):
        tenant = tenant or self.kubectl
        tenant.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostClaim',
            'metadata': {'name': name, 'finalizers': ['metal3.io/hostclaim']},
            'spec': {'poweredOn': True, 'hostSelector': {
                'matchLabels': selector or {'size': 'small'}}}})
        if unmet:
            self.status(name, tenant, False)
        return tenant.get('hostclaim', name)['metadata']['uid']

    def make(self, name, tenant=None):
        (tenant or self.kubectl).apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostClaim',
            'metadata': {'name': name}, 'spec': {
                'poweredOn': True, 'hostSelector': {
                    'matchLabels': {'size': 'small'}}}})

    def status(self, name, tenant, met, host=None):
        """Write the status of a claim, as baremetal-operator does."""
        status = {'conditions': [{
            'type': 'Associated', 'status': str(met), 'reason':
            'BareMetalHostAssociated' if met else 'NoBareMetalHost',
            'message': '', 'lastTransitionTime': '2026-01-01T00:00:00Z'}]}
        if host:
            status['bareMetalHost'] = {'namespace': AT, 'name': host}
        (tenant or self.kubectl)(
            'patch', 'hostclaim', name, '--type=merge',
            '--subresource=status', '-p', json.dumps({'status': status}))

    def drop_claim(self, name='c0', tenant=None):
        """Delete a claim, as its user and baremetal-operator do."""
        tenant = tenant or self.kubectl
        tenant('delete', 'hostclaim', name, '--wait=false')
        for host in self.infra.get('bmh')['items']:
            ref = host['spec'].get('consumerRef') or {}
            if (ref.get('name'), ref.get('namespace')) == (
                    name, tenant.get('hostclaim', name)['metadata'][
                        'namespace']):
                self.merge_if_there('bmh/' + host['metadata']['name'],
                                    {'spec': {'consumerRef': None}})
        tenant('patch', 'hostclaim', name, '--type=merge', '-p',
               '{"metadata": {"finalizers": null}}')

    def merge(self, kind, name, patch):
        self.infra('patch', kind, name, '--type=merge', '-p',
                   json.dumps(patch))

    def merge_if_there(self, name, patch):
        """Change an object that the operator may be deleting."""
        done = self.infra.run('patch', name, '--type=merge', '-p',
                              json.dumps(patch))
        if done.returncode != 0:
            self.assertIn('(NotFound)', done.stderr)

    def vms(self):
        """Return the names of the VMs of claims."""
        return sorted(one['metadata']['name'] for one in self.infra.get(
            'vm', '-l', 'bmc.kubevirt.io/claim-uid')['items'])

    def wait_vms(self, number=1, seconds=60):
        self.until('VMs', lambda: len(self.vms()), number, seconds)
        return self.vms()

    def wait_seen(self):
        """Wait until the operator has seen the changes of VMs so far.

        It may see a later claim earlier, but not a later VM, for which it
        makes a BMC.
        """
        name = f'seen-{len(self.kubectl.names("vm"))}'
        self.vm(name)
        self.kubectl('label', 'vm', name, 'metal3=true')
        self.until('BMC', lambda: bool(self.kubectl.names('vmbmc', name)))

    def hosts(self):
        return self.infra.names('bmh')

    def wait_host(self, name):
        self.until('host', lambda: (
            f'baremetalhost.metal3.io/{name}' in self.hosts()))
        return self.infra.get('bmh', name)

    def wait_nothing(self):
        self.until('nothing is left', lambda: (
            self.hosts(), self.vms(), self.infra.names('vmbmc')),
            ([], [], []))
        self.assertEqual([], [one for one in self.infra.names('dv')
                              if 'small-' in one])

    def events(self, name='c0', tenant=None):
        return [(one['reason'], one['message'])
                for one in (tenant or self.kubectl).get('events')['items']
                if (one['involvedObject']['kind'],
                    one['involvedObject']['name']) == ('HostClaim', name)]

    def wait_event(self, reason, *texts, name='c0', tenant=None):
        self.until(reason, lambda: reason in dict(self.events(name, tenant)))
        message = dict(self.events(name, tenant))[reason]
        for text in texts:
            self.assertIn(text, message)


@operator.other_platforms
@given_cluster.needs_sandbox('a namespace with the name of the overlay')
class ClaimsTestCase(Claims):

    def test_claim_to_host_and_back(self):
        uid = self.claim()
        name, = self.wait_vms()
        made = self.wait_host(name)
        self.assertEqual(
            {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostClaim',
             'namespace': self.namespace, 'name': 'c0'},
            made['spec']['consumerRef'])
        self.assertEqual('small', made['metadata']['labels']['size'])
        vm = self.infra.get('vm', name)
        self.assertEqual(uid, vm['metadata']['labels'][
            'bmc.kubevirt.io/claim-uid'])
        inner = vm['spec']['template']['spec']
        self.assertEqual(
            inner['domain']['devices']['interfaces'][0]['macAddress'],
            made['spec']['bootMACAddress'])
        self.assertIn(f'datavolume.cdi.kubevirt.io/{name}-0',
                      self.infra.names('dv'))
        # The template has neither BMC nor host, in spite of its labels.
        self.assertEqual(['virtualmachinebmc.bmc.kubevirt.io/' + name],
                         self.infra.names('vmbmc'))
        # The host is deleted first, while BMC and VM are kept.
        self.status('c0', None, True, name)
        self.merge('bmh', name, {'metadata': {'finalizers': [METAL3]}})
        self.drop_claim()
        self.until('deletion', lambda: 'deletionTimestamp' in self.infra.get(
            'bmh', name)['metadata'])
        self.assertIn('deployment.apps/' + name + '-virtbmc',
                      self.infra.names('deploy'))
        self.assertNotIn('deletionTimestamp',
                         self.infra.get('vm', name)['metadata'])
        self.merge('bmh', name, {'metadata': {'finalizers': None}})
        self.wait_nothing()
        self.assertEqual([], self.events())

    def test_claims_that_get_none(self):
        """Each is followed by one that does, which proves the wait."""
        other = self.admin.within(self.new_namespace())
        self.claim('met', unmet=False)
        self.claim('large', size='large')
        self.claim('foreign', other)
        self.claim('odd', **{'bmc.kubevirt.io/virtual': 'false'})
        self.claim()
        self.wait_vms()
        # A policy admits the other namespace, and then a template is made.
        self.policy(name='more', nameMatches='^n-', names=None)
        self.wait_vms(2)
        self.claim('last', other, size='large')
        self.template('large', 'large')
        self.wait_vms(4)
        self.assertEqual(4, len({
            self.infra.get('vm', name)['spec']['template']['spec']['domain'][
                'devices']['interfaces'][0]['macAddress']
            for name in self.vms()}))

    def test_labels_of_a_namespace(self):
        self.policy(hasLabels=[{'name': 'tier', 'value': 'x'}], names=None)
        self.admin('label', 'namespace', self.namespace, 'tier=x')
        self.claim()
        self.wait_vms()

    def test_limits(self):
        for name in 'c0', 'c1':
            self.claim(name)
        self.wait_vms(2)
        self.claim('c2')
        self.wait_event('ClaimLimitReached', 'may have 2 VMs', name='c2')
        self.drop_claim('c0')
        self.until('another', lambda: len(self.vms_of('c2')), 1)
        self.infra('annotate', 'vm', 'small', LIMIT + '=2')
        self.wait_seen()
        other_name = self.new_namespace()
        other = self.admin.within(other_name)
        self.policy(self.namespace, other_name)
        self.claim('c3', other)
        self.wait_event('NoTemplate', 'small has its 2 VMs', name='c3',
                        tenant=other)
        self.infra('annotate', 'vm', 'small', LIMIT + '-')
        self.wait_vms(3)

    def vms_of(self, name):
        return [one for one in self.infra.get(
            'vm', '-l', 'bmc.kubevirt.io/claim-uid')['items']
            if one['metadata']['annotations']['bmc.kubevirt.io/claim']
            == f'{self.namespace}/{name}']

    def test_quota(self):
        self.infra.apply({
            'apiVersion': 'v1', 'kind': 'ResourceQuota',
            'metadata': {'name': 'few'}, 'spec': {'hard': {
                'count/virtualmachines.kubevirt.io': '1'}}})
        self.claim()
        self.wait_event('VirtualMachineRefused', 'exceeded quota: few',
                        'count/virtualmachines.kubevirt.io')
        self.infra('delete', 'quota', 'few')
        self.wait_vms()

    def test_quota_of_disks(self):
        """KubeVirt reports what CDI, or the API server, refuses."""
        self.wait_disk('root')
        for number, (resource, limit) in enumerate((
                ('requests.storage', '1Gi'), ('persistentvolumeclaims', '1'),
                ('count/datavolumes.cdi.kubevirt.io', '1'))):
            self.infra.apply({
                'apiVersion': 'v1', 'kind': 'ResourceQuota',
                'metadata': {'name': 'few'},
                'spec': {'hard': {resource: limit}}})
            self.claim(f'c{number}')
            name, = self.wait_vms()
            self.wait_event('VirtualMachineFailed', f'VM {name}',
                            'exceeded quota: few', f'{resource}={limit}',
                            name=f'c{number}')
            self.infra('delete', 'quota', 'few')
            self.wait_disk(f'{name}-0')
            self.drop_claim(f'c{number}')
            self.wait_nothing()

    def wait_disk(self, name):
        self.until('disk', lambda: f'persistentvolumeclaim/{name}'
                   in self.infra.names('pvc'))

    def test_templates(self):
        """A change of a template affects later VMs; an unsafe one is told."""
        self.claim()
        first, = self.wait_vms()
        spec = self.infra.get('vm', first)['spec']
        self.merge('vm', 'small', {'spec': {'template': {'spec': {
            'domain': {'memory': {'guest': '2Gi'}}}}}})
        self.wait_seen()
        self.claim('c1')
        second = next(iter({*self.wait_vms(2)} - {first}))
        self.assertEqual('2Gi', self.infra.get('vm', second)['spec'][
            'template']['spec']['domain']['memory']['guest'])
        self.assertEqual(spec, self.infra.get('vm', first)['spec'])
        self.drop_claim('c1')
        self.wait_vms(1)
        self.merge('vm', 'small', {'spec': {'dataVolumeTemplates': None}})
        self.wait_seen()
        self.claim('c2')
        self.wait_event('NoTemplate', 'would share volume root', name='c2')
        self.infra('delete', 'vm', 'small')
        self.drop_claim('c2')
        self.assertEqual([first], self.vms())

    def test_host_of_another_claim(self):
        self.claim()
        name, = self.wait_vms()
        self.wait_host(name)
        self.claim('c1', unmet=False)
        self.merge('bmh', name, {'spec': {'consumerRef': {'name': 'c1'}}})
        self.until('claim', lambda: len(self.vms_of('c1')), 1)
        # The first one gets another VM, and takes none with it.
        self.wait_vms(2)
        self.status('c0', None, False)
        self.drop_claim()
        self.until('one VM', self.vms, [name])

    def test_claim_that_got_another_host(self):
        self.claim()
        self.wait_vms()
        self.status('c0', None, True, 'physical')
        self.wait_nothing()

    def test_claim_made_again(self):
        self.claim()
        first = self.wait_vms()
        self.wait_host(*first)
        self.drop_claim()
        self.claim()
        self.until('another', lambda: len(self.vms()) == 1
                   and self.vms() != first)

    def test_objects_of_others(self):
        """What looks like the operator's, elsewhere or by label, is kept."""
        self.vm('fake')
        self.kubectl('label', 'vm', 'fake', 'bmc.kubevirt.io/claim-uid=x')
        self.kubectl('annotate', 'vm', 'fake',
                     f'bmc.kubevirt.io/claim={self.namespace}/none')
        self.infra('label', 'vm', 'small', 'bmc.kubevirt.io/claim-uid=x')
        self.claim()
        self.until('VM', lambda: len(self.vms_of_claims()), 1)
        self.drop_claim()
        self.until('none', self.vms_of_claims, [])
        self.assertEqual(['virtualmachine.kubevirt.io/fake'],
                         self.kubectl.names('vm'))
        self.assertEqual(['virtualmachine.kubevirt.io/small'],
                         self.infra.names('vm'))

    def vms_of_claims(self):
        return [one for one in self.vms() if one != 'small']


@operator.other_platforms
@given_cluster.needs_sandbox('a namespace with the name of the overlay')
class ClaimsAccountTestCase(Claims, access_case.AccessTestCase):

    def test_rights(self):
        """The operator uses all rights of the component, and no others."""
        self.policy(hasLabels=[{'name': 'tier'}], names=None)
        self.admin('label', 'namespace', self.namespace, 'tier=x')
        self.claim()
        self.wait_host(*self.wait_vms())
        self.drop_claim()
        self.wait_nothing()
        self.assert_nothing_denied()
        given = set(access_case.of_rules(
            one['value'] for one in yaml.safe_load(ACCESS.read_text())))
        self.assertEqual(set(), given - self.used(operator.USER))
        kinds = {'hostclaims.metal3.io', 'hostdeploypolicies.metal3.io',
                 'namespaces'}
        has = set(self.can(kubectl.Kubectl(self.account)))
        self.assertEqual(set(), given - has)
        self.assertEqual({one for one in given if one[1] in kinds},
                         {one for one in has if one[1] in kinds})


class Bound:
    """Tests in which the claims are in the hands of baremetal-operator."""

    def host_of(self, name, tenant=None):
        return (tenant or self.kubectl).get('hostclaim', name).get(
            'status', {}).get('bareMetalHost', {}).get('name')

    def test_claims_of_two_tenants(self):
        self.admin.apply(*programs.definitions())
        self.useFixture(self.bare_metal_operator())
        other_name = self.new_namespace()
        other = self.admin.within(other_name)
        self.policy(self.namespace, other_name)
        # Of another length: the longest name.
        far = f"{'c.' * 126}c"
        self.make('c0')
        self.make(far, other)
        self.until('hosts', lambda: sorted(
            one or '' for one in (self.host_of('c0'), self.host_of(
                far, other))) == self.vms() != [], seconds=60)
        self.assertEqual(2, len(self.vms()))
        mine = self.host_of('c0')
        # The operator has bound the host before it had a status.
        self.until('available', lambda: self.infra.get('bmh', mine).get(
            'status', {}).get('provisioning', {}).get('state'), 'available')
        self.kubectl('delete', 'hostclaim', 'c0')
        self.until('one VM', self.vms, [self.host_of(far, other)])
        self.assertEqual(1, len(self.hosts()))
        other('delete', 'hostclaim', far)
        self.wait_nothing()


@operator.other_platforms
@given_cluster.needs_sandbox('a namespace with the name of the overlay')
class StandInTestCase(Bound, Claims):

    def bare_metal_operator(self):
        return stand_in.StandIn(self.sandbox, redfish=False)


@operator.other_platforms
@given_cluster.needs_sandbox('a namespace with the name of the overlay')
@programs.needs_programs
class BareMetalOperatorTestCase(Bound, Claims):

    def bare_metal_operator(self):
        return programs.BareMetalOperator(self.sandbox.kubeconfig)


@operator.other_platforms
@given_cluster.needs_sandbox('faults')
class KilledTestCase(operator_kills.Kills, Claims):
    """A stand-in for baremetal-operator binds and releases the hosts.

    A host is deprovisioned only while the Service of its BMC exists.
    """

    def setUp(self):
        super().setUp()
        self.metal3 = self.useFixture(stand_in.StandIn(self.sandbox, False))

    def host(self):
        """Return the only host, with an empty one's fields."""
        found = self.infra.get('bmh')['items'] or [{}]
        self.assertEqual(1, len(found))
        return {'status': {'provisioning': {'state': ''}}, **found[0]}

    def is_bound(self):
        """Tell whether the claim has a host that is available."""
        state = self.host()['status']['provisioning']['state']
        return state == 'available' and 'bareMetalHost' in self.kubectl.get(
            'hostclaim', 'c0').get('status', {})

    def provision(self):
        """Run the image of a tenant on the host's VM."""
        name = self.host()['metadata']['name']
        self.merge('vm', name, {'spec': {'runStrategy': 'Always'}})
        self.merge('bmh', name, {'spec': {'online': True, 'image': {
            'url': 'http://192.0.2.1/live.iso', 'format': 'live-iso'}}})
        self.until('provisioned', lambda: self.host()['status'][
            'provisioning']['state'], 'provisioned')
        self.until('running', lambda: len(self.infra.names('vmi')), 1)
        return self.metal3.states[AT, name]

    def assert_one_vm(self, writes):
        self.assertEqual(
            (1, 1), (len(self.vms()), len(self.infra.names('vmbmc'))), writes)

    def test_killed_while_created(self):
        self.start()
        for writes in itertools.count(1):
            self.allow_writes(writes)
            self.make('c0')
            made = self.kill_after_writes(self.is_bound)
            self.start()
            self.until(f'host, after {writes}', self.is_bound)
            self.assert_one_vm(writes)
            self.kubectl('delete', 'hostclaim', 'c0')
            self.wait_nothing()
            if made:
                break
        self.assertGreater(writes, 15)

    def test_killed_while_released(self):
        self.start()
        for writes in itertools.count(1):
            self.make('c0')
            self.until(f'host, before {writes}', self.is_bound)
            states = self.provision()
            seen = len(states)
            self.allow_writes(writes)
            self.kubectl('delete', 'hostclaim', 'c0')
            gone = self.kill_after_writes(lambda: not self.vms())
            self.start()
            self.wait_nothing()
            self.until('nothing runs', lambda: self.infra.names('vmi'), [])
            self.assertEqual(['deprovisioning', stand_in.POWERING_OFF,
                              'deleting'], states[seen:], writes)
            if gone:
                break
        self.assertGreater(writes, 8)
