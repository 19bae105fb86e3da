# SPDX-License-Identifier: Apache-2.0
"""VMs for claims of two tenants, in baremetal-operator and Ironic.

baremetal-operator's main branch of August 2026 does not give the image of a
claim to its host; the test does. Later versions do so themselves, with the
same result.
"""

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from tests.fixtures.metal3 import programs
from tests.fixtures import operator
from tests.metal3 import case

HOSTS, TENANTS = 'bare-metal', ('tenant-a', 'tenant-b')
SAMPLES = operator.MANIFESTS / 'samples/metal3-tenancy'
LABEL = 'bmc.kubevirt.io/metal3=true'


@operator.other_platforms
@given_cluster.needs_sandbox('namespaces with the names of the sample')
@programs.needs_ironic
class ClaimsTestCase(case.Metal3TestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'claim-templates'
    ARGUMENTS = ('--auto-create', LABEL, '--bare-metal-hosts', LABEL,
                 '--claim-templates', HOSTS, '--host-external-address',
                 '--host-disable-certificate-verification')

    def setUp(self):
        super().setUp()
        self.admin('apply', '-k', SAMPLES)
        for name in (HOSTS, *TENANTS):
            self.addCleanup(self.admin, 'delete', 'namespace', name)
        self.admin('apply', '-f', SAMPLES / 'template.yaml')
        self.kubectl = self.admin.within(HOSTS)

    def host_of(self, user):
        return user.get('hostclaim', 'machine').get('status', {}).get(
            'bareMetalHost', {}).get('name')

    def left(self, name):
        return [one for one in self.kubectl.names('vm,vmbmc,bmh,dv')
                if name in one]

    def test_claim_to_machine_and_back(self):
        users = [kubectl.Kubectl(self.sandbox.account('tenant', name), name)
                 for name in TENANTS]
        for user in users:
            user.apply({
                'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostClaim',
                'metadata': {'name': 'machine'}, 'spec': {
                    'poweredOn': True, 'image': self.iso, 'hostSelector': {
                        'matchLabels': {'bmc.kubevirt.io/virtual': 'true'}}}})
        self.step('two VMs with BMCs', lambda: len(
            self.kubectl.names('vmbmc')), 2)
        self.step('associated', lambda: len(
            {self.host_of(user) for user in users} - {None}), 2)
        mine, other = (self.host_of(user) for user in users)
        for name in mine, other:
            self.wait_state('available', lambda: self.host(name))
        self.merge('bmh', mine, {'spec': {'online': True, 'image': self.iso}})
        self.wait_state('provisioned', lambda: self.host(mine))
        self.sandbox.wait_boot(mine, 1, HOSTS)
        users[0]('delete', 'hostclaim', 'machine', '--wait=false')
        self.step('released', lambda: self.left(mine), [])
        self.assertEqual([f'{HOSTS}~{other}'], self.nodes())
        self.assertEqual(other, self.host_of(users[1]))
        users[1]('delete', 'hostclaim', 'machine', '--wait=false')
        self.step('released', lambda: self.left(other), [])
        self.assertEqual([], self.nodes())
