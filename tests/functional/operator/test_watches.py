# SPDX-License-Identifier: Apache-2.0
"""Watches of the operator: one for each kind, whatever the options are."""

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures import checkout
from tests.fixtures import operator

#: Watched always; Routes where they are served.
KINDS = {
    'configmaps', 'deployments.apps', 'leases.coordination.k8s.io',
    'networkpolicies.networking.k8s.io',
    'rolebindings.rbac.authorization.k8s.io',
    'roles.rbac.authorization.k8s.io', 'secrets', 'serviceaccounts',
    'services', 'virtualmachinebmcs.bmc.kubevirt.io',
    'virtualmachines.kubevirt.io',
    *(('routes.route.openshift.io',) if operator.ON_OPENSHIFT else ())}
METAL3 = {'baremetalhosts.metal3.io', 'hostclaims.metal3.io',
          'hostdeploypolicies.metal3.io'}


@given_cluster.needs_sandbox('counted API calls')
class WatchesTestCase(operator.OperatorTestCase):
    """A cluster with Metal3; each test starts an operator of its own."""

    FOLDER = operator.MANIFESTS / 'overlays' / 'claim-templates'
    SANDBOX = operator.PRETENDED_PODS
    RUNS = False

    def setUp(self):
        super().setUp()
        self.admin('apply', '-f', checkout.ROOT
                   / 'tests/fixtures/metal3/definitions.yaml')
        self.options = (
            '--auto-create', 'bmc=auto', '--bare-metal-hosts', 'metal3=true',
            '--claim-templates', self.namespace)

    def assert_watches(self, expected, *arguments):
        """Start an operator; check how often it watches each kind."""
        self.sandbox.reset_stats()
        self.operator = self.useFixture(operator.Operator(
            self.account, arguments))
        counted = {}
        if '--claim-templates' in arguments:
            for line in 'BareMetalHosts are listed', 'HostClaims are listed':
                self.operator.process.wait_output(line)

        def rests():
            # A watch begins after the list that the log tells of.
            before = dict(counted)
            counted.update(self.sandbox.stats()['calls'].get('watch', {}))
            return counted == before and all(
                counted.get(kind, 0) >= number
                for kind, number in expected.items())
        self.until('rest', rests)
        self.assert_no_warnings()
        self.assertEqual(expected, counted)

    def test_without_options(self):
        self.assert_watches(dict.fromkeys(KINDS, 1))

    def test_all_options(self):
        self.assert_watches(dict.fromkeys(KINDS | METAL3, 1), *self.options)

    def test_namespaces(self):
        served = self.namespace, self.new_namespace()
        others = {
            'leases.coordination.k8s.io': 1, 'hostdeploypolicies.metal3.io': 1,
            # The certificate authority is in neither.
            'secrets': 3}
        self.assert_watches(
            {**dict.fromkeys(KINDS | METAL3, 2), **others}, *self.options,
            *(f'--namespace={name}' for name in served))
