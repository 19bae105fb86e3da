# SPDX-License-Identifier: Apache-2.0
"""An operator process for tests, on the in-memory cluster of `cluster`."""

import asyncio
import copy

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import certificate_authority
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import metrics
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import reconcile
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator.shared import shards
from sushy_kubevirt.operator import store
from sushy_kubevirt.operator import workqueue
from tests.unit.operator import bodies
from tests.unit.operator import cluster

KEY = bodies.NAMESPACE, 'node'
ALLOWED = {'bmc.kubevirt.io/allow-from': 'lab'}


class NoForeignObjects:
    """Stands for `foreign_objects.ForeignObjects` and watches nothing."""

    def watch(self, key, refs):
        self.refs = refs


class Operator:
    """An operator process whose cache has listed the cluster once.

    :param kube: a `cluster.Cluster`
    :param options: fields of `command_line.Options`
    """

    def __init__(self, kube, **options):
        self.kube = kube
        options = command_line.Options(**options)
        self.store = store.Store(kube, options)
        self.woken = []
        self.rollout = rollout.Rollout(options.max_unavailable,
                                       self.woken.extend)
        self.reconciler = reconcile.Reconciler(
            options, kube, self.store,
            certificate_authority.CertificateAuthority(kube, 'system'),
            self.rollout, NoForeignObjects(), shards.Shards(
                options, kube, self.store, self.rollout, self.woken.extend,
                metrics.Metrics()))
        self.sync()

    def sync(self):
        """Make the cache equal to the cluster, as the watches would."""
        for resource in (*bmc_resources.OWNED, bmc_resources.ROUTE,
                         bmc_resources.BMC):
            listed = self.kube.list(resource.kind)
            names = {(one['metadata']['namespace'], one['metadata']['name'])
                     for one in listed}
            for at in self.store.kind(resource).keys():
                if at not in names:
                    self.store.drop(resource, *at)
            for obj in listed:
                if resource == bmc_resources.BMC:
                    self.store.put_bmc(copy.deepcopy(obj))
                elif naming.made_by_us(obj):
                    self.store.put(obj)
        for kind, cached in (('VirtualMachine', self.store.machines),
                             ('Secret', self.store.secrets)):
            listed = self.kube.list(kind)
            for at in cached.keys():
                if not any((one['metadata']['namespace'],
                            one['metadata']['name']) == at for one in listed):
                    cached.discard(at)
            for obj in listed:
                cached.put(obj)

    def run(self, key=KEY):
        """Reconcile a BMC until nothing is written; retry failures."""
        for _ in range(8):
            before = len(self.kube.writes)
            self.sync()
            try:
                asyncio.run(self.reconciler.reconcile(key))
            except workqueue.Failure:
                continue
            self.sync()
            if len(self.kube.writes) == before:
                return
        raise AssertionError(
            f'still writing after 8 rounds: {self.kube.writes[-10:]}')


def conditions(kube, name='node'):
    """Return {type: (status, reason)} of a BMC."""
    status = kube.objects['VirtualMachineBMC', bodies.NAMESPACE, name][
        'status']
    return {one['type']: (one['status'], one['reason'])
            for one in status['conditions']}


def set_spec(**changes):
    """Return a function that changes fields of the spec of an object."""
    def change(body):
        body['spec'].update(changes)
        body['metadata']['generation'] += 1
    return change


def set_annotations(annotations):
    """Return a function that replaces the annotations of an object."""
    def change(obj):
        obj['metadata']['annotations'] = annotations
    return change


def cluster_with(body):
    """Return a cluster in which a user has just created a BMC.

    It has the VMs ``lab/vm`` and ``far/vm`` and a Secret ``key`` in both
    namespaces.

    :param body: dict, the VirtualMachineBMC
    """
    kube = cluster.Cluster()
    kube.add(cluster.vm())
    kube.add(cluster.vm('far', allowed='lab'))
    for at in ('lab', 'far'):
        secret = bodies.secret(at, annotations=dict(ALLOWED))
        kube.add({'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
                  **secret})
    kube.add(body)
    return kube
