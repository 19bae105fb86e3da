# SPDX-License-Identifier: Apache-2.0
import asyncio

from oslotest import base

from sushy_kubevirt.operator import acting
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import known
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
                self.assertEqual(wanted, acting._adopted(entries))


class AnotherTestCase(base.BaseTestCase):

    def test_another_of_that_name_is_not_written_to(self):
        there = cluster.Cluster()
        body = {'apiVersion': 'v1', 'kind': 'Service',
                'metadata': {'name': 'a', 'namespace': 'lab'},
                'spec': {'type': 'NodePort'}}
        for step in plan.Apply, plan.Replace:
            for there_is in False, True:
                if there_is:
                    there.add({**body, 'spec': {'type': 'ClusterIP'}})
                found = known.Known(there)
                with self.subTest(step=step, there_is=there_is), \
                        self.assertRaises(acting.Surprise):
                    asyncio.run(acting.Acting(there, found).act(
                        bodies.bmc(), step(body, 'other'), None, {}))
                # But it is known now.
                self.assertEqual(there_is, found.objects.get(
                    kinds.SERVICE, 'lab', 'a') is not None)
            there.remove('Service', 'lab', 'a')
        self.assertEqual([], there.writes)
