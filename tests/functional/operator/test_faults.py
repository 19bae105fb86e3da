# SPDX-License-Identifier: Apache-2.0
"""The operator while the cluster fails."""

import random

from tests.fixtures import operator

PATHS = ('/virtualmachinebmcs', '/deployments', '/services', '/secrets',
         '/roles', '/configmaps', '/serviceaccounts', '/events', '/leases')


class FaultsTestCase(operator.OperatorTestCase):
    """The operator reaches the desired state in spite of faults."""

    SANDBOX = ('--pods', 'pretended', '--lag', '0.2')
    COUNT = 8

    def setUp(self):
        super().setUp()
        self.names = [f'box-{number}' for number in range(self.COUNT)]
        self.random = random.Random(self.id())

    def add_faults(self, *actions, every=4, count=60, **more):
        """Make every few calls of the operator fail.

        :param actions: faults to choose from at random.
        :param every: mean number of calls between two faults.
        :param count: number of faults.
        """
        after = 0
        for _ in range(count):
            after += self.random.randrange(1, every * 2)
            self.sandbox.fault(
                self.random.choice(actions), user=operator.USER, after=after,
                **{'where': '^(?!.*/leases)', **more})

    def run_life_cycle(self):
        """Create, change and delete BMCs."""
        self.vm()
        self.secret()
        self.kubectl.apply(*[
            operator.bmc_manifest(name, 'box', 'box-bmc')
            for name in self.names])
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=90s', timeout=120)
        for name in self.names:
            self.kubectl('patch', 'vmbmc', name, '--type=merge', '-p',
                         '{"spec": {"ipmi": {"enabled": false}, "service": '
                         '{"type": "NodePort"}, "redfish": '
                         '{"plainHTTP": true}}}')
        self.until('changed', lambda: {
            (one['metadata']['generation'],
             one['status'].get('observedGeneration'),
             one['status']['conditions'][-1]['status'],
             tuple(one['status'].get('endpoints') or ()))
            for one in self.kubectl.get('vmbmc')['items']},
            {(2, 2, 'True', ('redfish',))}, 60)
        for what in ('services', 'deployments', 'roles', 'configmaps'):
            self.kubectl('delete', what, '--all', '--wait=false')
        self.until('restored', lambda: [
            one for one in self.names for kind in (
                'service', 'deployment', 'role', 'configmap')
            if self.kubectl.run('get', kind, one + '-virtbmc').returncode],
            [], 60)
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=90s', timeout=120)
        self.kubectl('delete', 'vmbmc', '--all')
        self.until('nothing left', self.owned, [], 60)
        self.assertIsNone(self.operator.process.returncode)
        output = self.operator.process.output
        self.assertNotIn('Traceback', output)
        for password in self.passwords:
            self.assertNotIn(password, output)

    def test_life_cycle_with_errors(self):
        self.add_faults('500', '503', '429', '409')
        self.run_life_cycle()

    def test_life_cycle_with_lost_responses(self):
        self.add_faults('reset', 'drop-after', every=5)
        self.run_life_cycle()

    def test_life_cycle_with_broken_watches(self):
        for path in PATHS[:-1]:
            for _ in range(4):
                self.sandbox.fault('break', where=path, verb='WATCH',
                                   delay=0.5, count=3, user=operator.USER)
            self.sandbox.fault('gone', where=path, verb='WATCH',
                               user=operator.USER)
            self.sandbox.fault('500', where=path, verb='WATCH', count=2,
                               user=operator.USER)
        self.run_life_cycle()

    def test_many_bmcs_with_faults(self):
        """Many BMCs are created and deleted with their namespace."""
        self.vm()
        self.secret()
        self.add_faults('500', '503', '429', 'reset', 'drop-after', every=6,
                        count=100)
        for path in PATHS[:-1]:
            self.sandbox.fault('break', where=path, verb='WATCH', delay=1,
                               count=2, user=operator.USER)
        self.kubectl.apply(*[
            operator.bmc_manifest(f'box-{number}', 'box', 'box-bmc')
            for number in range(50)])
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=90s', timeout=120)
        self.add_faults('500', '503', '429', 'reset', 'drop-after', every=3,
                        count=50)
        self.admin('delete', 'namespace', self.namespace, '--timeout=60s')
        self.until('nothing left', lambda: self.admin.names(
            operator.OWNED, '-A', '-l', 'app.kubernetes.io/name=virtbmc'), [])

    def test_bmcs_are_ready_after_outage(self):
        self.vm()
        self.secret()
        self.kubectl.apply(*[
            operator.bmc_manifest(name, 'box', 'box-bmc')
            for name in self.names])
        self.sandbox.outage(3)
        self.until('the API', lambda: self.kubectl.run(
            'get', 'vmbmc').returncode, 0)
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=90s', timeout=120)
        self.kubectl('delete', 'vmbmc', '--all')
        self.until('nothing left', self.owned, [], 60)
