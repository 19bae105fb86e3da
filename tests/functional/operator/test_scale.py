# SPDX-License-Identifier: Apache-2.0
"""Many BMCs at the same time.

The pods of two hundred BMCs only exist as objects that the sandbox reports
as running. The number of BMCs with real processes is limited by the memory
and the time that a test may use.
"""

import time

from testtools import content

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import machines
from tests.fixtures import operator


@given_cluster.needs_sandbox('pods that start at once, for many BMCs')
class ManyBmcsTestCase(operator.OperatorTestCase):
    """All BMCs become ready and leave no objects."""

    SANDBOX = ('--pods', 'pretended')
    COUNT = 200
    SECONDS = 90

    def manifests(self, namespace):
        """Yield VMs, Secrets and BMCs."""
        for number in range(self.COUNT):
            name = f'box-{number}'
            yield machines.vm(name, 'Halted', namespace)
            yield operator.secret_manifest(name + '-bmc')
            yield operator.bmc_manifest(name, secret=name + '-bmc')

    def unready(self):
        return [one['metadata']['name']
                for one in self.sandbox.request(
                    'GET', '/apis/bmc.kubevirt.io/v1beta1/namespaces/'
                    f'{self.namespace}/virtualmachinebmcs').json()['items']
                if not any(
                    (condition['type'], condition['status']) == (
                        'Ready', 'True') for condition in (
                        one.get('status') or {}).get('conditions') or ())]

    def remaining(self, namespace):
        """List objects of the operator in all namespaces."""
        return [line for line in self.admin(
            'get', operator.OWNED + ',vmbmc', '-A', '-o', 'name').split()
            if 'virtbmc' in line or 'box-' in line]

    def test_many_bmcs_at_once(self):
        mark = self.operator.process.mark()
        self.sandbox.reset_stats()
        objects = list(self.manifests(self.namespace))
        for one in objects:
            plural = {'VirtualMachine': 'virtualmachines',
                      'Secret': 'secrets'}.get(one['kind'])
            if plural:
                self.sandbox.create(plural, one, self.namespace)
        began = time.monotonic()
        self.kubectl.apply(*[one for one in objects
                             if one['kind'] == 'VirtualMachineBMC'])
        self.until('ready', self.unready, [], self.SECONDS)
        self.took = time.monotonic() - began
        self.addDetail('ready', content.text_content(
            f'{self.COUNT} in {self.took:.1f} s'))
        self.assert_no_warnings(mark)
        self.check_bmcs()
        self.admin('delete', 'namespace', self.namespace, '--timeout=120s',
                   timeout=150)
        self.until('nothing left', lambda: self.remaining(self.namespace),
                   [])
        self.assert_no_warnings(mark)
        self.assertEqual({}, self.sandbox.stats()['refused'])
        # No Deployment was created twice.
        calls = self.sandbox.stats()['calls']
        self.assertLessEqual(
            calls['create'].get('deployments.apps', 0), self.COUNT)

    def check_bmcs(self):
        """Run further checks while all BMCs exist."""


class ManyRealBmcsTestCase(ManyBmcsTestCase):
    """BMCs with processes, used by clients."""

    SANDBOX = ()
    COUNT = 12

    def check_bmcs(self):
        for number in range(0, self.COUNT, 5):
            bmc = operator.Bmc(self.kubectl, f'box-{number}', 'admin',
                               'password')
            self.assertEqual('Off', bmc.works())
