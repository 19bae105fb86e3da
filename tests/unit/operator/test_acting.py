# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import acting

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
