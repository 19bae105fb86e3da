# SPDX-License-Identifier: Apache-2.0
import asyncio

from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import executor
from sushy_kubevirt.operator import plan
from tests.unit.operator import bodies
from tests.unit.operator import cluster

OURS = 'sushy-kubevirt-operator'


def entry(manager=OURS, operation='Update', subresource='', **fields):
    made = {'manager': manager, 'operation': operation, 'fieldsV1': fields}
    if subresource:
        made['subresource'] = subresource
    return made


OTHER = entry('kubectl', a={})
STATUS = entry(subresource='status', s={})

# managedFields, what they become
CASES = (
    ([], None),
    ([OTHER], None),
    ([OTHER, STATUS], None),
    ([entry(operation='Apply', a={})], None),
    ([OTHER, entry(a={'b': {}})],
     [OTHER, entry(operation='Apply', a={'b': {}})]),
    ([entry(a={'b': {}}), OTHER, entry(operation='Apply', a={'c': {}}),
      STATUS],
     [OTHER, STATUS, entry(operation='Apply', a={'b': {}, 'c': {}})]),
)


class AdoptedTestCase(base.BaseTestCase):

    def test_cases(self):
        for entries, wanted in CASES:
            with self.subTest(entries=entries):
                self.assertEqual(wanted, executor._adopted(entries))


class AnotherTestCase(base.BaseTestCase):

    def test_another_of_that_name_is_not_written_to(self):
        kube = cluster.Cluster()
        body = {'apiVersion': 'v1', 'kind': 'Service',
                'metadata': {'name': 'a', 'namespace': 'lab'},
                'spec': {'type': 'NodePort'}}
        for step in plan.Apply, plan.Replace:
            for there_is in False, True:
                if there_is:
                    kube.add({**body, 'spec': {'type': 'ClusterIP'}})
                found = cache.Cache(kube)
                with self.subTest(step=step, there_is=there_is), \
                        self.assertRaises(executor.PlanOutdated):
                    asyncio.run(executor.Executor(kube, found).execute(
                        bodies.bmc(), step(body, 'other'), None, {}))
                # But it is known now.
                self.assertEqual(there_is, found.objects.get(
                    bmc_resources.SERVICE, 'lab', 'a') is not None)
            kube.remove('Service', 'lab', 'a')
        self.assertEqual([], kube.writes)


class StubbornTestCase(base.BaseTestCase):

    def test_a_service_that_the_cluster_will_have_so(self):
        kube = cluster.Cluster()
        body = {'apiVersion': 'v1', 'kind': 'Service',
                'metadata': {'name': 'a', 'namespace': 'lab'},
                'spec': {'type': 'ClusterIP'}}
        ref = 'Service', 'lab', 'a'
        kube.add({**body, 'metadata': {
            **body['metadata'], 'managedFields': [entry(
                'another', **{'f:spec': {'f:clusterIP': {}}})]},
            'spec': {**body['spec'], 'clusterIP': '10.0.0.7'}})
        tried = {}
        asyncio.run(executor.Executor(kube, cache.Cache(kube)).execute(
            bodies.bmc(), plan.Replace(body, kube.objects[ref]['metadata'][
                'uid']), None, tried))
        # It is what was asked for, and not what the cluster filled in.
        self.assertEqual({ref: (plan.Replace, *plan.attempt(
            body, kube.objects[ref]))}, tried)
