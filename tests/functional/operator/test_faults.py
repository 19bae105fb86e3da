# SPDX-License-Identifier: Apache-2.0
"""The operator while the cluster fails."""

import random

from tests.fixtures import operator

PATHS = ('/virtualmachinebmcs', '/deployments', '/services', '/secrets',
         '/roles', '/configmaps', '/serviceaccounts', '/events', '/leases')


class FaultsTestCase(operator.OperatorTestCase):
    """Whatever happens, in the end all is as it is to be."""

    SANDBOX = ('--pods', 'pretended', '--lag', '0.2')
    COUNT = 8

    def setUp(self):
        super().setUp()
        self.names = ['box-%d' % number for number in range(self.COUNT)]
        self.random = random.Random(self.id())

    def trouble(self, *actions, every=4, count=60, **more):
        """Every few calls of the operator something goes wrong."""
        after = 0
        for _ in range(count):
            after += self.random.randrange(1, every * 2)
            self.sandbox.fault(
                self.random.choice(actions), user=operator.USER, after=after,
                **{'where': '^(?!.*/leases)', **more})

    def life(self):
        """Create, change and delete."""
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
        self.until('back', lambda: [
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

    def test_errors(self):
        self.trouble('500', '503', '429', '409')
        self.life()

    def test_lost_answers(self):
        self.trouble('reset', 'drop-after', every=5)
        self.life()

    def test_watches(self):
        for path in PATHS[:-1]:
            for _ in range(4):
                self.sandbox.fault('break', where=path, verb='WATCH',
                                   delay=0.5, count=3, user=operator.USER)
            self.sandbox.fault('gone', where=path, verb='WATCH',
                               user=operator.USER)
            self.sandbox.fault('500', where=path, verb='WATCH', count=2,
                               user=operator.USER)
        self.life()

    def test_a_crowd(self):
        """Many are made, and go with their namespace, meanwhile."""
        self.vm()
        self.secret()
        self.trouble('500', '503', '429', 'reset', 'drop-after', every=6,
                     count=100)
        for path in PATHS[:-1]:
            self.sandbox.fault('break', where=path, verb='WATCH', delay=1,
                               count=2, user=operator.USER)
        self.kubectl.apply(*[
            operator.bmc_manifest('box-%d' % number, 'box', 'box-bmc')
            for number in range(50)])
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=90s', timeout=120)
        self.trouble('500', '503', '429', 'reset', 'drop-after', every=3,
                     count=50)
        self.admin('delete', 'namespace', self.namespace, '--timeout=60s')
        self.until('nothing left', lambda: self.admin.names(
            operator.OWNED, '-A', '-l', 'app.kubernetes.io/name=virtbmc'), [])

    def test_an_outage(self):
        self.vm()
        self.secret()
        self.kubectl.apply(*[
            operator.bmc_manifest(name, 'box', 'box-bmc')
            for name in self.names])
        self.sandbox.outage(3)
        self.until('api', lambda: self.kubectl.run(
            'get', 'vmbmc').returncode, 0)
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=90s', timeout=120)
        self.kubectl('delete', 'vmbmc', '--all')
        self.until('nothing left', self.owned, [], 60)
