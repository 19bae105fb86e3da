# SPDX-License-Identifier: Apache-2.0
"""A host that clusterctl moves to another API server, with another Ironic."""

import json
import os
import pathlib
import signal
import subprocess

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.fixtures import ironic
from tests.fixtures.metal3 import programs
from tests.fixtures import operator
from tests.fixtures import sandbox
from tests.metal3 import case

PAUSED = 'baremetalhost.metal3.io/paused'
CLUSTERCTL = 'clusterctl.cluster.x-k8s.io'


@operator.other_platforms
@given_cluster.needs_sandbox('a second API server')
@programs.needs_ironic
@programs.needs_programs
class MoveTestCase(case.Metal3TestCase):

    def setUp(self):
        super().setUp()
        self.target = self.useFixture(sandbox.Sandbox(vms=0))
        self.there = kubectl.Kubectl(self.target.kubeconfig, self.namespace)
        kubectl.Kubectl(self.target.kubeconfig).apply(*programs.definitions())

    def move(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        done = subprocess.run(
            [programs.CLUSTERCTL, 'move', '--namespace', self.namespace,
             '--kubeconfig', str(self.sandbox.kubeconfig),
             '--to-kubeconfig', str(self.target.kubeconfig)],
            env=process.environment(home, {
                'CLUSTERCTL_DISABLE_VERSIONCHECK': 'true',
                'PATH': os.environ['PATH']}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=180)
        self.assertEqual(0, done.returncode, done.stdout)

    def moved(self):
        return self.there.get('bmh', 'n0')

    def test_host_in_the_target(self):
        """The target's Ironic provisions the VM by the BMC in the source."""
        self.make()
        self.wait_state('available')
        self.metal3.process.send(signal.SIGTERM)
        self.metal3.process.wait()
        for plural, more in (('baremetalhosts', (
                CLUSTERCTL + '/move-hierarchy=',)), ('hardwaredata', ())):
            self.admin('label', 'crd', plural + '.metal3.io',
                       CLUSTERCTL + '=', *more)
        status = self.host()['status']
        self.kubectl('annotate', 'bmh', 'n0', PAUSED + '=',
                     'baremetalhost.metal3.io/status=' + json.dumps(status))
        self.wait_condition('HostPaused')
        self.move()
        self.wait_condition('HostMoved')
        self.step('moved', self.hosts, [])
        services = self.useFixture(ironic.Ironic(programs.IRONIC))
        self.useFixture(programs.BareMetalOperator(
            self.target.kubeconfig, services.url))
        self.there('annotate', 'bmh', 'n0', PAUSED + '-')
        self.step('status', lambda: self.moved().get('status', {}).get(
            'hardware'), status['hardware'])
        self.there('patch', 'bmh', 'n0', '--type=merge', '-p', json.dumps({
            'spec': {'online': True, 'image': self.iso}}))
        self.wait_state('provisioned', self.moved)
        self.sandbox.wait_boot('n0', 1, self.namespace)
        self.there('delete', 'bmh', 'n0', '--wait=false')
        self.step('deleted', lambda: self.there.names('bmh'), [])
        self.sandbox.wait_stopped('n0', self.namespace)
        self.assertEqual([], list(services.baremetal.nodes()))
