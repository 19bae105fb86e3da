# SPDX-License-Identifier: Apache-2.0
"""The sandbox as a fixture, with what this project adds to a cluster.

Accounts of BMCs with the rights that this project's manifests grant, and
the API calls that those accounts made or were refused.
"""

from kubevirt_sandbox.testing import sandbox

from tests.functional import checkout

MANIFESTS = checkout.ROOT / 'etc' / 'kubernetes'

#: The account of emulators without an operator, in bmc.yaml.
BMC = 'emulator-virtbmc'

JSON_PATCH = sandbox.JSON_PATCH
path = sandbox.path

sandbox.GROUPS['virtualmachinebmcs'] = 'apis/bmc.kubevirt.io/v1beta1'


class Sandbox(sandbox.Sandbox):
    """A running sandbox; see the class of the same name for parameters."""

    def _setUp(self):
        super()._setUp()
        self._refused = []

    def bmc_account(self, everywhere=False):
        """Make a kubeconfig with the rights that a cluster gives a BMC.

        :param everywhere: for VMs of all namespaces.
        :returns: path of the file.
        """
        self.apply(MANIFESTS / 'base' / 'admission.yaml')
        self.apply(MANIFESTS / 'bmc.yaml')
        if everywhere:
            role = self.get('roles', 'sushy-kubevirt-bmc')
            name = {'name': 'sushy-kubevirt-bmc-everywhere'}
            self.create('clusterroles', {
                'metadata': name, 'rules': role['rules']}, None)
            self.create('clusterrolebindings', {
                'metadata': name, 'roleRef': {
                    'apiGroup': 'rbac.authorization.k8s.io',
                    'kind': 'ClusterRole', **name}, 'subjects': [{
                        'kind': 'ServiceAccount', 'namespace': 'default',
                        'name': BMC}]}, None)
        return self.account(BMC)

    def calls(self):
        """Read which API calls there were but those that need no reason.

        A watch may be due for renewal; and which feature gates there are and
        whether there is CDI, a process asks aside when it starts, or later.
        """
        calls = self.stats()['calls']
        calls.pop('watch', None)
        calls.get('list', {}).pop('kubevirts.kubevirt.io', None)
        calls.get('get', {}).pop('discovery', None)
        # An emulator writes down what it tells of a VM, and reads aside what
        # is kept of its services.
        calls.get('get', {}).pop('secrets', None)
        calls.get('create', {}).pop('events', None)
        return {verb: what for verb, what in calls.items() if what}

    def reset_stats(self):
        self._refused += self._refusals()
        self.request('DELETE', '/sandbox/stats').raise_for_status()

    def refused(self):
        """What was refused to accounts of BMCs, since the beginning.

        :returns: list of (user, verb, resource).
        """
        return sorted(set(self._refused + self._refusals()))

    def _refusals(self):
        return [(user, verb, what)
                for user, verbs in self.stats()['refused'].items()
                for verb, counted in verbs.items() for what in counted
                if user.endswith('-virtbmc')]
