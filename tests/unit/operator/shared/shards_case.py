# SPDX-License-Identifier: Apache-2.0
"""An operator of BMCs in shared pods, in a simulated cluster."""

import asyncio
import json

from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator import workqueue
from tests.unit.operator import bodies
from tests.unit.operator import cluster
from tests.unit.operator import harness

NODES = 'n0', 'n1', 'n2'


class Operator(harness.Operator):
    """An operator that writes its shards when it is told to."""

    def __init__(self, kube, **options):
        options.setdefault('bmcs_per_pod', 2)
        super().__init__(kube, **options)
        self.shards = self.reconciler._shards
        self.shards.load()

    def settle(self):
        """Reconcile all BMCs and shards until nothing is written."""
        for _ in range(12):
            before = len(self.kube.writes)
            self.sync()
            for key in sorted(self.store.bmcs()):
                self._do(self.reconciler.reconcile(key))
            for namespace, found in list(self.shards._shards.items()):
                for number in list(found):
                    self._do(self.shards.reconcile((namespace, number)))
            self.serve()
            if len(self.kube.writes) == before:
                return
        raise AssertionError(f'still writing: {self.kube.writes[-8:]}')

    @staticmethod
    def _do(coroutine):
        try:
            asyncio.run(coroutine)
        except workqueue.Failure:
            pass

    def serve(self):
        """Report all entries as served by ready pods."""
        self.sync()
        for (namespace, number), members in records(self.kube).items():
            name = naming.shared(number)
            kube = self.kube
            if ('Deployment', namespace, name) in kube.objects:
                kube.change('Deployment', namespace, name,
                            # The cluster makes each one ready.
                            lambda obj: None)
            if ('ConfigMap', namespace, name + '-served') in kube.objects:
                kube.change(
                    'ConfigMap', namespace, name + '-served',
                    lambda obj: obj.update(data={
                        one: json.dumps({'digest': entry.digest(text),
                                         'problem': ''})
                        for one, text in members.items()}))
        self.sync()
        for shard in self.shards._shards['lab'].values():
            self.shards._read_deployment(shard)
            self.shards._read_reports(shard)


def records(kube):
    """Return {(namespace, shard): {name: entry}}."""
    found = {}
    for obj in kube.list('ConfigMap'):
        number = naming.shard_of(obj)
        if number is not None and obj['metadata']['name'] == naming.shared(
                number):
            found[obj['metadata']['namespace'], number] = obj.get('data', {})
    return found


def slots(kube):
    """Return {name: (shard, slot)}, as recorded."""
    return {name: (number, json.loads(text)['slot'])
            for (_, number), members in records(kube).items()
            for name, text in members.items()}


def body(name, **fields):
    made = bodies.body(name, **{'placement': 'Shared', **fields})
    made['metadata']['uid'] = 'uid-of-' + name
    made['spec']['virtualMachine'] = {'name': name}
    return made


def cluster_with(*names):
    kube = cluster.Cluster()
    for name in names:
        kube.add(cluster.vm(name=name))
        kube.add(body(name))
    return kube
