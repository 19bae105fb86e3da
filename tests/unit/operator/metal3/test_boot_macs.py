# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator.metal3 import boot_macs

A, B, C = (('lab', name) for name in 'abc')
MAC, OTHER = '02:00:00:00:00:0a', '02:00:00:00:00:0b'


def host(mac, created='2026-11-24T00:00:00Z'):
    return {'metadata': {'creationTimestamp': created},
            'spec': {'bootMACAddress': mac}}


class BootMacsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.macs = boot_macs.BootMacs()

    def test_first_bmc_gets_the_address(self):
        # Not the first by name.
        self.assertEqual(B, self.macs.claim(B, MAC))
        self.assertEqual(B, self.macs.claim(A, MAC.upper()))
        self.assertEqual(B, self.macs.claim(B, MAC))
        self.assertEqual({A}, self.macs.drop(B))
        self.assertEqual(A, self.macs.claim(B, MAC))

    def test_oldest_host_has_the_address(self):
        self.macs.claim(A, MAC)
        self.macs.put(B, host(MAC, '2026-11-24T00:00:02Z'))
        self.assertEqual(B, self.macs.claim(A, MAC))
        self.macs.put(C, host(MAC.upper(), '2026-11-24T00:00:01Z'))
        self.assertEqual(C, self.macs.owner(MAC))
        # All that may have it now are told.
        self.assertEqual({A, B}, self.macs.put(C, host(OTHER)))
        self.assertEqual(B, self.macs.owner(MAC))
        self.assertEqual({A}, self.macs.put(B, None))
        self.assertEqual(A, self.macs.owner(MAC))

    def test_host_replaces_what_its_bmc_wanted(self):
        self.macs.claim(A, MAC)
        self.macs.claim(B, MAC)
        self.macs.put(A, host(MAC))
        self.assertEqual(A, self.macs.claim(B, MAC))
        self.assertEqual(set(), self.macs.put(A, host(MAC)))

    def test_host_without_an_address(self):
        self.assertEqual(set(), self.macs.put(A, {'metadata': {}}))
        self.assertIsNone(self.macs.owner(''))
        self.assertIsNone(self.macs.owner(MAC))
