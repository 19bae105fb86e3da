# SPDX-License-Identifier: Apache-2.0
import re

from oslotest import base

from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

SERVICE = re.compile(r'[a-z]([-a-z0-9]*[a-z0-9])?')
LABEL = re.compile(r'[a-z0-9A-Z]([-._a-z0-9A-Z]*[a-z0-9A-Z])?')

ODD = ('7up', 'a.b', 'a-b', 'a', 'x' * 51, 'x' * 50, 'x' * 253,
       '1.' + 'y' * 200, 'a.b.c' * 20)


class NamingTestCase(base.BaseTestCase):

    def test_plain(self):
        self.assertEqual('node-virtbmc', naming.base('node'))
        self.assertEqual('node-virtbmc-auth', naming.auth('node'))
        self.assertEqual('node-virtbmc', naming.access('node', 'a', 'a'))
        self.assertEqual('node-virtbmc-from-a',
                         naming.access('node', 'a', 'b'))

    def test_names_that_are_none_for_a_service(self):
        made = set()
        for name in ODD:
            with self.subTest(name=name):
                for one in (naming.base(name), naming.auth(name),
                            naming.tls(name), naming.authority(name)):
                    self.assertRegex(one, SERVICE)
                    self.assertTrue(SERVICE.fullmatch(one), one)
                    self.assertLessEqual(len(one), 63)
                label = naming.label(name)
                self.assertTrue(LABEL.fullmatch(label), label)
                self.assertLessEqual(len(label), 63)
                made.add((naming.base(name), label))
        self.assertEqual(len(ODD), len(made))
        self.assertEqual(len(ODD), len({name for name, label in made}))

    def test_whose_objects(self):
        near, far = spec.read(bodies.body()), spec.read(bodies.elsewhere())
        here = naming.metadata(near, 'x')
        there = naming.metadata(far, 'x', 'far')
        other = {**there, 'labels': {
            **there['labels'], naming.NAMESPACE_LABEL: 'third'}}
        twin = {**here, 'ownerReferences': [
            {**here['ownerReferences'][0], 'uid': 'of-another'}]}
        loose = {**here, 'ownerReferences': [
            {**here['ownerReferences'][0], 'controller': False}]}
        for bmc, metadata, wanted in (
                (near, here, True), (far, there, True), (far, other, False),
                (near, twin, False), (near, loose, False),
                # Labels do not suffice where owner references are possible.
                (near, {**here, 'ownerReferences': []}, False),
                (near, {'name': 'x', 'namespace': bodies.NAMESPACE}, False),
                (far, {'name': 'x', 'namespace': 'far'}, False)):
            with self.subTest(metadata=metadata):
                self.assertEqual(wanted, naming.is_ours(
                    bmc, {'metadata': metadata}))
