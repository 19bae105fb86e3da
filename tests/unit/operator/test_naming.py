# SPDX-License-Identifier: Apache-2.0
import re

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

SERVICE = re.compile(r'[a-z]([-a-z0-9]*[a-z0-9])?')
LABEL = re.compile(r'[a-z0-9A-Z]([-._a-z0-9A-Z]*[a-z0-9A-Z])?')

ODD = ('7up', 'a.b', 'a-b', 'a', 'x' * 51, 'x' * 50, 'x' * 253,
       '1.' + 'y' * 200, 'a.b.c' * 20)


class NamingTestCase(base.BaseTestCase):

    def test_names_of_objects(self):
        self.assertEqual('node-virtbmc', naming.base('node'))
        self.assertEqual('node-virtbmc-auth', naming.auth('node'))
        self.assertEqual('node-virtbmc', naming.access('node', 'a', 'a'))
        self.assertEqual('node-virtbmc-from-a',
                         naming.access('node', 'a', 'b'))

    def test_odd_names_become_valid_service_names(self):
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

    def test_service_with_name_of_vm(self):
        def name(vm, bmc='node', by_ref=True):
            made = bodies.by_ref(bmc) if by_ref else bodies.body(bmc)
            made['spec']['virtualMachineRef' if by_ref
                         else 'virtualMachine'] = {'name': vm}
            return naming.vm_service(spec.read(made))
        self.assertEqual('vm-virtbmc', name('vm'))
        self.assertEqual('x' * 55 + '-virtbmc', name('x' * 55))
        # The BMC's own Service has the name.
        self.assertIsNone(name('vm', 'vm'))
        self.assertIsNone(name('vm', by_ref=False))
        # Not all versions of Kubernetes allow this one.
        self.assertEqual('7up-virtbmc', name('7up'))
        self.assertTrue(naming.begins_with_digit(name('7up')))
        self.assertFalse(naming.begins_with_digit(name('vm')))
        self.assertFalse(naming.begins_with_digit(None))
        for odd in ('a.b', '7.b', 'x' * 56):
            self.assertIsNone(name(odd), odd)

    def test_is_ours(self):
        near = spec.read(bodies.body())
        far = spec.read(bodies.cross_namespace())
        near_metadata = naming.metadata(near, 'x')
        far_metadata = naming.metadata(far, 'x', 'far')
        other = {**far_metadata, 'labels': {
            **far_metadata['labels'], stored_names.BMC_NAMESPACE: 'third'}}
        twin = {**near_metadata, 'ownerReferences': [
            {**near_metadata['ownerReferences'][0], 'uid': 'of-another'}]}
        loose = {**near_metadata, 'ownerReferences': [
            {**near_metadata['ownerReferences'][0], 'controller': False}]}
        for bmc, metadata, expected in (
                (near, near_metadata, True), (far, far_metadata, True),
                (far, other, False),
                (near, twin, False), (near, loose, False),
                # Labels do not suffice where owner references are possible.
                (near, {**near_metadata, 'ownerReferences': []}, False),
                (near, {'name': 'x', 'namespace': bodies.NAMESPACE}, False),
                (far, {'name': 'x', 'namespace': 'far'}, False)):
            with self.subTest(metadata=metadata):
                self.assertEqual(expected, naming.is_ours(
                    bmc, {'metadata': metadata}))
