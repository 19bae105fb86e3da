# SPDX-License-Identifier: Apache-2.0
"""Clusters of single VMs over one cache."""

import time

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from tests.unit.machine import api


class SharedClusterTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = api.Api()
        self.api.start()
        self.addCleanup(self.api.stop)
        for name in 'ab':
            self.api.put('virtualmachines', api.vm(name))
        self.options = options.Options(reconcile=False, watch_seconds=20,
                                       read_deadline=30)
        self.shared = cluster.SharedCluster(
            self.api.connection(), self.options, ('default',))
        self.shared.start()
        self.addCleanup(self.shared.close)

    def cluster(self, name):
        made = cluster.Cluster(self.shared.connection, options=self.options,
                               vm='default/' + name, shared=self.shared)
        self.addCleanup(made.close)
        return made

    def until(self, check):
        end = time.monotonic() + 30
        while not check():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_finds_its_vm_only(self):
        a, b = self.cluster('a'), self.cluster('b')
        [machine] = a.machines()
        [other] = b.machines()
        for identity in (machine.uuid, machine.uid, 'a', 'default/a'):
            self.assertEqual('a', a.machine(identity).name)
        for identity in (other.uuid, other.uid, 'b', 'default/b'):
            self.assertRaises(errors.MachineNotFound, a.machine, identity,
                              wait=False)

    def test_closed_cluster_has_no_subscriptions(self):
        """A thread may subscribe while the cluster is closed."""
        a = self.cluster('a')
        a.wait_ready()
        end = a.subscribe(lambda *_: None)
        a.close()
        a.subscribe(lambda *_: None)
        self.assertEqual({}, self.shared.cache._callbacks)
        end()

    def test_lists_once_for_all(self):
        def calls():
            return {call: number for call, number
                    in self.shared.client.calls.items()
                    if call[1].startswith('virtualmachine')}

        self.cluster('a').machines()
        # Both watches are open.
        self.until(lambda: sum(call[0] == 'watch' and call[2] == 200
                               for call in calls()) == 2)
        before = calls()
        self.cluster('b').machines()
        self.assertEqual(before, calls())

    def test_watches_other_namespaces_with_the_options_of_all(self):
        vm = api.vm('a')
        vm['metadata']['namespace'] = 'other'
        self.api.put('virtualmachines', vm)
        made = cluster.Cluster(
            self.shared.connection, vm='other/a', shared=self.shared,
            options=self.options._replace(watch_seconds=2000))
        self.addCleanup(made.close)
        made.wait_ready()
        self.until(lambda: self.watches('other'))
        for query in self.watches('other'):
            self.assertLessEqual(int(query['timeoutSeconds']), 20)

    def watches(self, namespace):
        return [query for _method, path, query, *_ in self.api.requests
                if 'watch' in query and f'/{namespace}/' in path]

    def test_subscriber_gets_changes_of_its_vm_only(self):
        a = self.cluster('a')
        [machine] = a.machines()
        b = self.cluster('b')
        [other] = b.machines()
        seen, others = [], set(a._subscribers)
        end = a.subscribe(lambda machine, _state: seen.append(machine.name))
        self.until(lambda: seen)
        other.set_asset_tag('rack 7')
        machine.set_asset_tag('rack 8')
        self.until(lambda: len(seen) > 1)
        self.assertEqual({'a'}, set(seen))
        end()
        # Each console that is opened subscribes.
        self.assertEqual(others, a._subscribers)
        a.close()
        b.close()
        self.assertEqual({}, self.shared.cache._callbacks)
