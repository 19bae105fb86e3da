# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-cluster``: time to make, to check and to delete nodes.

Pods are ready immediately, so that the time is that of the command, the
operator and the API. ``kubectl`` applies the same manifests in turn, and waits
until the same BMCs are ready: what remains is the command's own part.
"""

import pathlib
import statistics
import subprocess
import time

import fixtures
import yaml

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.bench import enrolling
from tests.bench import operating
from tests.bench import report

_TIMEOUT = 1800


class Nodes(fixtures.Fixture):
    """A cluster file of nodes with a volume each.

    :param cluster: :class:`operating.Cluster`
    :param name: of the cluster of virtual bare metal
    :param count: number of nodes
    """

    def __init__(self, cluster, name, count):
        super().__init__()
        self.cluster = cluster
        self.name = name
        self.count = count

    def _setUp(self):
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.folder / 'cluster.yaml'
        self.file.write_text(yaml.safe_dump({
            'cluster': {'name': self.name},
            'node_name_prefix': f'{self.name}-',
            'physnet_mappings': {'physnet0': 'pod'},
            'node_types': {'small': {
                'vcpus': 1, 'memory_mb': 256, 'volumes': [{'capacity': '1Gi'}],
                'physical_networks': ['physnet0']}},
            'specs': [{'type': 'small', 'count': self.count}]}))
        self.addCleanup(self.teardown)

    def run(self, command, *words):
        """Run a subcommand; return its output and its duration in seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [process.BIN / 'sushy-kubevirt-cluster', command, self.file,
             *words, '--kubeconfig', self.cluster.sandbox.kubeconfig],
            env=process.environment(self.folder, {}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TIMEOUT)
        if done.returncode:
            raise AssertionError(f'{command}: {done.stderr}')
        return done.stdout, time.monotonic() - began

    def teardown(self):
        return self.run('teardown', '--yes', '--without-openstack')

    def by_kubectl(self):
        """Apply the manifests with kubectl; return the duration in seconds."""
        manifests = self.folder / 'manifests.yaml'
        manifests.write_text(self.run('apply', '--output', 'yaml')[0])
        user = kubectl.Kubectl(self.cluster.sandbox.kubeconfig)
        began = time.monotonic()
        user('apply', '-f', str(manifests), timeout=_TIMEOUT)
        user('wait', '--all', 'vmbmc', '--for=condition=Ready',
             f'--timeout={_TIMEOUT}s', timeout=_TIMEOUT)
        return time.monotonic() - began


def _pair(cluster, sizes):
    """Apply nodes by the command and by kubectl, in turn.

    :returns: durations of both in seconds, medians
    """
    times = {'command': [], 'kubectl': []}
    for number in range(sizes.declarations):
        for way in list(times)[::-1 if number % 2 else 1]:
            with Nodes(cluster, f'{way}-{number}', sizes.nodes) as nodes:
                times[way].append(nodes.run('apply')[1] if way == 'command'
                                  else nodes.by_kubectl())
    return {way: statistics.median(each) for way, each in times.items()}


def _single(cluster, count):
    """Return the seconds of each step in the life of one cluster."""
    with Nodes(cluster, 'one', count) as nodes:
        return {'apply': nodes.run('apply')[1],
                'unchanged': nodes.run('apply')[1],
                'teardown': nodes.teardown()[1]}


def measure(sizes, say):
    """Measure the command.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :returns: iterator of `report.Row`: what ``sizes.nodes`` nodes and single
        clusters took, and their enrolment, see `enrolling`. None without
        kubectl
    """
    if not kubectl.KUBECTL:
        say('clusters: skipped, because kubectl is not installed')
        return
    with operating.Cluster('pretended') as cluster:
        say(f'clusters: {sizes.nodes} nodes, by the command and by kubectl')
        pair = _pair(cluster, sizes)
        yield report.Row(
            f'apply {sizes.nodes} nodes', 's, median', pair['command'],
            'kubectl', pair['kubectl'], pair['command'] / pair['kubectl'])
        for count in sizes.clusters:
            say(f'clusters: {count} nodes')
            for step, seconds in _single(cluster, count).items():
                yield report.Row(f'{step}, {count} nodes', 's', seconds)
    say(f'clusters: enrol {sizes.enrolled} nodes')
    enrolled = enrolling.measure(sizes.enrolled)
    what = f'enrol {sizes.enrolled} nodes'
    for name, unit, key in (
            (what, 's', 'enrol_s'),
            (what + ', the client', 's of CPU', 'client_cpu_s'),
            (what + ', Ironic', 's of CPU', 'ironic_cpu_s'),
            (f'unchanged, {sizes.enrolled} nodes in Ironic', 's', 'again_s')):
        yield report.Row(name, unit, enrolled[key])
