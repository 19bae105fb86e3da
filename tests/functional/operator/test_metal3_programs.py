# SPDX-License-Identifier: Apache-2.0
"""Secrets, hosts and claims in the hands of baremetal-operator.

Each test runs with a stand-in for it, and with the program if there is one.
That shows what the stand-in is worth.
"""

import json

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from tests.fixtures.metal3 import programs
from tests.fixtures.metal3 import stand_in
from tests.fixtures import operator

HOSTS, TENANTS = 'bare-metal', ('tenant-a', 'tenant-b')
SECRET = 'n0-virtbmc-auth'
VIRTUAL = 'bmc.kubevirt.io/virtual'


class Metal3:
    """A mixin with the tests."""

    SANDBOX = operator.PRETENDED_PODS

    def setUp(self):
        super().setUp()
        self.admin.apply(*programs.definitions())
        for name in (HOSTS, *TENANTS):
            self.addCleanup(self.admin, 'delete', 'namespace', name)
        self.admin('apply', '-k',
                   operator.MANIFESTS / 'samples/metal3-tenancy')
        self.hosts = self.admin.within(HOSTS)
        self.useFixture(self.bare_metal_operator())
        # While baremetal-operator removes its finalizers.
        for kind in 'bmh', 'hostclaims':
            self.addCleanup(self.admin, 'delete', kind, '--all', '-A')

    def host(self, name, number, secret=None, **labels):
        if secret is None:
            secret = name + '-host'
            self.hosts.apply(operator.secret_manifest(secret, 'a', 'b'))
        self.hosts.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': name, 'labels': labels}, 'spec': {
                'online': False, 'bootMACAddress': f'52:54:00:00:00:0{number}',
                'bmc': {'credentialsName': secret, 'address':
                        f'redfish-virtualmedia+https://192.0.2.{number}'
                        '/redfish/v1/Systems/1'}}})
        self.until('available', lambda: self.hosts.get('bmh', name).get(
            'status', {}).get('provisioning', {}).get('state'), 'available')

    def claim(self, user, name, **selector):
        user('create', '--validate=false', '-f', '-', stdin=json.dumps({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostClaim',
            'metadata': {'name': name}, 'spec': {
                'poweredOn': True, 'hostSelector': selector}}))

    def associated(self, user, name):
        """:returns: (name of the host, reason) of a claim"""
        status = user.get('hostclaim', name).get('status', {})
        return status.get('bareMetalHost', {}).get('name'), next((
            one['reason'] for one in status.get('conditions', ())
            if one['type'] == 'Associated'), None)

    def test_claims_of_two_tenants(self):
        self.host('p0', 1)
        self.host('v0', 2, **{VIRTUAL: 'true'})
        a, b = (kubectl.Kubectl(self.sandbox.account('tenant', name), name)
                for name in TENANTS)
        # One whose namespace no policy admits; of both kinds.
        self.claim(self.kubectl, 'any')
        self.until('refused', lambda: self.associated(self.kubectl, 'any'),
                   (None, 'NoBareMetalHost'))
        self.claim(a, 'virtual', inNamespace=HOSTS,
                   matchLabels={VIRTUAL: 'true'})
        self.claim(b, 'physical', matchExpressions=[
            {'key': VIRTUAL, 'operator': 'notin', 'values': ['true']}])
        for user, claim, host in (a, 'virtual', 'v0'), (b, 'physical', 'p0'):
            self.until(claim, lambda: self.associated(user, claim),
                       (host, 'BareMetalHostAssociated'))
        self.claim(b, 'any')
        self.until('none left', lambda: self.associated(b, 'any'),
                   (None, 'NoBareMetalHost'))

    def secret_now(self):
        """:returns: kinds of the owners, finalizers, and the password"""
        found = self.hosts.get('secret', SECRET)
        metadata = found['metadata']
        return ([one['kind'] for one in metadata.get('ownerReferences', ())],
                metadata.get('finalizers', []), found['data']['password'])

    def test_secret_of_a_bmc(self):
        bmc = operator.bmc_manifest('n0', 'n0', None)
        self.vm('n0', namespace=HOSTS)
        self.hosts.apply(bmc)
        box = operator.Bmc(self.hosts, 'n0', 'admin', None).ready()
        owners, _, password = self.secret_now()
        self.assertEqual(['VirtualMachineBMC'], owners)
        self.host('n0', 1, SECRET)
        held = ['baremetalhost.metal3.io/secret']
        self.assertEqual((['VirtualMachineBMC', 'BareMetalHost'], held,
                          password), self.secret_now())
        self.hosts('delete', 'vmbmc', 'n0')
        self.until('host alone', self.secret_now,
                   (['BareMetalHost'], held, password))
        self.hosts.apply(bmc)
        self.until('adopted', self.secret_now, (
            ['BareMetalHost', 'VirtualMachineBMC'], held, password))
        box.ready()
        self.hosts('delete', 'bmh', 'n0')
        self.until('released', self.secret_now,
                   (['VirtualMachineBMC'], [], password))


@operator.other_platforms
@given_cluster.needs_sandbox('namespaces with the names of the sample')
class StandInTestCase(Metal3, operator.OperatorTestCase):

    def bare_metal_operator(self):
        return stand_in.StandIn(self.sandbox, redfish=False)


@operator.other_platforms
@given_cluster.needs_sandbox('namespaces with the names of the sample')
@programs.needs_programs
class BareMetalOperatorTestCase(Metal3, operator.OperatorTestCase):

    def bare_metal_operator(self):
        return programs.BareMetalOperator(self.sandbox.kubeconfig)
