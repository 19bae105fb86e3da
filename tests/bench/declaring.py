# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-cluster``: time to make, to check and to delete nodes.

Pods are ready immediately, so that the time is that of the command, the
operator and the API. ``kubectl`` applies the same manifests in turn, and waits
until the same BMCs are ready: what remains is the command's own part.
"""

import functools
import itertools
import pathlib
import subprocess
import time

import fixtures
import yaml

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.bench import enrolling
from tests.bench import operating
from tests.bench import report
from tests.bench import rounds

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


def _apply(cluster, number, sizes, what, way):
    """Apply nodes by the command or by kubectl."""
    with Nodes(cluster, f'{way}-{next(number)}', sizes.nodes) as nodes:
        return {(what, 's, median'): nodes.by_kubectl() if way == 'kubectl'
                else nodes.run('apply')[1]}


def measure(sizes, say):
    """Measure the command.

    :returns: iterator of `report.Row`: what ``sizes.nodes`` nodes and single
        clusters took, and their enrolment, see `enrolling`. None without
        kubectl
    """
    if not kubectl.KUBECTL:
        say('clusters: skipped, because kubectl is not installed')
        return
    with operating.Cluster('pretended') as cluster:
        what = f'apply {sizes.nodes} nodes'
        number = itertools.count()
        yield from rounds.compare(what, [
            rounds.Side(way, functools.partial(
                _apply, cluster, number, sizes, what, way))
            for way in ('ours', 'kubectl')], sizes.declarations, say)
        for count in sizes.clusters:
            say(f'clusters: {count} nodes')
            with Nodes(cluster, 'single', count) as nodes:
                for step, seconds in (('apply', nodes.run('apply')[1]),
                                      ('unchanged', nodes.run('apply')[1]),
                                      ('teardown', nodes.teardown()[1])):
                    yield report.Row(f'{step}, {count} nodes', 's', seconds)
    say(f'clusters: enrol {sizes.enrolled} nodes')
    yield from enrolling.measure(sizes.enrolled)
