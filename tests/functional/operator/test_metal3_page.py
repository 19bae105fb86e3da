# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "Metal3 on KubeVirt" work as written.

In place of Metal3's programs, a few commands between them write what those
write. With the programs of `programs`, baremetal-operator does so itself, and
clusterctl moves the host; what is not there is Cluster API.
"""

import json
import pathlib
import shutil
import signal

import fixtures
import yaml

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from tests.fixtures import base
from tests.fixtures import documents
from tests.fixtures.metal3 import programs
from tests.fixtures import operator
from tests.fixtures import sandbox

INSTALLATION, VM = 'Installation', 'A VM becomes a host'
MACHINE = 'A machine of Cluster API'
DELETING, MOVING = 'Deleting', 'Moving hosts to another cluster'

#: What baremetal-operator does with a new host, and with a deleted one.
_REGISTER = """
kubectl patch {host} --type merge \\
    --patch '{{"metadata": {{"finalizers": ["baremetalhost.metal3.io"]}}}}'
kubectl patch {host} --subresource status --type merge \\
    --patch '{{"status": {{"provisioning": {{"state": "available"}}}}}}'
"""
REGISTER = _REGISTER.format(host='bmh node-0')
REGISTER_MACHINES = ''.join(
    _REGISTER.format(host=f'--namespace workload bmh machine-{number}')
    for number in range(2))
#: The operator works in the background.
WAITING = """
REASON='{.status.conditions[?(@.type=="HostReady")].reason}'
kubectl wait vmbmc/node-0 --for=jsonpath="$REASON"=WaitingForHost --timeout=60s
"""
GONE = """
kubectl wait --for=delete vm/node-0 vmbmc/node-0 bmh/node-0 --timeout=60s
"""
RELEASE = """
kubectl patch bmh node-0 --type merge \\
    --patch '{"metadata": {"finalizers": null}}'
""" + GONE
AVAILABLE = """
kubectl wait --for=jsonpath='{.status.provisioning.state}'=available \\
    bmh/node-0 --timeout=60s
"""


class PageCase(base.FunctionalTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = self.useFixture(sandbox.Sandbox(vms=0))
        self.admin = kubectl.Kubectl(self.cluster.kubeconfig)
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        shutil.copy(self.cluster.kubeconfig,
                    self.home / 'management.kubeconfig')
        self.admin('create', 'namespace', 'clusters')
        self.admin.apply(*programs.definitions())
        self.ironic()
        # The first is the diagram.
        self.found = documents.blocks(documents.METAL3.read_text())[1:]

    def ironic(self):
        """Do what the page's installation of Metal3 does."""
        within = self.admin.within('baremetal-operator-system')
        self.admin('create', 'namespace', within.namespace)
        self.admin('apply', '-f', operator.MANIFESTS
                   / 'samples/metal3/ironic.yaml')
        within('patch', 'ironic', 'ironic', '--subresource=status',
               '--type=merge', '--patch', json.dumps({'status': {
                   'conditions': [{'type': 'Ready', 'status': 'True'}]}}))

    def follow(self, steps):
        return documents.run(steps, self.home, self.cluster.kubeconfig)

    def check(self, said):
        self.assertIn('BEGIN CERTIFICATE',
                      (self.home / 'bmcs.crt').read_text())
        self.assertRegex(said[VM], r'(?m)^node-0 .* node-0 +available ')
        self.assertEqual(
            2, len(self.admin.within('workload').names(
                'metal3machinetemplates')))
        claims = self.admin.within('tenant-a')
        self.assertEqual(3, len(claims.names('hostclaims')))
        self.assertNotIn('serviceaccount/hostclaims',
                         claims.names('serviceaccounts'))
        self.assertEqual(
            'clusters', self.admin.within('clusters').get(
                'secret', 'hostclaims')['metadata']['namespace'])
        host = self.admin.within('default').get('bmh', 'node-0')
        self.assertEqual('available', yaml.safe_load(
            host['metadata']['annotations'][
                'baremetalhost.metal3.io/status'])['provisioning']['state'])

    def another_host(self):
        """:returns: the steps that make a host, without the stand-in"""
        return [(title, text) for title, text, _ in self.found
                if title == VM][:2]


@operator.other_platforms
@given_cluster.needs_sandbox('an empty cluster, as in the document')
class PageTestCase(PageCase):

    def test_page(self):
        self.assertEqual(
            [INSTALLATION, MACHINE, MACHINE, MOVING],
            [title for title, _, runs in self.found if not runs])
        said = self.follow(self.steps())
        self.check(said)
        self.assertIn('skip-host-deprovisioning=true', said[DELETING])

    def steps(self):
        """Put the stand-in's commands between those of the page."""
        steps = []
        for title, text, runs in self.found:
            if not runs:
                continue
            if title == MOVING and 'label crd' in text:
                # Another host, as the first is deleted.
                steps += [*self.another_host(), (VM, REGISTER)]
            if title == DELETING and 'jsonpath' in text:
                steps.append((title, WAITING))
            steps.append((title, text))
            if title == VM and '--for=create' in text:
                steps.append((title, REGISTER))
            if title == MACHINE and '--for=create' in text:
                steps.append((title, REGISTER_MACHINES))
            if title == DELETING and 'skip-host' in text:
                steps.append((title, RELEASE))
        return steps


@operator.other_platforms
@given_cluster.needs_sandbox('empty clusters, as in the document')
@programs.needs_programs
class ProgramsTestCase(PageCase):

    def test_page(self):
        target = self.useFixture(sandbox.Sandbox(vms=0))
        there = kubectl.Kubectl(target.kubeconfig)
        shutil.copy(target.kubeconfig, self.home / 'target.kubeconfig')
        there.apply(*programs.definitions())
        metal3 = self.useFixture(
            programs.BareMetalOperator(self.cluster.kubeconfig))
        said = self.follow(self.steps())
        self.check(said)
        # Both claims that may have VMs get one of the template.
        hosts = self.admin.within('bare-metal')
        self.until(lambda: len(hosts.names('bmh')) == 2)
        self.until(lambda: sorted(
            one['metadata']['name'] for one in self.admin.within(
                'tenant-a').get('hostclaims')['items']
            if one['status'].get('bareMetalHost')) == ['any', 'virtual'])
        metal3.process.send(signal.SIGTERM)
        metal3.process.wait()
        move = next(text for title, text, runs in self.found
                    if title == MOVING and not runs)
        self.follow([(MOVING, 'clusterctl() { CLUSTERCTL_DISABLE_VERSIONCHECK'
                      f'=true {programs.CLUSTERCTL} "$@"; }}'),
                     (MOVING, move)])
        self.assertEqual([], self.admin.within('default').names('bmh'))
        within = there.within('default')
        self.assertEqual(['baremetalhost.metal3.io/node-0'],
                         within.names('bmh'))
        self.assertIn('secret/node-0-virtbmc-host', within.names('secrets'))
        bmc = operator.Bmc(self.admin.within('default'), 'node-0', None, None)
        self.until(lambda: next(
            one['reason'] for one in bmc.status['conditions']
            if one['type'] == 'HostReady') == 'HostMoved')

    def steps(self):
        """Leave out what a deletion shows that takes long."""
        steps = []
        for title, text, runs in self.found:
            if not runs or title == DELETING and 'delete vm' not in text:
                continue
            if title == MOVING and 'label crd' in text:
                steps += [*self.another_host(), (VM, AVAILABLE)]
            steps.append((title, text))
            if title == DELETING:
                steps.append((title, GONE))
        return steps
