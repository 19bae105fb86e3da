# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed, and an API server that fails."""

import concurrent.futures
import functools
import pathlib
import signal
import subprocess
import sys
import threading

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from sushy_kubevirt.cluster import model
from tests.fixtures import checkout
from tests.fixtures import virtual_cluster
from tests.fixtures import virtual_cluster_case


class KilledTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """A process that is killed at each of its writes."""

    def setUp(self):
        super().setUp()
        self.allow_networks()

    def run_killed(self, count, number, writes):
        """:returns: whether it was killed"""
        done = subprocess.run(
            [sys.executable, '-m', 'tests.fixtures.virtual_cluster',
             str(self.kubeconfig), str(count), str(number), str(writes)],
            cwd=checkout.ROOT, env=process.environment(process.NO_HOME),
            capture_output=True, text=True, timeout=120)
        self.assertIn(done.returncode, (0, virtual_cluster.KILLED),
                      done.stderr)
        return done.returncode == virtual_cluster.KILLED

    def deleting(self):
        return [one['metadata']['name'] for one in self.kubectl.get(
            virtual_cluster_case.KINDS)['items']
            if 'deletionTimestamp' in one['metadata']]

    def test_each_write(self):
        """Runs with one write each get as far as one that is not killed."""
        # Create two nodes and two networks; change a network and a node,
        # whose VM is recreated, and delete the other; tear down.
        for count, number, writes in (2, 1, 8), (1, 2, 8), (0, 0, 5):
            runs = 1
            while self.run_killed(count, number, 1):
                runs += 1
                self.assertLessEqual(runs, writes)
                # Otherwise the next run deletes them again.
                self.until('deletions', self.deleting, [])
            self.assertEqual(writes, runs)
            if count:
                self.assertFalse(self.user.plan(
                    virtual_cluster.generation(count, number)))
                self.assertEqual(count, len(self.uids()))
        self.check_teardown()


@given_cluster.needs_sandbox('a node of its own')
class InterruptedTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """Ctrl-C in a command that waits for a node."""

    FILE = '''
        node_types: {a: {vcpus: 1, memory_mb: 64}}
        specs: [{type: a, count: 1}]
        '''

    def test_interrupt(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'c.yaml').write_text(self.FILE)
        self.admin('cordon', 'node-0')
        self.addCleanup(self.admin, 'uncordon', 'node-0')
        running = self.useFixture(process.Process(
            ['sushy-kubevirt-cluster', 'apply', folder / 'c.yaml'],
            ready='Pod tk0.*unschedulable', timeout=60,
            env=process.environment(folder, {'KUBECONFIG': self.kubeconfig})))
        running.send(signal.SIGINT)
        self.assertEqual(130, running.wait(30))
        self.assertNotIn('Traceback', running.output)
        self.admin('uncordon', 'node-0')
        self.apply(self.read(self.FILE))
        self.check_teardown('c')


class TogetherTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """Two users of a namespace at the same time."""

    def together(self, *steps):
        """:returns: what the steps return, which begin at the same time"""
        barrier = threading.Barrier(len(steps))

        def run(step):
            barrier.wait(10)
            return step()
        with concurrent.futures.ThreadPoolExecutor(len(steps)) as pool:
            return list(pool.map(run, steps))

    def test_same_file(self):
        users = self.user, self.new_user()
        for number in 1, 2:
            made = virtual_cluster.cluster(3, vcpus=number)
            plans = [user.plan(made) for user in users]
            results = self.together(*(
                functools.partial(user.carry_out, one)
                for user, one in zip(users, plans, strict=True)))
            for result in results:
                self.assertEqual({}, result.failed)
                self.assertEqual(3, len(result.ready))
            self.assertFalse(self.user.plan(made))
        self.check_teardown()

    def test_same_file_one_after_the_other(self):
        """The second user carries out what the first has done meanwhile."""
        users = self.user, self.new_user()
        for number in 1, 2:
            made = virtual_cluster.cluster(2, vcpus=number)
            for user, one in [(user, user.plan(made)) for user in users]:
                result = user.carry_out(one)
                self.assertEqual({}, result.failed)
                self.assertEqual(2, len(result.ready))
            self.assertFalse(self.user.plan(made))

    def test_recreated_with_another_specification(self):
        self.apply(virtual_cluster.cluster(1))
        second = self.new_user()
        late = second.plan(virtual_cluster.cluster(1, vcpus=2))
        self.apply(virtual_cluster.cluster(1, vcpus=3))
        uids = self.uids()
        failed = second.carry_out(late).failed
        self.assertIn('Run plan again', failed['tk0'])
        self.assertEqual(uids, self.uids())

    def test_clusters_with_a_shared_network(self):
        """Each is a user of the network, or makes it; the last deletes it."""
        self.allow_networks()
        users = self.user, self.new_user()
        made = [virtual_cluster.cluster(1, name, prefix=name, networks=(
            model.Network('storage', 'storage', {'type': 'bridge'}, True),))
            for name in ('one', 'two')]
        for result in self.together(*(
                functools.partial(user.apply, one)
                for user, one in zip(users, made, strict=True))):
            self.assertEqual({}, result.failed)
        for one in made:
            self.assertFalse(self.user.plan(one))
        for one, result in zip(made, self.together(*(
                functools.partial(user.teardown, one.name)
                for user, one in zip(users, made, strict=True))),
                strict=True):
            if result.failed:
                # The other has left the network meanwhile.
                self.assertEqual(['storage'], list(result.failed))
                self.assertEqual({}, self.user.teardown(one.name).failed)
        self.until('nothing is left', self.everything, self.initial)


@given_cluster.needs_sandbox('failures on request')
class FailingTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """Answers that the API server may give to any request of the user."""

    def fault(self, action, **more):
        self.sandbox.fault(action, user=':dev$', **more)

    def hits(self):
        return sum(one['hits'] for one in self.sandbox.faults()['faults'])

    def test_failures_that_pass(self):
        """Each of the user's writes fails once or twice; nothing is lost."""
        made = virtual_cluster.cluster(2)
        for count, action in enumerate(
                ('409', '429', '500', '503', 'reset', 'drop-after'), 1):
            for index in range(8):
                self.fault(action, verb='WRITE', after=index, count=1)
            self.apply(made)
            self.assertGreaterEqual(self.hits(), 5, action)
            self.sandbox.clear_faults()
            self.fault(action, verb='WRITE', count=3)
            self.check_teardown()
            self.assertEqual(3, self.hits(), action)
            self.sandbox.clear_faults()

    def test_watches_that_end(self):
        for action in 'gone', 'break', '500':
            self.fault(action, verb='WATCH', count=4, delay=0.1)
            self.apply(virtual_cluster.cluster(2))
            self.check_teardown()
            self.sandbox.clear_faults()

    def test_forbidden_write(self):
        """The node is reported, and others are not."""
        self.fault('403', verb='WRITE', where='/virtualmachines/tk1', count=1)
        result = self.user.apply(virtual_cluster.cluster(3))
        self.assertEqual(['tk1'], list(result.failed))
        self.assertIn('lacks the right to create virtualmachines',
                      result.failed['tk1'])
        self.apply(virtual_cluster.cluster(3))
        self.check_teardown()
